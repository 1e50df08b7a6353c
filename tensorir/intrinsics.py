"""The functions that loop-level expressions may call, each with all its properties in one declaration.

A code generator emits some of them as instructions (``fma``, ``sqrt``, ``floor``); the pass ``LowerIntrin`` expands the
others (``exp``, ``erf``) into those. Generators and the pass register the functions that lower intrinsics by
:func:`lowers`. The reference of all of them is the declared value, which the interpreter computes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright.tensorir.dtype import BOOL, HANDLE, INT64, VOID, DataType
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.interpreter_values import Operation
from tilewright.tensorir.intrinsic_values import (
    Evaluation,
    absolute,
    across_lanes,
    check_index,
    dot,
    erf,
    fma,
    interleave,
    interleave_part,
    of_bits,
    of_floats,
    reinterpret,
    rsqrt,
    sigmoid,
)
from tilewright.tensorir.profiling import PROFILE_INTRINSICS

#: Instructions of a function computed as a polynomial, or a quotient of two, of a reduced argument.
_SERIES = 20
#: Instructions of a division or a root: the number of additions that take the same time.
DIVISION_INSTRUCTIONS = 5


def _dot_misfit(types: Sequence[DataType]) -> str | None:
    total, a, b = types
    if a.lanes != b.lanes or a.lanes % total.lanes or a.lanes == total.lanes:
        return f"expected two vectors of a multiple of {total.lanes} lanes, found {a!s} and {b!s}"
    if not ((total.is_float and a.is_float and b.is_float) or (total.is_int and a.is_integer and b.is_integer)):
        return f"expected floats, or integers with a signed sum, found {total!s}, {a!s} and {b!s}"
    if max(a.bits, b.bits) >= total.bits:
        return f"expected factors narrower than the sum, {total!s}, found {a!s} and {b!s}"
    return None


#: Odd numbers of vectors whose lanes an intrinsic interleaves.
INTERLEAVED = (3, 5, 7, 9, 11, 13, 15)

#: The most vectors that are interleaved in registers. Few processors have more registers; others keep some in memory.
_MOST_INTERLEAVED = 16


def can_interleave(count: int) -> bool:
    """Return whether the lanes of that many vectors can be interleaved in registers: an even number by halves."""
    odd = count
    while odd % 2 == 0 and odd:
        odd //= 2
    return 2 <= count <= _MOST_INTERLEAVED and (odd == 1 or odd in INTERLEAVED)


def _interleave_misfit(types: Sequence[DataType]) -> str | None:
    *vectors, part = types
    if any(found is not vectors[0] for found in vectors) or vectors[0].lanes < 2:
        return f"expected vectors of one type, found {', '.join(map(str, vectors))}"
    return None if part.is_integer and part.lanes == 1 else f"expected the number of a part, found {part!s}"


def _check_misfit(types: Sequence[DataType]) -> str | None:
    index, extent, happens, number = types
    lanes = index.lanes
    if index is not INT64.with_lanes(lanes) or extent is not index or number is not INT64:
        return f"expected an index and an extent of int64, and a number, found {index!s}, {extent!s} and {number!s}"
    if happens is not BOOL.with_lanes(lanes):
        return f"expected {lanes} bools, found {happens!s}"
    return None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)  # halves the time of the decorator at import
class Intrinsic:
    """One callable function.

    Attributes:
        arity: number of arguments.
        operands: what the arguments are: ``float``, ``integer``, ``number``, ``vector`` (with an even number of
            lanes) or ``any``; all but the last have one type.
        evaluate: returns the function that computes its value, for types of arguments and result; None if the value
            does not depend on the arguments' values alone.
        instructions: approximate number of instructions for a scalar or a vector, in units of an addition's time.
        operations: arithmetic operations on each element, as :mod:`.costs` counts them.
        counted: the argument whose elements are counted; None: the elements of the result.
        lanewise: each lane of the result depends on that lane of the arguments only, so that it has a form for vectors
            of any length (``reinterpret``: between types of one width).
        result: ``same`` (type of the first argument), ``bool``, ``element`` (a vector's scalar), ``void``, ``handle``
            or ``given`` (named by the call).
        value_range: the least and the greatest value for these argument types, of integers; None: those of the type.
        reduces: the binary operation by which it reduces the lanes of its argument; None if it is no reduction.
        pure: without effects, so that it may be removed, moved and merged.
        addressing: it takes an element of a buffer and uses its address, not its value.
        in_c_library: the C library has a function of this name, on float64.
        misfit: describes an error in argument types, for an intrinsic whose arguments have several types; None without
            error.
        lowerings: what each code generator, by its name, writes for a call; :func:`lowers` adds them.
    """

    name: str
    arity: int
    operands: str
    evaluate: Evaluation | None
    _: dataclasses.KW_ONLY
    instructions: int
    operations: int = 1
    counted: int | None = None
    lanewise: bool = True
    result: str = "same"
    value_range: Callable[[Sequence[DataType]], tuple[int, int]] | None = None
    reduces: str | None = None
    pure: bool = True
    addressing: bool = False
    in_c_library: bool = False
    misfit: Callable[[Sequence[DataType]], str | None] | None = None
    lowerings: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Intrinsic({self.name!r})"

    def operation(self, args: Sequence[DataType], result: DataType) -> Operation:
        """The function that computes its value, on arguments of these types.

        Raises:
            ValueError: its value does not depend on the arguments' values alone.
        """
        if self.evaluate is None:
            raise ArgumentValueError(f"intrinsic {self.name} has no value")
        return self.evaluate(args, result)

    def count_operations(self, args: Sequence[DataType], result: DataType) -> tuple[DataType, int]:
        """Return the type that a call computes in, and the number of its arithmetic operations on that type."""
        dtype = result if self.counted is None else args[self.counted]
        return dtype, self.operations * (dtype.lanes - (self.reduces is not None))

    def result_type(self, args: Sequence[Any]) -> DataType:
        """The type of a call with these argument expressions.

        Raises:
            TypeError: the intrinsic leaves the type to the call.
        """
        if self.result in ("same", "bool") and not args:
            raise ArgumentTypeError(f"{self.name}: expected {self.arity} arguments, found none")
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
        raise ArgumentTypeError(f"{self.name}: the call must state its result type")

    def check(self, call: Any) -> None:
        """Check number and types of the arguments of ``call`` and its result type.

        Raises:
            TypeError: they do not fit.
        """
        if len(call.args) != self.arity:
            raise ArgumentTypeError(f"{self.name}: expected {self.arity} arguments, found {len(call.args)}")
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
                raise ArgumentTypeError(f"{self.name}: expected {expected}, found {found}")
        problem = self.misfit([arg.dtype for arg in call.args]) if self.misfit is not None else None
        if problem is not None:
            raise ArgumentTypeError(f"{self.name}: {problem}")
        if self.result != "given" and call.dtype is not self.result_type(call.args):
            raise ArgumentTypeError(f"{self.name}: gives {self.result_type(call.args)!s}, not {call.dtype!s}")


INTRINSICS: dict[str, Intrinsic] = {}


def find_intrinsic(name: str) -> Intrinsic:
    """The intrinsic of that name.

    Raises:
        ValueError: there is none.
    """
    found = INTRINSICS.get(name) if isinstance(name, str) else None
    if found is None:
        raise ArgumentValueError(f"unknown intrinsic {name!r:.80}; expected one of {', '.join(sorted(INTRINSICS))}")
    return found


_F = TypeVar("_F", bound=Callable[..., Any])


def lowers(generator: str, *names: str) -> Callable[[_F], _F]:
    """Declare a function that lowers calls of these intrinsics for the code generator of that name.

    Raises:
        ValueError: an intrinsic is unknown, or the generator has a lowering for it already.
    """

    def register(function: _F) -> _F:
        for name in names:
            lowerings = find_intrinsic(name).lowerings
            if generator in lowerings:
                raise ArgumentValueError(f"{generator} has a lowering of the intrinsic {name} already")
            lowerings[generator] = function
        return function

    return register


def lowered_by(generator: str) -> dict[str, Callable[..., Any]]:
    """Return the lowerings that the code generator of that name has registered so far, by intrinsic."""
    return {name: found.lowerings[generator] for name, found in INTRINSICS.items() if generator in found.lowerings}


def _define(name: str, arity: int, operands: str, evaluate: Evaluation | None, **properties: Any) -> None:
    INTRINSICS[name] = Intrinsic(name, arity, operands, evaluate, **properties)


def _define_series(name: str, arity: int, evaluate: Evaluation, instructions: int = _SERIES) -> None:
    _define(name, arity, "float", evaluate, instructions=instructions, in_c_library=True)


# Functions of floats that the C library has, too.
_define_series("exp", 1, of_floats(np.exp))
_define_series("exp2", 1, of_floats(np.exp2))
_define_series("expm1", 1, of_floats(np.expm1))
_define_series("log", 1, of_floats(np.log))
_define_series("log2", 1, of_floats(np.log2))
_define_series("log10", 1, of_floats(np.log10))
_define_series("log1p", 1, of_floats(np.log1p))
_define_series("tanh", 1, of_floats(np.tanh))
_define_series("sinh", 1, of_floats(np.sinh))
_define_series("cosh", 1, of_floats(np.cosh))
_define_series("sin", 1, of_floats(np.sin))
_define_series("cos", 1, of_floats(np.cos))
_define_series("tan", 1, of_floats(np.tan))
_define_series("asin", 1, of_floats(np.arcsin))
_define_series("acos", 1, of_floats(np.arccos))
_define_series("atan", 1, of_floats(np.arctan))
_define_series("asinh", 1, of_floats(np.arcsinh))
_define_series("acosh", 1, of_floats(np.arccosh))
_define_series("atanh", 1, of_floats(np.arctanh))
_define_series("erf", 1, erf)
_define_series("pow", 2, of_floats(np.power))
_define_series("fmod", 2, of_floats(np.fmod))
_define_series("atan2", 2, of_floats(np.arctan2))

# Other functions of floats.
_define("sigmoid", 1, "float", sigmoid, instructions=_SERIES)
_define("sqrt", 1, "float", of_floats(np.sqrt), instructions=DIVISION_INSTRUCTIONS)
_define("rsqrt", 1, "float", rsqrt, instructions=2 * DIVISION_INSTRUCTIONS)
_define("floor", 1, "float", of_floats(np.floor), instructions=1)
_define("ceil", 1, "float", of_floats(np.ceil), instructions=1)
_define("trunc", 1, "float", of_floats(np.trunc), instructions=1)
_define("round", 1, "float", of_floats(np.rint), instructions=1)  # half to even, as NumPy and ONNX round
_define("copysign", 2, "float", of_floats(np.copysign), instructions=1)
_define("fma", 3, "float", fma, instructions=1, operations=2)
_define("isnan", 1, "float", of_floats(np.isnan), instructions=1, operations=0, result="bool")
_define("isinf", 1, "float", of_floats(np.isinf), instructions=2, operations=0, result="bool")
_define("isfinite", 1, "float", of_floats(np.isfinite), instructions=2, operations=0, result="bool")

_define("abs", 1, "number", absolute, instructions=1)

# Bits. Few processors have instructions that count bits in vectors; on others, code looks up four bits at a time.
_COUNT = {"instructions": 8, "value_range": lambda args: (0, args[0].bits)}
_define("popcount", 1, "integer", of_bits(lambda value, bits: f"{value:b}".count("1")), **_COUNT)
_define("count_leading_zeros", 1, "integer", of_bits(lambda value, bits: bits - value.bit_length()), **_COUNT)
# The same bits as another type of the same width.
_define("reinterpret", 1, "any", reinterpret, instructions=0, operations=0, result="given")

# Interleaving of lanes: a0 b0 a1 b1 ... from the first halves of two vectors, and the same from the second halves.
_SHUFFLE = {"instructions": 1, "operations": 0, "lanewise": False}
_define("interleave_low", 2, "vector", interleave(low=True), **_SHUFFLE)
_define("interleave_high", 2, "vector", interleave(low=False), **_SHUFFLE)
# Interleaving of an odd number of vectors: the last argument, a constant, tells which part of the elements.
_ODD = {"operations": 0, "lanewise": False, "misfit": _interleave_misfit}
for _count in INTERLEAVED:
    _define(f"interleave_{_count}", _count + 1, "any", interleave_part, instructions=_count - 1, **_ODD)
# Reductions over the lanes by a binary tree, which defines the order of float additions: a shuffle and an operation for
# each level, of which most vectors have four.
_REDUCTION = {"instructions": 8, "counted": 0, "lanewise": False, "result": "element"}
_define("reduce_add", 1, "number", across_lanes(np.add), reduces="add", **_REDUCTION)
_define("reduce_mul", 1, "number", across_lanes(np.multiply), reduces="mul", **_REDUCTION)
_define("reduce_min", 1, "number", across_lanes(np.minimum), reduces="min", **_REDUCTION)
_define("reduce_max", 1, "number", across_lanes(np.maximum), reduces="max", **_REDUCTION)

# Adds neighbouring products of the last two arguments to each lane of the first: as many as they have lanes for each of
# its lanes. Integers wrap like the sum's type; for floats the target orders the additions and may flush denormals.
_define("dot", 3, "any", dot, instructions=1, operations=2, counted=1, lanewise=False, misfit=_dot_misfit)

# Memory: the address of the element that a BufferLoad names, and a prefetch hint for it.
_MEMORY = {"operations": 0, "lanewise": False, "addressing": True}
_define("address_of", 1, "any", None, instructions=0, result="handle", **_MEMORY)
_define("prefetch", 1, "any", None, instructions=1, result="void", pure=False, **_MEMORY)

#: ``check_index(index, extent, happens, number)``: whether an access takes place, per lane: where it happens and its
#: index is inside. An index that is outside is reported, as that of the access of this number
#: (:data:`.keys.CHECKED_ACCESSES`).
CHECK_INDEX = "check_index"
_define(
    CHECK_INDEX,
    4,
    "any",
    check_index,
    instructions=4,
    operations=0,
    lanewise=False,
    result="bool",
    pure=False,
    misfit=_check_misfit,
)

# The clock: its arguments are the address of a record and its stride (:mod:`.profiling`). No result depends on it.
_CLOCK = {"instructions": 20, "operations": 0, "lanewise": False, "result": "void", "pure": False}
for _name in PROFILE_INTRINSICS:
    _define(_name, 2, "any", None, **_CLOCK)

#: The intrinsics that take an element of a buffer and use its address, not its value.
ADDRESSING = tuple(name for name, found in INTRINSICS.items() if found.addressing)

#: The intrinsic that reduces the lanes of a vector, by binary operation.
REDUCERS = {found.reduces: name for name, found in INTRINSICS.items() if found.reduces is not None}
