"""``build``: from a module to a callable model, and what the environment asks for besides."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.base import Pass
from tilewright.runtime.build_executable import build_executable
from tilewright.runtime.executable import Executable
from tilewright.tensorir.target import Target

#: How many reports the environment has asked for so far.
_reports = itertools.count(1)


def build(
    mod: IRModule | Function,
    target: Target | str | None = None,
    params: Mapping[str, Any] | None = None,
    passes: Mapping[str, Pass] | None = None,
) -> Executable:
    """Compile a model.

    The passes run under :meth:`PassContext.current`, so its optimization level, required and disabled passes,
    configuration and instruments apply.

    Args:
        mod: a module whose function ``main`` is the model, or the function itself.
        target: what to generate code for, or its kind (``"llvm"``, ``"numba"``); default: :meth:`Target.current`.
        params: values for parameters of ``main`` by name; they become constants of the model.
        passes: passes of your own, by the stage whose result they take: ``graph`` (the model as given), ``optimized``,
            ``tensor``, ``scheduled`` or ``lowered``, as in :meth:`Executable.ir`. The context enables and disables them
            as it does those of a pipeline.

    Returns:
        An executable that takes the remaining parameters. Its calls are recorded if the environment says so
        (``TILEWRIGHT_PROFILE``, see ``runtime.observe.profile.switch``).

    Raises:
        TypeInferenceError: the model has no types, or ``main`` is no function of tensors.
        InputError: ``params`` names no parameter, or gives one a value of another type.
        PassError: ``passes`` names no stage.
        CodegenError: the model cannot be expressed on the target.
    """
    executable = build_executable(mod, target, params, passes)
    executable.record_if_asked()
    wanted = os.environ.get("TILEWRIGHT_REPORT")
    if wanted:
        from tilewright.runtime.observe.report.write import (
            report,  # loaded when it is asked for, as most builds are not
        )

        number = next(_reports)
        path = Path(wanted)
        report(executable, path if number == 1 else path.with_stem(f"{path.stem}-{number}"))
    return executable
