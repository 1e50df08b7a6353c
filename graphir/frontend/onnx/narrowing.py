"""Narrow the dimensions of a model's inputs: to sizes, or to other names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import ValueInfoProto

from tilewright.graphir.dims import Dim, as_dim, symbols_of
from tilewright.graphir.frontend.onnx.model import GivenShape, check_inputs, input_type, symbol_name
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.tensorir.errors import InputError, TilewrightError
from tilewright.tensorir.expr import Var


def input_types(inputs: Sequence[ValueInfoProto], shapes: Mapping[str, Any]) -> list[TensorType | TupleType]:
    """Return the types of the inputs. A dimension that ``shapes`` narrows in one input is narrowed in all of them.

    Args:
        inputs: as the model declares them.
        shapes: sizes and names of inputs' dimensions by the inputs' names, or by the dimensions' own names.

    Raises:
        InputError: a name is neither an input nor a dimension, a shape does not fit, or a dimension is narrowed twice
            and differently.
        UnsupportedOperatorError: as :func:`input_type`.
    """
    names = [info.name for info in inputs]
    own: dict[str, GivenShape] = {name: given for name, given in shapes.items() if not isinstance(given, (int, str))}
    check_inputs("shapes", own, names)
    types = [input_type(info, own.get(info.name)) for info in inputs]
    narrowed: dict[Var, Dim] = {}

    def narrow(dim: Var, to: Dim, where: str) -> None:
        known = narrowed.setdefault(dim, to)
        if known != to and known is not to:
            raise InputError(f"shapes: {where}: dimension {dim.name!r} is {to} here, but {known} elsewhere")

    declared = {info.name: _declared(info) for info in inputs}
    for info, found in zip(inputs, types, strict=True):
        before = declared[info.name]
        if info.name in own and isinstance(before, TensorType) and isinstance(found, TensorType):
            for old, new in zip(before.shape, found.shape, strict=True):
                if isinstance(old, Var) and new is not old:
                    narrow(old, new, f"input {info.name!r}")
    dims = {dim.name: dim for found in declared.values() for dim in _symbols(found)}
    for name, given in shapes.items():
        if isinstance(given, (int, str)):
            dim = dims.get(symbol_name(name))
            if dim is None:
                raise InputError(
                    f"shapes: the model has no dimension {name!r} (it has: {', '.join(dims) or 'none'}; its inputs, "
                    f"which take a shape: {', '.join(names)})"
                )
            narrow(dim, as_dim(given), f"dimension {name!r}")
    return [_bound(found, narrowed) for found in types] if narrowed else types


def _declared(info: ValueInfoProto) -> Type | None:
    """Return the type that the model declares; None where it leaves the rank or a length open."""
    try:
        return input_type(info, None)
    except TilewrightError:
        return None


def _symbols(found: Type | None) -> list[Var]:
    if isinstance(found, TupleType):
        return [symbol for field in found.fields for symbol in _symbols(field)]
    return symbols_of(found.shape) if isinstance(found, TensorType) else []


def _bound(found: Any, narrowed: Mapping[Var, Dim]) -> Any:
    if isinstance(found, TupleType):
        return TupleType([_bound(field, narrowed) for field in found.fields])
    shape = [narrowed.get(dim, dim) if isinstance(dim, Var) else dim for dim in found.shape]
    return TensorType(shape, found.dtype)
