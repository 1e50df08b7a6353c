"""Make loop nests from tensor expressions: formulas of one element, and reductions (``reduction.py``).

``compute`` states what each element of a tensor is; ``create_prim_func`` turns a graph of such statements into a
function with one loop nest and one block for each of them. Computations without a good formula of one element (sorting,
scans, scatters) are written as loops with ``extern``. The idea is Halide's and TVM's: Ragan-Kelley et al.,
"Halide: a language and compiler for optimizing parallelism, locality, and recomputation in image processing
pipelines", PLDI 2013.
"""

from __future__ import annotations

import builtins
import dataclasses
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr, ExprLike, IntImm, Var, as_expr
from tilewright.tensorir.formulas import index_names
from tilewright.tensorir.functor import LOADS, free_vars, leaves, substitute, walk_statements, walk_to
from tilewright.tensorir.keys import NUM_OUTPUTS
from tilewright.tensorir.node import Node
from tilewright.tensorir.reduction import (
    Reduction,
    all,
    any,
    argmax,
    argmin,
    highest,
    lowest,
    max,
    min,
    prod,
    range_of,
    reduce_axis,
    sum,
)
from tilewright.tensorir.sources import add_sources
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    For,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    Stmt,
    sequence,
)
from tilewright.tensorir.unique_names import unique_name

__all__ = [
    "Extern",
    "Reduction",
    "Tensor",
    "all",
    "any",
    "argmax",
    "argmin",
    "compute",
    "create_prim_func",
    "extern",
    "highest",
    "lowest",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "sum",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Extern:
    """Loops written out by hand, as the body of all tensors that they fill.

    Attributes:
        outputs: the buffers that the loops fill, whether or not their tensors are used.
        stmt: the loops.
    """

    outputs: tuple[Buffer, ...]
    stmt: Stmt


@dataclasses.dataclass(eq=False)
class Tensor:
    """A named multi-dimensional value: a placeholder, or the result of a ``compute`` or of an ``extern``.

    Indexing with as many expressions as it has dimensions gives an element. ``axes`` are the variables of the formula;
    the block that computes the tensor has the same, so that the formula need not be copied.
    """

    buffer: Buffer
    axes: tuple[Var, ...] = ()
    body: Expr | Reduction | Extern | None = None
    inputs: tuple[Tensor, ...] = ()
    annotations: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    extra_buffers: tuple[Buffer, ...] = ()
    needed: Expr | None = None
    loads: Sequence[BufferLoad] = ()  # those of the formula

    @property
    def name(self) -> str:
        """The name of the tensor, of its buffer and of its block."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The extents."""
        return self.buffer.shape

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self.buffer.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.buffer.shape)

    def __getitem__(self, indices: Any) -> Expr:
        if not isinstance(indices, tuple):
            indices = (indices,)
        load = BufferLoad(self.buffer, indices)
        _tensor_of[self.buffer] = self
        return load

    def __call__(self, *indices: ExprLike) -> Expr:
        return self[tuple(indices)]


_tensor_of: weakref.WeakValueDictionary[Buffer, Tensor] = weakref.WeakValueDictionary()


def placeholder(shape: Iterable[ExprLike], dtype: Any = "float32", name: str = "placeholder") -> Tensor:
    """An input tensor."""
    return Tensor(Buffer(name, shape, as_dtype(dtype)))  # type: ignore[arg-type]  # converted there


