"""Define constants: values that are known when a model is built.

A value may be computed later, when it is first read: weights go through several steps (a scale is multiplied in, blocks
of channels are packed), and the result of one step is freed at once if the next step reads it weight by weight. So the
memory of one weight, which is in the cache, serves all steps of all weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import FrozenExpr, new_fields
from tilewright.graphir.types import TensorType
from tilewright.tensorir import forking
from tilewright.tensorir.aligned import CONSTANT_MEMORY
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import VerifyError

Array = np.ndarray[Any, Any]

#: The greatest number of values that wait for each other: computing each takes a few frames of Python's stack.
_LONGEST_CHAIN = 16


class _Later:
    """A value that is computed when it is first read.

    Attributes:
        depth: how many values wait for each other, this one included.
        lock: held by the thread that computes it.
    """

    __slots__ = ("args", "compute", "depth", "lock")

    def __init__(self, compute: Callable[[Sequence[Array]], Array], args: Sequence[Constant], depth: int) -> None:
        self.compute = compute
        self.args = args
        self.depth = depth
        self.lock = forking.Lock()


class Constant(FrozenExpr):
    """A value known when the model is built. The array is shared, not copied, and made read-only."""

    __slots__ = ("_value",)

    #: The value may be computed later, so it is no field by itself.
    node_fields = (("type", "data"), ("data", "data"), ("span", "note"))
    by_value = True

    _value: Array | _Later
    type: TensorType

    def __init__(self, data: Array, span: str | None = None) -> None:
        _set_value(self, _read_only(data))
        _set_type(self, TensorType(data.shape, data.dtype))
        _set_span(self, span)

    @classmethod
    def later(
        cls,
        type: TensorType,
        compute: Callable[[Sequence[Array]], Array],
        args: Sequence[Constant],
        span: str | None = None,
    ) -> Constant:
        """Return a constant whose value is computed when it is first read, by one thread.

        Args:
            type: its type, of static shape.
            compute: computes the value from those of ``args``. Reading the value raises the errors that it raises.
            args: kept until then. If they wait for many others in turn, they are computed now.
        """
        depth = 1 + max((arg._value.depth for arg in args if isinstance(arg._value, _Later)), default=0)
        if depth > _LONGEST_CHAIN:
            for arg in args:
                arg._computed()
            depth = 1
        made = cls.__new__(cls)
        new_fields(made, _value=_Later(compute, args, depth), type=type, span=span)
        return made

    @property
    def data(self) -> Array:
        """The value; computed now if it has not been read before."""
        value = self._value
        return self._computed() if isinstance(value, _Later) else value

    @property
    def splat(self) -> Array | None:
        """The element, as an array without dimensions, of a constant that repeats one in memory; None: any other, and
        one of a single element."""
        value = self._value
        if isinstance(value, _Later) or 0 not in value.strides or value.size < 2:
            return None
        repeats = all(stride == 0 or extent == 1 for stride, extent in zip(value.strides, value.shape, strict=True))
        return value[(0,) * value.ndim].reshape(()) if repeats else None

    @property
    def is_computed(self) -> bool:
        """Whether the value has been computed."""
        return not isinstance(self._value, _Later)

    @property
    def size(self) -> int:
        """The number of elements; it needs no value, and neither do ``shape``, ``ndim`` and ``dtype``."""
        return math.prod(self.type.shape)  # type: ignore[arg-type]  # static

    @property
    def nbytes(self) -> int:
        """The size of the value in bytes, known before the value is computed."""
        return self.size * self.type.dtype.numpy.itemsize

    def _computed(self) -> Array:
        later = self._value
        if not isinstance(later, _Later):
            return later
        with later.lock:
            if isinstance(self._value, _Later):  # not computed by another thread meanwhile
                data = later.compute([arg.data for arg in later.args])
                if data.shape != self.type.shape or as_dtype(data.dtype) is not self.type.dtype:
                    raise VerifyError(f"expected a constant of type {self.type}, found {data.dtype}{list(data.shape)}")
                new_fields(self, _value=_read_only(_in_order(data)))
                later.args = ()  # a thread that waits for the lock may still hold it
        return self.data


_set_value, _set_type, _set_span = (getattr(Constant, name).__set__ for name in ("_value", "type", "span"))


def _in_order(data: Array) -> Array:
    """Return ``data`` in C order; memory allocated for it is aligned to a cache line, as kernels read it in vectors."""
    if data.flags.c_contiguous:
        return np.asarray(data)
    made: Array = CONSTANT_MEMORY.empty(data.nbytes).view(data.dtype).reshape(data.shape)
    made[...] = data
    return made


def _read_only(data: Array) -> Array:
    view: Array = data.view()
    view.flags.writeable = False
    return view
