"""Build functions of loops by calls, for programs that generate code.

Each context manager is a statement with a body, and what is called inside of it goes into that body, in order::

    b = Builder("matmul")
    n = b.size("n")
    x, y, z = b.buffer("x", (n, 64)), b.buffer("y", (64, 32)), b.buffer("z", (n, 32))
    with b.grid(n, 32, 64) as (i, j, k), b.block("matmul"):
        vi, vj, vk = b.axes("SSR", (i, j, k))
        with b.init():
            b.store(z, (vi, vj), 0)
        b.store(z, (vi, vj), z[vi, vj] + x[vi, vk] * y[vk, vj])
    func = b.finish()

Nodes check their operands when they are made, and :meth:`Builder.finish` verifies the whole. Loops written as Python
(``script.py``) are made with the same builder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, BuilderError
from tilewright.tensorir.expr import Buffer, Expr, ExprLike, Var, all_of, as_expr, as_indices, binary
from tilewright.tensorir.functor import free_vars
from tilewright.tensorir.node import Node
from tilewright.tensorir.schedule.blocks import new_block
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    Stmt,
    sequence,
)
from tilewright.tensorir.verify import verify

#: Kinds of iteration variables by the letters that :meth:`Builder.axes` takes.
_ITER_KINDS = {"S": "spatial", "R": "reduction"}


class _Scope:
    """The statements of one body, so far.

    Attributes:
        what: the statement that it is the body of, for messages.
        items: statements, and what makes one of all that follows: a let or an allocation.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.items: list[tuple[Stmt | Callable[[Stmt], Stmt], Any]] = []

    def body(self, origins: dict[Node, Any]) -> Stmt:
        """Return the statements as one, and note where each comes from."""
        following: list[Stmt] = []
        for item, origin in reversed(self.items):
            if isinstance(item, Stmt):
                stmt = item
                following.append(stmt)
            else:
                stmt = item(sequence(*reversed(following)))
                following = [stmt]
            origins.setdefault(stmt, origin)
        return sequence(*reversed(following))


class _BlockScope(_Scope):
    """The parts of a block."""

    def __init__(self, name: str) -> None:
        super().__init__(f"block {name}")
        self.iters: list[IterVar] = []
        self.predicate: Expr | None = None
        self.needed: Expr | None = None
        self.init: Stmt | None = None
        self.reads: list[BufferRegion] | None = None
        self.writes: list[BufferRegion] | None = None