def compute(
    shape: Iterable[ExprLike],
    formula: Callable[..., Any],
    name: str = "compute",
    annotations: Mapping[str, Any] | None = None,
    needed: Callable[..., Any] | None = None,
) -> Tensor:
    """The tensor of that shape whose element at ``i, j, ...`` is ``formula(i, j, ...)``.

    Args:
        shape: extents; integers or expressions over symbolic dimensions.
        formula: gives an expression, or a reduction such as ``sum(a[i, k], axis=k)``.
        name: of the tensor and of its block.
        annotations: kept on the block, for schedules.
        needed: gives, of the same indices, the condition without which nothing depends on an element, or on a step of
            a reduction that takes part in it: schedules may leave it out. See :class:`~tilewright.tensorir.stmt.Block`.

    Raises:
        TypeError: the formula takes another number of indices, or gives something else.
    """
    extents = tuple([as_expr(extent) for extent in shape])
    axes = tuple([Var(f"v{index_name}") for index_name in index_names(formula, len(extents))])
    body = formula(*axes)
    if not isinstance(body, Reduction):
        body = as_expr(body)
    elif builtins.any(getattr(range_of(axis)[1], "value", 1) <= 0 for axis in body.axes):
        # Over no values: a block that never runs would not store the start value. There are no steps to leave out.
        body, needed = body.identities[body.result], None
    sources = body.sources if isinstance(body, Reduction) else (body,)
    loads = _loads(sources, frozenset())
    inputs = _tensors_read(loads, f"{name}: the formula")
    extra: tuple[Buffer, ...] = ()
    if isinstance(body, Reduction):
        dtype = body.sources[body.result].dtype
        extra = tuple(
            Buffer(f"{name}_{number}", extents, source.dtype, "arena")
            for number, source in enumerate(body.sources)
            if number != body.result
        )
    else:
        dtype = body.dtype
    condition = None if needed is None else as_expr(needed(*axes))
    buffer = Buffer(name, extents, dtype, "arena")
    return Tensor(buffer, axes, body, inputs, dict(annotations or {}), extra, condition, loads)


def extern(
    results: Sequence[tuple[Iterable[ExprLike], Any]], loops: Callable[[list[Buffer]], Stmt], name: str = "extern"
) -> list[Tensor]:
    """Return tensors filled by hand-written loops, for computations that ``compute`` expresses only with wasted work.

    The loops are not a block, so a function that holds them is not scheduled: they run as written, and a loop whose
    iterations are independent should be ``"parallel"``.

    Args:
        results: shape and element type of each tensor.
        loops: returns the statement that fills the buffers in its arguments, one for each result. It reads tensors by
            indexing them, and may allocate buffers of its own.
        name: of the buffers; those of several results are numbered.

    Raises:
        TypeError: the loops read a buffer that is neither theirs nor a tensor's.
    """
    buffers: list[Buffer] = []
    for number, (shape, dtype) in enumerate(results):
        numbered = name if len(results) == 1 else f"{name}_{number}"
        buffers.append(Buffer(numbered, tuple(as_expr(extent) for extent in shape), as_dtype(dtype), "arena"))
    stmt = loops(list(buffers))
    own = {node.buffer for node in walk_statements(stmt) if isinstance(node, Allocate)}
    inputs = _tensors_read(_loads((stmt,), own.union(buffers)), f"{name}: the loops")
    body = Extern(tuple(buffers), stmt)
    return [Tensor(buffer, (), body, inputs) for buffer in buffers]


def _loads(roots: Iterable[Node], own: Collection[Buffer]) -> list[BufferLoad]:
    """The loads in ``roots``, in order, but those of ``own`` buffers."""
    nodes = [node for root in roots for node in walk_to(root, LOADS)]
    return [node for node in nodes if type(node) is BufferLoad and node.buffer not in own]


def _tensors_read(loads: Iterable[BufferLoad], reader: str) -> tuple[Tensor, ...]:
    """The tensors whose elements are loaded, in order."""
    found: dict[Tensor, None] = {}
    for load in loads:
        tensor = _tensor_of.get(load.buffer)
        if tensor is None:
            raise ArgumentTypeError(f"{reader} reads {load.buffer.name}, which is not a tensor")
        found[tensor] = None
    return tuple(found)


_ZERO, _ONE = as_expr(0), as_expr(1)


class _Variables:
    """The variables of the nests made so far: those that loops and blocks define, and all that blocks use."""

    def __init__(self) -> None:
        self.defined: set[Var] = set()
        self.used: set[Var] = set()

    def use(self, *exprs: Expr) -> None:
        """Note the variables of expressions."""
        for expr in exprs:
            if type(expr) is Var:
                self.used.add(expr)
            elif type(expr) is not IntImm:
                self.used.update(free_vars(expr))


