"""``PadRows``: pad rows so that rows read together do not alias in the L1 cache.

Before::

    %0 = fn (%p0, %p1) attrs {"Primitive": True} { nn.gelu(nn.dense(%p0, %p1)) }(%x, const#0)
    %1 = fn (%p0, %p1) attrs {"Primitive": True} { nn.dense(%p0, %p1) }(%0, const#1)

After, if ``%0`` is a float32 tensor of shape (128, 3072)::

    %0 = fn (%p0, %p1) attrs {"Primitive": True, "row_padding": 16} { nn.gelu(nn.dense(%p0, %p1)) }(%x, const#0)

An L1 cache selects the set of a line by the lowest twelve bits of its address: of lines that are a multiple of 4 KiB
apart it holds as many as it has ways, 8 to 12. A matrix product reads up to 14 rows of its left factor at the same
time. If the length of a row is a multiple of a page, the rows evict each other, and each number is fetched from L2
again: a dense layer of 3,072 inputs runs at 90 % of the peak instead of 95. So a tensor that a kernel computes and a
product reads by rows (trait ``Operator.reads_rows``) gets a cache line of unused memory after each row; buffers of
kernels have strides for it. The parameters and results of a model keep the caller's layout, and models with branches
or loops are not changed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from tilewright.graphir.dims import TYPICAL, estimate
from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.keys import ROW_PADDING
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import in_place
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.passes.base import FunctionPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import as_group, children_outside_groups, has_control_flow, is_primitive
from tilewright.passes.properties import GROUPS, TYPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.target import CACHE_LINE


@register_config_option("graphir.PadRows")
@dataclasses.dataclass(frozen=True)
class PadRowsConfig:
    """Options of ``PadRows``."""

    page: int = dataclasses.field(
        default=4096, metadata={"doc": "distance in bytes at which lines alias in the L1 cache"}
    )
    least_rows: int = dataclasses.field(default=8, metadata={"doc": "the fewest rows of a matrix that is padded"})
    unknown: int = dataclasses.field(default=TYPICAL, metadata={"doc": "assumed extent of a symbolic dimension"})


@register_pass
@function_pass(opt_level=2, name="PadRows", requires={TYPED, GROUPS})
class PadRows(FunctionPass):
    """Mark the groups whose results get unused memory after each row."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with the attribute ``row_padding`` on such groups: the number of elements after each row."""
        if is_primitive(func):
            return func
        order = post_order(func.body, children_of=children_outside_groups)
        if has_control_flow(order):
            return func
        config: PadRowsConfig = ctx.get_config("graphir.PadRows")
        aliasing = [node for node in order if _is_computed(node) and _rows_alias(node.tensor_type, config)]
        if not aliasing:
            return func
        users: dict[Expr, list[Expr]] = {}
        for node in order:
            for child in children_outside_groups(node):
                users.setdefault(child, []).append(node)
        padded = {node for node in aliasing if _needs_padding(node, users.get(node, ()))}
        if not padded:
            return func

        def change(old: Expr, new: Expr) -> Expr:
            if old not in padded:
                return new
            assert isinstance(new, Call)
            ctx.remark("padded each row by a cache line", "applied", summary(new))
            group, args = new.op, new.args
            if not isinstance(group, Function):
                group, places = as_group(new)
                args = tuple(new.args[place] for place in places)
            padded_group = group.with_attr(ROW_PADDING, CACHE_LINE // new.dtype.bytes)
            return Call(padded_group, args, None, new.type, new.span)

        return func.with_body(rewrite(func.body, change))


def _is_computed(node: Expr) -> bool:
    """Return whether a kernel computes ``node`` into memory of its own."""
    return _is_kernel(node) and isinstance(node.type, TensorType)


def _is_kernel(node: Expr) -> bool:
    return type(node) is Call and (is_primitive(node.op) or isinstance(node.op, Operator)) and not in_place(node)


def _rows_alias(found: TensorType, config: PadRowsConfig) -> bool:
    """Return whether the rows of a tensor alias."""
    if found.ndim < 2 or not isinstance(found.shape[-1], int) or found.dtype.bytes > CACHE_LINE:
        return False
    size = found.shape[-1] * found.dtype.bytes
    rows = math.prod(estimate(extent, config.unknown) for extent in found.shape[:-1])
    return size > 0 and size % config.page == 0 and rows >= config.least_rows


def _needs_padding(node: Expr, users: Sequence[Expr]) -> bool:
    """Return whether a kernel reads several rows of a tensor at once, and only kernels read the tensor."""
    return all(_is_kernel(user) for user in users) and any(_walks_rows(user, node) for user in users)


def _walks_rows(user: Expr, node: Expr) -> bool:
    """Return whether an operator in the group that ``user`` calls reads several rows of ``node`` at once."""
    assert isinstance(user, Call)
    params = {node}
    if isinstance(user.op, Function):
        params = {param for param, arg in zip(user.op.params, user.args, strict=True) if arg is node}
    for call in post_order(user.op.body) if isinstance(user.op, Function) else [user]:
        if type(call) is Call and isinstance(call.op, Operator):
            types = [arg.type for arg in call.args]
            if all(isinstance(found, TensorType) for found in types):
                rows = call.op.reads_rows([arg.tensor_type for arg in call.args], call.attrs)
                if any(call.args[number] in params for number in rows):
                    return True
    return False
