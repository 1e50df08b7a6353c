"""Show the explanations of all kernels of a model: as text, as data, and in notebooks."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.origins import Origin
from tilewright.passes.tables import format_seconds, html_table
from tilewright.runtime.observe.explain.reasons import Reason
from tilewright.tensorir.errors import ArgumentValueError


@dataclasses.dataclass(frozen=True)
class KernelExplanation:
    """The reasons for the speed of a kernel.

    Attributes:
        kernel: name of the kernel.
        origins: the operators of the graph that its calls compute.
        calls: number of its calls in the model.
        seconds: median of its seconds in a run of the model, over all its calls; None if it was not measured.
        share: this as a fraction of all kernels' seconds; None if it was not measured.
        reasons: the facts, the limit first.
        declined: the rules that declined to schedule it, each with its reason.
    """

    kernel: str
    origins: tuple[Origin, ...]
    calls: int
    seconds: float | None
    share: float | None
    reasons: tuple[Reason, ...]
    declined: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The reasons as one sentence."""
        return "; ".join(reason.text for reason in self.reasons) or "nothing is known to slow it down"

    @property
    def changes(self) -> tuple[str, ...]:
        """The settings, layouts and sizes that would change the reasons."""
        return tuple(dict.fromkeys(reason.change for reason in self.reasons if reason.change))

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {**dataclasses.asdict(self), "sentence": self.sentence, "changes": list(self.changes)}


class Explanation:
    """The reasons for the speed of a model's kernels, made by :meth:`tilewright.Executable.explain`.

    Attributes:
        kernels: the explanations, the longest kernel first (without times: in the order of execution).
        note: why there are no times; empty if there are.
    """

    header = ("kernel", "time", "share", "why", "what would change it")

    def __init__(self, kernels: Sequence[KernelExplanation], note: str = "") -> None:
        self.kernels = list(kernels)
        self.note = note

    def rows(self, limit: int | None = None) -> list[list[str]]:
        """Return the lines of the table, at most ``limit``."""
        return [
            [
                each.kernel + (f" (x{each.calls})" if each.calls > 1 else ""),
                "-" if each.seconds is None else format_seconds(each.seconds),
                "-" if each.share is None else f"{100 * each.share:.1f} %",
                each.sentence,
                "; ".join(each.changes),
            ]
            for each in self.kernels[:limit]
        ]

    def render(self, limit: int | None = None, declined: bool = False) -> str:
        """Write the explanations as text, a paragraph for each kernel.

        Args:
            limit: maximum number of kernels.
            declined: also list the rules that declined each kernel.

        Raises:
            ValueError: the limit is negative.
        """
        if limit is not None and limit < 0:
            raise ArgumentValueError(f"limit: expected a number of kernels, found {limit}")
        lines: list[str] = []
        for each, (name, time, share, why, change) in zip(self.kernels, self.rows(limit), strict=False):
            measured = "" if each.seconds is None else f" ({time}, {share})"
            lines.append(f"{name}{measured}: {why}")
            lines += [f"    to change it: {change}"] if change else []
            lines += [f"    {message}" for message in each.declined] if declined else []
        left = len(self.kernels) - len(self.kernels[:limit])
        lines += [f"({left} more)"] if left else []
        lines += ["", self.note] if self.note else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the explanations as plain data."""
        return {"kernels": [each.as_dict() for each in self.kernels], "note": self.note}

    def to_json(self, indent: int | None = 2) -> str:
        """Return :meth:`as_dict` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def __getitem__(self, kernel: str) -> KernelExplanation:
        for each in self.kernels:
            if each.kernel == kernel:
                return each
        raise KeyError(f"no kernel {kernel!r}; there are {', '.join(each.kernel for each in self.kernels)}")

    def _repr_html_(self) -> str:
        return html_table(self.header, self.rows()) + (f"<div>{self.note}</div>" if self.note else "")

    def __repr__(self) -> str:
        return self.render()