def _nest(tensor: Tensor, buffers: Mapping[Buffer, Buffer], block_name: str, variables: _Variables) -> Stmt:
    """The loop nest and block that compute ``tensor``."""
    body = tensor.body
    assert isinstance(body, (Expr, Reduction))
    loops: list[tuple[Var, Expr, Expr]] = []
    iters: list[IterVar] = []
    renamed: dict[Var, Expr] = {}
    defined = variables.defined
    for axis, extent in zip(tensor.axes, tensor.shape, strict=True):
        if type(extent) is not IntImm:
            variables.use(extent)
        loop = Var(axis.name[1:])
        loops.append((loop, _ZERO, extent))
        iters.append(IterVar(axis, _ZERO, extent, "spatial", loop))
    for axis in body.axes if isinstance(body, Reduction) else ():
        begin, extent = range_of(axis)
        variables.use(begin, extent)
        loop, var = Var(axis.name[1:]), axis
        if axis in defined:  # a reduction axis of two tensors
            var = renamed[axis] = Var(axis.name)
        loops.append((loop, begin, extent))
        iters.append(IterVar(var, begin, extent, "reduction", loop))
    defined.update([loop for loop, _, _ in loops], [item.var for item in iters])
    if isinstance(body, Reduction):
        variables.use(*body.identities)
    if tensor.needed is not None:
        variables.use(tensor.needed)
    stmt: Stmt = _block(tensor, buffers, block_name, iters, renamed, variables)
    for loop, begin, extent in reversed(loops):
        stmt = For(loop, begin, extent, "serial", stmt)
    return stmt


def _block(
    tensor: Tensor,
    buffers: Mapping[Buffer, Buffer],
    name: str,
    iters: list[IterVar],
    renamed: Mapping[Var, Expr],
    variables: _Variables,
) -> Block:
    body = tensor.body
    place, result = tensor.axes, buffers.get(tensor.buffer, tensor.buffer)
    init: Stmt | None = None
    if isinstance(body, Reduction):
        others = iter(tensor.extra_buffers)
        targets = [result if n == body.result else next(others) for n in range(len(body.sources))]
        values = body.combine([BufferLoad(target, place) for target in targets], body.sources)
        update = (
            sequence(*[BufferStore(target, value, place) for target, value in zip(targets, values, strict=True)])
            if len(targets) == 1
            else _simultaneous(targets, values, place)
        )
        init = sequence(
            *[BufferStore(target, start, place) for target, start in zip(targets, body.identities, strict=True)]
        )
    else:
        assert isinstance(body, Expr)
        targets = [result]
        update = BufferStore(result, body, place)
    # The step of a reduction of several values may read them in another order.
    loads = tensor.loads if len(targets) == 1 else None
    if renamed or not buffers.keys().isdisjoint([read.buffer for read in tensor.inputs]):
        update, loads = substitute(update, renamed, buffers), None
        init = None if init is None else substitute(init, renamed, buffers)
    point = tuple([Range(index, _ONE) for index in place])
    points = {tuple(map(id, place)): point}  # by the addresses of indices: most read the element that they compute
    reads: dict[tuple[Buffer, tuple[int, ...]], BufferRegion] = {}
    for load in _loads((update,), targets) if loads is None else loads:
        addresses = tuple(map(id, load.indices))
        key = (load.buffer, addresses)
        if key not in reads:
            ranges = points.get(addresses)
            if ranges is None:
                ranges = points[addresses] = tuple([Range(index, _ONE) for index in load.indices])
            reads[key] = BufferRegion(load.buffer, ranges)
    for leaf in leaves(update) - variables.defined:
        if type(leaf) is Var:
            variables.used.add(leaf)
    writes = tuple([BufferRegion(target, point) for target in targets])
    needed = None if tensor.needed is None else substitute(tensor.needed, renamed)
    notes = dict(tensor.annotations)
    return Block(name, tuple(iters), None, tuple(reads.values()), writes, init, update, notes, needed)


