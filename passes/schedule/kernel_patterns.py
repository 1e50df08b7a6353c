"""Find the patterns of scheduled kernels: kernels that are equal up to some of their constants.

::

    for ic in range(12) {                            for ic in range(C0) {
      for i in unrolled(4) {                           for i in unrolled(4) {
        b[i, ic] = a[ic, i] * 0.88      pattern:          b[i, ic] = a[ic, i] * C1

A constant is *free* where replacing it by a parameter costs a call next to nothing: extents of loops that stay loops,
extents of buffers, factors in index arithmetic, divisors of the indices of large tasks, and numbers that values are
added to and multiplied with. All others belong to the pattern: extents of unrolled and vectorized loops; strides that
these traverse (they are offsets in machine instructions; a few copies keep an address each, unless they read more than
can be prefetched); extents of tiles that leave a remainder; short loops; constants in comparisons of conditions; and
zeros.

The traversal visits a function in an order that depends on the pattern alone, so constants are identified by number.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tilewright.graphir.dims import symbol
from tilewright.passes.operands import LEAST_OPERAND, known_bytes
from tilewright.tensorir.costs import stores
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Choose,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Select,
    Var,
)
from tilewright.tensorir.functor import INTEGER_DIVISIONS, leaves, walk_statements, walk_to_loads
from tilewright.tensorir.keys import ORIGIN_ATTRS, SPECIALIZE_TAIL
from tilewright.tensorir.sources import inherit
from tilewright.tensorir.stmt import Block, BufferRegion, BufferStore, For, IfThenElse, PrimFunc, Stmt
from tilewright.tensorir.target import Target

#: Loops of fewer iterations belong to the pattern: LLVM writes them out.
MIN_FREE_EXTENT = 4

#: Minimum number of steps of a task whose index may be divided by a parameter, which takes twenty cycles longer than a
#: division by a constant.
LEAST_TASK = 256

#: Maximum number of unrolled copies of a body whose distance may be a parameter: each then needs an address in a
#: register. Four are the vectors of a tile of sums.
MAX_STRIDED_COPIES = 4


_FREE_FLOAT_OPERATIONS = ("add", "sub", "mul", "min", "max")

#: Kinds of loops whose body is replicated in machine code.
_WRITTEN_OUT = ("unrolled", "vectorized")


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A function without its free constants.

    Attributes:
        key: equal for functions that differ only in names and free constants.
        constants: the free constants, in traversal order.
    """

    key: tuple[Hashable, ...]
    constants: tuple[IntImm | FloatImm, ...]


def parameters_of(func: PrimFunc) -> tuple[Hashable, ...]:
    """Return the types of the parameters, which are equal for functions of one pattern."""
    return tuple([(each.dtype, len(each.shape) if isinstance(each, Buffer) else None) for each in func.params])


def outline_of(func: PrimFunc) -> Hashable:
    """Return a cheap summary of the body that is equal for functions of one pattern: the kinds of its statements."""
    return tuple([node.kind if isinstance(node, For) else type(node) for node in walk_statements(func.body)])


def pattern_of(func: PrimFunc) -> Pattern:
    """Return the pattern of a scheduled function."""
    constants: list[IntImm | FloatImm] = []

    def note(constant: IntImm | FloatImm) -> Expr:
        constants.append(constant)
        return constant

    walked = _Walk(func, note)
    walked.function()
    return Pattern(tuple(walked.tokens), tuple(constants))


def with_constants(func: PrimFunc, values: Sequence[Expr]) -> PrimFunc:
    """Return ``func`` with its free constants replaced by other expressions.

    Args:
        values: one for each free constant, in traversal order.
    """
    left = iter(values)
    return _Walk(func, lambda _: next(left)).function()


