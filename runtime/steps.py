"""Run the compiled functions of a model: one, or several where sizes become known between them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.types import TensorType
from tilewright.runtime.arena import ArenaPool
from tilewright.runtime.conditions import Condition, words_for
from tilewright.runtime.dims import compile_dims
from tilewright.runtime.results import SMALLEST, ResultPool
from tilewright.tensorir.errors import ExecutionError, InputError
from tilewright.tensorir.expr import Var

Array = np.ndarray[Any, Any]
_empty = np.empty

#: Runs a function on inputs, outputs, the arena (its address and memory, and the number of its bytes in use) and the
#: sizes of the symbolic dimensions. The constants are bound already.
Runner = Callable[[Sequence[Array], Sequence[Array], tuple[int, Array], int, Sequence[int]], None]

#: Data derived from the sizes of the symbolic dimensions: shape and type of each result, the bytes of the arena, and
#: whether any result is large enough for the pool.
_Sizes = tuple[list[tuple[tuple[int, ...], np.dtype[Any]]], int, bool]

#: Number of different sizes of the symbolic dimensions for which a step caches the resulting shapes.
_REMEMBERED_SIZES = 256


class Claim(NamedTuple):
    """Two sizes that a model assumes to be equal, and where it does."""

    found: Dim
    expected: Dim
    where: str


class Step:
    """A compiled function with the memory that its calls need.

    Args:
        symbols: its symbolic dimensions, in the order in which the function takes their sizes.
        outputs: the types of its results.
        arena_bytes: the memory that it needs for intermediate values.
        runner: runs the function.
        claims: sizes that it assumes to be equal.
    """

    def __init__(
        self,
        symbols: Sequence[Var],
        outputs: Sequence[TensorType],
        arena_bytes: Dim,
        runner: Runner,
        claims: Sequence[Claim] = (),
    ) -> None:
        self.symbols = tuple(symbols)
        self.arena_bytes = compile_dims([arena_bytes], symbols)
        self._run = runner
        self._claims = [(claim, compile_dims(claim[:2], symbols)) for claim in claims]
        self._output_dims = compile_dims([dim for output in outputs for dim in output.shape], symbols)
        self._ndims = [output.ndim for output in outputs]
        self._dtypes = [output.dtype.numpy for output in outputs]
        self._arenas = ArenaPool()
        self._results = ResultPool()
        self._shapes: dict[tuple[int, ...], _Sizes] = {}

    @property
    def at_addresses(self) -> Callable[[Sequence[int], tuple[int, ...]], list[Array]] | None:
        """The function that runs the step on inputs that are given by the addresses of their elements; None if the
        step is no machine code. The caller checks the inputs and keeps them alive. It raises what a call raises."""
        run = getattr(self._run, "at_addresses", None)
        return None if run is None else functools.partial(self, run=run)

    def __call__(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], run: Callable[..., None] | None = None
    ) -> list[Array]:
        """Run the function on checked inputs, with these sizes of the symbols; return the results.

        Args:
            run: runs the function instead of its runner.

        Raises:
            InputError: two sizes differ that the model assumes to be equal.
            ExecutionError: there is not enough memory.
        """
        known = self._shapes.get(sizes)
        if known is None:
            known = self._remember(sizes)
        results, arena_bytes, large = known
        try:
            empty = self._empty if large else _empty
            outputs = [empty(shape, dtype) for shape, dtype in results]
            block = self._arenas.take(arena_bytes)
        except (MemoryError, ValueError) as error:  # ValueError: more than NumPy can address
            shapes = ", ".join(str(shape) for shape, _ in results)
            raise ExecutionError(
                f"no memory for the results, of shapes {shapes}, and {arena_bytes} bytes of intermediate values: "
                f"{error}"
            ) from None
        try:
            (run or self._run)(inputs, outputs, block, arena_bytes, sizes)
        finally:
            self._arenas.give_back(block)
        return outputs

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        return self._results.empty(shape, dtype, size) if size >= SMALLEST else np.empty(shape, dtype)

    def _remember(self, sizes: tuple[int, ...]) -> _Sizes:
        for claim, evaluate in self._claims:
            found, expected = evaluate(*sizes)
            if found != expected:
                named = ", ".join(f"{s.name}={size}" for s, size in zip(self.symbols, sizes, strict=True))
                formula = "" if isinstance(claim.expected, int) else f"{claim.expected!s}, which is "
                raise InputError(
                    f"{claim.where}: {claim.found!s} is {found}, but it must be {formula}{expected}"
                    f" (the sizes are {named}){self._hint(claim, sizes)}"
                )
        results = list(zip(self.output_shapes(sizes), self._dtypes, strict=True))
        bytes_ = [math.prod(shape) * dtype.itemsize for shape, dtype in results]
        (arena_bytes,) = self.arena_bytes(*sizes)
        if len(self._shapes) >= _REMEMBERED_SIZES:
            self._shapes.clear()
        known = self._shapes[sizes] = (results, arena_bytes, max(bytes_, default=0) >= SMALLEST)
        return known  # not read back from the cache, which another thread may have cleared

    def _hint(self, failed: Claim, sizes: tuple[int, ...]) -> str:
        """Return which sizes would do, if words say it better than the formulas of a claim."""
        conditions = [Condition(claim.found, claim.expected) for claim, _ in self._claims]
        known = dict(zip(self.symbols, sizes, strict=True))
        words = words_for(Condition(failed.found, failed.expected), conditions, known)
        return "" if words.startswith(f"{failed.found!s} must be {failed.expected!s}") else f"; {words}"

    def output_shapes(self, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the shapes of the results for these sizes of the symbolic dimensions."""
        flat = self._output_dims(*sizes)
        shapes = []
        start = 0
        for ndim in self._ndims:
            shapes.append(flat[start : start + ndim])
            start += ndim
        return shapes


