"""``EliminateCommonSubexpr``: compute equal expressions once.

Before::

    %0 = tanh(%x)
    %1 = tanh(%x)
    %2 = add(%0, %1)

After::

    %0 = tanh(%x)
    %1 = add(%0, %0)

Works by hash-consing, in linear time. Nested functions are processed one by one, so that they do not begin to capture
values from outside. Calls of impure operators and of functions are never merged.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilewright.graphir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.origins import Origin
from tilewright.graphir.printer import summary
from tilewright.graphir.spelling import attribute_text
from tilewright.passes.base import FunctionPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import map_functions, nested_functions, rewrite_body
from tilewright.passes.registry import register_pass

#: Larger constants are compared by the address of their data: reading gigabytes of weights costs more than it saves.
_COMPARED_BYTES = 4096


@register_pass
@function_pass(opt_level=1, name="EliminateCommonSubexpr")
class EliminateCommonSubexpr(FunctionPass):
    """Merge equal calls of pure operators, equal tuples, fields and small constants."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with equal expressions shared."""
        merged: list[tuple[Call, Call]] = []
        result = map_functions(func, lambda inner: _merge(inner, merged))
        for first, again in merged:
            if again.span is not None and again.span != first.span:
                what = [Origin(call.op.name, call.span) for call in (again, first) if isinstance(call.op, Operator)]
                ctx.remark(f"{what[0]} replaced by the equal call {what[1]}", "applied", summary(first))
        if merged:
            ctx.remark(f"calls replaced by equal ones: {len(merged)}", "applied")
        return result


def _merge(func: Function, merged: list[tuple[Call, Call]]) -> Function:
    table = _Table(merged)
    inside: dict[Expr, Expr] = {nested: nested for nested in nested_functions(func) if nested is not func}
    return rewrite_body(func, table.share, done=inside)


#: Types whose values differ if they compare unequal to others of the type, and only then.
_EXACT = frozenset((str, int, bool, type(None)))


class _Table:
    """The first expression that computes each value; the operands of expressions must be shared already.

    Each operator with its attributes has a dictionary whose keys are the existing tuples of arguments.
    """

    def __init__(self, merged: list[tuple[Call, Call]]) -> None:
        #: Receives pairs of merged calls: the first one, and the other.
        self.merged = merged
        self.plain: dict[Operator, dict[Hashable, Call]] = {}
        self.with_attrs: dict[Hashable, dict[Hashable, Call]] = {}
        self.constants: dict[Hashable, Expr] = {}
        self.tuples: dict[Hashable, Expr] = {}
        self.fields: dict[Hashable, Expr] = {}
        self.attributes: dict[int, tuple[Any, Hashable]] = {}

    def share(self, node: Expr) -> Expr:
        """Return the first expression that computes the same value as ``node``."""
        if type(node) is Call:
            op = node.op
            if not isinstance(op, Operator) or not op.pure:
                return node
            if op.attr_names:
                calls = self.with_attrs.setdefault((op, self.attrs_key(op, node.attrs)), {})
            else:
                calls = self.plain.setdefault(op, {})
            first = calls.setdefault(node.args, node)
            if first is not node:
                self.merged.append((first, node))
            return first
        if type(node) is Constant:
            return self.constants.setdefault(constant_key(node), node)
        if type(node) is TupleGetItem:
            return self.fields.setdefault((node.value, node.index), node)
        if type(node) is Tuple:
            return self.tuples.setdefault(node.fields, node)
        return node

    def attrs_key(self, op: Operator, attrs: Any) -> Hashable:
        found = self.attributes.get(id(attrs))
        if found is None:
            key = tuple([_exact(getattr(attrs, name)) for name in op.attr_names])
            found = self.attributes[id(attrs)] = (attrs, key)  # keeps attrs alive, so that its id is not reused
        return found[1]


def _exact(value: Any) -> Hashable:
    """Return a key of an attribute's value, with its type, or as text: values that compare equal may differ (1 and
    True, 0.0 and -0.0), and not all of them are hashable."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind is tuple:
        kinds = {*map(type, value)}
        if len(kinds) < 2 and kinds <= _EXACT:
            return (*kinds, value)
    return attribute_text(value)


def constant_key(node: Constant) -> Hashable:
    """Return a key that is equal for constants of equal value. Large constants are equal only if they share memory, or
    are the same object if their data is not computed yet."""
    content: Hashable = node
    if node.nbytes <= _COMPARED_BYTES:
        content = node.data.tobytes()
    elif node.is_computed:
        content = (node.data.ctypes.data, node.data.strides)
    return ("constant", str(node.dtype), node.shape, content)
