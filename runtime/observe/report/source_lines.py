"""Connect the lines of a kernel's texts: each line of a stage with those of the stage before that it comes from.

After each stage the statements of all kernels get the numbers of their own lines as sources
(:mod:`tilewright.tensorir.sources`), which the passes of the next stage hand on. The sources after the first stage are
the numbers of the operators that a kernel computes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.printer_statements import StatementPrinter
from tilewright.tensorir.sources import NO_SOURCES, Sources, sources_of, with_sources
from tilewright.tensorir.stmt import BufferStore, Evaluate, PrimFunc, Stmt

#: The stages whose texts have sources, in order.
TRACED = ("tensor", "scheduled", "lowered")


@dataclasses.dataclass(frozen=True)
class KernelLines:
    """The lines of a kernel after a stage.

    Attributes:
        statements: the innermost statement on each line; None outside of the body.
        lines: the numbers of the lines on which each statement begins: several if it occurs several times.
        sources: for each line the numbers of the lines of the stage before, or of operators for the first stage.
    """

    statements: Sequence[Stmt | None]
    lines: Mapping[Stmt, Sources]
    sources: Sequence[Sources]


class SourceLines:
    """Records the sources of all kernels after each stage; :meth:`between` is called after each.

    Attributes:
        kernels: the lines of each kernel, by the stage and the kernel's name.
    """

    def __init__(self) -> None:
        self.kernels: dict[tuple[str, str], KernelLines] = {}

    def between(self, stage: str, mod: IRModule) -> IRModule:
        """Record the sources in ``mod``; return it with the lines of its own text as sources."""
        if stage not in TRACED:
            return mod
        updates: dict[object, AnyFunction] = {}
        before = TRACED[TRACED.index(stage) - 1] if stage != TRACED[0] else None
        for key, function in mod.functions.items():
            if isinstance(function, PrimFunc) and key.name != "main":
                earlier = self.kernels.get((before, key.name)) if before is not None else None
                found = self.kernels[stage, key.name] = kernel_lines(function, earlier)
                if stage != TRACED[-1]:
                    updates[key] = with_sources(function, found.lines)
        return mod.with_functions(updates) if updates else mod  # type: ignore[arg-type]


def kernel_lines(func: PrimFunc, before: KernelLines | None = None) -> KernelLines:
    """Find the lines of a function's text and their sources.

    Args:
        before: the lines of the stage before, to which the sources refer.
    """
    statements = list(walk_statements(func.body))
    printer = StatementPrinter(marked=tuple(dict.fromkeys(statements)))
    printer.root(func)
    text = printer.text()
    ends = [place for place, letter in enumerate(text) if letter == "\n"]
    number = _line_numbers(len(text), ends)
    spans = sorted(
        (start, -end, order, stmt)
        for order, stmt in enumerate(printer.spans)
        if isinstance(stmt, Stmt)
        for start, end in printer.spans[stmt]
    )
    on_line: list[Stmt | None] = [None] * (len(ends) + 1)
    lines: dict[Stmt, Sources] = {}
    for start, end, _, stmt in spans:
        start += len(text[start:-end]) - len(text[start:-end].lstrip())
        first, last = number[start], number[max(start, -end - 1)]
        lines[stmt] = lines.get(stmt, NO_SOURCES) | {first}
        for line in range(first, last + 1):
            on_line[line] = stmt
    sources = statement_sources(statements, before)
    return KernelLines(on_line, lines, [sources.get(stmt, NO_SOURCES) if stmt else NO_SOURCES for stmt in on_line])


def _line_numbers(length: int, ends: Sequence[int]) -> list[int]:
    numbers: list[int] = []
    for line, end in enumerate([*ends, length]):
        numbers += [line] * (end + 1 - len(numbers))
    return numbers


def statement_sources(statements: Sequence[Stmt], before: KernelLines | None) -> dict[Stmt, Sources]:
    """Return the sources of each statement. A loop comes from the loop that it took the place of, if that computed the
    same; otherwise, as for a loop around parts of several, from what the statements in it come from."""
    inside: dict[Stmt, Sources] = {}
    found: dict[Stmt, Sources] = {}
    contents = _contents(before) if before is not None else {}
    for stmt in reversed(statements):  # inner ones first
        own = sources_of(stmt)
        parts = [part for part in stmt.parts() if isinstance(part, Stmt)]
        if isinstance(stmt, (BufferStore, Evaluate)) or not parts:
            inside[stmt] = found[stmt] = own
            continue
        inside[stmt] = NO_SOURCES.union(*(inside.get(part, NO_SOURCES) for part in parts))
        kept = frozenset(line for line in own if contents.get(line, own) & inside[stmt])
        found[stmt] = kept or inside[stmt] or own
    return found


def _contents(lines: KernelLines) -> dict[int, Sources]:
    """For each line on which a statement begins, the lines of the stores in it."""
    leaves = {line for stmt, own in lines.lines.items() if isinstance(stmt, (BufferStore, Evaluate)) for line in own}
    found: dict[int, set[int]] = {}
    for stmt, own in lines.lines.items():
        inner = [leaf for part in walk_statements(stmt) for leaf in lines.lines.get(part, ()) if leaf in leaves]
        for line in own:
            found.setdefault(line, set()).update(inner)
    return {line: frozenset(inner) for line, inner in found.items()}
