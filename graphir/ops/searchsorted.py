"""Find the places of values in sorted rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import dim_equal
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.common import NUMBERS, check_dtype, compute_type, same_dtype, widened
from tilewright.graphir.ops.loop_nests import assign, loop, nest, register
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.expr import Buffer, Expr, Var, as_expr, binary, cast, compare, select
from tilewright.tensorir.stmt import Allocate, BufferStore, IfThenElse, LetStmt, Stmt, sequence
from tilewright.tensorir.tensor import Tensor

#: Halvings that search any number of elements that fit in memory.
_MOST_HALVINGS = 48


@dataclasses.dataclass(frozen=True)
class SearchSortedAttrs:
    """The place of a value among equal elements.

    Attributes:
        right: whether it is behind them rather than before.
    """

    right: bool = False


@register_operator
class searchsorted(Operator):
    """Find where values belong in sorted elements, as ``numpy.searchsorted``: the number of elements that are less
    than each value (with ``right``: not greater), as int64. NaN is greater than every number.

    The elements are one row for all values, of any shape; or rows of shape ``(..., n)`` for values of shape
    ``(..., m)``. The result is undefined where a row is not sorted.
    """

    name = "searchsorted"
    arguments = ("elements", "values")
    Attrs = SearchSortedAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: SearchSortedAttrs) -> TensorType:
        elements, values = args
        same_dtype(self, args)
        check_dtype(self, 0, elements, NUMBERS)
        if elements.ndim == 0:
            raise self.error(0, "at least one dimension", elements)
        if elements.ndim > 1:
            rows = elements.shape[:-1]
            if values.ndim != elements.ndim or not all(map(dim_equal, rows, values.shape[:-1])):
                raise self.error(1, f"rows for those of the elements, ({', '.join(map(str, rows))}, m)", values)
        return TensorType(values.shape, INT64)

    def reference(self, args: Sequence[Any], attrs: SearchSortedAttrs) -> Any:
        elements, values = map(widened, args)
        side: Any = "right" if attrs.right else "left"
        if elements.ndim == 1:
            return np.asarray(np.searchsorted(elements, values, side), np.int64)
        found = np.empty(values.shape, np.int64)
        for row in np.ndindex(*values.shape[:-1]):
            found[row] = np.searchsorted(elements[row], values[row], side)
        return found

    def compute(self, args: Sequence[Tensor], attrs: SearchSortedAttrs, out: TensorType) -> list[Tensor]:
        elements, values = args
        extent = as_expr(elements.shape[-1])
        known = getattr(extent, "value", None)
        halvings = _MOST_HALVINGS if known is None else known.bit_length()
        wide = compute_type(elements.dtype)

        def loops(outputs: list[Buffer]) -> Stmt:
            def search(place: list[Expr]) -> Stmt:
                row = place[:-1] if elements.ndim > 1 else []
                low, high = register("low"), register("high")
                value, middle = Var("value", wide), Var("middle")

                def halve(_: Var) -> Stmt:
                    element, precedes = Var("element", wide), Var("precedes", BOOL)
                    stmt = sequence(
                        assign(high, select(precedes, high[0], middle)),
                        assign(low, select(precedes, middle + 1, low[0])),
                    )
                    stmt = LetStmt(precedes, _precedes(element, value, attrs.right), stmt)
                    stmt = LetStmt(element, cast(wide, elements(*row, middle)), stmt)
                    return IfThenElse(low[0] < high[0], LetStmt(middle, (low[0] + high[0]) >> 1, stmt))

                stmt = sequence(
                    assign(low, 0),
                    assign(high, extent),
                    loop(halvings, halve, "halving"),
                    BufferStore(outputs[0], low[0], tuple(place)),
                )
                return Allocate(low, Allocate(high, LetStmt(value, cast(wide, values(*place)), stmt)))

            return nest([as_expr(size) for size in values.shape], search)

        return te.extern([(out.shape, out.dtype)], loops, self.__name__)


def _precedes(element: Expr, value: Expr, right: bool) -> Expr:
    """Return whether the place of ``value`` is behind ``element``."""
    found = compare("le" if right else "lt", element, value)
    if not value.dtype.is_float:
        return found
    last = compare("ne", value, value)
    return binary("or", found, last if right else binary("and", last, compare("eq", element, element)))