class Place(NamedTuple):
    """The connections of one function among several: the values that it takes and returns, and the symbolic dimensions
    whose sizes are read before it runs, each with the value that holds its size."""

    args: tuple[int, ...]
    results: tuple[int, ...]
    sizes: tuple[tuple[Var, int], ...]


class Wiring(NamedTuple):
    """The connections of several functions: a place for each, and the values that are the model's results."""

    places: Sequence[Place]
    results: tuple[int, ...]


class PlacedStep(NamedTuple):
    """A step among several, and its place."""

    step: Step
    place: Place


class Steps:
    """Steps that run one after the other on numbered values, the first of which are the inputs.

    Args:
        steps: the steps, in order.
        results: the numbers of the values that are the result.
        num_inputs: the number of values that are inputs.
    """

    def __init__(self, steps: Sequence[PlacedStep], results: Sequence[int], num_inputs: int) -> None:
        self.symbols = steps[-1].step.symbols
        self._steps = list(steps)
        self._results = tuple(results)
        self._num_inputs = num_inputs
        places = [step.place for step in steps]
        last = {value: number for number, place in enumerate(places) for value in (*place.args, *place.results)}
        read = {value: number for number, place in enumerate(places) for _, value in place.sizes}
        kept = set(results) | set(range(num_inputs))
        #: The values that no later step needs, by step: their memory can be reused by later ones.
        self._dropped: list[list[int]] = [[] for _ in steps]
        for value, number in last.items():
            if value not in kept:
                self._dropped[max(number, read.get(value, 0))].append(value)

    def __call__(self, inputs: Sequence[Array], sizes: tuple[int, ...]) -> list[Array]:
        """Run the steps on the inputs, with these sizes of their symbolic dimensions; return the results.

        Raises:
            InputError: two sizes differ that the model assumes to be equal, or an input that is a size is negative.
            ExecutionError: the model computed a negative size.
        """
        values: dict[int, Array] = dict(enumerate(inputs))
        for (step, (args, results, read)), dropped in zip(self._steps, self._dropped, strict=True):
            for symbol, value in read:
                size = int(values[value])
                if size < 0 and value < self._num_inputs:
                    raise InputError(f"size {symbol.name}: expected a number that is not negative, found {size}")
                if size < 0:
                    raise ExecutionError(f"the model computed {size} for the size {symbol.name}")
                sizes = (*sizes, size)
            values.update(zip(results, step([values[arg] for arg in args], sizes), strict=True))
            for value in dropped:
                del values[value]
        outputs = []
        given: set[int] = set(range(self._num_inputs))  # callers may write to results
        for value in self._results:
            outputs.append(values[value].copy() if value in given else values[value])
            given.add(value)
        return outputs

    def arena_bytes(self, *sizes: int) -> tuple[int]:
        """Return the maximum over the steps of the bytes for intermediate values."""
        return (max(step.arena_bytes(*sizes[: len(step.symbols)])[0] for step, _ in self._steps),)
