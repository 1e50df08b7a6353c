"""Match the types of parameters and arguments: a call gives sizes to the symbolic dimensions of a function.

A function of ``Tensor[(n, 8), float32]`` is one for every ``n``: a call with ``Tensor[(3, 8), float32]`` binds ``n`` to
3 in the type of its result, and one with ``Tensor[(m, 8), float32]`` to ``m``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graphir.dims import Dim, bind_dims
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.expr import Var

#: The sizes of symbolic dimensions.
Sizes = Mapping[ScalarExpr, Dim]


def bound_sizes(params: Sequence[Type | None], args: Sequence[Type | None]) -> dict[ScalarExpr, Dim]:
    """Return the sizes that arguments give to the dimensions of parameters that are symbols, where they differ from
    them. The first dimension that is a symbol counts; whether the others fit is for :func:`with_sizes_in_type`."""
    found: dict[ScalarExpr, Dim] = {}
    for param, arg in zip(params, args, strict=True):
        _match(param, arg, found)
    return {symbol: size for symbol, size in found.items() if size is not symbol}


def _match(param: Type | None, arg: Type | None, found: dict[ScalarExpr, Dim]) -> None:
    if isinstance(param, TensorType) and isinstance(arg, TensorType):
        for dim, size in zip(param.shape, arg.shape, strict=False):
            if isinstance(dim, Var):
                found.setdefault(dim, size)
    elif isinstance(param, TupleType) and isinstance(arg, TupleType):
        for field, given in zip(param.fields, arg.fields, strict=False):
            _match(field, given, found)


def with_sizes_in_type(found: Type, sizes: Sizes) -> Type:
    """Return a type with the symbols of ``sizes`` replaced; ``found`` itself if it has none of them.

    Raises:
        ShapeError: a dimension becomes negative.
    """
    if isinstance(found, TensorType):
        shape = bind_dims(found.shape, sizes)
        same = all(new is old for new, old in zip(shape, found.shape, strict=True))
        return found if same else TensorType(shape, found.dtype)
    if isinstance(found, TupleType):
        fields = [with_sizes_in_type(field, sizes) for field in found.fields]
        same = all(new is old for new, old in zip(fields, found.fields, strict=True))
        return found if same else TupleType(fields)
    if isinstance(found, FuncType):
        params = [with_sizes_in_type(param, sizes) for param in found.params]
        result = with_sizes_in_type(found.result, sizes)
        same = result is found.result and all(new is old for new, old in zip(params, found.params, strict=True))
        return found if same else FuncType(params, result)
    return found


def with_sizes_in_attributes(attrs: Any, sizes: Sizes) -> Any:
    """Return the attributes of an operator with the symbols of ``sizes`` replaced; ``attrs`` itself if they have none
    of them."""
    if not sizes or attrs is None:
        return attrs
    known = {field.name: getattr(attrs, field.name) for field in dataclasses.fields(attrs)}
    bound = {name: bind_dims(value, sizes) for name, value in known.items()}
    changed = {name: value for name, value in bound.items() if value is not known[name]}
    return dataclasses.replace(attrs, **changed) if changed else attrs
