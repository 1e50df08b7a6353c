"""Describe the inputs and results of a compiled model, and check the inputs of its calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, format_shape
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.runtime.dims import bindable_symbols, compile_dims
from tilewright.runtime.dlpack import from_dlpack
from tilewright.tensorir.errors import InputError, LinearAlgebraError
from tilewright.tensorir.expr import Var

_ndarray = np.ndarray


@dataclasses.dataclass(frozen=True)
class Argument:
    """One input: its name and type."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class Signature:
    """The inputs and the result of a model.

    Attributes:
        inputs: the tensors that a call takes, in order.
        result: the type of the result of a call: one tensor or a tuple.
        outputs: the types of the result's tensors, in order.
        result_names: their names; where the model does not name them, ``result``, or ``result_0`` and so on.
        symbols: the symbolic dimensions, which each call binds.
        checks: the numbers of flat results that a call checks and does not return, with what it means if an element
            of one is not 0, as ``graphir.keys.CHECKS`` says; ``result`` and ``outputs`` are without them.
        views: for the numbers of flat results that a call returns with their axes in another order, these; ``result``
            and ``outputs`` are as a call returns them.
        is_plain: whether there are no checks and no views: a call returns the flat results as they are computed.
    """

    def __init__(
        self,
        inputs: Sequence[Argument],
        result: Type,
        result_names: Sequence[str] = (),
        checks: Sequence[tuple[int, str]] = (),
        views: Sequence[tuple[int, Sequence[int]]] = (),
    ) -> None:
        self.inputs = tuple(inputs)
        self.result = result
        self.outputs = tuple(_flatten(result))
        numbered = [f"result_{number}" for number in range(len(self.outputs))]
        usual = ["result"] if isinstance(result, TensorType) else numbered
        self.result_names = tuple(result_names if len(result_names) == len(self.outputs) else usual)
        self.checks = tuple((number, text) for number, text in checks)
        self.views = tuple((number, tuple(axes)) for number, axes in views)
        self.is_plain = not self.checks and not self.views
        self.symbols: tuple[Var, ...] = tuple(bindable_symbols([argument.type for argument in inputs]))
        self._names = {argument.name: position for position, argument in enumerate(self.inputs)}
        of_inputs = [_InputCheck(argument, self.symbols) for argument in self.inputs]
        self._accept = [check.accept for check in of_inputs]
        self._computed = [(position, check) for position, check in enumerate(of_inputs) if check.computed is not None]
        self._single = isinstance(result, TensorType)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> {self.result}"

    __repr__ = __str__

    def arrange(self, args: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """Put positional and named inputs into the order of the signature.

        Raises:
            InputError: one is missing, unknown or given twice.
        """
        if not named and len(args) == len(self.inputs):
            return args
        if len(args) > len(self.inputs):
            raise InputError(f"expected {len(self.inputs)} inputs, found {len(args)}; the signature is {self}")
        given: list[Any] = [*args, *[_MISSING] * (len(self.inputs) - len(args))]
        for name, value in named.items():
            position = self._names.get(name)
            if position is None:
                raise InputError(f"there is no input {name!r}; the signature is {self}")
            if given[position] is not _MISSING:
                raise InputError(f"input {name!r} is given twice; the signature is {self}")
            given[position] = value
        missing = [argument.name for argument, value in zip(self.inputs, given, strict=True) if value is _MISSING]
        if missing:
            raise InputError(f"missing input {', '.join(map(repr, missing))}; the signature is {self}")
        return given

    def check(self, values: Sequence[Any], convert: bool) -> tuple[list[np.ndarray[Any, Any]], tuple[int, ...]]:
        """Check inputs; return them as contiguous arrays, and the sizes of the symbolic dimensions.

        Args:
            convert: whether other types (lists, numbers, arrays of another element type) are converted.

        Raises:
            InputError: an input does not fit; the message names it, with the expected and the found type.
        """
        sizes: dict[int, tuple[int, str]] = {}
        arrays = [accept(value, sizes, convert, self) for accept, value in zip(self._accept, values, strict=True)]
        if not self.symbols:
            return arrays, ()
        bound = tuple([sizes[number][0] for number in range(len(self.symbols))])
        for position, check in self._computed:
            check.check_computed(arrays[position], bound, self)
        return arrays, bound

    def restructure(self, outputs: list[Any]) -> Any:
        """Build the model's result from flat results: one array, or a (nested) tuple.

        Raises:
            LinearAlgebraError: as :meth:`delivered`.
        """
        if not self.is_plain:
            outputs = self.delivered(outputs)
        return outputs[0] if self._single else nested(self.result, iter(outputs))

    def delivered(self, outputs: Sequence[Any]) -> list[Any]:
        """Return flat results as a call returns them: with their axes in the right order, and without those that are
        checks.

        Raises:
            LinearAlgebraError: an element of one of these is not 0.
        """
        for number, text in self.checks:
            found = outputs[number]
            if np.any(found):
                place = tuple(map(int, np.argwhere(found)[0]))
                where = f" (matrix {', '.join(map(str, place))})" if place else ""
                raise LinearAlgebraError(text.replace("{number}", str(int(found[place]))) + where)
        results = list(outputs)
        for number, axes in self.views:
            results[number] = results[number].transpose(axes)
        taken = {number for number, _ in self.checks}
        return [output for number, output in enumerate(results) if number not in taken]


def nested(found: Type, remaining: Iterator[Any]) -> Any:
    """Build a value of the type ``found`` from the next of ``remaining``: one of them, or a (nested) tuple."""
    # Not a closure: a recursive closure is a reference cycle and would keep the results until the next collection.
    if isinstance(found, TupleType):
        return tuple([nested(field, remaining) for field in found.fields])
    return next(remaining)


_MISSING = object()


def _flatten(found: Type) -> list[TensorType]:
    if isinstance(found, TupleType):
        return [tensor for field in found.fields for tensor in _flatten(field)]
    assert isinstance(found, TensorType)
    return [found]


class _InputCheck:
    """Check one input; prepared so that an array that fits passes in about a microsecond."""

    def __init__(self, argument: Argument, symbols: Sequence[Var]) -> None:
        self.argument = argument
        self.dtype = argument.type.dtype.numpy
        self.shape = argument.type.shape
        numbers = {symbol: number for number, symbol in enumerate(symbols)}
        self.static = all(isinstance(dim, int) for dim in self.shape)
        self.expected = self.shape if self.static else None
        self.symbol_axes = [(axis, numbers[dim]) for axis, dim in enumerate(self.shape) if isinstance(dim, Var)]
        self.fixed_axes = [(axis, dim) for axis, dim in enumerate(self.shape) if isinstance(dim, int)]
        computed: list[tuple[int, Dim]] = [
            (axis, dim) for axis, dim in enumerate(self.shape) if not isinstance(dim, (int, Var))
        ]
        self.computed = None
        if computed:
            self.computed = ([axis for axis, _ in computed], compile_dims([dim for _, dim in computed], symbols))

    def accept(
        self, value: Any, sizes: dict[int, tuple[int, str]], convert: bool, signature: Signature
    ) -> np.ndarray[Any, Any]:
        if (
            type(value) is _ndarray
            and value.dtype is self.dtype
            and value.flags.carray
            and value.shape == self.expected
        ):
            return value  # the usual case
        array = value if type(value) is _ndarray else self._as_array(value, convert, signature)
        if array.dtype is not self.dtype and array.dtype != self.dtype:
            if not convert:
                raise self._error(f"element type {array.dtype}", signature, "; cast it, or call with convert=True")
            array = array.astype(self.dtype)
        shape = array.shape
        if shape != self.shape or not self.static:
            self._check_shape(shape, sizes, signature)
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned):
            array = np.ascontiguousarray(array).reshape(shape)  # strided or misaligned views are copied
            if not array.flags.aligned:
                array = array.copy()
        return array

    def _check_shape(self, shape: tuple[int, ...], sizes: dict[int, tuple[int, str]], signature: Signature) -> None:
        if len(shape) != len(self.shape):
            raise self._error(f"{len(shape)} dimensions, shape {shape}", signature)
        for axis, dim in self.fixed_axes:
            if shape[axis] != dim:
                raise self._error(f"shape {shape}", signature, f"; dimension {axis} must be {dim}")
        for axis, number in self.symbol_axes:
            known = sizes.get(number)
            if known is None:
                sizes[number] = (shape[axis], self.argument.name)
            elif known[0] != shape[axis]:
                name = signature.symbols[number].name
                raise self._error(
                    f"shape {shape}",
                    signature,
                    f"; dimension {name!r} is {known[0]} in input {known[1]!r} but {shape[axis]} here",
                )

    def check_computed(self, array: np.ndarray[Any, Any], sizes: tuple[int, ...], signature: Signature) -> None:
        assert self.computed is not None
        axes, evaluate = self.computed
        for axis, expected in zip(axes, evaluate(*sizes), strict=True):
            if array.shape[axis] != expected:
                raise self._error(
                    f"shape {array.shape}", signature, f"; dimension {axis}, {self.shape[axis]!s}, must be {expected}"
                )

    def _as_array(self, value: Any, convert: bool, signature: Signature) -> np.ndarray[Any, Any]:
        if isinstance(value, np.ndarray):
            return np.asarray(value)
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            try:
                return from_dlpack(value)
            except (BufferError, RuntimeError, TypeError) as error:
                raise self._error(f"a {type(value).__name__} that NumPy cannot read: {error}", signature) from error
        if isinstance(value, np.generic):
            return np.asarray(value)
        if type(value) is int and not self.shape and self.dtype.kind in "iu":
            return self._as_integer(value, signature)
        if not convert:
            raise self._error(
                f"a {type(value).__name__}", signature, "; give an array (NumPy or DLPack), or call with convert=True"
            )
        try:
            return np.asarray(value, self.dtype)
        except (TypeError, ValueError) as error:
            raise self._error(f"a {type(value).__name__} that is not an array: {error}", signature) from error

    def _as_integer(self, value: int, signature: Signature) -> np.ndarray[Any, Any]:
        limits = np.iinfo(self.dtype)
        if not limits.min <= value <= limits.max:
            raise self._error(f"the number {value}", signature, f"; expected {limits.min} to {limits.max}")
        return np.asarray(value, self.dtype)

    def _error(self, found: str, signature: Signature, hint: str = "") -> InputError:
        expected = f"{self.argument.type.dtype!s} of shape {format_shape(self.shape)}"
        return InputError(
            f"input {self.argument.name!r}: expected {expected}, found {found}{hint} (the signature is {signature})"
        )
