"""Assert sizes that cannot be proved: the graph states them, and a call checks them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.dims import Dim, dim_equal, product
from tilewright.graphir.expr import Expr
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import reshape
from tilewright.graphir.types import TensorType


def with_elements(x: Expr, newshape: Sequence[Dim]) -> Expr:
    """Return ``x`` for a reshape: where it cannot be proved that the shape has as many elements, a call checks it."""
    if not isinstance(x.type, TensorType) or any(isinstance(dim, int) and dim < 0 for dim in newshape):
        return x
    found, wanted = product(x.type.shape), product(newshape)
    if dim_equal(found, wanted) or (isinstance(found, int) and isinstance(wanted, int)):
        return x
    return get_operator("match_shape")(reshape(x, newshape=(found,)), shape=(wanted,))