class Builder:
    """Builds one :class:`PrimFunc`, statement by statement.

    Args:
        name: of the function.
        attrs: its attributes; ``num_outputs`` says how many buffers, the last ones, are results. Without it, what the
            function writes tells.
    """

    def __init__(self, name: str, attrs: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.attrs = dict(attrs or {})
        #: The origins of statements: the value that :attr:`origin` had when they were made.
        self.origins: dict[Node, Any] = {}
        self.origin: Any = None
        self._buffers: list[Buffer] = []
        self._sizes: list[Var] = []
        self._scopes: list[_Scope] = [_Scope(f"@{name}")]
        self._ranges: dict[Var, tuple[Expr, Expr]] = {}

    # -- parameters -----------------------------------------------------------------------------------------------

    def buffer(
        self,
        name: str,
        shape: Sequence[ExprLike],
        dtype: Any = "float32",
        *,
        strides: Sequence[ExprLike] = (),
        alignment: int = 0,
    ) -> Buffer:
        """Add a buffer to the parameters: inputs first, then results.

        Args:
            name: of the buffer.
            shape: its extents. A variable among them that is no parameter yet becomes one.
            dtype: the type of its elements.
            strides: in elements, where it is not row-major.
            alignment: of the first element, in bytes; 0 means that of the element.
        """
        made = Buffer(name, _extents(shape), dtype, "global", _extents(strides), alignment)
        self._buffers.append(made)
        return made

    def size(self, name: str, dtype: Any = INT64) -> Var:
        """Add an integer to the parameters, behind all buffers: a symbolic dimension."""
        var = Var(name, dtype)
        self._sizes.append(var)
        return var

    # -- loops ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def loop(
        self,
        start: ExprLike,
        stop: ExprLike | None = None,
        *,
        name: str = "i",
        kind: str = "serial",
        annotations: Mapping[str, Any] | None = None,
    ) -> Iterator[Var]:
        """Open a loop over ``[0, start)``, or over ``[start, stop)``; gives its variable.

        Args:
            start: how many iterations there are, or the first value if there is a ``stop``.
            stop: the end of the values.
            name: of the variable, whose type is that of the bounds.
            kind: ``serial``, ``parallel``, ``vectorized`` or ``unrolled``.
            annotations: kept on the loop.
        """
        dtype = next((bound.dtype for bound in (start, stop) if isinstance(bound, Expr)), INT64)
        begin, end = (as_expr(0, dtype), start) if stop is None else (as_expr(start, dtype), stop)
        extent = binary("sub", as_expr(end, dtype), begin)
        var = Var(name, dtype)
        made = For(var, begin, extent, kind, sequence(), dict(annotations or {}))  # checks them where they are written
        self._ranges[var] = (begin, extent)
        try:
            with self._inside(_Scope(f"loop {name}")) as scope:
                yield var
        finally:
            del self._ranges[var]
        self._add(For(var, begin, extent, made.kind, scope.body(self.origins), made.annotations))

    def serial(self, start: ExprLike, stop: ExprLike | None = None, name: str = "i") -> Any:
        """Open a :meth:`loop` whose iterations run in order."""
        return self.loop(start, stop, name=name)

    def parallel(self, start: ExprLike, stop: ExprLike | None = None, name: str = "i") -> Any:
        """Open a :meth:`loop` whose iterations several threads share."""
        return self.loop(start, stop, name=name, kind="parallel")

    def vectorized(self, start: ExprLike, stop: ExprLike | None = None, name: str = "i") -> Any:
        """Open a :meth:`loop` whose iterations are the lanes of vectors."""
        return self.loop(start, stop, name=name, kind="vectorized")

    def unrolled(self, start: ExprLike, stop: ExprLike | None = None, name: str = "i") -> Any:
        """Open a :meth:`loop` that is written out."""
        return self.loop(start, stop, name=name, kind="unrolled")

    @contextlib.contextmanager
    def grid(self, *extents: ExprLike, names: Sequence[str] = ()) -> Iterator[tuple[Var, ...]]:
        """Open one loop inside of another, for each extent; gives their variables.

        Raises:
            ValueError: ``names`` are not as many as the extents.
        """
        names = tuple(names) or tuple(f"i{number}" if number > 2 else "ijk"[number] for number in range(len(extents)))
        if len(names) != len(extents):
            raise ArgumentValueError(f"grid: {len(extents)} extents, but {len(names)} names")
        with contextlib.ExitStack() as stack:
            yield tuple([stack.enter_context(self.loop(e, name=n)) for e, n in zip(extents, names, strict=True)])

    # -- blocks ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def block(self, name: str, annotations: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Open a block: a named computation that schedules find. Its body uses the variables that :meth:`axes` gives,
        not those of the loops around it. What it reads and writes is found from its body unless :meth:`reads` and
        :meth:`writes` say it."""
        scope = _BlockScope(name)
        with self._inside(scope):
            yield
        body = scope.body(self.origins)
        found = new_block(name, scope.iters, scope.predicate, scope.init, body, annotations)
        reads = found.reads if scope.reads is None else tuple(scope.reads)
        writes = found.writes if scope.writes is None else tuple(scope.writes)
        self._add(
            Block(name, found.iters, found.predicate, reads, writes, found.init, body, found.annotations, scope.needed)
        )

    def axes(self, kinds: str, values: Sequence[Expr], names: Sequence[str] = ()) -> tuple[Var, ...]:
        """Add iteration variables to the block, one for each loop variable in ``values``, over the loop's range.

        Args:
            kinds: for each an ``S`` (spatial: each value computes other elements) or an ``R`` (reduction).
            values: variables of loops around the block. For others see :meth:`spatial` and :meth:`reduce`.
            names: of the iteration variables, by default those of the loops behind a ``v``.

        Raises:
            ValueError: a letter is another one, or there are not as many letters, or names, as values.
            BuilderError: a value is no variable of a loop around the block, or no block is open.
        """
        if len(kinds) != len(values) or not set(kinds) <= _ITER_KINDS.keys():
            raise ArgumentValueError(
                f"axes: expected one letter S or R for each of {len(values)} values, found {kinds!r}"
            )
        if names and len(names) != len(values):
            raise ArgumentValueError(f"axes: {len(values)} values, but {len(names)} names")
        made = []
        for number, (letter, value) in enumerate(zip(kinds, values, strict=True)):
            if not isinstance(value, Var) or value not in self._ranges:
                raise BuilderError(
                    f"axes: expected variables of the loops around the block, found {value!s}; "
                    "spatial(extent, value) and reduce(extent, value) take expressions"
                )
            begin, extent = self._ranges[value]
            name = names[number] if names else f"v{value.name}"
            made.append(self._axis(_ITER_KINDS[letter], begin, extent, value, name))
        return tuple(made)

    def spatial(self, extent: ExprLike | tuple[ExprLike, ExprLike], value: ExprLike, name: str = "v") -> Var:
        """Add an iteration variable to the block for each of whose values it computes other elements.

        Args:
            extent: how many values there are, or a pair of the first value and the end.
            value: the one that an instance of the block has, of the loops' variables.
            name: of the variable.
        """
        return self._axis("spatial", *_range(extent), value, name)

    def reduce(self, extent: ExprLike | tuple[ExprLike, ExprLike], value: ExprLike, name: str = "v") -> Var:
        """Add an iteration variable to the block over whose values it reduces; see :meth:`spatial`."""
        return self._axis("reduction", *_range(extent), value, name)

    def where(self, condition: ExprLike) -> None:
        """Let the block run only where ``condition`` holds, which may mention the loops' variables."""
        scope = self._block("where")
        scope.predicate = all_of(*[item for item in (scope.predicate, condition) if item is not None])

    def needed(self, condition: ExprLike) -> None:
        """Say that nothing depends on instances of the block for which ``condition``, of its iteration variables, does
        not hold, so that schedules may leave them out."""
        self._block("needed").needed = as_expr(condition)

    def reads(self, *regions: BufferRegion | Expr) -> None:
        """State what the block reads, instead of what is found from its body: regions, or elements."""
        scope = self._block("reads")
        scope.reads = [*(scope.reads or ()), *[_region(region) for region in regions]]

    def writes(self, *regions: BufferRegion | Expr) -> None:
        """State what the block writes, instead of what is found from its body: regions, or elements."""
        scope = self._block("writes")
        scope.writes = [*(scope.writes or ()), *[_region(region) for region in regions]]

    @contextlib.contextmanager
    def init(self) -> Iterator[None]:
        """Open what a reduction does before its first step."""
        block = self._block("init")
        if block.init is not None:
            raise BuilderError(f"{block.what} has an init already")
        with self._inside(_Scope(f"init of {block.what}")) as scope:
            yield
        block.init = scope.body(self.origins)

    # -- other statements -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def if_(self, condition: ExprLike) -> Iterator[None]:
        """Open what runs where ``condition`` holds."""
        condition = as_expr(condition)
        IfThenElse(condition, sequence())  # checks it where it is written
        with self._inside(_Scope("if")) as scope:
            yield
        self._add(IfThenElse(condition, scope.body(self.origins)))

    @contextlib.contextmanager
    def else_(self) -> Iterator[None]:
        """Open what runs where the condition of the :meth:`if_` right before does not hold.

        Raises:
            BuilderError: the statement before is no ``if_``, or has an ``else_`` already.
        """
        items = self._scopes[-1].items
        before = items[-1][0] if items else None
        if not isinstance(before, IfThenElse) or before.else_body is not None:
            raise BuilderError(f"{self._scopes[-1].what}: an else_ stands right behind an if_ without one")
        with self._inside(_Scope("else")) as scope:
            yield
        items[-1] = (IfThenElse(before.condition, before.then_body, scope.body(self.origins)), items[-1][1])

    def alloc(
        self, shape: Sequence[ExprLike], dtype: Any = "float32", *, name: str = "buffer", scope: str = "arena"
    ) -> Buffer:
        """Allocate a buffer until the end of this body. Its elements are undefined at first.

        Args:
            shape: its extents.
            dtype: the type of its elements.
            name: of the buffer.
            scope: ``arena``, ``stack``, or ``register`` (for a small buffer at places known at build time).
        """
        made = Buffer(name, _extents(shape), dtype, scope)
        self._open(lambda body: Allocate(made, body))
        return made

    def let(self, value: ExprLike, name: str = "x") -> Var:
        """Bind a value to a new variable until the end of this body."""
        value = as_expr(value)
        var = Var(name, value.dtype)
        self._open(lambda body: LetStmt(var, value, body))
        return var

    def store(self, target: Buffer, indices: ExprLike | Sequence[ExprLike], value: ExprLike) -> None:
        """Store a value to an element of a buffer; a number takes the type of the elements.

        Raises:
            TypeError: the value has another type, or there are not as many indices as dimensions.
        """
        places = tuple(indices) if isinstance(indices, Sequence) else (indices,)
        self._add(BufferStore(target, as_expr(value, target.dtype), as_indices(places)))

    def evaluate(self, value: Expr) -> None:
        """Evaluate a call for its effect."""
        self._add(Evaluate(value))

    def insert(self, stmt: Stmt) -> None:
        """Put in a statement that was made elsewhere."""
        self._add(stmt)

    def finish(self) -> PrimFunc:
        """Return the function, verified.

        Raises:
            BuilderError: a loop or another statement is still open.
            VerifyError: it breaks a rule of the IR.
        """
        func = self.unverified()
        verify(func)
        return func

    def unverified(self) -> PrimFunc:
        """Return the function as :meth:`finish` does, before it is verified."""
        if len(self._scopes) != 1:
            raise BuilderError(f"{self._scopes[-1].what} is still open")
        body = self._scopes[0].body(self.origins)
        sizes = dict.fromkeys(self._sizes)
        for buffer in self._buffers:
            for extent in (*buffer.shape, *buffer.strides):
                sizes.update(dict.fromkeys(free_vars(extent)))
        return PrimFunc(self.name, (*self._buffers, *sizes), body, self.attrs)

    # -- scopes ---------------------------------------------------------------------------------------------------

    def _add(self, stmt: Stmt) -> None:
        self._scopes[-1].items.append((stmt, self.origin))

    def _open(self, wrap: Callable[[Stmt], Stmt]) -> None:
        self._scopes[-1].items.append((wrap, self.origin))

    @contextlib.contextmanager
    def _inside(self, scope: _Scope) -> Iterator[_Scope]:
        """Collect statements in ``scope``; after an error, everything is as before."""
        depth, origin = len(self._scopes), self.origin
        self._scopes.append(scope)
        try:
            yield scope
            if self._scopes[-1] is not scope:
                raise BuilderError(f"{scope.what} ends, but {self._scopes[-1].what} is still open")
        finally:
            del self._scopes[depth:]
            self.origin = origin

    def _block(self, what: str) -> _BlockScope:
        scope = self._scopes[-1]
        if not isinstance(scope, _BlockScope):
            raise BuilderError(f"{what}: expected to stand directly in a block, found {scope.what} around it")
        return scope

    def _axis(self, kind: str, begin: ExprLike, extent: ExprLike, value: ExprLike, name: str) -> Var:
        scope = self._block("axes")
        bounds = [item.dtype for item in (value, begin, extent) if isinstance(item, Expr)]
        dtype: DataType = bounds[0] if bounds else INT64
        var = Var(name, dtype)
        scope.iters.append(IterVar(var, as_expr(begin, dtype), as_expr(extent, dtype), kind, as_expr(value, dtype)))
        return var


def _extents(shape: Sequence[ExprLike]) -> tuple[Expr, ...]:
    return tuple([as_expr(extent, INT64) for extent in shape])


def _range(extent: ExprLike | tuple[ExprLike, ExprLike]) -> tuple[ExprLike, ExprLike]:
    if isinstance(extent, tuple):
        begin, end = extent
        return begin, end - begin if isinstance(begin, int) and isinstance(end, int) else binary("sub", end, begin)
    return 0, extent


def _region(part: Any) -> BufferRegion:
    if isinstance(part, BufferRegion):
        return part
    if not hasattr(part, "buffer"):
        raise ArgumentTypeError(f"expected an element or a region of a buffer, found {part!s}")
    return BufferRegion(part.buffer, tuple([Range(index, as_expr(1)) for index in part.indices]))
