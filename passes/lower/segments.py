"""Cut a model into segments where a size becomes known only at run time.

A graph with ``bind_size(x, size, dim=n)`` cannot run in one piece: the memory of ``x``, and of everything computed from
it, is known only when ``size`` is. So the graph is cut into segments, each an ordinary function: the first computes the
sizes (and whatever else it can), then the sizes are read, and the next segment takes them as symbolic dimensions like
those of inputs. A model without such calls is one segment.

Before::

    def @main(%x) { %0 = count(%x); %1 = nonzero(%x, size=n); %2 = bind_size(%1, %0, dim=n); %2 }

After: ``(%x) { count(%x) }``, then ``n`` is read, then ``(%x) { nonzero(%x, size=n) }``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.keys import SEGMENT, SYMBOLS
from tilewright.graphir.loop_calls import model_dimensions
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import summary
from tilewright.graphir.runtime_sizes import bound_at, symbols_at
from tilewright.graphir.types import TupleType, Type
from tilewright.graphir.visitor import call_nodes, free_vars, post_order, rewrite
from tilewright.passes.graph import InferType, InlineFunctions, RemoveUnusedFunctions, ToGraphNormalForm
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.expr import Var as Symbol
from tilewright.tensorir.stmt import PrimFunc


@dataclasses.dataclass(frozen=True)
class Segment:
    """One function of a segmented model.

    A model's values are numbered: first the tensors of its inputs (tuples flattened), then the results of its segments.

    Attributes:
        module: the function, under the name ``main``, and those that it calls.
        args: the numbers of its arguments, one for each tensor.
        results: the numbers of its results.
        sizes: the symbolic dimensions that are read before it runs, each with the number of the value that holds it.
    """

    module: IRModule
    args: tuple[int, ...]
    results: tuple[int, ...]
    sizes: tuple[tuple[Symbol, int], ...]


@dataclasses.dataclass(frozen=True)
class Segments:
    """A segmented model: its segments in order, and the numbers of the values that are its results."""

    segments: tuple[Segment, ...]
    results: tuple[int, ...]


def binds_sizes(mod: IRModule) -> bool:
    """Return whether a function of ``mod`` has sizes that become known only at run time."""
    return any(
        _is_binding(call)
        for function in mod.functions.values()
        if isinstance(function, Function)
        for call in call_nodes(function)
    )


def cut(mod: IRModule, known: Sequence[Symbol]) -> Segments:
    """Cut ``mod`` into segments; the sizes of the symbolic dimensions ``known`` come with the inputs of ``main``.

    Raises:
        CodegenError: a size is bound inside a loop, bound to different numbers, or depends on itself.
    """
    for step in (InferType(), InlineFunctions(), ToGraphNormalForm()):
        mod = step(mod)  # at every level, as the cut needs them
    main = mod["main"]
    assert isinstance(main, Function)
    return _Cutter(mod, main, known).cut()


def _is_binding(node: Expr) -> bool:
    return bound_at(node) is not None


def _flat(found: Type | None) -> int:
    """Count the tensors in a type."""
    return sum(map(_flat, found.fields)) if isinstance(found, TupleType) else 1


def _symbols_in(node: Expr, mod: IRModule) -> set[ScalarExpr]:
    """Return the symbolic dimensions of one node, and those that a loop-level function called by it takes only from the
    model."""
    found = symbols_at(node)
    if isinstance(node, Call):
        called = mod[node.op] if isinstance(node.op, GlobalVar) else None
        if isinstance(called, PrimFunc):
            found.update(model_dimensions(called).values())
    return found


class _Cutter:
    """Find the segment of every node, and the values that are passed between segments.

    The level of a node is the number of the segment that computes it: a node that mentions a size is in a later segment
    than the node that computes the size.
    """

    def __init__(self, mod: IRModule, main: Function, known: Sequence[Symbol]) -> None:
        self.mod = mod
        self.main = main
        self.known = list(known)
        self.order = post_order(main.body)
        self.inner = self._depending_on_parameters()
        self.bindings = self._bindings()
        self.levels = self._levels()
        #: The number of every value that a segment returns, and the variable that stands for it in later segments.
        self.numbers: dict[Expr, int] = {}
        self.variables: dict[Expr, Var] = {}
        self.fields: dict[tuple[Expr, int], TupleGetItem] = {
            (node.value, node.index): node for node in self.order if isinstance(node, TupleGetItem)
        }

    def _depending_on_parameters(self) -> set[Expr]:
        """Return the expressions that depend on a parameter of a function inside ``main``, such as a loop's body."""
        outer = set(self.main.params)
        inner: set[Expr] = set()
        for node in self.order:
            if isinstance(node, Var):
                if node not in outer:
                    inner.add(node)
            elif isinstance(node, Let):
                raise CodegenError("found a let; expected none after ToGraphNormalForm")
            elif not isinstance(node, Function) and any(child in inner for child in node.children):
                inner.add(node)
        return inner

    def _bindings(self) -> dict[Symbol, Expr]:
        found: dict[Symbol, Expr] = {}
        for node in self.order:
            bound = bound_at(node)
            if bound is None:
                continue
            dim, size = bound
            if node in self.inner:
                raise CodegenError(f"{node.span or summary(node)}: the size {dim.name} changes with every iteration")
            if found.setdefault(dim, size) is not size:
                raise CodegenError(
                    f"{node.span or summary(node)}: the size {dim.name} is bound to two different values"
                )
        for function in self.mod.functions.values():
            if (
                function is not self.main
                and isinstance(function, Function)
                and any(map(_is_binding, call_nodes(function)))
            ):
                raise CodegenError(
                    "a function that main calls several times binds a size at run time; it must be bound in main"
                )
        return found

    def _levels(self) -> dict[Expr, int]:
        mentioned = {node: [s for s in self.bindings if s in _symbols_in(node, self.mod)] for node in self.order}
        levels: dict[Expr, int] = {}
        of_symbols = dict.fromkeys(self.bindings, 1)
        for _ in range(len(self.bindings) + 1):
            for node in self.order:
                below = [levels[child] for child in node.children if child in levels]
                levels[node] = max([*below, *(of_symbols[symbol] for symbol in mentioned[node])], default=0)
            changed = {symbol: levels[size] + 1 for symbol, size in self.bindings.items()}
            if changed == of_symbols:
                return levels
            of_symbols = changed
        raise CodegenError(f"sizes depend on each other: {', '.join(symbol.name for symbol in self.bindings)}")

    # Cutting.

    def cut(self) -> Segments:
        """Return the segments, found from the last to the first: each determines the results of earlier ones."""
        count = 0
        for param in self.main.params:
            self.numbers[param] = count
            count += _flat(param.type)
        last = self.levels[self.main.body]
        leaves = self._leaves(self.main.body)
        needed: list[dict[Expr, None]] = [{} for _ in range(last + 1)]
        for leaf in leaves:
            self._need(leaf, last if isinstance(leaf, Constant) else self.levels[leaf], needed)
        for size in self.bindings.values():
            if self.levels[size] < last:
                self._need(size, self.levels[size], needed)
        bodies = [self._body(level, needed) for level in reversed(range(last + 1))]
        bodies.reverse()
        for values in needed:
            for value in values:
                self.numbers[value] = count
                count += 1
        segments: list[Segment] = []
        sizes: list[tuple[Symbol, int]] = []
        symbols = [symbol.name for symbol in self.known]
        for level, body in enumerate(bodies):
            read = [symbol for symbol, size in self.bindings.items() if self.levels[size] + 1 == level]
            symbols += [symbol.name for symbol in read]
            sizes += [(symbol, self.numbers[self.bindings[symbol]]) for symbol in read]
            if needed[level]:
                segments.append(self._segment(body, list(needed[level]), symbols, sizes))
                sizes = []
        return Segments(tuple(segments), tuple(self.numbers[leaf] for leaf in leaves))

    def _leaves(self, body: Expr) -> list[Expr]:
        """Return the tensors of a result, in order."""
        if isinstance(body, Tuple):
            return [leaf for field in body.fields for leaf in self._leaves(field)]
        if isinstance(body.type, TupleType):
            return [leaf for number in range(len(body.type.fields)) for leaf in self._leaves(self._field(body, number))]
        return [body]

    def _field(self, value: Expr, number: int) -> TupleGetItem:
        """Return the field of a tuple, the same node each time."""
        found = self.fields.get((value, number))
        if found is None:
            found = self.fields[value, number] = TupleGetItem(value, number)
            self.levels[found] = self.levels[value]
        return found

    def _need(self, value: Expr, level: int, needed: list[dict[Expr, None]]) -> None:
        if not isinstance(value, Var):
            needed[level][value] = None

    def _crosses(self, node: Expr, level: int) -> bool:
        """Return whether a node that segment ``level`` uses is computed by an earlier one."""
        if node in self.inner or self.levels[node] >= level:
            return False
        return isinstance(node, (Call, TupleGetItem, If, Loop))

    def _body(self, level: int, needed: list[dict[Expr, None]]) -> Expr:
        """Return the body of segment ``level``, with variables for values of earlier ones, which ``needed`` gets."""
        roots = list(needed[level])

        def inside(node: Expr) -> Sequence[Expr]:
            if self._crosses(node, level):
                return ()
            return node.children[:1] if _is_binding(node) else tuple(node.children)

        known: dict[Expr, Expr] = {}
        nodes = post_order(*roots, children_of=inside)
        for node in nodes:
            if self._crosses(node, level):
                known[node] = self._taken(node, needed)
        for node in nodes:
            bound = bound_at(node)
            if bound is not None and node not in known:
                known.setdefault(bound[1], bound[1])
        return rewrite(Tuple(roots), lambda old, new: new.children[0] if _is_binding(new) else new, known)

    def _taken(self, node: Expr, needed: list[dict[Expr, None]]) -> Expr:
        """Return the variable, or tuple of variables, for a value of an earlier segment."""
        if isinstance(node.type, TupleType):
            return Tuple([self._taken(self._field(node, number), needed) for number in range(len(node.type.fields))])
        self._need(node, self.levels[node], needed)
        found = self.variables.get(node)
        if found is None:
            found = self.variables[node] = Var(f"value_{len(self.variables)}", node.type)
        return found

    def _segment(self, body: Expr, results: list[Expr], symbols: list[str], sizes: list[tuple[Symbol, int]]) -> Segment:
        values = {variable: value for value, variable in self.variables.items()}
        params = free_vars(body)
        args: list[int] = []
        for param in params:
            first = self.numbers[values.get(param, param)]
            args += range(first, first + _flat(param.type))
        numbers = tuple(self.numbers[value] for value in results)
        place = {"args": tuple(args), "results": numbers, "sizes": {dim.name: number for dim, number in sizes}}
        attrs = {**self.main.attrs, SYMBOLS: tuple(symbols), SEGMENT: place}
        function = Function(params, body, attrs=attrs)
        module = RemoveUnusedFunctions()(self.mod.with_functions({self.mod.get_global_var("main"): function}))
        return Segment(module, tuple(args), numbers, tuple(sizes))
