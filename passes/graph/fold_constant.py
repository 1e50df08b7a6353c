"""``FoldConstant``: evaluate expressions that depend on constants alone when the model is built.

Before::

    %0 = transpose(const#0)
    %1 = matmul(%x, %0)

After: ``%0 = matmul(%x, const#1)``. A field of a known tuple and an ``If`` with a known condition are replaced as well.
Operators are computed by their NumPy references. An impure call stays; so does one whose result needs more than twice
the memory of its arguments, once all such results together reach ``max_bytes``.

What is one element everywhere, such as ``full(..)`` and what is computed of it, takes the memory of that element
(``Constant.splat``), and ``FuseOps`` writes it into the operators that read it.

Large results of operators that cannot fail (``Operator.total_reference``) are computed when they are first read
(``Constant.later``): most are weights that the next pass packs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import has_symbols
from tilewright.graphir.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.passes.base import FunctionPass
from tilewright.passes.config import register_config_option
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import function_pass
from tilewright.passes.graph.walk import rewrite_body
from tilewright.passes.properties import FOLDED, UNFOLDED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.errors import add_note

#: References of pooling and similar operators make intermediate values as large as attributes, such as padding, say.
_MOST_IN_ATTRS = 256
#: Results of at least this many bytes may be computed later. Passes read smaller ones, such as a vector of scales.
_LATER_BYTES = 1 << 16


@register_config_option("graphir.FoldConstant")
@dataclasses.dataclass(frozen=True)
class FoldConstantConfig:
    """Options of ``FoldConstant``."""

    max_bytes: int = dataclasses.field(
        default=1 << 30,
        metadata={"doc": "bytes of all results in a function that are more than twice as large as their arguments"},
    )


@register_pass
@function_pass(opt_level=1, name="FoldConstant", provides={FOLDED}, invalidates={UNFOLDED})
class FoldConstant(FunctionPass):
    """Evaluate operator calls whose arguments are all constants."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """Return ``func`` with constant parts computed."""
        config: FoldConstantConfig = ctx.get_config("graphir.FoldConstant")
        budget = _Budget(config.max_bytes)

        def fold(node: Expr) -> Expr:
            if type(node) is Call:
                for arg in node.args:
                    if type(arg) is not Constant:
                        return node
                result = _fold_call(node, budget, ctx)
                budget.computed += result is not node
                return result
            if type(node) is TupleGetItem and type(node.value) is Tuple:
                return node.value.fields[node.index]
            if type(node) is If and type(node.condition) is Constant:
                return node.then_branch if bool(node.condition.data) else node.else_branch
            return node

        with np.errstate(all="ignore"):  # an overflow would happen when the model runs, too
            folded = rewrite_body(func, fold, lambda value: type(value) is Constant)
        if budget.computed:
            ctx.remark(f"calls evaluated at build time: {budget.computed}", "applied")
        return folded


@dataclasses.dataclass
class _Budget:
    """The bytes left for results that need much more memory than their arguments, and the number of calls that were
    computed."""

    left: int
    computed: int = 0

    def allows(self, size: int, given: int) -> bool:
        """Check whether a call may turn ``given`` bytes into ``size`` bytes; if so, subtract them from the budget."""
        if size <= 2 * given:
            return True
        if size > self.left:
            return False
        self.left -= size
        return True


def _fold_call(node: Call, budget: _Budget, ctx: PassContext) -> Expr:
    """Compute a call on constants; return it as it is where it has to stay."""
    args: tuple[Constant, ...] = node.args  # type: ignore[assignment]  # all are constants
    op = node.op
    if not isinstance(op, Operator) or not op.pure or node.type is None:
        return node
    size = type_bytes(node.type)
    if size is None or (op.attr_names and has_symbols(node.attrs)):
        return node  # it depends on sizes that are known only when it is called
    given = sum([arg.nbytes for arg in args])
    if not budget.allows(size, given):
        ctx.remark(
            f"{op.name} not folded: its result of {size} bytes exceeds what is left of max_bytes",
            "missed",
            summary(node),
        )
        return node
    if not op.bounded_reference and largest_integer(node.attrs) > _MOST_IN_ATTRS:
        ctx.remark(f"{op.name} not folded: its attributes imply large intermediate values", "missed", summary(node))
        return node
    if isinstance(node.type, TensorType):
        splat = _splat(op, args, node)
        if splat is not None:
            return splat
    if op.total_reference and isinstance(node.type, TensorType) and size >= _LATER_BYTES:
        attrs, what = node.attrs, summary(node)  # not the node, which would keep the arguments alive

        def compute(values: Sequence[np.ndarray[Any, Any]]) -> Any:
            with np.errstate(all="ignore"):
                return _computed(op, values, attrs, what)

        return Constant.later(node.type, compute, args, node.span)
    result = _computed(op, [arg.data for arg in args], node.attrs, node)
    if isinstance(node.type, TupleType):
        return Tuple([Constant(np.ascontiguousarray(part), node.span) for part in result], node.span)
    # ascontiguousarray would turn a scalar into a vector
    return Constant(np.asarray(result, order="C"), node.span)


def _splat(op: Operator, args: Sequence[Constant], node: Call) -> Constant | None:
    """Compute a call on constants that repeat one element each, in the memory of one; None: it has several."""
    assert isinstance(node.type, TensorType)
    if math.prod(node.type.shape) < 2:
        return None
    elements: list[np.ndarray[Any, Any]] = []
    for arg in args:
        element = arg.data.reshape(()) if arg.size == 1 and arg.is_computed else arg.splat
        if element is None:
            return None
        elements.append(element)
    value = op.uniform_value(elements, node.attrs)
    return None if value is None else Constant(np.broadcast_to(value, node.type.shape), node.span)  # type: ignore[arg-type]


def _computed(op: Operator, args: Sequence[np.ndarray[Any, Any]], attrs: Any, what: Call | str) -> Any:
    """Compute a call on the values of its arguments. ``what`` is the call, or a summary of it, for errors."""
    try:
        return op.reference(args, attrs)
    except Exception as error:
        add_note(error, f"while computing {what if isinstance(what, str) else summary(what)} at build time")
        raise


def largest_integer(value: object) -> int:
    """Return the greatest magnitude of the integers in a record of attributes or in nested tuples."""
    if isinstance(value, (int, float)):
        return abs(int(value)) if math.isfinite(value) else 0
    if not isinstance(value, tuple):
        fields = getattr(value, "__dataclass_fields__", ())
        value = tuple(getattr(value, name) for name in fields)
    return max(map(largest_integer, value), default=0)


def type_bytes(found: Type) -> int | None:
    """Return the bytes that a value of this type needs; None if its shape is symbolic or it is no tensor."""
    if isinstance(found, TupleType):
        parts = [type_bytes(field) for field in found.fields]
        return None if None in parts else sum(part for part in parts if part is not None)
    if not isinstance(found, TensorType):
        return None
    size = found.dtype.bytes
    for dim in found.shape:
        if not isinstance(dim, int):
            return None
        size *= dim
    return size
