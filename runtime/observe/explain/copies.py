"""Find the kernels that only move data between two others, and the operator that is the cause."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.expr import Call, Expr, Function, GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.runtime.observe.explain.reasons import Reason
from tilewright.tensorir.keys import KIND, OPERATORS
from tilewright.tensorir.stmt import PrimFunc

_CONTRACTION = "contraction"
_LAYOUT = "layout_transform"


def layout_copies(mod: IRModule) -> dict[str, Reason]:
    """Return, for each kernel that only copies a tensor into another layout, between which kernels, and for which.

    Args:
        mod: the module after the stage ``tensor``: calls of kernels in the graph.
    """
    main = mod["main"]
    if not isinstance(main, Function):
        return {}
    calls = [expr for expr in post_order(main.body) if isinstance(expr, Call) and isinstance(expr.op, GlobalVar)]
    users: dict[Expr, list[Call]] = {}
    for call in calls:
        for arg in call.args:
            users.setdefault(arg, []).append(call)
    found: dict[str, Reason] = {}
    for call in calls:
        kernel = _kernel(mod, call)
        if kernel is None or tuple(kernel.attrs.get(OPERATORS, ())) != (_LAYOUT,):
            continue
        before = [arg for arg in call.args if isinstance(arg, Call)]
        after = users.get(call, [])
        cause = _cause(mod, call, before, after)
        between = f"a layout copy between {_names(before, 'an input')} and {_names(after, 'the result')}"
        caused = f", caused by {cause}, which works in blocks of channels" if cause else ""
        change = (
            "the same layout on both sides (disabled_pass=['AlterOpLayout'] keeps the model's)"
            if cause
            else "the same layout on both sides"
        )
        found[kernel.name] = Reason("copy", between + caused, change)
    return found


def _cause(mod: IRModule, copy: Call, before: Sequence[Call], after: Sequence[Call]) -> str:
    """Return the kernel whose layout a copy makes or undoes: blocks of channels are one dimension more."""
    source, result = copy.args[0].type, copy.type
    blocks = isinstance(source, TensorType) and isinstance(result, TensorType) and result.ndim > source.ndim
    wanted = after if blocks else before
    products = [call for call in wanted if (kernel := _kernel(mod, call)) and kernel.attrs.get(KIND) == _CONTRACTION]
    return _names(products or wanted, "")


def _kernel(mod: IRModule, call: Call) -> PrimFunc | None:
    assert isinstance(call.op, GlobalVar)
    found = mod[call.op.name]
    return found if isinstance(found, PrimFunc) else None


def _names(calls: Sequence[Call], otherwise: str) -> str:
    names = dict.fromkeys(call.op.name for call in calls if isinstance(call.op, GlobalVar))
    return " and ".join(names) or otherwise
