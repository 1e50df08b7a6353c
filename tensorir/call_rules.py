"""Check calls of intrinsics and functions: what their arguments have to be."""

from __future__ import annotations

from tilewright.tensorir.expr import BufferLoad, Call, Expr
from tilewright.tensorir.intrinsics import ADDRESSING
from tilewright.tensorir.profiling import PROFILE_INTRINSICS


def broken_call_rules(call: Call) -> list[tuple[str, Expr]]:
    """Return the rules that the arguments of ``call`` break, each with the expression at fault."""
    name = call.name
    if name.startswith("@"):
        return [
            (f"{name}: expected addresses and integers, found {arg.dtype!s}", arg)
            for arg in call.args
            if isinstance(arg, Expr)  # others are reported when they are visited
            and (arg.dtype.lanes != 1 or not (arg.dtype.is_integer or arg.dtype.kind == "handle"))
        ]
    found: list[tuple[str, Expr]] = []
    if name in ADDRESSING:
        if not isinstance(call.args[0], BufferLoad):
            found.append((f"{name}: expected an element of a buffer", call))
    elif name in PROFILE_INTRINSICS:
        record, stride = call.args[0].dtype, call.args[1].dtype
        if record.kind != "handle":
            found.append((f"{name}: expected an address, found {record!s}", call))
        if not stride.is_integer or stride.lanes != 1:
            found.append((f"{name}: expected an integer as the stride, found {stride!s}", call))
    elif name == "reinterpret":
        source = call.args[0].dtype
        if source.bits * source.lanes != call.dtype.bits * call.dtype.lanes:
            found.append((f"reinterpret: {source!s} and {call.dtype!s} have different widths", call))
    return found
