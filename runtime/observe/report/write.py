"""Write the report of a model to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.runtime.build import build_executable
from tilewright.runtime.executable import Executable
from tilewright.runtime.observe.example_inputs import example_inputs
from tilewright.runtime.observe.report.collect import collect
from tilewright.runtime.observe.report.page import page
from tilewright.runtime.packed_file import replacing
from tilewright.tensorir.errors import ArgumentValueError, TilewrightError

#: A model: as it was built, or what a build takes.
Buildable = Executable | IRModule | Function


def report(
    model: Buildable | Sequence[Buildable],
    path: str | PathLike[str],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    repeat: int = 20,
    title: str | None = None,
) -> Path:
    """Write one HTML file that shows how a model was compiled and how fast it runs, or compares two builds of it.

    It shows the time and the changes of each pass, the graph before and after fusion, each kernel with its position in
    the roofline and its code at every stage, and the memory plan. The file is self-contained and needs no network. The
    passes run once more for it, so it takes longer than a build.

    Args:
        model: an executable made by :func:`tilewright.build`; a module or a function is built first, under the current
            context. Of several, as in ``report([before, after], path)``, the page has all, and beside each other the
            settings, the passes, the kernels and the times of two.
        path: the file; an older one is replaced.
        inputs: inputs of the profiled calls, by position or by name; default: random numbers, and 1 for symbolic
            dimensions.
        repeat: the number of profiled calls.
        title: title of the page; default: the file's name.

    Returns:
        The path.

    Raises:
        OSError: the file cannot be written.
        InputError, ExecutionError: the model cannot be called with ``inputs``.
        ValueError: there is no model, or ``repeat`` is not positive.
    """
    target = Path(path)
    models = [model] if isinstance(model, (Executable, IRModule, Function)) else list(model)
    if not models:
        raise ArgumentValueError("model: expected a model, or several to compare, found an empty sequence")
    executables = [each if isinstance(each, Executable) else build_executable(each) for each in models]
    name = title if title is not None else target.stem
    given = inputs if inputs is not None or len(models) == 1 else _same_inputs(executables)
    builds = [collect(executable, given, repeat) for executable in executables]
    text = page(name, {"title": name, "builds": builds})
    with replacing(target) as file:
        file.write(text.encode())
    return target


def _same_inputs(models: Sequence[Executable]) -> Mapping[str, Any] | None:
    """Make up inputs for all models, as times compare for equal ones only; None if they have other inputs, or if made
    up ones do not suit them."""
    first = [(each.name, str(each.type)) for each in models[0].signature.inputs]
    if any([(each.name, str(each.type)) for each in model.signature.inputs] != first for model in models[1:]):
        return None
    try:
        found = example_inputs(models[0]._built)
        for model in models:
            model(*[found[argument.name] for argument in model.signature.inputs])
    except TilewrightError:
        return None
    return found
