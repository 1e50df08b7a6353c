"""Find the greatest or least elements along an axis, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import NUMBERS, axis_index, check_dtype, normalize, widened
from tilewright.graphir.ops.gather import fits
from tilewright.graphir.ops.loop_nests import assign, loop, nest, register
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import Buffer, Expr, Var, as_expr, binary, cast, compare, const, minimum, select
from tilewright.tensorir.stmt import Allocate, BufferStore, IfThenElse, LetStmt, Stmt, sequence
from tilewright.tensorir.tensor import Tensor

#: Passes of merging that sort any number of elements that fit in memory.
_MOST_PASSES = 48


class Sort:
    """Statements that sort the indices ``0 .. extent - 1`` by their elements, bottom-up: runs of 1, 2, 4, ... indices
    are merged in pairs (Knuth, The Art of Computer Programming, volume 3, 5.2.4). The sort is stable."""

    def __init__(self, extent: Expr, element: Callable[[Expr], Expr], largest: bool) -> None:
        self.extent = extent
        self.element = element
        self.largest = largest
        #: Each pass reads the indices from one side and writes them to the other.
        self.order = Buffer("order", (as_expr(2), extent), INT64, "arena")
        self.side = register("side")
        self.left = register("left")
        self.right = register("right")

    def around(self, then: Stmt) -> Stmt:
        """Sort, then run ``then``."""
        known = getattr(self.extent, "value", None)
        passes = _MOST_PASSES if known is None else max(known - 1, 0).bit_length()
        start = loop(self.extent, lambda i: BufferStore(self.order, i, (as_expr(0), i)))
        body = sequence(assign(self.side, as_expr(0)), start, loop(passes, self._pass, "power"), then)
        for buffer in (self.right, self.left, self.side, self.order):
            body = Allocate(buffer, body)
        return body

    def result(self, number: Expr) -> Expr:
        """Return the index of the element at position ``number`` of the order."""
        return self.order[self.side[0], number]

    def _pass(self, power: Var) -> Stmt:
        width = as_expr(1) << power
        pairs = (self.extent + (2 * width - 1)) // (2 * width)
        merge = loop(pairs, lambda pair: self._merge(pair * (2 * width), width), "pair")
        return IfThenElse(width < self.extent, sequence(merge, assign(self.side, 1 - self.side[0])))

    def _merge(self, begin: Expr, width: Expr) -> Stmt:
        start, middle, end, left, right = (Var(name) for name in ("start", "middle", "end", "at_left", "at_right"))
        side = self.side[0]
        takes_right = Var("takes_right", BOOL)

        def step(i: Var) -> Stmt:
            # One run may be exhausted: its index is one of the other run then, and does not count.
            advance = cast(INT64, takes_right)
            stmt = sequence(
                BufferStore(self.order, select(takes_right, right, left), (1 - side, start + i)),
                assign(self.right, self.right[0] + advance),
                assign(self.left, self.left[0] + (1 - advance)),
            )
            first = binary("or", self.left[0] >= middle, self._precedes(right, left))
            stmt = LetStmt(takes_right, binary("and", self.right[0] < end, first), stmt)
            stmt = LetStmt(right, self.order[side, minimum(self.right[0], self.extent - 1)], stmt)
            return LetStmt(left, self.order[side, minimum(self.left[0], middle - 1)], stmt)

        stmt = sequence(assign(self.left, start), assign(self.right, middle), loop(end - start, step))
        stmt = LetStmt(end, minimum(start + 2 * width, self.extent), stmt)
        stmt = LetStmt(middle, minimum(start + width, self.extent), stmt)
        return LetStmt(start, begin, stmt)

    def _precedes(self, a: Expr, b: Expr) -> Expr:
        """Return whether the element at ``a`` precedes the one at ``b``, given that ``b`` precedes it if they are
        equal."""
        x, y = self.element(a), self.element(b)
        before = compare("gt" if self.largest else "lt", x, y)
        if x.dtype.is_float:
            greatest, other = (x, y) if self.largest else (y, x)
            before = binary("or", before, compare("ne", greatest, greatest) & compare("eq", other, other))
        return before


@dataclasses.dataclass(frozen=True)
class TopKAttrs:
    """The elements to select.

    Attributes:
        k: the number of elements, at most the size of the axis; it may be symbolic.
        axis: the axis of the search.
        largest: whether to select the greatest rather than the least.
    """

    k: Any
    axis: int = -1
    largest: bool = True

    def __post_init__(self) -> None:
        normalize(self, k=as_dim(self.k))


@register_operator
class top_k(Operator):
    """Select the ``k`` greatest (or least) elements along an axis, in order, and their indices (int64). Of equal
    elements the one with the lower index comes first; NaN is greater than everything. If a symbolic axis turns out to
    be shorter than ``k``, the rest is zeros."""

    name = "top_k"
    arguments = ("x",)
    num_outputs = 2
    Attrs = TopKAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: TopKAttrs) -> TupleType:
        (x,) = args
        check_dtype(self, 0, x, NUMBERS)
        axis = axis_index(self, attrs.axis, x.ndim)
        extent = x.shape[axis]
        if isinstance(extent, int) and isinstance(attrs.k, int) and attrs.k > extent:
            raise self.error("k", f"at most the {extent} elements along axis {axis}", attrs.k)
        shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
        return TupleType([TensorType(shape, x.dtype), TensorType(shape, INT64)])

    def reference(self, args: Sequence[Any], attrs: TopKAttrs) -> Any:
        rows = np.moveaxis(args[0], attrs.axis, -1)
        # Sorting in reverse turns a stable ascending sort into a stable descending one.
        order = widened(rows)[..., ::-1] if attrs.largest else widened(rows)
        places = np.argsort(order, axis=-1, kind="stable")
        places = rows.shape[-1] - 1 - places[..., ::-1] if attrs.largest else places
        places = places[..., : attrs.k]
        values = np.take_along_axis(rows, places, -1)
        return tuple(np.ascontiguousarray(np.moveaxis(part, -1, attrs.axis)) for part in (values, places))

    def compute(self, args: Sequence[Tensor], attrs: TopKAttrs, out: TupleType) -> list[Tensor]:
        (x,) = args
        axis = attrs.axis % x.ndim
        types = [found for found in out.fields if isinstance(found, TensorType)]

        def loops(outputs: list[Buffer]) -> Stmt:
            values, places = outputs

            def row(place: list[Expr]) -> Stmt:
                def element(number: Expr) -> Expr:
                    return x(*place[:axis], number, *place[axis:])

                sort = Sort(x.shape[axis], element, attrs.largest)

                def emit(number: Var) -> Stmt:
                    at = (*place[:axis], number, *place[axis:])
                    index = Var("index")
                    kept = sequence(BufferStore(values, element(index), at), BufferStore(places, index, at))
                    found = LetStmt(index, sort.result(number), kept)
                    if fits(as_expr(attrs.k), x.shape[axis]):
                        return found
                    zero = BufferStore(values, const(0, x.dtype), at), BufferStore(places, as_expr(0), at)
                    return IfThenElse(number < x.shape[axis], found, sequence(*zero))

                return sort.around(loop(as_expr(attrs.k), emit, "number"))

            return nest([*x.shape[:axis], *x.shape[axis + 1 :]], row)

        return te.extern([(found.shape, found.dtype) for found in types], loops, "top_k")
