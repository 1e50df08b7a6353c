"""The functions that loop-level expressions may call, each with its meaning in NumPy.

A code generator knows some of them as instructions (``fma``, ``sqrt``, ``floor``); the pass ``LowerIntrin`` writes the
others (``exp``, ``erf``) in terms of those. The reference is what the interpreter runs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.tensorir.dtype import BOOL, HANDLE, VOID, DataType
from tilewright.tensorir.profiling import PROFILE_INTRINSICS

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _fma(a: Any, b: Any, c: Any) -> Any:
    """One rounding for float32 and narrower, through float64; two for float64, which has no wider type here."""
    return np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64)


def _interleave(*, low: bool) -> Callable[[Any, Any], Any]:
    def of_halves(a: Any, b: Any) -> Any:
        half = len(a) // 2
        part = slice(0, half) if low else slice(half, 2 * half)
        return np.stack([a[part], b[part]], axis=1).reshape(-1)

    return of_halves


def _dot(total: Any, a: Any, b: Any) -> Any:
    """``total + sum of a * b`` over the neighbours that belong to each lane, exact for integers in int64."""
    wide = np.float64 if np.asarray(total).dtype.kind == "f" else np.int64
    products = np.asarray(a).astype(wide) * np.asarray(b).astype(wide)
    return np.asarray(total).astype(wide) + products.reshape((*np.shape(total), -1)).sum(axis=-1)


def _dot_misfit(types: Sequence[DataType]) -> str | None:
    total, a, b = types
    if a.lanes != b.lanes or a.lanes % total.lanes or a.lanes == total.lanes:
        return f"expected two vectors of a multiple of {total.lanes} lanes, found {a!s} and {b!s}"
    if not ((total.is_float and a.is_float and b.is_float) or (total.is_int and a.is_integer and b.is_integer)):
        return f"expected floats, or integers with a signed sum, found {total!s}, {a!s} and {b!s}"
    if max(a.bits, b.bits) >= total.bits:
        return f"expected factors narrower than the sum, {total!s}, found {a!s} and {b!s}"
    return None


@dataclasses.dataclass(frozen=True)
class Intrinsic:
    """One callable function.

    Attributes:
        arity: number of arguments.
        operands: what the arguments are: ``float``, ``integer``, ``number``, ``vector`` (with an even number of
            lanes) or ``any``; all but the last have one type.
        misfit: what is wrong with these argument types, of an intrinsic whose arguments have several; None if nothing.
        reference: its value on NumPy arrays, computed in float64 for floats and rounded once by the caller.
        result: ``same`` (type of the first argument), ``bool``, ``element`` (a vector's scalar), ``void``, ``handle``
            or ``given`` (named by the call).
        pure: without effects, so that it may be removed, moved and merged.
    """

    name: str
    arity: int
    operands: str = "float"
    reference: Callable[..., Any] | None = None
    result: str = "same"
    pure: bool = True
    misfit: Callable[[Sequence[DataType]], str | None] | None = None

    def result_type(self, args: Sequence[Any]) -> DataType:
        """The type of a call with these argument expressions.

        Raises:
            TypeError: the intrinsic leaves the type to the call.
        """
        if self.result == "same":
            first: DataType = args[0].dtype
            return first
        if self.result == "bool":
            return BOOL.with_lanes(args[0].dtype.lanes)
        if self.result == "element":
            element: DataType = args[0].dtype.element
            return element
        if self.result == "void":
            return VOID
        if self.result == "handle":
            return HANDLE
        raise TypeError(f"{self.name}: the call must name its result type")

    def check(self, call: Any) -> None:
        """Check number and types of the arguments of ``call`` and its result type.

        Raises:
            TypeError: they do not fit.
        """
        if len(call.args) != self.arity:
            raise TypeError(f"{self.name}: expected {self.arity} arguments, found {len(call.args)}")
        for arg in call.args:
            dtype = arg.dtype
            fits = {
                "float": dtype.is_float,
                "integer": dtype.is_integer,
                "number": dtype.is_float or dtype.is_integer,
                "vector": dtype.lanes % 2 == 0,
                "any": True,
            }[self.operands]
            if not fits or (dtype is not call.args[0].dtype and self.operands != "any"):
                kind = "even vector" if self.operands == "vector" else self.operands
                expected = f"{kind} arguments of one type" if self.operands != "any" else "arguments"
                found = ", ".join(str(a.dtype) for a in call.args)
                raise TypeError(f"{self.name}: expected {expected}, found {found}")
        problem = self.misfit([arg.dtype for arg in call.args]) if self.misfit is not None else None
        if problem is not None:
            raise TypeError(f"{self.name}: {problem}")
        if self.result != "given" and call.dtype is not self.result_type(call.args):
            raise TypeError(f"{self.name}: gives {self.result_type(call.args)!s}, not {call.dtype!s}")


INTRINSICS: dict[str, Intrinsic] = {}


def _define(name: str, arity: int, operands: str = "float", reference: Any = None, **kwargs: Any) -> None:
    INTRINSICS[name] = Intrinsic(name, arity, operands, reference, **kwargs)


def find_intrinsic(name: str) -> Intrinsic:
    """The intrinsic of that name.

    Raises:
        ValueError: there is none.
    """
    try:
        return INTRINSICS[name]
    except KeyError:
        raise ValueError(f"unknown intrinsic {name!r}; expected one of {', '.join(sorted(INTRINSICS))}") from None


# Functions of one float.
_define("exp", 1, reference=np.exp)
_define("exp2", 1, reference=np.exp2)
_define("expm1", 1, reference=np.expm1)
_define("log", 1, reference=np.log)
_define("log2", 1, reference=np.log2)
_define("log10", 1, reference=np.log10)
_define("log1p", 1, reference=np.log1p)
_define("sqrt", 1, reference=np.sqrt)
_define("rsqrt", 1, reference=lambda x: 1 / np.sqrt(x))
_define("sigmoid", 1, reference=lambda x: 1 / (1 + np.exp(-x)))
_define("tanh", 1, reference=np.tanh)
_define("sinh", 1, reference=np.sinh)
_define("cosh", 1, reference=np.cosh)
_define("sin", 1, reference=np.sin)
_define("cos", 1, reference=np.cos)
_define("tan", 1, reference=np.tan)
_define("asin", 1, reference=np.arcsin)
_define("acos", 1, reference=np.arccos)
_define("atan", 1, reference=np.arctan)
_define("asinh", 1, reference=np.arcsinh)
_define("acosh", 1, reference=np.arccosh)
_define("atanh", 1, reference=np.arctanh)
_define("erf", 1, reference=_erf)
_define("floor", 1, reference=np.floor)
_define("ceil", 1, reference=np.ceil)
_define("trunc", 1, reference=np.trunc)
_define("round", 1, reference=np.rint)  # half to even, as NumPy and ONNX round
_define("isnan", 1, reference=np.isnan, result="bool")
_define("isinf", 1, reference=np.isinf, result="bool")
_define("isfinite", 1, reference=np.isfinite, result="bool")

# Functions of two and three.
_define("pow", 2, reference=np.power)
_define("fmod", 2, reference=np.fmod)
_define("atan2", 2, reference=np.arctan2)
_define("copysign", 2, reference=np.copysign)
_define("fma", 3, reference=_fma)
_define("abs", 1, "number", np.abs)

# Bits.
_define("reinterpret", 1, "any", None, result="given")  # the same bits as another type of the same width
_define("popcount", 1, "integer", None)
_define("count_leading_zeros", 1, "integer", None)

# Across the lanes of vectors.
_define("interleave_low", 2, "vector", _interleave(low=True))  # of the first halves of two vectors: a0 b0 a1 b1 ...
_define("interleave_high", 2, "vector", _interleave(low=False))  # of the second halves
_define("reduce_add", 1, "number", np.add.reduce, result="element")  # floats: in pairs, a tree over the lanes
_define("reduce_mul", 1, "number", np.multiply.reduce, result="element")
_define("reduce_min", 1, "number", np.minimum.reduce, result="element")
_define("reduce_max", 1, "number", np.maximum.reduce, result="element")

# To each lane of the first argument, as many neighbouring products of the two others as they have more lanes. Integers
# wrap like the sum's type; of floats the order of the additions is the target's, which may take denormals for zero.
_define("dot", 3, "any", _dot, misfit=_dot_misfit)

# Memory.
_define("address_of", 1, "any", None, result="handle")  # of a BufferLoad
_define("prefetch", 1, "any", None, result="void", pure=False)  # of a BufferLoad

#: What takes an element of a buffer and asks for its place, not for its value.
ADDRESSING = ("address_of", "prefetch")


# The clock: of the address of a record and its stride (:mod:`.profiling`). Nothing that is computed depends on it.
for _name in PROFILE_INTRINSICS:
    _define(_name, 2, "any", None, result="void", pure=False)
