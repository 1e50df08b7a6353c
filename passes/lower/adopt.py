"""Adopt a handwritten loop-level function as a kernel of a model.

Before::

    primfunc @add(total: Buffer[(n,), float32], x: Buffer[(n,), float32], n: int64) {
      for i in range(n) { total[i] = total[i] + x[i] }
    }

After::

    primfunc @add(total: Buffer[(n,), float32], x: Buffer[(n,), float32], total_1: Buffer[(n,), float32], n: int64)
        attrs {"num_inputs": 2, "num_outputs": 1, "sizes_from": ((0, 0),), "schedule": "manual"} {
      for i in range(n) { block total_before(v0 = i) { total_1[v0] = total[v0] } }
      for i in range(n) { total_1[i] = total_1[i] + x[i] }
    }

Arguments come before results, and sizes are taken from the arguments of a call (``graphir.loop_calls``). A buffer that
the function updates becomes an argument that is copied to the result first. Loops are not scheduled unless the
function's attribute ``schedule`` is ``auto``; otherwise only blocks with this annotation are, such as the copies.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graphir.keys import IN_PLACE, ROW_PADDING
from tilewright.graphir.loop_calls import asked_sizes, buffer_type, is_handwritten, model_dimensions
from tilewright.passes.lower.plan_memory import COPY_KERNEL
from tilewright.tensorir.errors import PassError, TypeInferenceError
from tilewright.tensorir.expr import Buffer, Expr, Var, as_expr
from tilewright.tensorir.functor import substitute, walk_statements
from tilewright.tensorir.interface import interface_of
from tilewright.tensorir.keys import (
    AUTO,
    KERNEL_KEY,
    MANUAL,
    MODEL_SIZES,
    NUM_INPUTS,
    NUM_OUTPUTS,
    OVERWRITES,
    SCHEDULE_MODE,
    SIZES_FROM,
    SMALL_BUFFERS,
)
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import Block, BufferRegion, BufferStore, For, IterVar, PrimFunc, Range, Stmt, sequence
from tilewright.tensorir.unique_names import unique_name

#: Attributes that the compiler sets on its own kernels and code generation relies on.
_OWN = (IN_PLACE, ROW_PADDING, OVERWRITES, SMALL_BUFFERS, KERNEL_KEY)


def adopt(func: PrimFunc, name: str) -> PrimFunc:
    """Return the kernel ``name`` that computes ``func``, for calls that are typed by ``graphir.loop_calls``.

    Raises:
        VerifyError: the function breaks a rule of the loop-level IR.
        TypeInferenceError: a call cannot provide a parameter, or the name is reserved for the compiler.
        PassError: the attribute ``schedule`` is neither ``manual`` nor ``auto``.
    """
    check_loops(func)
    func = _over_model_dimensions(func)
    if name == COPY_KERNEL:
        raise TypeInferenceError(f"@{name}: expected another name for a function; the compiler's own has this one")
    mode = func.attrs.get(SCHEDULE_MODE, MANUAL)
    if mode not in (MANUAL, AUTO):
        raise PassError(f"@{name}: attribute {SCHEDULE_MODE!r}: expected {MANUAL!r} or {AUTO!r}, found {mode!r}")
    interface = interface_of(func)
    names = {param.name for param in func.params}
    before: list[Stmt] = []
    arguments: list[Buffer] = []
    for buffer in interface.arguments:
        if buffer in interface.updated:
            given = Buffer(unique_name(buffer.name, names), buffer.shape, buffer.dtype)
            names.add(given.name)
            blocks = {stmt.name for stmt in walk_statements(func.body) if isinstance(stmt, Block)}
            before.append(_copy(given, buffer, unique_name(f"{buffer.name}_before", blocks)))
            buffer = given
        arguments.append(buffer)
    attrs = {key: value for key, value in func.attrs.items() if key not in _OWN}
    attrs |= {NUM_INPUTS: len(arguments), NUM_OUTPUTS: len(interface.results), SCHEDULE_MODE: mode}
    if func.variables and (is_handwritten(func) or SIZES_FROM not in attrs):
        told, asked = interface.told_sizes(), asked_sizes(func, interface)
        attrs[SIZES_FROM] = tuple((asked.index(var),) if var in asked else told.get(var) for var in func.variables)
    params = (*arguments, *interface.results, *interface.workspaces, *interface.sizes)
    return PrimFunc(name, params, sequence(*before, func.body), attrs)


def check_loops(func: PrimFunc) -> None:
    """Reject a function that breaks a rule of the IR, or has a parameter that no call can provide.

    Raises:
        VerifyError, TypeInferenceError: see :func:`adopt`.
    """
    from tilewright.tensorir.verify import verify  # models without such functions need none of it

    verify(func)
    for key in (IN_PLACE, ROW_PADDING):
        if key in func.attrs:
            raise TypeInferenceError(f"@{func.name}: attribute {key!r} is the compiler's; found {func.attrs[key]!r}")
    for buffer in func.buffers:
        buffer_type(func, buffer)
        if buffer.strides or buffer.scope != "global" or buffer.alignment > buffer.dtype.bytes:
            raise TypeInferenceError(
                f"parameter {buffer.name}: expected a buffer that is global, without strides and without an alignment: "
                f"so are the arrays of a call\n{underline(func, buffer)}"
            )
    for var in func.variables:
        if str(var.dtype) != "int64":
            raise TypeInferenceError(f"size {var.name}: expected int64, found {var.dtype!s}\n{underline(func, var)}")


def _over_model_dimensions(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with the variables that stand for the model's symbolic dimensions replaced by them."""
    renamed = {var: dim for var, dim in model_dimensions(func).items() if var is not dim}
    attrs = {key: value for key, value in func.attrs.items() if key != MODEL_SIZES}
    if not renamed:
        return PrimFunc(func.name, func.params, func.body, attrs)
    buffers = {buffer: _renamed(buffer, renamed) for buffer in func.buffers}
    params = (*buffers.values(), *[renamed.get(var, var) for var in func.variables])
    return PrimFunc(func.name, params, substitute(func.body, renamed, buffers), attrs)


def _renamed(buffer: Buffer, renamed: Mapping[Var, Var]) -> Buffer:
    shape = tuple([substitute(extent, renamed) for extent in buffer.shape])
    return Buffer(buffer.name, shape, buffer.dtype)


def _copy(source: Buffer, target: Buffer, name: str) -> Stmt:
    """Return the loops that copy a buffer, annotated for the automatic schedule rules."""
    loops = [Var(f"i{axis}") for axis in range(source.ndim)]
    places = [Var(f"v{axis}") for axis in range(source.ndim)]
    iters = tuple(
        IterVar(place, as_expr(0), extent, "spatial", loop)
        for place, loop, extent in zip(places, loops, source.shape, strict=True)
    )
    indices: tuple[Expr, ...] = tuple(places)
    ranges = tuple(Range(place, as_expr(1)) for place in places)
    store = BufferStore(target, source[indices], indices)
    reads, writes = (BufferRegion(source, ranges),), (BufferRegion(target, ranges),)
    stmt: Stmt = Block(name, iters, None, reads, writes, None, store, {SCHEDULE_MODE: AUTO})
    for loop, extent in reversed(list(zip(loops, source.shape, strict=True))):
        stmt = For(loop, as_expr(0), extent, "serial", stmt)
    return stmt
