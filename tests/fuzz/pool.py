"""Keep the values of a graph while it is drawn, and find arguments for operators among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from tests.fuzz.values import KINDS, Fill
from tilewright import graphir as gi
from tilewright.graphir.dims import Dim, as_dim, bind_dims, product, symbol
from tilewright.graphir.ops.common import ANY, FLOATS, INTEGERS, NUMBERS
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Expr as Scalar

T = TypeVar("T")

#: Sizes of dimensions, the simplest first; those around the lanes of vectors leave tails.
SIZES = (2, 3, 1, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 0)

#: Those that large models have besides, in which kernels run on several threads, and rows are cut into tiles.
LARGE = (128, 257, 1000, 4091)

#: The most elements of a tensor, of a large model, and the size that one that is known at run time is taken for there.
MOST_ELEMENTS, MOST_OF_LARGE, UNKNOWN = 1 << 14, 1 << 18, 32

#: Element types by how often they are drawn.
TYPES = ("float32", "float32", "float32", "float32", "int64", "int32", "bool", "float16", "bfloat16", "float64", *ANY)


class Pool:
    """The values that a graph has so far.

    Attributes:
        draw: Hypothesis's ``draw``.
        symbols: the sizes of each symbolic dimension, one for each call of the model.
        values: the expressions, in the order in which they were made.
        params: the parameters.
        sizes: the sizes that dimensions have.
        most: the most elements of a tensor.
        fills: the elements of each parameter.
        refused: the errors of type inference.
        inner: the number of inner functions around what is drawn, which make no parameters of the model.
    """

    def __init__(
        self, draw: Callable[[st.SearchStrategy[Any]], Any], symbols: Mapping[str, Sequence[int]], large: int = 0
    ) -> None:
        self.draw = draw
        self.symbols = symbols
        self.values: list[gi.Expr] = []
        self.params: list[gi.Var] = []
        self.fills: list[Fill] = []
        self.refused: list[str] = []
        self.inner = 0
        is_large = large > 0 and self.chance(large)
        self.sizes = (*SIZES, *LARGE * 3) if is_large else SIZES
        self.most = MOST_OF_LARGE if is_large else MOST_ELEMENTS
        self._names = 0
        self._seed = draw(st.integers(0, 2**32 - 1))

    # Choices.

    def number(self, least: int, greatest: int) -> int:
        """Draw an integer between the bounds, both included."""
        return int(self.draw(st.integers(least, greatest)))

    def chance(self, percent: int) -> bool:
        """Draw true so often; the simplest case is false."""
        return self.number(0, 99) >= 100 - percent

    def pick(self, choices: Sequence[T]) -> T:
        """Draw one of ``choices``, the first of which is the simplest."""
        return choices[self.number(0, len(choices) - 1)]

    def name(self, what: str) -> str:
        """Return a name that is new in the graph."""
        self._names += 1
        return f"{what}{self._names}"

    # Shapes.

    def dim(self, symbolic: bool = True, most: int = max(LARGE)) -> Any:
        """Draw a dimension: a number or the name of a symbolic one."""
        if symbolic and self.symbols and self.chance(35):
            return self.pick(sorted(self.symbols))
        return self.pick([size for size in self.sizes if size <= most])

    def shape(self, rank: int, most: int | None = None) -> tuple[Any, ...]:
        """Draw a shape of so many dimensions."""
        most = self.most if most is None else most
        found: list[Any] = []
        for _ in range(rank):
            dim = self.dim()
            found.append(dim if self.elements([*found, dim]) <= most else 2)
        return tuple(found)

    def elements(self, shape: Sequence[Any]) -> int:
        """Count the elements of a shape at the sizes at which there are most."""
        dims = [symbol(dim) if isinstance(dim, str) else dim for dim in shape]
        calls = max((len(sizes) for sizes in self.symbols.values()), default=1)
        return max(math.prod(max(1, self._size(dim, number)) for dim in dims) for number in range(calls))

    def _size(self, dim: Any, number: int) -> int:
        if not isinstance(dim, Scalar):
            return int(dim)
        found = bind_dims(dim, {symbol(name): sizes[number] for name, sizes in self.symbols.items()})
        return int(found) if isinstance(found, int) else UNKNOWN

    def least(self, dim: Dim) -> int:
        """Return the least size of a dimension; 0 where it is not known."""
        if isinstance(dim, int):
            return dim
        calls = max((len(sizes) for sizes in self.symbols.values()), default=1)
        bound = [
            bind_dims(dim, {symbol(name): sizes[number] for name, sizes in self.symbols.items()})
            for number in range(calls)
        ]
        return min((size if isinstance(size, int) else 0) for size in bound)

    # Values.

    def add(self, found: gi.Expr) -> None:
        """Add a value, or the fields of a tuple."""
        if isinstance(found.type, TupleType):
            for number in range(len(found.type.fields)):
                self.add(gi.TupleGetItem(found, number))
        else:
            self.values.append(found)

    def fits(self, found: gi.Expr) -> bool:
        """Return whether a result is small enough to be kept."""
        types = found.type.fields if isinstance(found.type, TupleType) else [found.type]
        return all(isinstance(t, TensorType) and self.elements(t.shape) <= self.most for t in types)

    def leaf(self, shape: Sequence[Any], dtype: Any, fill: Fill | None = None) -> gi.Expr:
        """Make a parameter or a constant."""
        if fill is None:
            fill = Fill(self.pick(KINDS))
        static = all(isinstance(dim, int) for dim in shape)
        sized = all(isinstance(dim, int) or str(dim) in self.symbols for dim in shape)
        if not sized:  # the size is a formula, or becomes known at run time: no parameter has it
            return self.made(shape, dtype, fill)
        if self.elements(shape) > 8 * self.most:
            raise TypeInferenceError(f"a parameter of {self.elements(shape)} elements, found too large for this graph")
        if (static and (self.chance(30) or len(self.params) > 7)) or self.inner:
            if not static:
                return self.made(shape, dtype, fill)
            rng = np.random.default_rng(self._seed + self._names)
            self._names += 1
            return gi.const(fill.draw(rng, tuple(shape), dtype))
        param = gi.var(self.name("p"), shape=shape, dtype=dtype)
        self.params.append(param)
        self.fills.append(fill)
        return param

    def made(self, shape: Sequence[Any], dtype: Any, fill: Fill) -> gi.Expr:
        """Make a tensor of any shape: a scalar that is broadcast."""
        value = fill.draw(np.random.default_rng(self._seed + self._names), (), dtype)
        self._names += 1
        return gi.broadcast_to(gi.const(value), shape=tuple(shape))

    def tensor(self, dtypes: Sequence[str] = ANY, rank: int | None = None, least: int = 0, most: int = 5) -> gi.Expr:
        """Return a value of one of the types and ``rank`` dimensions (or ``least`` to ``most``): one that the graph
        has, one converted, or a leaf."""
        low, high = (least, most) if rank is None else (rank, rank)
        if self.values and not self.chance(15):
            back = self.number(0, len(self.values) - 1)
            for number in range(len(self.values)):
                found = self.values[(-1 - back - number) % len(self.values)]
                kind = found.tensor_type
                if str(kind.dtype) in dtypes and low <= kind.ndim <= high:
                    return found
                if number == 0 and self.chance(60):
                    converted = self.converted(found, dtypes, low, high)
                    if converted is not None:
                        return converted
        made = self.shape(self.number(low, min(high, max(low, 3))))
        wanted = [name for name in TYPES if name in dtypes] or list(dtypes)
        return self.leaf(made, self.pick(wanted))

    def converted(self, found: gi.Expr, dtypes: Sequence[str], low: int, high: int) -> gi.Expr | None:
        """Return ``found`` with another type and rank; None where that would lose all of it."""
        kind = found.tensor_type
        if kind.ndim < low:
            found = gi.expand_dims(found, axis=tuple(range(low - kind.ndim)))
        elif kind.ndim > high:
            if high == 0:
                return None
            merged = product(kind.shape[: kind.ndim - high + 1])
            found = gi.reshape(found, newshape=(merged, *kind.shape[kind.ndim - high + 1 :]))
        if str(kind.dtype) in dtypes:
            return found
        return self.cast(found, self.pick([name for name in TYPES if name in dtypes] or list(dtypes)))

    def cast(self, found: gi.Expr, dtype: str) -> gi.Expr:
        """Convert to ``dtype``; floats are limited first to what every type holds, and NaN becomes 0."""
        kind = found.tensor_type
        if kind.dtype.is_float and dtype in INTEGERS:
            found = gi.where(gi.isnan(found), gi.zeros_like(found), found)
            found = gi.clip(found, a_min=0.0 if dtype.startswith("u") else -100.0, a_max=100.0)
        return gi.cast(found, dtype=dtype)

    def like(self, other: gi.Expr, dtype: Any = None) -> gi.Expr:
        """Return a value that broadcasts with ``other``, of its type or another."""
        kind = other.tensor_type
        wanted = str(kind.dtype if dtype is None else dtype)
        if self.values and self.chance(60):
            back = self.number(0, len(self.values) - 1)
            for number in range(len(self.values)):
                found = self.values[(-1 - back - number) % len(self.values)]
                if str(found.tensor_type.dtype) == wanted and _broadcasts(found.tensor_type.shape, kind.shape):
                    return found
        shape = [1 if self.chance(20) else dim for dim in kind.shape]
        while shape and self.chance(15):
            shape.pop(0)
        return self.leaf(shape, wanted)

    def exactly(self, shape: Sequence[Any], dtype: Any, fill: Fill | None = None) -> gi.Expr:
        """Return a value of just this type: one that the graph has, or a leaf."""
        wanted = TensorType(tuple(shape), dtype)
        if fill is None:
            same = [found for found in self.values if found.type == wanted]
            if same and self.chance(70):
                return self.pick(same[::-1])
        return self.leaf(wanted.shape, dtype, fill)

    def scalar(self, dtype: str, fill: Fill | None = None) -> gi.Expr:
        """Return a tensor without dimensions."""
        return self.exactly((), dtype, fill)

    def float(self, rank: int | None = None, least: int = 0) -> gi.Expr:
        """Return a tensor of floats."""
        return self.tensor(FLOATS, rank, least)

    def numbers(self, rank: int | None = None, least: int = 0, most: int = 5) -> gi.Expr:
        """Return a tensor of numbers."""
        return self.tensor(NUMBERS, rank, least, most)

    def axis(self, found: gi.Expr) -> int:
        """Draw an axis of a tensor, counted from the front or from the end."""
        rank = found.tensor_type.ndim
        axis = self.number(0, rank - 1)
        return axis - rank if self.chance(25) else axis

    def axes(self, found: gi.Expr) -> Any:
        """Draw the axes of a reduction: one, several or None for all."""
        rank = found.tensor_type.ndim
        if rank == 0 or self.chance(15):
            return None
        first = self.axis(found)
        if rank < 2 or self.chance(60):
            return first
        other = self.axis(found)
        return first if other % rank == first % rank else (first, other)

    def index(self, shape: Sequence[Any], extent: Dim) -> gi.Expr:
        """Return integers that index ``extent`` elements; some of them are out of bounds where the size is smaller."""
        most = max(1, self.least(extent) if isinstance(extent, int) else 4)
        wide = 2 if self.chance(10) else 0
        return self.leaf(shape, self.pick(("int64", "int32")), Fill("index", -most - wide, most - 1 + wide))


def _broadcasts(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return all(
        (isinstance(x, int) and x == 1) or (isinstance(y, int) and y == 1) or gi.dim_equal(x, y)
        for x, y in zip(reversed(a), reversed(b), strict=False)
    )


def dims(shape: Sequence[Any]) -> tuple[Dim, ...]:
    """Return dimensions for numbers and names."""
    return tuple(as_dim(dim) for dim in shape)
