"""Match loops against the description of an instruction (:mod:`~tilewright.tensorir.tensor_intrins`).

The statements must be the same, up to the names of variables, buffers and blocks. A buffer of the description stands
for a box of one buffer of the function: indices differ by a base that is the same for all accesses, and dimensions
that the description does not have keep one index.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.dtype import BOOL, INT64
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Expr, IntImm, Var, address_of, as_expr, binary
from tilewright.tensorir.expr import cast as cast_expr
from tilewright.tensorir.functor import free_vars, substitute, walk
from tilewright.tensorir.keys import TENSOR_INTRIN, TENSOR_INTRIN_DIGEST
from tilewright.tensorir.node import Node
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.nests import loops_in
from tilewright.tensorir.schedule.state import State
from tilewright.tensorir.stmt import Block, BufferStore, For, IfThenElse, SeqStmt, Stmt
from tilewright.tensorir.tensor_intrins import TensorIntrin, TensorIntrinError, find_tensor_intrin

_COMMUTATIVE = ("add", "mul", "bitand", "bitor", "bitxor")


class MisfitError(Exception):
    """A place at which loops differ from a description.

    Attributes:
        node: the part of the loops that differs.
    """

    def __init__(self, message: str, node: Node) -> None:
        super().__init__(message)
        self.node = node


class _Box:
    """The part of a buffer that a buffer of the description stands for.

    Attributes:
        base: the indices of its first element.
        dims: the dimensions of ``buffer`` that are those of the description's, in order.
    """

    def __init__(self, buffer: Buffer, base: tuple[Expr, ...], dims: tuple[int, ...], written: bool) -> None:
        self.buffer = buffer
        self.base = base
        self.dims = dims
        self.written = written


class _Matcher:
    """One comparison. ``values`` has, for each variable of the description, what it stands for; ``bindings`` the values
    of the iteration variables of the function's blocks; ``inner`` the variables of the matched loops."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.values: dict[Var, Expr] = {}
        self.bindings: dict[Var, Expr] = {}
        self.inner: set[Var] = set()
        self.boxes: dict[Buffer, _Box] = {}
        self.unknown: set[Var] = set()

    def statement(self, wanted: Stmt, found: Stmt) -> None:
        """Compare statements."""
        if isinstance(wanted, Block):
            for item in wanted.iters:
                self.values[item.var] = substitute(item.value, self.values)
            self.guarded(wanted.predicate, wanted.body, found)
            return
        if isinstance(found, Block):
            if found.init is not None:
                raise MisfitError(f"block {found.name} has an init: use decompose_reduction before tensorize", found)
            for own in found.iters:
                self.bindings[own.var] = substitute(own.value, self.bindings)
            if found.predicate is not None:
                raise MisfitError(
                    f"block {found.name} has a predicate, as splits with a remainder make it: expected none", found
                )
            self.statement(wanted, found.body)
            return
        if type(wanted) is not type(found):
            raise MisfitError(f"expected {_kind(wanted)}, found {_kind(found)}", found)
        if isinstance(wanted, For) and isinstance(found, For):
            self.loop(wanted, found)
        elif isinstance(wanted, SeqStmt) and isinstance(found, SeqStmt):
            if len(wanted.stmts) != len(found.stmts):
                raise MisfitError(f"expected {len(wanted.stmts)} statements, found {len(found.stmts)}", found)
            for first, second in zip(wanted.stmts, found.stmts, strict=True):
                self.statement(first, second)
        elif isinstance(wanted, IfThenElse) and isinstance(found, IfThenElse):
            self.expr(wanted.condition, found.condition)
            self.statement(wanted.then_body, found.then_body)
            if (wanted.else_body is None) is not (found.else_body is None):
                raise MisfitError("one of the conditions has an else", found)
            if wanted.else_body is not None and found.else_body is not None:
                self.statement(wanted.else_body, found.else_body)
        elif isinstance(wanted, BufferStore) and isinstance(found, BufferStore):
            self.access(wanted, found, written=True)
            self.expr(wanted.value, found.value)
        else:
            raise MisfitError(f"a description has no {_kind(wanted)}", found)

    def guarded(self, predicate: Expr | None, body: Stmt, found: Stmt) -> None:
        """Compare the body of a description's block with the statement in its place."""
        if isinstance(found, Block) and found.init is None and (predicate is None) is (found.predicate is None):
            for own in found.iters:
                self.bindings[own.var] = substitute(own.value, self.bindings)
            if predicate is not None and found.predicate is not None:
                self.expr(predicate, found.predicate)
            self.statement(body, found.body)
        elif predicate is not None:
            self.statement(IfThenElse(predicate, body), found)
        else:
            self.statement(body, found)

    def loop(self, wanted: For, found: For) -> None:
        """Compare loops."""
        if found.kind != wanted.kind:
            raise MisfitError(f"loop {found.var.name}: expected a {wanted.kind} loop, found a {found.kind} one", found)
        self.integer(wanted.min, found.min, f"loop {found.var.name}: expected the first iteration")
        self.integer(wanted.extent, found.extent, f"loop {found.var.name}: expected the extent")
        self.values[wanted.var] = found.var
        self.inner.add(found.var)
        self.statement(wanted.body, found.body)

    def integer(self, wanted: Expr, found: Expr, what: str) -> None:
        """Compare integers that read no memory; a variable that stands for nothing yet stands for ``found``."""
        value = self.here(found)
        if isinstance(wanted, Var) and wanted in self.unknown and wanted not in self.values:
            if self.varies(value):
                raise MisfitError(f"{what} {wanted.name}, of one value, found {found!s}", found)
            self.values[wanted] = value
            return
        expected = substitute(wanted, self.values)
        if not self.equal(expected, value):
            raise MisfitError(f"{what} {wanted!s}, found {found!s}", found)

    def expr(self, wanted: Expr, found: Expr) -> None:
        """Compare expressions."""
        if wanted.dtype is not found.dtype:
            raise MisfitError(f"expected {wanted.dtype!s} {wanted!s}, found {found.dtype!s} {found!s}", found)
        if wanted.dtype.is_integer and _reads_nothing(wanted) and _reads_nothing(found):
            self.integer(wanted, found, "expected")
            return
        if type(wanted) is not type(found):
            raise MisfitError(f"expected {wanted!s}, found {found!s}", found)
        if isinstance(wanted, BufferLoad) and isinstance(found, BufferLoad):
            self.access(wanted, found, written=False)
            return
        if isinstance(wanted, BinaryOp) and isinstance(found, BinaryOp) and wanted.op == found.op in _COMMUTATIVE:
            before = (dict(self.values), dict(self.boxes))
            try:
                self.expr(wanted.a, found.a)
                self.expr(wanted.b, found.b)
            except MisfitError as first:
                self.values, self.boxes = before
                try:
                    self.expr(wanted.a, found.b)
                    self.expr(wanted.b, found.a)
                except MisfitError:
                    raise first from None
            return
        for name, role in type(wanted).node_fields:
            one, other = getattr(wanted, name), getattr(found, name)
            if role == "child" and isinstance(one, Expr) and isinstance(other, Expr):
                self.expr(one, other)
            elif role == "children" and len(one) == len(other):
                for part, its in zip(one, other, strict=True):
                    self.expr(part, its)
            elif one is not other and one != other:
                raise MisfitError(f"expected {wanted!s}, found {found!s}", found)

    def access(self, wanted: Any, found: Any, written: bool) -> None:
        """Compare accesses."""
        one, other = wanted.buffer, found.buffer
        if one.dtype is not other.dtype:
            raise MisfitError(f"buffer {one.name}: expected {one.dtype!s}, found {other.dtype!s} ({other.name})", found)
        if wanted.predicate is not None or found.predicate is not None:
            raise MisfitError(f"the access to {other.name} is masked", found)
        if one.ndim > other.ndim:
            raise MisfitError(
                f"buffer {one.name}: expected {one.ndim} dimensions, found {other.ndim} ({other.name})", found
            )
        indices = [self.here(index) for index in found.indices]
        box = self.boxes.get(one)
        if box is None:
            # Usually the last dimensions; ``combinations`` gives the first ones first.
            choices: list[tuple[int, ...]] = list(itertools.combinations(range(other.ndim), one.ndim))
            for dims in choices[::-1]:
                base = self.base(wanted.indices, indices, dims)
                if base is not None:
                    self.boxes[one] = _Box(other, base, dims, written)
                    return
            raise MisfitError(
                f"expected {_access(wanted)} at a fixed place of {other.name}, found {_access(found)}", found
            )
        if box.buffer is not other:
            known = box.buffer.name
            raise MisfitError(f"buffer {one.name}: expected {known}, as before, found {other.name}", found)
        base = self.base(wanted.indices, indices, box.dims)
        if base is None or not all(self.equal(a, b) for a, b in zip(base, box.base, strict=True)):
            raise MisfitError(f"expected {_access(wanted)}, found {_access(found)}", found)
        self.boxes[one] = _Box(other, box.base, box.dims, written or box.written)

    def base(self, wanted: Sequence[Expr], indices: Sequence[Expr], dims: tuple[int, ...]) -> tuple[Expr, ...] | None:
        """Return the indices of the element that the description's first one stands for; None if they vary."""
        base = list(indices)
        for dim, index in zip(dims, wanted, strict=True):
            offset = substitute(index, self.values)
            base[dim] = self.analyzer.simplify(binary("sub", cast_expr(INT64, base[dim]), cast_expr(INT64, offset)))
        return None if any(self.varies(index) for index in base) else tuple(base)

    def here(self, expr: Expr) -> Expr:
        """Return an expression of the function in terms of its loops."""
        return substitute(expr, self.bindings)

    def varies(self, expr: Expr) -> bool:
        """Return whether an expression depends on the matched loops."""
        return any(var in self.inner for var in free_vars(expr))

    def equal(self, one: Expr, other: Expr) -> bool:
        """Return whether two integers are known to be equal."""
        difference = self.analyzer.simplify(binary("sub", cast_expr(INT64, one), cast_expr(INT64, other)))
        return isinstance(difference, IntImm) and difference.value == 0

    def strides(self, one: Buffer) -> None:
        """Compare the distances between the elements of a buffer."""
        box = self.boxes[one]
        found = row_major(box.buffer)
        for place, (wanted, dim) in enumerate(zip(row_major(one), box.dims, strict=True)):
            extent = substitute(one.shape[place], self.values)
            if isinstance(extent, IntImm) and extent.value == 1 and not one.strides:
                continue
            what = f"buffer {one.name} ({box.buffer.name}): expected neighbours in dimension {place} at distance"
            self.integer(wanted, found[dim], what)