def _simultaneous(targets: Sequence[Buffer], values: Sequence[Expr], place: tuple[Expr, ...]) -> Stmt:
    """Stores that all see the old contents: every value is bound before the first store."""
    bound = [Var(f"{target.name}_new", value.dtype) for target, value in zip(targets, values, strict=True)]
    stmt = sequence(*[BufferStore(target, var, place) for target, var in zip(targets, bound, strict=True)])
    for var, value in reversed(list(zip(bound, values, strict=True))):
        stmt = LetStmt(var, value, stmt)
    return stmt


def create_prim_func(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    attrs: Mapping[str, Any] | None = None,
    sources: Mapping[Tensor, int] | None = None,
) -> PrimFunc:
    """The function that computes ``outputs`` from ``inputs``: one loop nest for each tensor in between, in order, or
    the loops of an ``extern``.

    Parameters are the inputs' buffers, the outputs' buffers, and the symbolic dimensions of shapes and formulas.
    Tensors in between are allocated in the arena.

    Args:
        sources: the source of the loops of each tensor (:mod:`.sources`), where it is known.

    Raises:
        ValueError: an output is a placeholder, or a placeholder that is needed is no input.
    """
    ordered = _topological(outputs)
    for tensor in ordered:
        if tensor.body is None and tensor not in inputs:
            raise ArgumentValueError(f"{name}: {tensor.name} is read but is not among the inputs")
    for tensor in outputs:
        if tensor.body is None:
            raise ArgumentValueError(f"{name}: output {tensor.name} is a placeholder, not computed")
    buffers: dict[Buffer, Buffer] = {}
    for tensor in outputs:
        old = tensor.buffer
        buffers[old] = Buffer(old.name, old.shape, old.dtype, "global")
    stages: list[Stmt] = []
    allocated: list[Buffer] = []
    used: set[str] = set()
    variables = _Variables()
    written: set[Extern] = set()
    for tensor in ordered:
        if tensor.body is None:
            continue
        if isinstance(tensor.body, Extern):
            if tensor.body not in written:
                written.add(tensor.body)
                stages.append(_from_source(substitute(tensor.body.stmt, {}, buffers), tensor, sources))
                allocated.extend(buffer for buffer in tensor.body.outputs if buffer not in buffers)
            continue
        block_name = unique_name(tensor.name, used)
        used.add(block_name)
        stages.append(_from_source(_nest(tensor, buffers, block_name, variables), tensor, sources))
        if tensor.buffer not in buffers:
            allocated.append(tensor.buffer)
        allocated.extend(tensor.extra_buffers)
    body = sequence(*stages)
    for buffer in reversed(allocated):
        body = Allocate(buffer, body)
    params: list[Buffer | Var] = [tensor.buffer for tensor in inputs]
    params.extend(buffers[tensor.buffer] for tensor in outputs)
    dims: dict[Var, None] = {}
    for param in params:
        for extent in param.shape if isinstance(param, Buffer) else ():
            if type(extent) is not IntImm:
                dims.update(dict.fromkeys(free_vars(extent)))
    if written or not variables.used <= variables.defined | dims.keys():
        dims.update(dict.fromkeys(free_vars(body)))  # those that only a formula mentions
    return PrimFunc(name, (*params, *dims), body, {**(attrs or {}), NUM_OUTPUTS: len(outputs)})


def _from_source(nest: Stmt, tensor: Tensor, sources: Mapping[Tensor, int] | None) -> Stmt:
    """Set the source of the loops that compute a tensor, which no other program holds yet."""
    if sources is not None and tensor in sources:
        add_sources(nest, frozenset([sources[tensor]]))
    return nest


def _topological(outputs: Sequence[Tensor]) -> list[Tensor]:
    """All tensors that ``outputs`` need, each after what it reads; without recursion."""
    done: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(tensor, False) for tensor in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in done:
            continue
        if ready:
            done[tensor] = None
            continue
        if not tensor.inputs:
            done[tensor] = None
            continue
        stack.append((tensor, True))
        stack.extend([(read, False) for read in reversed(tensor.inputs) if read not in done])
    return list(done)
