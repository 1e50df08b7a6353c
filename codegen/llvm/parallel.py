"""Parallel loops: their bodies become functions that several threads call.

A fork hands ``void task(i64 first, i64 count, ptr data)`` to :data:`~tilewright.codegen.llvm.team.FORK`: it does that
many *items* from ``first`` on, each a grain of several iterations, with what the loop captured at ``data``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.analysis import captured
from tilewright.codegen.llvm import arithmetic
from tilewright.codegen.llvm.memory import STACK_ALIGNMENT, pointer_attributes
from tilewright.codegen.llvm.team import FORK
from tilewright.codegen.llvm.text import global_name, value_type
from tilewright.tensorir.dtype import INT32, INT64
from tilewright.tensorir.expr import Expr, as_expr
from tilewright.tensorir.stmt import For

if TYPE_CHECKING:
    from tilewright.codegen.llvm.function import FunctionEmitter

#: An i32: how many threads of the pool may be used. More than it has must not be asked for: workqueue would wait for
#: ever.
THREAD_LIMIT = "tilewright_thread_limit"
#: Items for each thread if the loop does not say: enough to even out a busy core, few enough to cost nothing.
ITEMS_PER_THREAD = 8

_TASK_PARAMS = "i64 %item, i64 %count, ptr %data"


def emit_parallel_loop(emitter: FunctionEmitter, loop: For) -> None:
    """Write ``loop`` as work for the threads of a team.

    Annotations of the loop: ``parallel_if``, an expression: where it is false the loop runs in the calling thread;
    ``grain``, a number of iterations for one work item.
    """
    found = captured([loop.body])
    inside = {loop.var, *emitter.known.values}
    variables, buffers = [var for var in found.variables if var not in inside], found.buffers
    captures = [(value_type(var.dtype), emitter.variable(var)) for var in variables]
    captures += [("ptr", emitter.slot(buffer, loop).pointer) for buffer in buffers]

    child = emitter.child()
    body = global_name(child.symbol)
    params = ["i64 %begin", "i64 %end"]
    for var in variables:
        name = f"%{child.builder.fresh(var.name)}"
        params.append(f"{value_type(var.dtype)} {name}")
        child.values[var] = name
    for buffer in buffers:
        name = f"%{child.builder.fresh(buffer.name)}"
        params.append(f"{pointer_attributes(emitter.root, buffer, found.written)} {name}")
        child.bind_buffer(buffer, name)
    child.bounds.bind_loop(loop.var, loop.min, loop.extent)
    begin = arithmetic.cast(child.builder, INT64, loop.var.dtype, "%begin")
    end = arithmetic.cast(child.builder, INT64, loop.var.dtype, "%end")
    child.loop(loop.var, begin, end, False, lambda: child.statement(loop.body))
    module = emitter.module
    module.text.functions.append(child.finish(f"define internal void {body}({', '.join(params)}) {module.attributes}"))
    _launch(emitter, loop, body, captures)


def _launch(emitter: FunctionEmitter, loop: For, body: str, captures: list[tuple[str, str]]) -> None:
    """The fork: decide whether threads are worth it, hand over the captured values, and wait."""
    b = emitter.builder
    task = _emit_task(emitter, body, [kind for kind, _ in captures])
    first = emitter.int64(loop.min)
    extent = emitter.int64(loop.extent)
    threads = available_threads(emitter)
    grain = _grain(emitter, loop, extent, threads)
    last = b.pure(f"add nsw i64 {extent}, {b.pure(f'sub nsw i64 {grain}, 1')}")
    items = b.pure(f"sdiv i64 {last}, {grain}")
    condition = b.pure(f"icmp sgt i64 {items}, 1")
    several = b.pure(f"icmp sgt i32 {threads}, 1")
    condition = b.pure(f"and i1 {condition}, {several}")
    wish = loop.annotations.get("parallel_if")
    if wish is not None:
        condition = b.pure(f"and i1 {condition}, {emitter.expr(as_expr(wish))}")
    fork, alone, join = b.fresh("fork"), b.fresh("alone"), b.fresh("join")
    b.branch_if(condition, fork, alone)
    b.label(fork)
    with b.scope():
        _fork(emitter, task, [("i64", first), ("i64", extent), ("i64", grain), *captures], items, threads)
    b.branch(join)
    b.label(alone)
    with b.scope():
        end = b.pure(f"add nsw i64 {first}, {extent}")
        passed = [("i64", first), ("i64", end), *captures]
        b.emit(f"call void {body}({', '.join(f'{kind} {x}' for kind, x in passed)})")
    b.branch(join)
    b.label(join)


def available_threads(emitter: FunctionEmitter) -> str:
    """How many threads may run: those of the target, as far as this process has them (object code is kept, and run by
    processes with fewer cores)."""
    b, limit = emitter.builder, f"@{THREAD_LIMIT}"
    b.module.declarations[limit] = f"{limit} = external global i32"
    available = b.value(f"load i32, ptr {limit}, align 4")
    return b.call("llvm.smin.i32", INT32, [("i32", available), ("i32", str(emitter.target.num_threads))])


def _grain(emitter: FunctionEmitter, loop: For, extent: str, threads: str) -> str:
    """Iterations of one work item, at least one."""
    b = emitter.builder
    given = loop.annotations.get("grain")
    if given is None:
        items = b.pure(f"mul nsw i64 {b.pure(f'zext i32 {threads} to i64')}, {ITEMS_PER_THREAD}")
        positive = b.call("llvm.smax.i64", INT64, [("i64", items), ("i64", "1")])
        grain = b.pure(f"sdiv i64 {extent}, {positive}")
    else:
        expr = as_expr(given)
        if not isinstance(expr, Expr) or not expr.dtype.is_integer:
            emitter.error(loop, f"grain: expected an integer, found {given!r}")
        grain = emitter.int64(expr)
    return b.call("llvm.smax.i64", INT64, [("i64", grain), ("i64", "1")])


def _fork(emitter: FunctionEmitter, task: str, fields: list[tuple[str, str]], items: str, threads: str) -> None:
    b = emitter.builder
    struct = f"{{ {', '.join(kind for kind, _ in fields)} }}"
    data = b.slot(struct, STACK_ALIGNMENT, "captured")
    for position, (kind, value) in enumerate(fields):
        field = b.pure(f"getelementptr inbounds {struct}, ptr {data}, i32 0, i32 {position}")
        b.emit(f"store {kind} {value}, ptr {field}")
    fork = b.module.declare(FORK, "void", ["ptr", "ptr", "ptr", "i64", "i32"])
    b.emit(f"call void {fork}(ptr {emitter.team}, ptr {task}, ptr {data}, i64 {items}, i32 {threads})")


def _emit_task(emitter: FunctionEmitter, body: str, kinds: list[str]) -> str:
    """The function that threads call: finds its range of iterations and the captured values, and calls ``body``."""
    name = global_name(body[1:].strip('"') + ".task")
    struct = f"{{ {', '.join(['i64', 'i64', 'i64', *kinds])} }}"
    lines = [
        f"define internal void {name}({_TASK_PARAMS}) {emitter.module.attributes} {{",
        "  %next = add nsw i64 %item, %count",
    ]
    for position, kind in enumerate(["i64", "i64", "i64", *kinds]):
        lines.append(f"  %p{position} = getelementptr inbounds {struct}, ptr %data, i32 0, i32 {position}")
        lines.append(f"  %v{position} = load {kind}, ptr %p{position}")
    emitter.module.text.declare("llvm.smin.i64", "i64", ["i64", "i64"])
    passed = "".join(f", {kind} %v{position + 3}" for position, kind in enumerate(kinds))
    lines += [
        "  %low = mul nsw i64 %item, %v2",
        "  %high = mul nsw i64 %next, %v2",
        "  %last = call i64 @llvm.smin.i64(i64 %high, i64 %v1)",
        "  %begin = add nsw i64 %v0, %low",
        "  %end = add nsw i64 %v0, %last",
        f"  call void {body}(i64 %begin, i64 %end{passed})",
        "  ret void",
        "}",
        "",
    ]
    emitter.module.text.functions.append("\n".join(lines))
    return name
