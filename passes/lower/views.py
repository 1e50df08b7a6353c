"""Find the calls that only give a tensor another shape: no kernel computes them, they are views of its memory.

Before::

    def @main(%x) {
      %0 = nn.global_avg_pool2d(%x, layout="NCHW16c")
      %1 = fn (%p) primitive { nn.batch_flatten(layout_transform(%p, src_layout="NCHW16c", dst_layout="NCHW")) }(%0)
      %2 = nn.dense(%1, const#0)

After::

    def @main(%x) {
      %0 = @global_avg_pool2d(%x)
      %1 = fn (%p) primitive view { nn.batch_flatten(layout_transform(%p, ...)) }(%0)
      %2 = @dense(%1, const#0)

A view lies in memory that nothing writes after the view is made: that of a kernel's result, of an input of the model,
or of a constant. The state of a loop, which is overwritten, gets no view. Where the model returns a view of a kernel's
result, the kernel writes to the memory of the model's result; other results that are reshapes stay kernels.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from tilewright.graphir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import in_place
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.passes.context import PassContext
from tilewright.passes.graph.walk import children_outside_groups, is_primitive


def find_views(function: Function, is_model: bool, strided: Container[Expr], ctx: PassContext) -> set[Expr]:
    """Return the calls in ``function`` that can be views of their argument; leave a remark about each reshape.

    Args:
        is_model: whether it is the function that callers of the model call, whose parameters are its inputs.
        strided: values that are not contiguous in memory.
    """
    order = post_order(function, children_of=children_outside_groups)
    views = _Views(function, is_model, strided, order)
    for node in order:
        if type(node) is Call and len(node.args) == 1 and _is_reshape(node):
            reason = views.obstacle(node)
            if reason is None:
                views.owners[node] = views.owner(node.args[0])
                ctx.remark("a view of its argument's memory, which nothing copies", "applied", summary(node))
            else:
                ctx.remark(f"copied, though only the shape changes: {reason}", "missed", summary(node))
    return set(views.owners)


class _Views:
    """Decide which reshapes of a function are views."""

    def __init__(self, function: Function, is_model: bool, strided: Container[Expr], order: Sequence[Expr]) -> None:
        self.strided = strided
        #: The value that owns the memory of each view.
        self.owners: dict[Expr, Expr] = {}
        self.inputs = set(function.params) if is_model else set()
        #: What the functions return, and what the model does.
        self.results = set(_results(order))
        self.returned = set(_results([function])) if is_model else set()
        #: Values that must be written to the memory of a larger one, and the larger ones.
        self.parts: set[Expr] = set()
        self.wholes: set[Expr] = set()
        for node in order:
            if type(node) is Call and (numbers := in_place(node)):
                self.parts.update(node.args[number] for number in numbers)
                self.wholes.add(node)

    def owner(self, value: Expr) -> Expr:
        return self.owners.get(value, value)

    def obstacle(self, call: Call) -> str | None:
        """Return the reason why a reshape cannot be a view; None if it can."""
        (arg,) = call.args
        if call in self.parts or call in self.strided:
            return "it must lie in the memory of a larger value"
        if arg in self.strided:
            return "its argument is not contiguous in memory"
        if not _is_stable(arg) and arg not in self.inputs:
            return "its argument is the state of a loop, or a function's parameter, whose memory may change"
        if call in self.results:
            owner = self.owner(arg)
            if call not in self.returned or type(owner) is not Call:
                return "it is a result"
            if owner in self.results or owner in self.wholes:
                return "it is a result, and its argument needs memory of its own"
        return None


def _results(order: Iterable[Expr]) -> Iterable[Expr]:
    """Yield the results of the functions in ``order`` that are no groups."""
    pending = [node.body for node in order if isinstance(node, Function) and not is_primitive(node)]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, Tuple):
            pending.extend(node.fields)
        elif isinstance(node, Let):
            pending.append(node.body)


def _is_stable(value: Expr) -> bool:
    """Return whether a value is a constant, or the result of an operator or a group: memory that is written once."""
    if isinstance(value, TupleGetItem):
        return _is_stable(value.value)
    return isinstance(value, Constant) or (
        isinstance(value, Call) and (isinstance(value.op, Operator) or is_primitive(value.op))
    )


def _is_reshape(call: Call) -> bool:
    """Return whether a call, of an operator or a group, only gives its argument another shape."""
    if not isinstance(call.type, TensorType) or len(call.args) != 1:
        return False
    if isinstance(call.op, Operator):
        found = call.args[0].type
        return isinstance(found, TensorType) and found.dtype == call.dtype and call.op.is_reshape([found], call.attrs)
    if not isinstance(call.op, Function) or not is_primitive(call.op):
        return False
    node = call.op.body
    while isinstance(node, Call) and isinstance(node.op, Operator) and _is_reshape(node):
        node = node.args[0]
    return isinstance(node, Var)
