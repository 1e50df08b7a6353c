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

    It holds the time of each pass, what each pass changed, the graph before and after fusion, each kernel with its
    place under the roofline and its code at every stage, and the memory plan. The file needs no network and nothing
    beside it. The passes run once more for it, so it takes longer than a build.

    Args:
        model: what :func:`tilewright.build` has made; a module or a function is built first, under the current
            context.
        path: the file; an older one is replaced.
        inputs: for the profile: by position, or by name. Without them they are made up: random numbers, and 1 for
            symbolic dimensions.
        repeat: the number of calls that the profile measures.
        title: of the page; without it the file's name.

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
