"""``IRStatistics``: count the nodes and operators of a module before and after every pass."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tilewright.graphir.expr import Call, Function
from tilewright.graphir.module import AnyFunction
from tilewright.graphir.op import Operator
from tilewright.graphir.visitor import post_order
from tilewright.passes.instrument import PassInstrument
from tilewright.tensorir.expr import Call as LoopLevelCall
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import For, PrimFunc

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo

#: The groups of counts, in the order in which they are shown: functions by their IR, nodes of graphs by class, calls
#: in graphs by operator, nodes of loop nests by class, loops by kind, calls in loop nests by intrinsic (or ``kernel``).
GROUPS = ("functions", "graph nodes", "operators", "loop nodes", "loops", "intrinsics")

#: Counts by group and name.
Histogram = Counter[tuple[str, str]]


@dataclasses.dataclass
class PassStatistics:
    """The counts of one run of a pass.

    Attributes:
        name: the name of the pass.
        before: the counts of its input module.
        after: the counts of its result; None while the pass runs, or if it failed.
    """

    name: str
    before: Histogram
    after: Histogram | None = None

    def changes(self) -> dict[str, list[tuple[str, int, int]]]:
        """Return the counts that changed: for each group with changes the names, with the counts before and after."""
        if self.after is None:
            return {}
        found: dict[str, list[tuple[str, int, int]]] = {}
        for key in sorted({*self.before, *self.after}, key=lambda key: (GROUPS.index(key[0]), key[1])):
            counts = self.before[key], self.after[key]
            if counts[0] != counts[1]:
                found.setdefault(key[0], []).append((key[1], *counts))
        return found


class IRStatistics(PassInstrument):
    """Count nodes and operators before and after every pass; may be read at any time.

    ::

        statistics = IRStatistics()
        with PassContext(instruments=[statistics]):
            tw.build(mod)
        print(statistics.render())

    Pipelines are left out, as their passes are counted. The counts are kept until ``reset``, across contexts. Functions
    that a pass did not change are not counted again.

    Attributes:
        passes: the runs of passes, in order.
    """

    def __init__(self) -> None:
        self.passes: list[PassStatistics] = []
        self._open = _Open()
        self._known: dict[AnyFunction, Histogram] = {}

    def reset(self) -> None:
        """Delete the counts."""
        self.passes = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not info.pipeline:
            self._open.passes.append(PassStatistics(info.name, self._count(mod)))
            self.passes.append(self._open.passes[-1])

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not info.pipeline:
            self._open.passes[-1].after = self._count(mod)
            self._open.passes.pop()

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        if not info.pipeline:
            self._open.passes.pop()

    def _count(self, mod: IRModule) -> Histogram:
        known, self._known = self._known, {}
        total: Histogram = Counter()
        for function in mod.functions.values():
            found = known.get(function)
            self._known[function] = found = histogram(function) if found is None else found
            total.update(found)
        return total

    def as_dict(self) -> dict[str, Any]:
        """Return ``{passes: [{name, before, after}, ...]}``.

        ``before`` and ``after`` are ``{group: {name: count}}`` with the groups :data:`GROUPS`; ``after`` is None for a
        pass that failed or still runs.
        """
        return {
            "passes": [
                {"name": run.name, "before": _by_group(run.before), "after": _by_group(run.after)}
                for run in self.passes
            ]
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return ``as_dict`` as JSON text."""
        return json.dumps(self.as_dict(), indent=indent)

    def render(self) -> str:
        """Return the changes of each pass as text; the last line tells how many passes changed no count."""
        lines: list[str] = []
        same = 0
        for run in self.passes:
            changes = run.changes()
            if not changes and run.after is not None:
                same += 1
                continue
            lines.append(run.name + ("" if run.after is not None else "  (not finished)"))
            for group, counts in changes.items():
                texts = [f"{name} {before} -> {after} ({after - before:+d})" for name, before, after in counts]
                lines.append(f"  {group + ':':13}{', '.join(texts)}")
        lines.append(f"{same} of {len(self.passes)} passes changed none of these counts")
        return "\n".join(lines)


class _Open(threading.local):
    """The passes that are running on this thread."""

    def __init__(self) -> None:
        self.passes: list[PassStatistics] = []


def histogram(function: AnyFunction) -> Histogram:
    """Count the nodes of a function by kind; a node of a loop nest that occurs several times counts each time."""
    return _of_graph(function) if isinstance(function, Function) else _of_loops(function)


def _of_graph(function: Function) -> Histogram:
    found: Histogram = Counter({("functions", "graph"): 1})
    for node in post_order(function):
        found["graph nodes", type(node).__name__] += 1
        if isinstance(node, Call):
            found["operators", node.op.name if isinstance(node.op, Operator) else "(call of a function)"] += 1
    return found


def _of_loops(function: PrimFunc) -> Histogram:
    classes: Counter[type[Node]] = Counter()
    found: Histogram = Counter({("functions", "loop nest"): 1})
    stack: list[Node] = [function.body]
    while stack:
        node = stack.pop()
        kind = type(node)
        classes[kind] += 1
        if kind is For:
            found["loops", node.kind] += 1  # type: ignore[attr-defined]  # it is a For
        elif kind is LoopLevelCall:
            name: str = node.name  # type: ignore[attr-defined]  # it is a Call
            found["intrinsics", "kernel" if name.startswith("@") else name] += 1
        stack += node.parts()
    for kind, count in classes.items():
        found["loop nodes", kind.__name__] = count
    return found


def _by_group(counts: Mapping[tuple[str, str], int] | None) -> dict[str, dict[str, int]] | None:
    if counts is None:
        return None
    return {
        group: {name: count for (own, name), count in sorted(counts.items()) if own == group and count}
        for group in GROUPS
    }
