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
from tilewright.runtime.observe.report.collect import collect
from tilewright.runtime.observe.report.page import page
from tilewright.runtime.packed_file import replacing


def report(
    model: Executable | IRModule | Function,
    path: str | PathLike[str],
    inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    repeat: int = 20,
    title: str | None = None,
) -> Path:
    """Write one HTML file that shows how a model was compiled and how fast it runs.

    It shows the time and the changes of each pass, the graph before and after fusion, each kernel with its position in
    the roofline and its code at every stage, and the memory plan. The file is self-contained and needs no network. The
    passes run once more for it, so it takes longer than a build.

    Args:
        model: an executable made by :func:`tilewright.build`; a module or a function is built first, under the current
            context.
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
    """
    target = Path(path)
    executable = model if isinstance(model, Executable) else build_executable(model)
    name = title if title is not None else target.stem
    text = page(name, collect(executable, inputs, repeat, name))
    with replacing(target) as file:
        file.write(text.encode())
    return target
