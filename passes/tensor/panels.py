"""Find panels: the parts of a large operand that iterations of a loop read, the loops that read each panel again, and
the address of the next panel.

A panel is described by the loops around the innermost one: those that walk through it, those that read it again, and
the one whose next iteration reads the next panel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilewright.graphir.dims import estimate
from tilewright.passes.operands import known_bytes
from tilewright.passes.tensor.hoist_invariant import ExprReplacer
from tilewright.passes.tensor.large_operands import statements_and_loads
from tilewright.passes.tensor.name_strides import NamedSizes
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.tensorir.arith.iter_map import iter_sum, runs
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, IntImm, Ramp, Var, as_expr, binary, cast
from tilewright.tensorir.functor import (
    accesses_buffers,
    leaves,
    substitute,
    uses_var,
)
from tilewright.tensorir.stmt import For, LetStmt, PrimFunc, Stmt
from tilewright.tensorir.target import CACHE_LINE, Target

#: A read of at most this many bytes is one number for all lanes of a vector, or a few that are added together.
NARROW = 8


class Read(NamedTuple):
    """The elements that one load of an iteration reads.

    Attributes:
        base: its place, in canonical form; for the copies that unrolled loops make of it, that of the first.
        offsets: the distance of each copy from ``base``, ascending.
        width: the number of elements that it reads at once.
    """

    base: Expr
    offsets: tuple[int | Expr, ...]
    width: int


class Panel(NamedTuple):
    """The elements of ``buffer`` that an iteration of the loop ``outer`` reads.

    Attributes:
        following: the place of the first element of the next one (for one iteration of the loops ``fixed``).
        size: the number of its elements.
        sharing: the number of neighbouring iterations of ``outer`` that read the same panel.
        repeated: the loops that read it again, outermost first.
        fixed: loops that walk through it in larger steps than ``size``, outermost first.
        walked: the loops inside of those, which walk through ``size`` elements.
    """

    buffer: Buffer
    following: Expr
    size: Expr
    outer: For
    sharing: Expr
    repeated: list[For]
    fixed: list[For]
    walked: list[For]


class PanelFinder(ScopedMutator):
    """Find the panels of large operands that iterations of loops read, while visiting a function.

    Args:
        large: the operands, with the number of loads from each.
        target: the machine in whose L2 cache a panel has to fit.
    """

    def __init__(self, func: PrimFunc, large: Mapping[Buffer, int], target: Target) -> None:
        super().__init__(func)
        self.cache = target.cache_bytes(2)
        self.named = NamedSizes(func.variables)
        self.large = large
        self.loops: list[For] = []
        self.lets: dict[Var, Expr] = {}
        #: The values of let variables that were resolved, without lets.
        self.values: dict[Var, Expr] = {}
        #: The number of earlier nests in an iteration of the loop with this variable that read its panel.
        self.reads: dict[tuple[Buffer, Var], int] = {}
        #: Places in canonical form, by index.
        self.canonical: dict[Expr, Expr] = {}

    def simplify(self, expr: Expr) -> Expr:
        """Return ``expr`` in canonical form by the ranges of variables: conditions do not affect where panels are."""
        return self.range_analyzer.simplify(expr)

    def mutate_LetStmt(self, let: LetStmt) -> Stmt:
        self._define(let)
        return super().mutate_LetStmt(let)

    def _define(self, let: LetStmt) -> None:
        """Record the value of a variable, by which places replace it unless it is a size."""
        is_size = not self.loops and self.named.learn(let)
        if not is_size and not accesses_buffers(let.value):
            self.lets[let.var] = let.value

    def panels(self, body: Stmt) -> list[Panel]:
        """Return the panels that the body of the innermost loop reads."""
        copies: dict[Var, For] = {}
        places: dict[Buffer, list[BufferLoad]] = {}
        for node in statements_and_loads(body, self.large):
            if type(node) is BufferLoad:
                if len(node.indices) == 1:
                    places.setdefault(node.buffer, []).append(node)
            elif type(node) is For:
                copies[node.var] = node
            elif type(node) is LetStmt:  # variables of the loop itself are undefined before its body
                self._define(node)
        panels = [self._panel(buffer, loads, copies) for buffer, loads in places.items()]
        return [panel for panel in panels if panel is not None]

    def _places(self, loads: list[BufferLoad]) -> list[tuple[Expr, int]] | None:
        """Return the distinct places that an iteration reads, with the number of elements read there; None for vectors
        that are not contiguous."""
        found: dict[tuple[Expr, int], None] = {}
        for load in loads:
            (index,) = load.indices
            width = 1
            if isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1:
                width, index = index.lanes, index.base
            elif index.dtype.lanes != 1:
                return None
            found[self._place(index), width] = None
        return list(found)

    def _reads(self, places: list[tuple[Expr, int]], bases: list[Expr], copies: Mapping[Var, For]) -> list[Read] | None:
        """Return the reads at some places, whose first copies read at ``bases``; None if copies of a read are not
        equally far apart."""
        reads: list[Read] = []
        for (place, width), base in zip(places, bases, strict=True):
            offsets: list[int | Expr] = [0]
            for var in [var for var in copies if uses_var(place, {var})]:
                step, count = self._step(place, var), copies[var].extent
                assert isinstance(count, IntImm)
                if step is None:
                    return None
                unit = step.value if isinstance(step, IntImm) else step
                moves = [unit * number for number in range(count.value)]
                offsets = [self._sum(offset, move) for offset in offsets for move in moves]
            reads.append(Read(base, tuple(offsets), width))
        return reads

    def _sum(self, a: int | Expr, b: int | Expr) -> int | Expr:
        """Return ``a + b`` in canonical form, as a number if it is one."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        found = self.simplify(as_expr(a) + b)
        return found.value if isinstance(found, IntImm) else found

    def _place(self, index: Expr) -> Expr:
        """Return ``index`` without lets in canonical form."""
        found = self.canonical.get(index)
        if found is None:
            found = self.canonical[index] = self.range_analyzer.canonical(self._resolved(index))
        return found

    def _resolved(self, expr: Expr) -> Expr:
        """Return ``expr`` without lets."""
        values = self._resolved_lets(expr)
        return substitute(expr, values) if values else expr

    def _resolved_lets(self, expr: Expr) -> dict[Var, Expr]:
        """Return the values of the let variables in ``expr``, without lets; they are resolved when first needed."""
        names = [leaf for leaf in leaves(expr) if isinstance(leaf, Var) and leaf in self.lets]
        for name in names:
            if name not in self.values:
                self.values[name] = self._resolved(self.lets[name])
        return {name: self.values[name] for name in names}

    def _panel(self, buffer: Buffer, loads: list[BufferLoad], copies: Mapping[Var, For]) -> Panel | None:
        nest = self._nest()
        if not self._may_walk(buffer, loads, nest):
            return None
        places = self._places(loads)
        if places is None:
            return None
        bases = [self._first_copy(place, copies) for place, _ in places]
        repeated: list[For] = []
        outer: For | None = None
        for loop in reversed(self.loops[: len(self.loops) - len(nest)]):
            if any(uses_var(base, {loop.var}) for base in bases):
                outer = loop
                break
            if loop.kind != "serial":
                return None
            if not (isinstance(loop.extent, IntImm) and loop.extent.value == 1):
                repeated.insert(0, loop)
        if outer is None or not (repeated or self._is_read_from_memory(buffer)):
            return None
        if not all(self._is_walked(loop, bases) for loop in nest):
            return None
        sharing, size = self._advance(bases, outer.var)
        if not repeated and isinstance(size, IntImm) and size.value == 0:  # then it has to be walked from end to end
            return None
        apart: list[int] = []
        for base in bases:
            distance = self.simplify(base - bases[0])
            if not isinstance(distance, IntImm):
                return None
            apart.append(distance.value)
        reads = self._reads(places, bases, copies)
        if reads is None:
            return None
        found = {
            (self._sum(offset, distance), read.width): None
            for distance, read in zip(apart, reads, strict=True)
            for offset in read.offsets
        }
        widths = [width for _, width in found]
        pieces = [(distance, width) for distance, width in found if isinstance(distance, int)]
        distances = [distance for distance, _ in pieces]
        first = bases[0] + min(distances or apart)
        following = first + size
        walked = self._walked(nest, size, sum(widths))
        if not walked and repeated and len(distances) == len(found):
            # Panels out of order, or with others between them; each may be contiguous.
            span = self._span(first, nest)
            if span is None:
                return None
            size = as_expr(span + max(distances) - min(distances) + widths[-1])
            sharing = _sharing(bases, outer.var)
            following = _following(first, outer.var, sharing)
            walked = self._walked(nest, size, sum(widths))
        if not walked:
            return None
        fixed = nest[: -len(walked)]
        if not repeated:
            together = self._steps_together(first, walked[-1], pieces)
            if not self._is_worth_reading_once(buffer, outer.var, first, size, widths, together, walked, fixed):
                return None
        start = {loop.var: loop.min for loop in walked}
        return Panel(buffer, substitute(following, start), size, outer, sharing, repeated, fixed, walked)

    def _first_copy(self, place: Expr, copies: Mapping[Var, For]) -> Expr:
        """Return a place in canonical form for the first of the copies that unrolled loops make."""
        start = {var: loop.min for var, loop in copies.items() if uses_var(place, {var})}
        if not start:
            return place
        form = self.range_analyzer.linear(place)
        for term in form.terms:
            if term not in start and not start.keys().isdisjoint(leaves(term)):
                return self.range_analyzer.canonical(substitute(place, start))
        for var, low in start.items():
            form = form.without(var).combine(self.range_analyzer.linear(low), form.terms.get(var, 0))
        return self.range_analyzer.expr(self.range_analyzer.merge_remainders(form))

    def _may_walk(self, buffer: Buffer, loads: list[BufferLoad], nest: list[For]) -> bool:
        """Return whether loads use the loops of a nest, and an outer loop that does not only repeat them, and whether
        they may be worth a prefetch: a quick check before any analysis of places."""
        used: set[object] = set()
        for load in loads:
            index = load.indices[0]
            values = self._resolved_lets(index)
            used |= leaves(index).difference(values)
            for value in values.values():
                used |= leaves(value)
        if not all(loop.var in used for loop in nest):
            return False
        repeated = False
        for loop in reversed(self.loops[: len(self.loops) - len(nest)]):
            if loop.var in used or loop.kind != "serial":
                detected = not repeated and len(loads) == self.large[buffer] and any(map(_is_wide, loads))
                return loop.var in used and not detected
            repeated = repeated or not (isinstance(loop.extent, IntImm) and loop.extent.value == 1)
        return False

    def _is_read_from_memory(self, buffer: Buffer) -> bool:
        """Return whether a buffer may be too large to be in L2: a smaller one was written last, or read for
        neighbouring tiles."""
        return not 0 < known_bytes(buffer) <= self.cache // 2

    def _is_worth_reading_once(
        self,
        buffer: Buffer,
        outer: Var,
        first: Expr,
        size: Expr,
        widths: list[int],
        together: int,
        walked: list[For],
        fixed: list[For],
    ) -> bool:
        """Return whether to prefetch a panel that no loop reads again, of a buffer that is read from memory; an
        iteration has ``together`` steps of the loop as it was before it was partly written out."""
        steps = self.iterations(walked)
        if not isinstance(size, IntImm) or not isinstance(steps, IntImm):
            return False
        # The hardware prefetcher detects vectors that are read once; it detects the rows of a tile too late, and
        # nothing while the same data is read again.
        place = buffer, outer
        narrow = (
            max(widths) * buffer.dtype.bytes <= NARROW
            and size.value * buffer.dtype.bytes < CACHE_LINE * steps.value * together
        )
        again = self.reads.setdefault(place, 0)
        self.reads[place] += 1
        # Overlapping windows would fetch the same data, and windows with gaps data that is never read.
        separate = all(self._least_step(first, loop.var) >= size.value for loop in fixed)
        separate = separate and size.value <= steps.value * sum(widths)
        return separate and again == (0 if narrow else 1)

    def iterations(self, loops: list[For]) -> Expr:
        """Return the number of iterations that nested loops have together."""
        found = as_expr(1)
        for loop in loops:
            found = found * cast(INT64, loop.extent)
        return self.simplify(found)

    def _is_walked(self, loop: For, bases: list[Expr]) -> bool:
        """Return whether a loop moves along the data that it reads, with the same extent in each iteration of outer
        loops."""
        is_constant = leaves(loop.extent) <= self.named.sizes
        return is_constant and any(uses_var(base, {loop.var}) for base in bases)

    def _step(self, place: Expr, var: Var) -> Expr | None:
        """Return the distance that ``place`` moves with each step of ``var``; None if it varies or is zero."""
        form = self.range_analyzer.linear(place)
        if not any(term is not var and uses_var(term, {var}) for term in form.terms):
            return as_expr(form.terms[var]) if form.terms.get(var, 0) else None
        move = self.simplify(substitute(place, {var: var + 1}) - place)
        moves = not isinstance(move, IntImm) or move.value != 0
        return move if moves and leaves(move) <= self.named.sizes else None

    def _span(self, place: Expr, nest: list[For]) -> int | None:
        """Return the distance from the least to the greatest ``place`` in a nest; None if it is not constant."""
        span = 0
        for loop in nest:
            step = self._step(place, loop.var)
            if not isinstance(loop.extent, IntImm) or not isinstance(step, IntImm | None):
                return None
            span += 0 if step is None else abs(step.value) * (loop.extent.value - 1)
        return span

    def _walked(self, nest: list[For], size: Expr, width: int) -> list[For]:
        """Return the innermost loops of a nest that walk through ``size`` elements, ``width`` in each step; an empty
        list if all of them together read only a small part."""
        for count in range(1, len(nest) + 1):
            share = self.share(size, self.iterations(nest[-count:]))
            if share is not None and 0 < share <= 2 * width:
                return nest[-count:]
        return []

    def share(self, size: Expr, steps: Expr) -> int | None:
        """Return the share of ``size`` elements for each of ``steps``, rounded up; None if it is not constant."""
        if isinstance(size, IntImm) and isinstance(steps, IntImm):
            return -(-size.value // steps.value)
        size, steps = self.named.expand(size), self.named.expand(steps)
        form, unit = self.range_analyzer.linear(size), self.range_analyzer.linear(steps)
        term, *more = form.terms or [None]
        if term is None or more or form.const or unit.const or set(unit.terms) != {term}:
            return None
        return -(-form.terms[term] // unit.terms[term])

    def _steps_together(self, first: Expr, loop: For, pieces: list[tuple[int, int]]) -> int:
        """Return the number of steps that an iteration of a loop takes because the loop was partly written out: in each
        of several rows, reads without a gap between them, at whose end the next iteration goes on."""
        length, count = _longest_run(pieces)
        step = self._step(first, loop.var)
        goes_on = isinstance(step, IntImm) and abs(step.value) == length
        return count if goes_on and count < len(pieces) else 1

    def _least_step(self, place: Expr, var: Var) -> int:
        """Return the least distance that ``place`` moves with each step of ``var``, if all unknown sizes are positive;
        zero if the distance varies."""
        move = self.simplify(substitute(place, {var: var + 1}) - place)
        move = self.named.expand(move)
        sizes: dict[Var, Expr] = {size: as_expr(1) for size in self.named.sizes if isinstance(size, Var)}
        least = self.simplify(substitute(move, sizes))
        return abs(least.value) if isinstance(least, IntImm) else 0

    def _nest(self) -> list[For]:
        """Return the perfectly nested loops around this place, outermost first."""
        found = [self.loops[-1]]
        for loop in reversed(self.loops[:-1]):
            body = loop.body
            while isinstance(body, LetStmt):
                body = body.body
            if body is not found[0] or loop.kind != "serial":
                break
            found.insert(0, loop)
        return found

    def _advance(self, bases: list[Expr], var: Var) -> tuple[Expr, Expr]:
        """Return the number of neighbouring values of ``var`` that have the same panel (one, if unknown), and the
        distance of two panels (zero, if it varies)."""
        unknown = as_expr(1), as_expr(0)
        panels: set[tuple[Expr, Expr, Expr | None]] = set()
        steps: list[Expr] = []
        for base in bases:
            found = iter_sum(base, (var,))
            step = as_expr(0)
            for split in () if found is None else found.splits:
                panels.add((split.source, split.lower, split.extent))
                step = step + split.scale
            steps.append(self.simplify(step))
        if len(panels) != 1 or not leaves(steps[0]) <= self.named.sizes:
            return unknown
        ((_, sharing, extent),) = panels
        if extent is not None or not all(self.range_analyzer.prove_equal(step, steps[0]) for step in steps):
            return unknown
        return sharing if isinstance(sharing, IntImm) else as_expr(1), steps[0]


def _sharing(bases: list[Expr], var: Var) -> Expr:
    """Return the number of neighbouring values of ``var`` that have the same panel, where panels are visited in any
    order: the least divisor, if the place of a panel depends only on quotients of ``var``."""
    return min([run for base in bases for run in runs(base, var)], key=estimate, default=as_expr(1))


def _following(place: Expr, var: Var, sharing: Expr) -> Expr:
    """Return ``place`` for ``var + sharing``: its quotients by ``sharing``, which is not zero, are one greater then,
    which is taken for granted."""
    quotient, number = binary("floordiv", var, sharing), Var("quotient", var.dtype)
    named: Expr = ExprReplacer({quotient: number}).mutate(place)
    return substitute(substitute(named, {var: var + sharing}), {number: quotient + 1})


def _longest_run(pieces: list[tuple[int, int]]) -> tuple[int, int]:
    """Return the elements, and the number of pieces, of the longest run of pieces (place, width) without a gap."""
    runs: dict[int, tuple[int, int]] = {}
    for place, width in sorted(pieces):
        length, count = runs.pop(place, (0, 0))
        runs[place + width] = length + width, count + 1
    return max(runs.values(), default=(1, 1))


def _is_wide(load: BufferLoad) -> bool:
    """Return whether a load reads a vector, not :data:`NARROW`: the hardware prefetcher detects those that are read
    once."""
    index = load.indices[0]
    contiguous = isinstance(index, Ramp) and isinstance(index.stride, IntImm) and index.stride.value == 1
    return contiguous and index.dtype.lanes * load.buffer.dtype.bytes > NARROW
