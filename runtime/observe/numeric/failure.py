"""Describe a failure: a pass that changed a model's results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import to_text
from tilewright.runtime.observe.numeric.compare import Mismatch
from tilewright.tensorir.errors import TilewrightError


@dataclasses.dataclass(frozen=True)
class Failure:
    """A pass after which a result is wrong.

    Attributes:
        pass_name: name of the pass.
        function: the function of the module that it changed: ``main``, or a kernel.
        operator: the operator of the graph whose value is wrong, as one line of text; empty if it was not found.
        place: its number in order of evaluation, counted from 1; 0 if it is not known.
        operators: number of operators of the graph.
        element: the element of its value with the largest error relative to its tolerance; None if the module does not
            run.
        result: the same for the model's results; None if the module does not run.
        error: the error raised when the module was run; None if it ran.
        minimized: the smallest graph that shows the failure, before the passes ``pipeline``; None if none was found.
        inputs: the inputs of ``minimized``, by name.
        pipeline: the names of the passes that lead from ``minimized`` to the failure; the last one is the culprit.
        questions: number of graphs that were tried to find it.
        reproducer: the file that was written, if any.
        note: further explanation.
    """

    pass_name: str
    function: str = "main"
    operator: str = ""
    place: int = 0
    operators: int = 0
    element: Mismatch | None = None
    result: Mismatch | None = None
    error: str | None = None
    minimized: IRModule | None = None
    inputs: dict[str, Any] | None = None
    pipeline: tuple[str, ...] = ()
    questions: int = 0
    reproducer: Path | None = None
    note: str = ""

    def message(self) -> str:
        """Return the failure as text."""
        lines = [f"pass {self.pass_name} changes what the model computes"]
        lines.append(f"  function: @{self.function}")
        if self.operator:
            number = f" (operator {self.place} of {self.operators})" if self.place else ""
            lines.append(f"  operator: {self.operator}{number}")
        for what, found in (("element", self.element), ("result", self.result)):
            if found is not None:
                which = f"result {found.result}, " if what == "result" else ""
                lines.append(f"  {what}: {which}{str(found).removeprefix('element ')}")
        if self.error is not None:
            lines.append(f"  error: {self.error}")
        if self.note:
            lines.append(f"  note: {self.note}")
        if self.minimized is not None:
            lines.append(f"  smallest graph that shows it (passes: {', '.join(self.pipeline)}):")
            lines += [f"    {line}" for line in to_text(self.minimized).split("\n")]
        if self.reproducer is not None:
            lines.append(f"  reproducer: {self.reproducer}")
        return "\n".join(lines)


class NumericError(TilewrightError):
    """A pass changed the results of a model.

    Attributes:
        failure: the failure that was found.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message())
        self.failure = failure
