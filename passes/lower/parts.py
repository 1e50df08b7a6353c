"""Build kernels for values that lie in the memory of a larger one (see ``graphir.parts``).

A kernel that computes or reads such a value has a buffer with strides for it. The call that joins the values becomes a
kernel that writes only the rest: padding, and the arguments that are not computed in place. Its attribute ``in_place``
gives the offsets of the others in its result: pairs (argument, indices).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.dims import Dim, dim_equal, product, simplify
from tilewright.graphir.expr import Call, Constant, Expr, Function, Var
from tilewright.graphir.keys import IN_PLACE, KIND
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import excess, in_place, inner_call, row_padding
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.passes.lower.primitive import with_sizes
from tilewright.tensorir import expr as tir
from tilewright.tensorir import tensor as te
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Buffer, as_expr
from tilewright.tensorir.functor import Mutator, substitute
from tilewright.tensorir.keys import NUM_INPUTS, NUM_OUTPUTS
from tilewright.tensorir.stmt import BufferRegion, BufferStore, PrimFunc, Range, Stmt, sequence
from tilewright.tensorir.tensor import Tensor

#: For a value in a larger one: the number of elements by which that memory is longer along each dimension.
Excess = tuple[int, ...]


def find_parts(root: Expr) -> dict[Expr, Excess]:
    """Return the values in ``root`` whose rows are not contiguous, as they are parts of larger values or padded, with
    their excess."""
    found: dict[Expr, Excess] = {}
    for node in reversed(post_order(root)):  # a whole is visited before its parts
        if type(node) is not Call or type(node.op) is not Function:
            continue
        if padding := row_padding(node):
            found[node] = (*[0] * (node.tensor_type.ndim - 1), padding)
        for number in in_place(node):
            part = node.args[number]
            more = excess(part.shape, node.shape, found.get(node, ()))
            if not all(isinstance(amount, int) for amount in more):
                raise TypeInferenceError(
                    f"a value of {part.type} cannot be computed in place in one of {node.type}: "
                    "its row stride depends on symbolic dimensions"
                )
            if any(more):
                found[part] = more  # type: ignore[assignment]  # they are integers
    return found


def with_strides(kernel: PrimFunc, parts: Sequence[Excess | None]) -> PrimFunc:
    """Return ``kernel`` with strides for the excess of its first buffers, given in ``parts``; None: unchanged."""
    table: dict[Buffer, Buffer] = {}
    for buffer, more in zip(kernel.buffers, parts, strict=False):
        if more is not None:
            table[buffer] = Buffer(
                buffer.name, buffer.shape, buffer.dtype, buffer.scope, _strides(buffer, more), buffer.alignment
            )
    params = tuple(table.get(param, param) if isinstance(param, Buffer) else param for param in kernel.params)
    return PrimFunc(kernel.name, params, substitute(kernel.body, {}, table), kernel.attrs)


def _strides(buffer: Buffer, more: Excess) -> tuple[tir.Expr, ...]:
    stride: Dim = 1
    found: list[Dim] = []
    for extent, amount in zip(reversed(buffer.shape), reversed(more), strict=True):
        found.append(stride)
        stride = simplify(stride * (extent + amount))
    return tuple(map(as_expr, reversed(found)))


def assemble(group: Function, name: str) -> PrimFunc:
    """Return the kernel that completes the result of a group, some of whose arguments are computed in place.

    Raises:
        TypeInferenceError: the group's operator cannot have arguments in place.
    """
    call = inner_call(Call(group, group.params, None, group.body.type))
    op = call.op
    assert isinstance(op, Operator) and op.compute is not None
    kept: tuple[int, ...] = tuple(group.attrs[IN_PLACE])
    types = [arg.tensor_type for arg in call.args]
    places = op.places(types, call.attrs)
    if places is None:
        raise TypeInferenceError(f"{op.name}: its arguments cannot be computed in place in its result")
    inputs = [te.placeholder(found.shape, found.dtype, _name(arg)) for arg, found in zip(call.args, types, strict=True)]
    out = call.tensor_type
    whole = op.compute(inputs, call.attrs, out)
    assert isinstance(whole, Tensor) and isinstance(whole.body, tir.Expr)
    boxes = [
        _Box(tuple(places[number]), tuple(types[number].shape)) for number in range(len(types)) if number not in kept
    ]
    filled = dim_equal(sum((product(found.shape) for found in types), 0), product(out.shape))
    if not filled:
        boxes += _around(_Box(tuple(places[0]), tuple(types[0].shape)), out)
    target = Buffer(op.name.rpartition(".")[2], tuple(map(as_expr, out.shape)), out.dtype)
    nests = [_nest(whole, inputs, box, target, number) for number, box in enumerate(boxes)]
    variables = te.create_prim_func(name, inputs, [whole]).variables
    begins = tuple((number, tuple(places[number])) for number in kept)
    attrs = {KIND: "injective", NUM_INPUTS: len(inputs), NUM_OUTPUTS: 1, IN_PLACE: begins}
    params = (*[tensor.buffer for tensor in inputs], target, *variables)
    return with_sizes(PrimFunc(name, params, sequence(*nests), attrs), group, inputs)


def _name(arg: Expr) -> str:
    assert isinstance(arg, (Var, Constant))
    return arg.name if isinstance(arg, Var) else "constant"


class _Box:
    """A box of elements of a tensor: its first indices and its extents."""

    def __init__(self, begin: tuple[Dim, ...], extents: tuple[Dim, ...]) -> None:
        self.begin = begin
        self.extents = extents


def _around(inner: _Box, out: TensorType) -> list[_Box]:
    """Return the border around ``inner``: for each axis a box before and one after, inside those of earlier axes."""
    found: list[_Box] = []
    begin: list[Dim] = [0] * out.ndim
    extents = list(out.shape)
    for axis in range(out.ndim):
        end = simplify(inner.begin[axis] + inner.extents[axis])
        for start, extent in ((0, inner.begin[axis]), (end, simplify(out.shape[axis] - end))):
            if not dim_equal(extent, 0):
                found.append(
                    _Box((*begin[:axis], start, *begin[axis + 1 :]), (*extents[:axis], extent, *extents[axis + 1 :]))
                )
        begin[axis], extents[axis] = inner.begin[axis], inner.extents[axis]
    return found


def _nest(whole: Tensor, inputs: Sequence[Tensor], box: _Box, target: Buffer, number: int) -> Stmt:
    """Return the loops that compute ``box`` of a tensor."""
    formula = whole.body
    assert isinstance(formula, tir.Expr)

    def element(*place: tir.Var) -> tir.Expr:
        analyzer = Analyzer()
        for index, extent in zip(place, box.extents, strict=True):
            analyzer.bind(index, 0, as_expr(extent))
        moved = {axis: index + begin for axis, index, begin in zip(whole.axes, place, box.begin, strict=True)}
        return analyzer.simplify(substitute(formula, moved))

    part = te.compute(box.extents, element, name=f"{target.name}_{number}" if number else target.name)
    made = te.create_prim_func(target.name, inputs, [part])
    own = made.buffers[-1]
    return _Moved(own, target, box.begin).mutate(made.body)  # type: ignore[no-any-return]


class _Moved(Mutator):
    """Redirect stores to one buffer into a part of another."""

    def __init__(self, old: Buffer, new: Buffer, begin: Sequence[Dim]) -> None:
        self.old, self.new, self.begin = old, new, begin

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        if op.buffer is not self.old:
            return op
        indices = tuple(index + begin for index, begin in zip(op.indices, self.begin, strict=True))
        return BufferStore(self.new, op.value, indices, op.predicate)

    def mutate_BufferRegion(self, region: BufferRegion) -> BufferRegion:
        if region.buffer is not self.old:
            return region
        ranges = tuple(
            Range(found.min + begin, found.extent) for found, begin in zip(region.ranges, self.begin, strict=True)
        )
        return BufferRegion(self.new, ranges)