def row_major(buffer: Buffer) -> list[Expr]:
    """Return the distances between a buffer's elements along each dimension, in elements."""
    if buffer.strides:
        return list(buffer.strides)
    strides: list[Expr] = []
    step = as_expr(1)
    for extent in reversed(buffer.shape):
        strides.insert(0, step)
        step = binary("mul", step, cast_expr(INT64, extent))
    return strides


def call_for(intrin: TensorIntrin, root: For) -> Call:
    """Return the call of the instruction that does what the loops below ``root`` do: addresses of the first elements of
    the boxes for the description's buffers, and integers for its variables.

    Raises:
        MisfitError: the loops are not those of the description.
    """
    description = intrin.description
    matcher = _Matcher()
    matcher.unknown.update(description.variables)
    matcher.statement(description.body, root)
    for buffer in description.buffers:
        try:
            matcher.strides(buffer)
        except MisfitError as misfit:
            raise MisfitError(f"{misfit}; a stride that is a variable fits any", root) from None
    for one, other in itertools.combinations(matcher.boxes, 2):
        first, second = matcher.boxes[one], matcher.boxes[other]
        if first.buffer is second.buffer and (first.written or second.written):
            raise MisfitError(f"{one.name} and {other.name} are both {first.buffer.name}, which is written", root)
    args: list[Expr] = []
    for param in description.params:
        if isinstance(param, Buffer):
            box = matcher.boxes[param]
            args.append(address_of(box.buffer, *box.base))
        else:
            args.append(cast_expr(INT64, matcher.values[param]))
    return Call(intrin.name, tuple(args), BOOL)


