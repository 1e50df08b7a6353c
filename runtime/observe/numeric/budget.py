"""Account for the error that each pass adds to a model's results."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from tilewright.passes.tables import html_table, table
from tilewright.runtime.observe.numeric.reference import ErrorSize

OK, FAILED, UNCHECKED = "ok", "failed", "not checked"

#: The attributes of an ``ErrorSize``.
MEASURES = ("greatest", "mean", "scaled")


@dataclasses.dataclass(frozen=True)
class PassError:
    """The error added by a pass that changed the module (or by several, where only every n-th is checked).

    Attributes:
        passes: names of the passes.
        before: error of the results before them, None if it is not known.
        after: error after them, None if the module was not run.
        status: ``ok``, ``failed`` or ``not checked``.
        reason: why it was not checked.
    """

    passes: tuple[str, ...]
    before: ErrorSize | None
    after: ErrorSize | None
    status: str = OK
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; an infinite error is None."""
        found: dict[str, Any] = {"passes": list(self.passes), "status": self.status}
        for when, error in (("before", self.before), ("after", self.after)):
            for what in MEASURES:
                value = None if error is None else getattr(error, what)
                found[f"{what}_{when}"] = value if value is not None and math.isfinite(value) else None
        return {**found, "reason": self.reason} if self.reason else found


class ErrorBudget:
    """The steps of all modules that were checked, in order."""

    header = ("pass", *(f"{what} {when}" for what in ("max", "mean", "scaled") for when in ("before", "after")), "")

    def __init__(self) -> None:
        self.steps: list[PassError] = []

    def rows(self) -> list[list[str]]:
        """Return the lines of the table."""
        rows = []
        for step in self.steps:
            cells = [
                "-" if error is None else f"{getattr(error, what):.2f}"
                for what in MEASURES
                for error in (step.before, step.after)
            ]
            said = "" if step.status == OK else step.status + (f": {step.reason}" if step.reason else "")
            rows.append([", ".join(step.passes), *cells, said])
        return rows

    def render(self) -> str:
        """Write the table as text: errors in units in the last place of the results' types, of each element or (scaled)
        of the result's greatest element."""
        return table(self.header, self.rows())

    def as_dict(self) -> dict[str, Any]:
        """Return ``{unit, steps}``, where each step is ``{passes, status}`` with ``greatest``, ``mean`` and ``scaled``
        (those of an :class:`ErrorSize`), ``_before`` and ``_after`` it."""
        return {"unit": "units in the last place", "steps": [step.as_dict() for step in self.steps]}

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows())
