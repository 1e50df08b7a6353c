"""Register, for each operator, a function that makes a call of it from the values of a pool."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.pool import Pool
from tilewright import graphir as gi
from tilewright.graphir.op import Operator, get_operator, list_operators
from tilewright.graphir.ops.common import Binary, Comparison, Reduce, Unary

#: Makes a call of the operator with that name.
Maker = Callable[[Pool, Operator], gi.Expr]

MAKERS: dict[str, Maker] = {}

#: Operators that passes alone write, or that are made as parts of others; each with what makes it.
PARTS = {
    "bind_size": "nonzero",
    "nn.resize_axis": "nn.resize",
    "nn.resize_nearest": "nn.resize",
    "nn.winograd_input": "nn.conv2d at level 3",
    "nn.winograd_output": "nn.conv2d at level 3",
    "nn.winograd_product": "nn.conv2d at level 3",
    "nn.winograd_sums": "nn.conv2d with 3x3 results at level 3",
    "nn.winograd_sums_output": "nn.conv2d with 3x3 results at level 3",
    "nn.winograd_weight": "nn.conv2d at level 3",
    "nn.winograd_window": "nn.conv2d with 3x3 results at level 3",
}


def maker(*names: str) -> Callable[[Maker], Maker]:
    """Register a function that makes calls of the operators ``names``."""

    def register(found: Maker) -> Maker:
        for name in names:
            MAKERS[name] = found
        return found

    return register


def _unary(pool: Pool, op: Operator) -> gi.Expr:
    return op(pool.tensor(op.dtypes))  # type: ignore[attr-defined]


def _binary(pool: Pool, op: Operator) -> gi.Expr:
    lhs = pool.tensor(op.dtypes)  # type: ignore[attr-defined]
    rhs = lhs if pool.chance(8) else pool.like(lhs)
    return op(rhs, lhs) if pool.chance(40) else op(lhs, rhs)


def _reduction(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(op.dtypes)  # type: ignore[attr-defined]
    attrs = {"axis": pool.axes(x), "keepdims": pool.chance(40)}
    if "unbiased" in op.attr_names:
        attrs["unbiased"] = pool.chance(30)
    if "initial" in op.attr_names and pool.chance(30):
        attrs["initial"] = 1.0 if x.tensor_type.dtype.is_float else 1
    if "ord" in op.attr_names:
        attrs["ord"] = pool.pick((2, 1))
    if "p" in op.attr_names:
        attrs["p"] = pool.pick((2.0, 1.0, 3.0))
    return op(x, **attrs)


def complete() -> dict[str, Maker]:
    """Return a maker of each operator: for those of the families of elementwise operators and reductions, which declare
    their types, that of the family."""
    found = dict(MAKERS)
    for name in list_operators():
        op = get_operator(name)
        if name in found or name in PARTS:
            continue
        if isinstance(op, (Binary, Comparison)) and not op.attr_names:
            found[name] = _binary
        elif isinstance(op, Unary) and not op.attr_names:
            found[name] = _unary
        elif isinstance(op, Reduce):
            found[name] = _reduction
    return found
