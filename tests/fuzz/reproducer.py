"""Write a finding as a test that can be run."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.fuzz.check import Build, Counts, FoundError, check
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import to_text
from tilewright.runtime.observe.numeric.minimize import minimize_with_inputs
from tilewright.tensorir.dtype import as_dtype

_TEMPLATE = '''\
"""{message}"""

import base64
import zlib

import numpy as np
import pytest

from tests.fuzz.check import Build, check
from tilewright import graphir as gi
from tilewright.tensorir.dtype import as_dtype

MODULE = r"""
{module}
"""

INPUTS = [
{inputs}
]


def array(dtype, shape, data):
    return np.frombuffer(zlib.decompress(base64.b85decode(data)), as_dtype(dtype).numpy).reshape(shape)


def test_found():
    inputs = [array(*each) for each in INPUTS]
    check(gi.parse(MODULE), [lambda: inputs]{only}, [{build!r}])


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
'''


def reproducer_text(message: str, module: IRModule, build: Build, inputs: Mapping[str, Any] | None) -> str:
    """Return the text of a test that checks ``module`` as ``build`` builds it, on these inputs; without, builds it."""
    lines = []
    for name, value in (inputs or {}).items():
        found = np.asarray(value)
        data = base64.b85encode(zlib.compress(np.ascontiguousarray(found).tobytes())).decode()
        lines.append(f"    ({str(as_dtype(found.dtype))!r}, {found.shape}, {data!r}),  # {name}")
    return _TEMPLATE.format(
        message=message.replace("\\", "\\\\").replace('"""', "'''"),
        module=to_text(module, "inline"),
        inputs="\n".join(lines),
        only="" if inputs is not None else " if INPUTS else []",
        build=build,
    )


def smallest(module: IRModule, finding: FoundError, most: int = 150) -> tuple[IRModule, dict[str, Any] | None]:
    """Return the smallest graph that shows a finding of the same kind, and its inputs.

    Args:
        module: the module that shows it.
        finding: what was found.
        most: the number of smaller modules to try.
    """
    main = module["main"]
    assert isinstance(main, gi.Function)
    inputs = None
    if finding.inputs is not None:
        inputs = {param.name: value for param, value in zip(main.params, finding.inputs, strict=True)}
    tried = 0

    def shows(candidate: IRModule, values: Mapping[str, Any]) -> bool:
        nonlocal tried
        tried += 1
        return tried <= most and (again(candidate, finding, list(values.values())) is not None)

    try:
        if inputs is None:
            from tilewright import minimize  # a module alone

            return minimize(module, lambda candidate: shows(candidate, {})), None
        found = minimize_with_inputs(module, shows, inputs)
    except Exception:  # the module cannot be made smaller
        return module, inputs
    return found.module, found.inputs


def again(module: IRModule, finding: FoundError, inputs: list[Any]) -> FoundError | None:
    """Return the finding in ``module`` if it counts as the same."""
    try:
        check(module, [lambda: inputs] if finding.inputs is not None else [], [finding.build], Counts())
    except FoundError as found:
        return found if found.signature == finding.signature else None
    return None
