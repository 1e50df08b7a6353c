"""Infer the type of sums of products, which may be wider than that of the factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.op import Operator
from tilewright.graphir.ops.common import NUMBERS, check_dtype, same_dtype, widened
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import FLOAT32, INT32, DataType, as_dtype
from tilewright.tensorir.errors import ArgumentValueError

#: Types of factors that may be summed in a wider type.
_FACTORS = {INT32: ("int8", "uint8", "int16"), FLOAT32: ("float16", "bfloat16")}


def sum_dtype(out_dtype: Any) -> DataType | None:
    """Convert an attribute ``out_dtype`` to an element type.

    Raises:
        ValueError: it is neither None nor a type that narrower ones are summed in.
    """
    if out_dtype is None:
        return None
    found = as_dtype(out_dtype)
    if found not in _FACTORS:
        raise ArgumentValueError(f"out_dtype: expected int32 or float32, found {found!s}")
    return found


def product_dtype(op: Operator, args: Sequence[TensorType], out_dtype: DataType | None) -> DataType:
    """Return the element type of a sum of products: that of both factors, or ``out_dtype`` for narrower ones, which may
    be integers of two types.

    Raises:
        TypeInferenceError: the factors' types do not fit.
    """
    if out_dtype is not None:
        for number, arg in enumerate(args):
            check_dtype(op, number, arg, _FACTORS[out_dtype])
        if out_dtype is FLOAT32:
            same_dtype(op, args)
        return out_dtype
    dtype = same_dtype(op, args)
    check_dtype(op, 0, args[0], NUMBERS)
    return dtype


def widened_factors(args: Sequence[Any], out_dtype: DataType | None) -> list[Any]:
    """Convert arrays to the type in which their products are summed."""
    return [arg.astype(out_dtype.numpy) if out_dtype is INT32 else widened(arg) for arg in args]


def narrowed_sum(found: Any, factor: Any, out_dtype: DataType | None) -> Any:
    """Convert a sum to the type of the result, which is that of the factors if no ``out_dtype`` is given."""
    return found.astype(factor.dtype, copy=False) if out_dtype is None else found
