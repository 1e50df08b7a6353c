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

from collections.abc import Container, Iterable

from tilewright.graphir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import in_place
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.walk import children_outside_groups, is_primitive


def find_views(function: Function, is_model: bool, strided: Container[Expr]) -> set[Expr]:
    """Return the calls in ``function`` that can be views of their argument.

    Args:
        is_model: whether it is the function that callers of the model call, whose parameters are its inputs.
        strided: values that are not contiguous in memory.
    """
    order = post_order(function, children_of=children_outside_groups)
    inner: set[Expr] = set()  # values that must be written to the memory of a larger one
    wholes: set[Expr] = set()
    for node in order:
        if numbers := in_place(node):
            assert isinstance(node, Call)
            inner.update(node.args[number] for number in numbers)
            wholes.add(node)
    results = set(_results(order))
    returned = set(_results([function])) if is_model else set()
    stable = set(function.params) if is_model else set()
    found: dict[Expr, Expr] = {}  # the value that owns the memory of each view
    for node in order:
        if not isinstance(node, Call) or node in inner or node in strided or not _is_reshape(node):
            continue
        (arg,) = node.args
        if arg in strided or not (_is_stable(arg) or arg in stable):
            continue
        owner = found.get(arg, arg)
        is_kept = node in results and (
            node not in returned or owner in results or owner in wholes or type(owner) is not Call
        )
        if not is_kept:
            found[node] = owner
    return set(found)


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
        arg = call.args[0]
        return isinstance(arg.type, TensorType) and call.op.is_reshape([arg.type], call.attrs)
    if not isinstance(call.op, Function) or not is_primitive(call.op):
        return False
    node = call.op.body
    while isinstance(node, Call) and isinstance(node.op, Operator) and _is_reshape(node):
        node = node.args[0]
    return isinstance(node, Var)
