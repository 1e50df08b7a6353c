"""A compiled model: called with arrays, open to read at every stage of its compilation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graphir.dims import Dim
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import Constants, to_text
from tilewright.runtime.arena import ArenaPool
from tilewright.runtime.dims import compile_dims
from tilewright.runtime.results import SMALLEST, ResultPool
from tilewright.runtime.signature import Signature
from tilewright.tensorir.errors import ExecutionError, InputError
from tilewright.tensorir.target import Target

Array = np.ndarray[Any, Any]

#: Runs the model's entry point on inputs, outputs, the arena (its address and the memory, and how many bytes of it are
#: to be used) and the sizes of the symbolic dimensions. The constants are bound already.
Runner = Callable[[Sequence[Array], Sequence[Array], tuple[int, Array], int, Sequence[int]], None]

#: What follows from the sizes of the symbolic dimensions: the shapes of the results, the bytes of the arena, and
#: whether any result is large enough for the pool.
_Sizes = tuple[list[tuple[int, ...]], int, bool]

#: How many different sizes of the symbolic dimensions an executable remembers the resulting shapes of.
_REMEMBERED_SIZES = 256


class Claim(NamedTuple):
    """Two sizes that a model takes for equal, and where."""

    found: Dim
    expected: Dim
    where: str


class Executable:
    """A model as machine code. Made by :func:`tilewright.build`.

    Call it with one array for each input, by position or by name; it returns one array, or a tuple as the model's
    function does. Inputs are NumPy arrays or arrays of any library that speaks DLPack. They are never written to;
    views that are not contiguous are copied first. Several threads may call one executable at the same time.

    Attributes:
        signature: names and types of the inputs, and the type of the result.
        target: what the code is for.
    """

    def __init__(
        self,
        signature: Signature,
        arena_bytes: Dim,
        runner: Runner,
        target: Target,
        modules: Mapping[str, IRModule],
        code: Mapping[str, Callable[[], str]],
        claims: Sequence[Claim] = (),
    ) -> None:
        self.signature = signature
        self.target = target
        self._arena_bytes = compile_dims([arena_bytes], signature.symbols)
        self._run = runner
        self._claims = [(claim, compile_dims(claim[:2], signature.symbols)) for claim in claims]
        self._modules = dict(modules)
        self._code = dict(code)
        self._arenas = ArenaPool()
        self._dtypes = [output.dtype.numpy for output in signature.outputs]
        self._results = ResultPool()
        self._shapes: dict[tuple[int, ...], _Sizes] = {}

    def __call__(self, *args: Any, convert: bool = False, **named: Any) -> Any:
        """Run the model.

        Args:
            args: the inputs, in the order of the signature; the rest by name.
            convert: convert lists, numbers and arrays of another element type instead of refusing them.

        Raises:
            InputError: an input does not fit the signature (also a ``TypeError`` and a ``ValueError``).
        """
        signature = self.signature
        inputs, sizes = signature.check(signature.arrange(args, named), convert)
        known = self._shapes.get(sizes)
        if known is None:
            known = self._remember(sizes)
        shapes, arena_bytes, large = known
        if large:
            outputs = [self._empty(shape, dtype) for shape, dtype in zip(shapes, self._dtypes, strict=True)]
        else:
            outputs = [np.empty(shape, dtype) for shape, dtype in zip(shapes, self._dtypes, strict=True)]
        block = self._arenas.take(arena_bytes)
        try:
            self._run(inputs, outputs, block, arena_bytes, sizes)
        finally:
            self._arenas.give_back(block)
        return signature.restructure(outputs)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        return self._results.empty(shape, dtype, size) if size >= SMALLEST else np.empty(shape, dtype)

    def _remember(self, sizes: tuple[int, ...]) -> _Sizes:
        for claim, evaluate in self._claims:
            found, expected = evaluate(*sizes)
            if found != expected:
                named = ", ".join(f"{s.name}={size}" for s, size in zip(self.signature.symbols, sizes, strict=True))
                raise InputError(
                    f"{claim.where}: {claim.found!s} is {found}, but it must be {claim.expected!s}, which is {expected}"
                    f" (the sizes are {named})"
                )
        shapes = self.signature.output_shapes(sizes)
        bytes_ = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, self._dtypes, strict=True)]
        (arena_bytes,) = self._arena_bytes(*sizes)
        if len(self._shapes) >= _REMEMBERED_SIZES:
            self._shapes.clear()
        known = self._shapes[sizes] = (shapes, arena_bytes, max(bytes_, default=0) >= SMALLEST)
        return known  # not read back: another thread may have cleared what is remembered

    def arena_bytes(self, **sizes: int) -> int:
        """Bytes of memory for intermediate values, for these sizes of the symbolic dimensions.

        Raises:
            ExecutionError: a dimension is missing or unknown.
        """
        names = [symbol.name for symbol in self.signature.symbols]
        if sorted(names) != sorted(sizes):
            raise ExecutionError(f"expected the sizes of {', '.join(names) or 'nothing'}, found {', '.join(sizes)}")
        (result,) = self._arena_bytes(*[sizes[name] for name in names])
        return result

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages whose text :meth:`ir` gives, in order of compilation."""
        return (*self._modules, *self._code)

    def ir(self, stage: str, constants: Constants = "digest") -> str:
        """The model as text after a stage of its compilation.

        Args:
            stage: one of :attr:`stages`: ``graph`` (as given), ``optimized`` (after the graph passes), ``tensor``
                (loop nests), ``scheduled``, ``lowered`` (what code is generated from), and then ``llvm`` and
                ``assembly``, or ``numba``.
            constants: ``"digest"`` names large constants by their hashes, ``"inline"`` writes their data too, so that
                :func:`tilewright.graphir.parse` reads the text of a graph back without them.

        Raises:
            ValueError: there is no such stage.
        """
        if stage in self._modules:
            return to_text(self._modules[stage], constants)
        if stage in self._code:
            return self._code[stage]()
        raise ValueError(f"unknown stage {stage!r}; expected one of {', '.join(self.stages)}")

    @property
    def source(self) -> str:
        """The generated code: Python for the target ``numba``, LLVM IR for ``llvm``."""
        return self.ir(self.target.kind)

    def __repr__(self) -> str:
        return f"<Executable {self.signature} for {self.target}>"
