"""Make sizes that depend on data: the number of nonzero elements, the number of selected boxes.

Such a size is a symbolic dimension like any other; ``bind_size`` states which number of the graph it has. So one
compiled model serves all sizes, and a call reads the number when it gets there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from tilewright.graphir.base import Expr, call_operator
from tilewright.graphir.dims import symbol, symbols_in_attributes, symbols_of
from tilewright.graphir.expr import Call, Tuple, TupleGetItem
from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import free_vars, post_order
from tilewright.tensorir.expr import Expr as Scalar
from tilewright.tensorir.expr import Var

_numbers = itertools.count(1)


def fresh_symbol(name: str = "size") -> Var:
    """Return a symbolic dimension with a name that is unique in the process."""
    return symbol(f"{name}_{next(_numbers)}")


def bind_size(value: Expr, size: Expr, dim: Var) -> Expr:
    """Bind ``dim`` to the number ``size`` (int64, no dimensions) in ``value``, which may be a tuple."""
    if isinstance(value.type, TupleType):
        parts = [TupleGetItem(value, number) for number in range(len(value.type.fields))]
        return Tuple([bind_size(part, size, dim) for part in parts])
    return call_operator("bind_size", value, size, dim=dim)


def with_runtime_size(size: Expr, make: Callable[[Var], Expr], name: str = "size") -> Expr:
    """Return ``make(n)``, where the symbolic dimension ``n`` is the number ``size`` (int64, no dimensions, not
    negative).

    >>> count = sum(cast(mask, dtype="int64"))
    >>> with_runtime_size(count, lambda n: gi.get_operator("nonzero")(mask, size=n))  # doctest: +SKIP
    """
    dim = fresh_symbol(name)
    return bind_size(make(dim), size, dim)


def bound_at(node: Expr) -> tuple[Var, Expr] | None:
    """Return the symbolic dimension that gets its size at ``node``, and the number that it gets; None: none does."""
    if not isinstance(node, Call) or not isinstance(node.op, Operator):
        return None
    return node.op.bound_size(node.args, node.attrs)


def symbols_at(node: Expr) -> set[Scalar]:
    """Return the symbolic dimensions in the type and the attributes of one node."""
    found: set[Scalar] = set(_symbols_of_type(node.type))
    if isinstance(node, Call):
        found.update(symbols_in_attributes(node.attrs))
    return found


def _symbols_of_type(found: Type | None) -> set[Scalar]:
    if isinstance(found, TensorType):
        return set(symbols_of(found.shape))
    if isinstance(found, TupleType):
        return {symbol for field in found.fields for symbol in _symbols_of_type(field)}
    return set()


def with_bound_sizes(results: Sequence[Expr], sizes: Mapping[Var, Expr], params: Sequence[Expr]) -> list[Expr]:
    """Return the results of a function of ``params`` with a binding of each dimension in ``sizes`` that they mention,
    but that no call among what computes them binds: its number is all that is left of what had the dimension."""
    made = list(results)
    outer = set(params)
    while made:
        nodes = post_order(*made)
        bound = {found[0] for found in map(bound_at, nodes) if found is not None}
        mentioned = {symbol for node in nodes for symbol in symbols_at(node)}
        missing = [
            (dim, size)
            for dim, size in sizes.items()
            if dim in mentioned and dim not in bound and outer.issuperset(free_vars(size))
        ]
        if not missing:
            break
        for dim, size in missing:
            made[0] = bind_size(made[0], size, dim)
    return made
