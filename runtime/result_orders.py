"""Give results the order of axes in memory that a module asks for, such as that of a transposed matrix or of images
whose channels are last: a model computes such a result with its axes in that order, and a call returns it as a view.

Before::

    def @main(%x: Tensor[(2, 3), float32]) attrs {"Orders": ((0, (1, 0)),)} {
      %0 = relu(%x)
      %0
    }

After::

    def @main(%x: Tensor[(2, 3), float32]) attrs {"Ordered": ((0, (1, 0)),)} {
      %0 = relu(%x)
      %1 = transpose(%0, axes=(1, 0))
      %1
    }
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.expr import Expr, Function, Tuple, TupleGetItem
from tilewright.graphir.keys import ORDERED, ORDERS
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import get_operator
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.tensorir.errors import TypeInferenceError


def with_ordered_results(mod: IRModule) -> IRModule:
    """Return a module whose ``main`` returns results with their axes in the orders that its attribute ``Orders`` asks
    for; its attribute ``Ordered`` then says which.

    Raises:
        TypeInferenceError: an order does not fit a result.
    """
    main = mod["main"]
    if not isinstance(main, Function) or ORDERS not in main.attrs:
        return mod
    orders = main.attrs[ORDERS]
    results, found = _results(main.body), main.body.type
    reordered_type(found, orders)  # checks them
    for number, order in orders:
        span = results[number].span
        results[number] = get_operator("transpose")(results[number], axes=order)
        object.__setattr__(results[number], "span", span)
    attrs = {name: value for name, value in main.attrs.items() if name != ORDERS}
    body = Tuple(results) if isinstance(found, TupleType) else results[0]
    ordered = Function(main.params, body, None, {**attrs, ORDERED: orders}, main.span)
    return mod.with_functions({mod.get_global_var("main"): ordered})


def _results(body: Expr) -> list[Expr]:
    if isinstance(body, Tuple):
        return list(body.fields)
    if isinstance(body.type, TupleType):
        return [TupleGetItem(body, number) for number in range(len(body.type.fields))]
    return [body]


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the order that undoes an order."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def reordered_type(found: Type | None, orders: Sequence[tuple[int, Sequence[int]]]) -> Type:
    """Return the type of a tensor or of a tuple of tensors with the axes of some of them, given by their numbers, in
    other orders.

    Raises:
        TypeInferenceError: an order does not fit a tensor.
    """
    fields = list(found.fields) if isinstance(found, TupleType) else [found]
    for number, order in orders:
        field = fields[number] if 0 <= number < len(fields) else None
        if not isinstance(field, TensorType) or sorted(order) != list(range(field.ndim)):
            raise TypeInferenceError(
                f"result of main: expected a tensor with the axes {order} at {number}, found {found}"
            )
        fields[number] = TensorType([field.shape[axis] for axis in order], field.dtype)
    return TupleType(fields) if isinstance(found, TupleType) else fields[0]  # type: ignore[arg-type, return-value]
