"""``PassCounter``: count the runs of each pass."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any

from tilewright.passes.instrument import PassInstrument
from tilewright.passes.tables import table

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo


class PassCounter(PassInstrument):
    """Count the runs of each pass; pipelines, which only run other passes, are not counted.

    The counts are kept until ``reset``, across contexts. A run that failed counts.

    Attributes:
        counts: the number of runs of each pass by its name, in order of the first run.
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()

    @property
    def total(self) -> int:
        """Return the number of all runs."""
        return self.counts.total()

    def reset(self) -> None:
        """Delete the counts."""
        self.counts.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not info.pipeline:
            self.counts[info.name] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return ``{total, counts}``, the passes in order of their first run."""
        return {"total": self.total, "counts": dict(self.counts)}

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def render(self) -> str:
        """Return a table: the passes that ran most often first."""
        rows = [[name, str(count)] for name, count in self.counts.most_common()]
        return table(["pass", "runs"], [*rows, ["all", str(self.total)]])