def tensorize(state: State, what: BlockRef | LoopRef, name: str) -> State:
    """Implement :meth:`.Schedule.tensorize`."""
    try:
        intrin = find_tensor_intrin(name)
    except TensorIntrinError as error:
        raise ScheduleError(str(error)) from None
    if isinstance(what, BlockRef):
        path: Sequence[Stmt] = state.block_path(what)
        depth, inside = 0, intrin.description.body
        while isinstance(inside, For):
            depth, inside = depth + 1, inside.body
        around = loops_in(path)
        if len(around) < depth:
            state.fail(f"tensorize {name}: expected {depth} loops around {what.name}, found {len(around)}", path[-1])
        root = around[-depth]
    else:
        path = state.loop_path(what)
        root = state.loop(what)
    for loop in loops_in(path):
        if loop.kind == "vectorized":
            state.fail(f"tensorize {name}: it is inside of the vectorized loop {loop.var.name}", loop)
    for part in (*loops_in(path), *[node for node in walk(root) if isinstance(node, For)]):
        if TENSOR_INTRIN in part.annotations:
            state.fail(f"tensorize {name}: loop {part.var.name} is tensorized already", part)
    try:
        call_for(intrin, root)
    except MisfitError as misfit:
        state.fail(f"tensorize {name}: {misfit}", misfit.node)
    notes: Mapping[str, Any] = {
        **root.annotations,
        TENSOR_INTRIN: name,
        TENSOR_INTRIN_DIGEST: intrin.digest,
    }
    return state.replace({root: For(root.var, root.min, root.extent, root.kind, root.body, notes)})


def _kind(stmt: Stmt) -> str:
    if isinstance(stmt, For):
        return f"a loop ({stmt.var.name})"
    names = {SeqStmt: "several statements", BufferStore: "a store", IfThenElse: "a condition"}
    return names.get(type(stmt), type(stmt).__name__)


def _access(node: Any) -> str:
    return f"{node.buffer.name}[{', '.join([str(index) for index in node.indices])}]"


def _reads_nothing(expr: Expr) -> bool:
    return not any(isinstance(node, (BufferLoad, Call)) for node in walk(expr))
