"""Emit parallel loops: their bodies become functions that several threads call.

A fork passes ``void task(i64 begin, i64 end, ptr data)`` to :data:`.team_ir.FORK`, which calls it for parts of the
loop's range, in this thread or in several: the task loads the captured values from ``data`` and calls the body with
them. (The body could load them itself, but LLVM accepts that addresses do not alias only of parameters.) Most loops
have a task that all modules share (:func:`.team_ir.shared_task`). Decisions at run time are made in ``FORK``, once, and
not in front of each loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.analysis import uses
from tilewright.codegen.llvm import arithmetic
from tilewright.codegen.llvm.memory import STACK_ALIGNMENT
from tilewright.codegen.llvm.outlined import capture_parameters, captured_operands
from tilewright.codegen.llvm.team_ir import FORK, shared_task
from tilewright.codegen.llvm.text import Builder, global_name
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import Expr, as_expr
from tilewright.tensorir.keys import GRAIN, PARALLEL_IF
from tilewright.tensorir.stmt import For

if TYPE_CHECKING:
    from tilewright.codegen.llvm.function import FunctionEmitter

#: The parameters of a task: the range of iterations to do.
_RANGE = "i64 %begin, i64 %end"


def emit_parallel_loop(emitter: FunctionEmitter, loop: For) -> None:
    """Emit ``loop`` as work for the threads of a team.

    Annotations of the loop: ``parallel_if``, an expression: where it is false the loop runs in the calling thread;
    ``grain``, the number of iterations of one work item.
    """
    found = uses(emitter.root.body).captured[loop.body]
    inside = {loop.var, *emitter.known.values}
    captures = captured_operands(emitter, found, loop, inside)
    child = emitter.child("parallel")
    body = global_name(child.symbol)
    params = [_RANGE, *capture_parameters(emitter, child, found, inside)]
    child.bounds.bind_loop(loop.var, loop.min, loop.extent)
    begin = arithmetic.cast(child.builder, INT64, loop.var.dtype, "%begin")
    end = arithmetic.cast(child.builder, INT64, loop.var.dtype, "%end")
    child.loop(loop.var, begin, end, False, loop.body)
    child.builder.record(0, loop)
    module = emitter.module
    module.text.functions.append(child.finish(f"define internal void {body}({', '.join(params)}) {module.attributes}"))
    _fork(emitter, loop, body, captures)


def _fork(emitter: FunctionEmitter, loop: For, body: str, captures: list[tuple[str, str]]) -> None:
    """Emit a fork: store the captured values, hand them over, and join."""
    b = emitter.builder
    task, data = _shared_task(emitter, body, captures) or _own_task(emitter, body, captures)
    first, extent = emitter.int64(loop.min), emitter.int64(loop.extent)
    grain = _grain(emitter, loop)
    threads = str(emitter.target.num_threads)
    wish = loop.annotations.get(PARALLEL_IF)
    if wish is not None:
        threads = b.pure(f"select i1 {emitter.expr(as_expr(wish))}, i32 {threads}, i32 1")
    fork = b.module.declare(FORK, "void", ["ptr", "ptr", "ptr", "i64", "i64", "i64", "i32"])
    what = f"ptr {emitter.team}, ptr {task}, ptr {data}"
    b.emit(f"call void {fork}({what}, i64 {first}, i64 {extent}, i64 {grain}, i32 {threads})")
    emitter.memory.forget()


def _grain(emitter: FunctionEmitter, loop: For) -> str:
    """Return the iterations of one work item; zero where the loop has no annotation."""
    given = loop.annotations.get(GRAIN)
    if given is None:
        return "0"
    expr = as_expr(given)
    if not isinstance(expr, Expr) or not expr.dtype.is_integer:
        emitter.error(loop, f"grain: expected an integer, found {given!r}")
    least = emitter.builder.call("llvm.smax.i64", INT64, [("i64", emitter.int64(expr)), ("i64", "1")])
    return least


def _shared_task(emitter: FunctionEmitter, body: str, captures: list[tuple[str, str]]) -> tuple[str, str] | None:
    """Store ``body`` and the captured values for a shared task. Return its operand and the address of what it loads;
    None if it cannot pass such values."""
    found = shared_task(len(captures)) if all(kind in ("i64", "ptr") for kind, _ in captures) else None
    if found is None:
        return None
    b, (name, passed) = emitter.builder, found
    data = b.slot(f"[{1 + passed} x i64]", STACK_ALIGNMENT, "captured")
    for position, (kind, value) in enumerate([("ptr", body), *captures]):
        place = b.pure(f"getelementptr inbounds i64, ptr {data}, i64 {position}") if position else data
        b.emit(f"store {kind} {value}, ptr {place}")
    return b.module.declare(name, "void", ["i64", "i64", "ptr"]), data


def _own_task(emitter: FunctionEmitter, body: str, captures: list[tuple[str, str]]) -> tuple[str, str]:
    """Emit a task that calls ``body``, and store the captured values for it. Return its operand and their address."""
    name = global_name(body[1:].strip('"') + ".task")
    outer, b = emitter.builder, Builder(emitter.module.text)
    struct = f"{{ {', '.join(kind for kind, _ in captures)} }}"
    data = outer.slot(struct, STACK_ALIGNMENT, "captured")
    passed = [_RANGE]
    for position, (kind, value) in enumerate(captures):
        outer.emit(f"store {kind} {value}, ptr {_field(outer, struct, data, position)}")
        place = _field(b, struct, "%data", position)
        passed.append(f"{kind} {b.value(f'load {kind}, ptr {place}')}")
    b.emit(f"tail call void {body}({', '.join(passed)})")
    b.emit("ret void")
    module = emitter.module
    header = f"define internal void {name}({_RANGE}, ptr %data) {module.attributes_of_calls}"
    module.text.functions.append(b.function(header))
    return name, data


def _field(b: Builder, struct: str, data: str, position: int) -> str:
    """Return the address of a captured value."""
    return b.pure(f"getelementptr inbounds {struct}, ptr {data}, i32 0, i32 {position}") if position else data
