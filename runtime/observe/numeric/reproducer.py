"""Write a test for pytest that shows a failure: it fails as long as the pass is wrong, and passes once it is fixed.

It is self-contained: it has the graph as text, with its constants; the inputs or the seed that draws them; and the
passes, by their registered names or by imports.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import inspect
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graphir.printer import to_text
from tilewright.passes.base import Pass
from tilewright.passes.registry import get_pass, is_registered
from tilewright.runtime.observe.numeric.compare import Tolerance, ToleranceLike
from tilewright.runtime.observe.numeric.failure import Failure
from tilewright.runtime.observe.numeric.minimize import named_inputs
from tilewright.runtime.observe.numeric.replay import Replay
from tilewright.tensorir.dtype import as_dtype

if TYPE_CHECKING:
    from tilewright.runtime.observe.numeric.locate import Shown

_TEMPLATE = '''\
"""Numeric check: {title}.

{message}
"""

{imports}

#: The graph before the passes.
MODULE = {module}
{fill_in}def passes():
    """The passes that lead to the failure, in order; the last one is the culprit."""
    return [
{passes}
    ]


def inputs(mod):
    """The inputs of the graph by name."""
{inputs}


def test_{name}_keeps_the_results():
    mod = tw.graphir.parse(MODULE)
    check = tw.NumericCheck(inputs(mod), {arguments})
    context = tw.PassContext({context}, instruments=[check])
    with tw.Target({target}), context:  # raises a NumericError that says what is wrong
        for each in passes():
            assert each is not None, "a pass is to be filled in: see TODO"
            mod = each(mod)


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__]))
'''


def write_reproducer(folder: Path, failure: Failure, shown: Shown, replay: Replay) -> Path:
    """Write the file ``test_numeric_<pass>.py`` (with a number if it exists already) and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", failure.pass_name).strip("_").lower() or "pass"
    text = reproducer_text(name, failure, shown, replay)
    number = 0
    while True:
        path = folder / f"test_numeric_{name}{f'_{number}' if number else ''}.py"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            return path
        except FileExistsError:
            if path.read_text(encoding="utf-8") == text:
                return path
            number += 1


def reproducer_text(name: str, failure: Failure, shown: Shown, replay: Replay) -> str:
    """Write the text of the file."""
    sources = [pass_source(step) for step in shown.passes]
    imports = ["import pytest", "", "import tilewright as tw"]
    seeded = shown.seed is not None
    imports.append("from tilewright.runtime.observe.numeric import random_inputs" if seeded else "import numpy as np")
    if any(source.line.startswith("get_pass(") for source in sources):
        imports.append("from tilewright.passes import get_pass")
    imports += [source.imported for source in sources if source.imported]
    if not seeded:
        imports[:0] = ["import base64", "import zlib", ""]
    settings = replay.settings
    context = [f"opt_level={settings.opt_level}"]
    if settings.config:
        plain = {key: dataclasses.asdict(value) for key, value in settings.config.items()}
        context.append(f"config={plain!r}")
    arguments = [] if replay.wide else ['reference="original"']
    if replay.tolerance is not None:
        arguments.append(f"tolerance={_plain(replay.tolerance)!r}")
    if replay.evaluator.engine != "auto":
        arguments.append(f"engine={replay.evaluator.engine!r}")
    fill_in = "\n".join(f"#: TODO: {source.missing}\n{source.line} = None\n" for source in sources if source.missing)
    target = settings.target
    message = dataclasses.replace(failure, minimized=None, reproducer=None).message()
    return _TEMPLATE.format(
        title=f"pass {failure.pass_name} changes what a graph computes",
        message=message.replace("\\", "\\\\").replace('"""', "'''"),
        imports="\n".join(_sorted_imports(imports)),
        module=_literal(to_text(shown.module, "inline")),
        fill_in=f"{fill_in}\n\n" if fill_in else "\n",
        passes="\n".join(f"        {source.line}," for source in sources),
        inputs=_inputs_text(shown),
        name=name,
        arguments=", ".join([*arguments, "folder=None", "minimize=False"]),
        context=", ".join(context),
        target=f'"{target.kind}", num_threads={target.num_threads}',
    )


def _sorted_imports(lines: list[str]) -> list[str]:
    """Sort imports, and drop duplicates; empty lines stay."""
    return [line for number, line in enumerate(lines) if not line or line not in lines[:number]]


def _plain(tolerance: ToleranceLike) -> Any:
    if isinstance(tolerance, Tolerance):
        return (tolerance.rtol, tolerance.atol)
    if isinstance(tolerance, dict):
        return {str(key): _plain(value) for key, value in tolerance.items()}
    return tolerance


def _literal(text: str) -> str:
    """Write a text of several lines as readable Python source."""
    if "'''" in text or "\\" in text:
        lines = ",\n".join(f"    {line!r}" for line in text.split("\n"))
        return f'"\\n".join([\n{lines},\n])'
    return f"'''\n{text}\n'''"


def _inputs_text(shown: Shown) -> str:
    if shown.seed is not None:
        return f"    return random_inputs(mod, seed={shown.seed})"
    arrays = named_inputs(shown.module, shown.inputs.values)
    lines = [
        "    def array(dtype, shape, data):",
        "        return np.frombuffer(zlib.decompress(base64.b85decode(data)), dtype).reshape(shape)",
        "",
        "    return {",
    ]
    lines += [f"        {name!r}: {_value_text(value)}," for name, value in arrays.items()]
    return "\n".join([*lines, "    }"])


def _value_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_value_text, value))},)"
    array = np.asarray(value)
    data = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
    kind = as_dtype(array.dtype)
    dtype = f'tw.tensorir.DataType("{kind!s}").numpy'
    return f"array({dtype}, {array.shape}, {data!r})"


@dataclasses.dataclass(frozen=True)
class PassSource:
    """The source with which a file gets a pass.

    Attributes:
        line: expression for the pass.
        imported: import that the expression needs.
        missing: instructions for what the user has to fill in.
    """

    line: str
    imported: str = ""
    missing: str = ""


def pass_source(step: Pass) -> PassSource:
    """Choose the source for ``step``: by its registered name, by an import of it or of its class, or by hand."""
    name = step.info.name
    made_by = step if hasattr(step, "__qualname__") else type(step)
    module, qualname = made_by.__module__, getattr(made_by, "__qualname__", "")
    importable = module != "__main__" and _resolve(module, qualname)
    if is_registered(name) and _is_same(get_pass(name), step):
        own = module.startswith("tilewright.")
        if own or (importable is not None and importable is not False):
            return PassSource(f'get_pass("{name}")', "" if own else f"import {module}  # registers the pass {name}")
    head = qualname.split(".")[0]
    if importable is step:
        return PassSource(qualname, f"from {module} import {head}")
    if isinstance(importable, type) and importable is type(step) and _takes_nothing(importable):
        return PassSource(f"{qualname}()", f"from {module} import {head}")
    variable = re.sub(r"\W+", "_", name).strip("_").upper() or "PASS"
    where = f"{module}.{qualname}" if qualname else module
    return PassSource(variable, missing=f"put the pass {name!r} here (it was made as {where})")


def _resolve(module: str, qualname: str) -> Any:
    """Import the object of that name; None if there is none."""
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError):
        return None


def _is_same(registered: Pass, step: Pass) -> bool:
    return registered is step or (type(registered) is type(step) and not hasattr(step, "__qualname__"))


def _takes_nothing(cls: type[Any]) -> bool:
    try:
        inspect.signature(cls).bind()
    except (TypeError, ValueError):
        return False
    return True