class _Walk:
    """A traversal of a function that rebuilds the nodes that change.

    Args:
        constant: returns the replacement of each free constant.
    """

    def __init__(self, func: PrimFunc, constant: Callable[[Any], Expr]) -> None:
        self.func = func
        self.constant = constant
        self.tokens: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._buffers: dict[Buffer, Buffer] = {}
        #: The buffers that replace constants in the block being visited.
        self._scalars: dict[Buffer, None] = {}
        self._written_out, self._dividing, self._fixed_dims = _written_out(func)

    def function(self) -> PrimFunc:
        func = self.func
        self.tokens.append(_plain({key: value for key, value in func.attrs.items() if key not in ORIGIN_ATTRS}))
        for var in func.variables:  # a dimension of the model is passed as it is; others are derived from arguments
            number = self._number(var)
            self.tokens.append(var if var.name.isidentifier() and symbol(var.name) is var else (var.dtype, number))
        params = tuple([self._buffer(each) if isinstance(each, Buffer) else each for each in func.params])
        body = self._node(func.body, False)
        if body is func.body and all(new is old for new, old in zip(params, func.params, strict=True)):
            return func
        return PrimFunc(func.name, params, body, func.attrs)

    def _node(self, node: Any, fixed: bool) -> Any:
        """Rebuild a node; ``fixed`` if its integers belong to the pattern."""
        kind = type(node)
        if kind is IntImm:
            if node.dtype is INT64 and node.value != 0 and not fixed:
                self.tokens.append(IntImm)
                return self.constant(node)
            self.tokens.append((node.dtype, node.value))
            return node
        if kind is Var:
            self.tokens.append(self._number(node))
            return node
        if kind is BinaryOp:  # this one and the next are most of a program, and not worth a loop over fields
            return self._operation(node, fixed)
        if kind is BufferLoad:
            return self._load(node)
        if kind is FloatImm:
            self.tokens.append((node.dtype, node.value.hex()))
            return node
        rules = self._rules(node)
        self.tokens.append(kind)
        values: list[Any] = []
        changed = False
        for name, role in node.node_fields:
            old = new = getattr(node, name)
            rule = rules.get(name, fixed)
            if old is None:
                self.tokens.append(None)
            elif role == "child":
                new = self._node(old, rule)
            elif role == "children":
                self.tokens.append(len(old))
                parts = tuple([self._node(each, rule) for each in old])
                new = old if all(a is b for a, b in zip(parts, old, strict=True)) else parts
            elif role in ("buffer", "new_buffer"):
                new = self._buffer(old)
            elif role == "definition":
                self.tokens.append((old.dtype, self._number(old)))
            elif not (name == "name" and isinstance(node, Block)):
                self.tokens.append(_plain(old))
            changed = changed or new is not old
            values.append(new)
        if not changed:
            return node
        made = type(node)(*values)
        if isinstance(made, Block):
            made = self._reading_scalars(made)
        if isinstance(made, Stmt):
            inherit(made, node)
        return made

    def _operation(self, node: BinaryOp, fixed: bool) -> Expr:
        self.tokens.append((BinaryOp, node.op))
        old_a, old_b, op = node.a, node.b, node.op
        fixed_a = fixed_b = fixed
        if node.dtype.is_float:
            if op in _FREE_FLOAT_OPERATIONS:
                a = self._float(old_a) if isinstance(old_a, FloatImm) else self._node(old_a, fixed)
                b = self._float(old_b) if isinstance(old_b, FloatImm) else self._node(old_b, fixed)
                return node if a is old_a and b is old_b else BinaryOp(op, a, b)
        elif op in INTEGER_DIVISIONS:
            # Task indices are divided once per task; other indices in each iteration of a loop.
            fixed_b = fixed or not self._dividing.isdisjoint(leaves(old_a))
        elif op == "mul" and not fixed:
            fixed_a, fixed_b = self._is_written_out(old_b), self._is_written_out(old_a)
        a, b = self._node(old_a, fixed_a), self._node(old_b, fixed_b)
        return node if a is old_a and b is old_b else BinaryOp(op, a, b)

    def _load(self, node: BufferLoad) -> Expr:
        """Rebuild a load: the integers of its indices are free, those of its predicate belong to the pattern."""
        tokens, old = self.tokens, node.indices
        tokens.append(BufferLoad)
        buffer = self._buffer(node.buffer)
        tokens.append(len(old))
        indices = tuple([self._node(index, False) for index in old])
        predicate = node.predicate
        if predicate is None:
            tokens.append(None)
        else:
            predicate = self._node(predicate, True)
        if buffer is node.buffer and predicate is node.predicate and all(map(operator.is_, indices, old)):
            return node
        return BufferLoad(buffer, indices, predicate)

    def _reading_scalars(self, block: Block) -> Block:
        """Return the block with the buffers that replace its constants declared as read."""
        new = tuple([BufferRegion(buffer, ()) for buffer in self._scalars])
        self._scalars = {}
        return dataclasses.replace(block, reads=(*block.reads, *new)) if new else block

    def _rules(self, node: Any) -> Mapping[str, bool]:
        """Return the fields whose integers are fixed (True) or free (False) regardless of the enclosing node."""
        if isinstance(node, For):
            extent = node.extent.value if isinstance(node.extent, IntImm) else MIN_FREE_EXTENT
            short = node.kind == "serial" and extent < MIN_FREE_EXTENT
            return {"extent": node.kind in _WRITTEN_OUT or short or SPECIALIZE_TAIL in node.annotations}
        return _RULES.get(type(node), {})

    def _float(self, value: Any) -> Expr:
        self.tokens.append((FloatImm, value.dtype))
        found = self.constant(value)
        if isinstance(found, BufferLoad):
            self._scalars[found.buffer] = None
        return found

    def _number(self, node: Any) -> int:
        return self._numbers.setdefault(node, len(self._numbers))

    def _buffer(self, buffer: Buffer) -> Buffer:
        found = self._buffers.get(buffer)
        if found is not None:
            self.tokens.append(self._number(buffer))
            return found
        self.tokens.append((self._number(buffer), buffer.dtype, buffer.scope, buffer.alignment, buffer.ndim))
        fixed = self._fixed_dims.get(buffer, buffer.ndim)
        shape = tuple([self._node(extent, axis >= fixed) for axis, extent in enumerate(buffer.shape)])
        self.tokens.append(len(buffer.strides))
        strides = tuple([self._node(stride, axis >= fixed - 1) for axis, stride in enumerate(buffer.strides)])
        old = (*buffer.shape, *buffer.strides)
        if not all(a is b for a, b in zip((*shape, *strides), old, strict=True)):
            found = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, strides, buffer.alignment)
        self._buffers[buffer] = found = buffer if found is None else found
        return found

    def _is_written_out(self, expr: Expr) -> bool:
        return not self._written_out.isdisjoint(leaves(expr))


