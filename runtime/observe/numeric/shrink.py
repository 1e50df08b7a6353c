"""Make dimensions smaller: all of one size together, as long as types can be inferred and the predicate holds.

The results of the graph on these inputs change; parameters and constants keep their first elements.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import TilewrightError

#: Values of parameters in order, if they are known.
Values = tuple[Any, ...] | None

#: A predicate on a module and the values of its parameters.
Wanted = Callable[[IRModule, Values], bool]


def smaller_sizes(mod: IRModule, values: Values, wanted: Wanted) -> tuple[IRModule, Values]:
    """Make the sizes of ``mod`` as small as ``wanted`` allows, the largest first; return it with the values of its
    parameters."""
    main = mod["main"]
    if not isinstance(main, Function) or len(mod) > 1:  # other functions have types of their own
        return mod, values
    for size in sorted({dim for found in _types(main) for dim in _sizes(found)}, reverse=True):
        for smaller in _attempts(size):
            made = next((m for m in _with_size(mod, values, size, smaller) if wanted(*m)), None)
            if made is not None:
                mod, values = made
                break
    return mod, values


def _attempts(size: int) -> Iterator[int]:
    """List the sizes to try in place of ``size``: small ones first, then halves."""
    tried = sorted({1, 2, 3, *(size >> shift for shift in range(size.bit_length()))})
    return (number for number in tried if 0 < number < size)


def _types(main: Function) -> list[Type]:
    leaves = [node for node in post_order(main) if isinstance(node, (Var, Constant))]
    return [node.type for node in leaves if node.type is not None]


def _sizes(found: Type) -> list[int]:
    if isinstance(found, TupleType):
        return [size for field in found.fields for size in _sizes(field)]
    return [dim for dim in found.shape if isinstance(dim, int) and dim > 1] if isinstance(found, TensorType) else []


def _with_size(mod: IRModule, values: Values, old: int, new: int) -> Iterator[tuple[IRModule, Values]]:
    """Yield ``mod`` with the size ``old`` replaced by ``new``: in dimensions only, and in attributes as well."""
    main = mod["main"]
    assert isinstance(main, Function)
    for in_attributes in (False, True):
        try:
            rebuilt = _rebuilt(main, old, new, in_attributes)
        except (TilewrightError, TypeError, ValueError):
            continue
        found = values
        if values is not None:
            found = tuple(
                _sliced(value, param.type, old, new) for value, param in zip(values, main.params, strict=True)
            )
        yield mod.with_functions({mod.get_global_var("main"): rebuilt}), found


def _rebuilt(main: Function, old: int, new: int, in_attributes: bool) -> Function:
    done: dict[Expr, Expr] = {}
    for node in post_order(main):
        if isinstance(node, Var):
            done[node] = Var(node.name, _resized(node.type, old, new), node.span)
        elif isinstance(node, Constant):
            done[node] = Constant(_sliced(node.data, node.type, old, new), node.span)
        elif isinstance(node, Function):
            children = [done[child] for child in node.children]
            done[node] = Function(children[:-1], children[-1], None, node.attrs, node.span)  # type: ignore[arg-type]
        elif isinstance(node, Call) and isinstance(node.op, Operator):
            attrs = _replaced(node.attrs, old, new) if in_attributes else node.attrs
            done[node] = Call(node.op, [done[arg] for arg in node.args], attrs, None, node.span)
        else:
            done[node] = node.with_children([done[child] for child in node.children])
    result = done[main]
    assert isinstance(result, Function)
    return result


def _resized(found: Type | None, old: int, new: int) -> Type | None:
    if isinstance(found, TupleType):
        return TupleType([field for part in found.fields if (field := _resized(part, old, new)) is not None])
    if isinstance(found, TensorType):
        return TensorType([new if isinstance(dim, int) and dim == old else dim for dim in found.shape], found.dtype)
    return found


def _sliced(value: Any, found: Type | None, old: int, new: int) -> Any:
    if isinstance(found, TupleType):
        return tuple(_sliced(part, field, old, new) for part, field in zip(value, found.fields, strict=True))
    if not isinstance(found, TensorType):
        return value
    array = np.asarray(value)
    cut = tuple(slice(0, new if isinstance(dim, int) and dim == old else None) for dim in found.shape)
    return np.array(array[cut], order="C")


def _replaced(value: Any, old: int, new: int) -> Any:
    """Replace a number in a record of attributes, including tuples."""
    if isinstance(value, int) and not isinstance(value, bool):
        return new if value == old else value
    if isinstance(value, tuple):
        return tuple(_replaced(item, old, new) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        known: dict[str, Any] = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        changed = {name: made for name, item in known.items() if (made := _replaced(item, old, new)) is not item}
        return dataclasses.replace(value, **changed) if changed else value
    return value