#: Fields of nodes whose integers are fixed or free regardless of the enclosing node.
_RULES: dict[type, dict[str, bool]] = {
    Compare: {"a": True, "b": True},
    Call: {"args": True},
    Select: {"condition": True},
    Choose: {"index": True},
    IfThenElse: {"condition": True},
    Block: {"predicate": True},
    BufferStore: {"indices": False, "predicate": True},
}


def _written_out(func: PrimFunc) -> tuple[set[Any], set[Any], dict[Buffer, int]]:
    """Return three things: the variables of vectorized loops and of loops unrolled into many copies, with the variables
    derived from them; the variables of all loops except parallel loops of large tasks, with the derived ones; and, for
    each buffer that the former traverse, the first dimension whose extent is a factor of their strides. A buffer of
    which few copies read too much to be prefetched counts as traversed by these, too. Register buffers are sized
    later."""
    found: set[Any] = set()
    few: set[Any] = set()
    inside: set[Any] = set()
    tasks: set[Any] = set()
    fixed: dict[Buffer, int] = {}
    most = Target.current().cache_bytes(2) // 2
    panels: set[Buffer] | None = None
    for node in walk_to_loads(func.body):
        if isinstance(node, For):
            if node.kind == "parallel":
                tasks.add(node.var)
            if node.kind != "parallel" or stores(node.body, LEAST_TASK) < LEAST_TASK:
                inside.add(node.var)
        if isinstance(node, For) and node.kind in _WRITTEN_OUT:
            short = isinstance(node.extent, IntImm) and node.extent.value <= MAX_STRIDED_COPIES
            (few if short and node.kind == "unrolled" else found).add(node.var)
        elif isinstance(node, Block):
            for item in node.iters:
                used = leaves(item.value)
                for group in (inside, tasks):
                    if not group.isdisjoint(used):
                        group.add(item.var)
                if not found.isdisjoint(used):
                    found.add(item.var)
                elif not few.isdisjoint(used):
                    few.add(item.var)
        elif isinstance(node, (BufferLoad, BufferStore)) and node.buffer.scope != "register":
            walked = _walked(node, found)
            strided = _walked(node, few)
            if strided is not None and known_bytes(node.buffer) >= LEAST_OPERAND:
                panels = _read_innermost(func) if panels is None else panels
                if node.buffer in panels and not _can_be_fetched(node, strided, tasks, most):
                    walked = strided if walked is None else min(walked, strided)
            if walked is not None:
                fixed[node.buffer] = min(fixed.get(node.buffer, node.buffer.ndim), walked + 1)
    return found, inside, fixed


def _walked(access: BufferLoad | BufferStore, walkers: set[Any]) -> int | None:
    """Return the first dimension whose index depends on one of ``walkers``."""
    if not walkers or (isinstance(access, BufferLoad) and walkers.isdisjoint(leaves(access))):
        return None
    return next((axis for axis, index in enumerate(access.indices) if not walkers.isdisjoint(leaves(index))), None)


def _read_innermost(func: PrimFunc) -> set[Buffer]:
    """Return the buffers that are read in loops whose inner loops are all unrolled or vectorized: ``PrefetchPanels``
    prefetches parts of these."""
    found: set[Buffer] = set()
    for loop in walk_statements(func.body):
        if not isinstance(loop, For) or loop.kind in _WRITTEN_OUT:
            continue
        inside = [stmt for stmt in walk_statements(loop.body) if isinstance(stmt, For)]
        if all(inner.kind in _WRITTEN_OUT for inner in inside):
            found.update([node.buffer for node in walk_to_loads(loop.body) if isinstance(node, BufferLoad)])
    return found


def _can_be_fetched(access: BufferLoad | BufferStore, axis: int, tasks: set[Any], most: int) -> bool:
    """Return whether ``PrefetchPanels`` finds the next panel, whose parts lie along ``axis``, when strides are
    parameters: a single index must depend on the task index. Panels of more than ``most`` bytes are not prefetched, so
    they do not mix with others."""
    extents = [extent.value for extent in access.buffer.shape[axis + 1 :] if isinstance(extent, IntImm)]
    size = MAX_STRIDED_COPIES * math.prod(extents) * access.buffer.dtype.bytes
    return size <= most and sum(not tasks.isdisjoint(leaves(index)) for index in access.indices) <= 1


def _plain(value: Any) -> Hashable:
    """Convert plain data to something hashable."""
    if value is None or isinstance(value, (str, int, float)):
        return (type(value), value)
    if isinstance(value, Mapping):
        return tuple([(_plain(key), _plain(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), *[_plain(item) for item in value])
    return (type(value), value) if isinstance(value, Hashable) else repr(value)
