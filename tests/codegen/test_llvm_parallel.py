"""Parallel loops under every threading layer, and functions that call one another."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.packaging.fresh import FreshProcesses
from tilewright.codegen.llvm import CompiledModule, call_primfunc, compile_module, emit_llvm_ir
from tilewright.codegen.llvm.team_ir import team_ir
from tilewright.codegen.threads import ensure_threads
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Broadcast, Buffer, BufferLoad, Call, Ramp, Var, address_of, as_expr, call, const
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, LetStmt, PrimFunc, sequence
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=2)

Check = Callable[[CompiledModule, PrimFunc], None]


def scale_rows(annotations: dict[str, object] | None = None, kind: str = "parallel", dtype: str = "int64") -> PrimFunc:
    """y[i + 3, :] = x[i + 3, :] * 2 + s[0] for i in [0, n), with a captured vector, stack buffer and scalar."""
    n, i, j, t = Var("n", dtype), Var("i", dtype), Var("j", dtype), Var("t", "float32x4")
    x, y = Buffer("x", (64, 8)), Buffer("y", (64, 8))
    s, row = Buffer("s", (1,)), Buffer("row", (8,), scope="stack")
    three, eight = const(3, dtype), const(8, dtype)
    lanes = Ramp(as_expr(0), as_expr(1), 4)
    body = Allocate(
        row,
        sequence(
            For(j, const(0, dtype), eight, kind, BufferStore(row, x[i, j] * 2.0, (j,))),
            BufferStore(y, BufferLoad(row, (lanes,)) + t, (i, lanes)),
            For(j, const(4, dtype), const(4, dtype), "serial", BufferStore(y, row[j] + s[0], (i, j))),
        ),
    )
    loop = For(i, three, n, "parallel", body, annotations or {})
    return PrimFunc("rows", (x, y, s, n), LetStmt(t, Broadcast(s[0], 4), loop))


def check_rows(compiled: CompiledModule, func: PrimFunc) -> None:
    rng = np.random.default_rng(1)
    for count in (0, 1, 2, 3, 7, 40, 61):
        x, y, s = rng.normal(size=(64, 8)).astype(np.float32), np.zeros((64, 8), np.float32), np.ones(1, np.float32)
        call_primfunc(compiled, func, x, y, s, count)
        expected = np.zeros_like(y)
        expected[3 : 3 + count] = x[3 : 3 + count] * 2 + 1
        assert (y == expected).all(), count


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_iterations_run_once_each(dtype: str) -> None:
    n = Var("n", dtype)
    for notes in ({}, {"grain": 5}, {"parallel_if": False}, {"grain": as_expr(1)}):
        func = scale_rows(notes, dtype=dtype)
        check_rows(compile_module([func], TARGET), func)
    func = scale_rows({}, dtype=dtype)
    n = func.variables[0]
    assert isinstance(func.body, LetStmt)
    loop = func.body.body
    assert isinstance(loop, For)
    wish = For(loop.var, loop.min, loop.extent, "parallel", loop.body, {"parallel_if": n > 10})
    func = PrimFunc("rows", func.params, LetStmt(func.body.var, func.body.value, wish))
    check_rows(compile_module([func], TARGET), func)


def there_and_back(least: int = 0) -> PrimFunc:
    """x = y reversed and y = x reversed plus 1 in turns, and the number of writes of each element of y; by threads from
    ``least`` iterations on."""
    n, steps, i, step = Var("n"), Var("steps"), Var("i"), Var("step")
    x, y, count = (Buffer(name, (n,)) for name in ("x", "y", "count"))
    notes: dict[str, object] = {"grain": 1, "parallel_if": n >= least} if least else {"grain": 1}
    loops = (
        For(i, as_expr(0), n, "parallel", BufferStore(x, y[n - 1 - i], (i,)), notes),
        For(i, as_expr(0), n, "parallel", BufferStore(y, x[n - 1 - i] + 1.0, (i,)), notes),
        For(i, as_expr(0), n, "parallel", BufferStore(count, count[i] + 1.0, (i,)), notes),
    )
    return PrimFunc("turns", (x, y, count, n, steps), For(step, as_expr(0), steps, "serial", sequence(*loops)))


def check_turns(compiled: CompiledModule, func: PrimFunc) -> None:
    for size, steps in ((1, 300), (2, 300), (3, 300), (7, 200), (64, 200), (1000, 10)):
        x, count = np.zeros(size, np.float32), np.zeros(size, np.float32)
        y = np.arange(size, dtype=np.float32)
        call_primfunc(compiled, func, x, y, count, size, steps)
        assert (y == np.arange(size) + steps).all(), size
        assert (count == steps).all(), size


def test_loops_of_a_call_wait_for_each_other() -> None:
    func = there_and_back()
    compiled = compile_module([func], TARGET)
    for _ in range(20):
        check_turns(compiled, func)
    func = there_and_back(least=10)
    check_turns(compile_module([func], TARGET), func)


LAYER_SCRIPT = """
import importlib.util, sys, threading
spec = importlib.util.spec_from_file_location("cases", sys.argv[1])
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)
print(cases.ensure_threads())
func = cases.scale_rows()
compiled = cases.compile_module([func], cases.Target("llvm", num_threads=64))
cases.check_rows(compiled, func)
cases.run_from_several_threads(cases.check_rows, compiled, func)
func = cases.there_and_back()
compiled = cases.compile_module([func], cases.Target("llvm", num_threads=64))
cases.run_from_several_threads(cases.check_turns, compiled, func)
print("right")
"""


def run_from_several_threads(check: Check, compiled: CompiledModule, func: PrimFunc) -> None:
    """Call one function from four Python threads at once, many times."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(20):
                check(compiled, func)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]


@pytest.fixture(scope="module")
def processes() -> Iterator[FreshProcesses]:
    """Starts processes in which no threads run."""
    started = FreshProcesses()
    yield started
    started.stop()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("layer", ["tbb", "omp", "workqueue", "default"])
def test_every_threading_layer(processes: FreshProcesses, layer: str, threads: int) -> None:
    has_tbb = Path(sys.prefix, "lib", "libtbb.so.12").exists()
    if layer == "tbb" and not has_tbb:
        pytest.skip("TBB is not installed")
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": str(threads)}
    ended = processes.run(LAYER_SCRIPT, [__file__], environment)
    assert ended.status == 0, ended.errors
    expected = layer if layer != "default" else "tbb" if has_tbb else "omp"
    assert ended.output.split() == [expected, "right"]


def test_several_python_threads_share_one_function() -> None:
    func = scale_rows()
    run_from_several_threads(check_rows, compile_module([func], TARGET), func)
    func = there_and_back()
    run_from_several_threads(check_turns, compile_module([func], TARGET), func)


def test_starting_threads_again_changes_nothing() -> None:
    assert ensure_threads() == ensure_threads()


def test_object_code_runs_without_compiling() -> None:
    func = scale_rows()
    again = CompiledModule.from_object(compile_module([func], TARGET).object_bytes, TARGET)
    check_rows(again, func)


@pytest.mark.parametrize(
    "inputs, task",
    [
        (1, "tilewright_task_4"),
        (2, "tilewright_task_4"),
        (3, "tilewright_task_8"),
        (7, "tilewright_task_16"),
        (14, "tilewright_task_16"),
        (15, "tw.sum.parallel0.task"),
        (40, "tw.sum.parallel0.task"),
    ],
)
def test_loops_with_few_captured_values_share_a_task(inputs: int, task: str) -> None:
    """y[i] = the sum of the number'th multiples of x[number][i]; captured are ``y``, the size and ``inputs`` arrays."""
    n, i = Var("n"), Var("i")
    xs, y = [Buffer(f"x{number}", (n,)) for number in range(inputs)], Buffer("y", (n,))
    total = sum((x[i] * float(number) for number, x in enumerate(xs)), n.astype("float32"))
    loop = For(i, as_expr(0), n, "parallel", BufferStore(y, total, (i,)), {"grain": 10})
    func = PrimFunc("sum", (*xs, y, n), loop)
    text = emit_llvm_ir([func], TARGET, packed=False)
    assert f"ptr @{task}, " in text and text.count("define ") == (3 if task.startswith("tw.") else 2)
    given = [np.arange(35, dtype=np.float32) + number for number in range(inputs)]
    result = np.zeros(35, np.float32)
    call_primfunc(compile_module([func], TARGET), func, *given, result, 35)
    assert (result == 35 + sum(x * number for number, x in enumerate(given))).all()


def headers(text: str) -> dict[str, bool]:
    """The functions that ``text`` defines, and whether LLVM leaves out its optimizations of them."""
    lines = [line for line in text.splitlines() if line.startswith("define ")]
    return {line[line.index("@") + 1 : line.index("(")]: "noinline optnone" in line for line in lines}


def test_functions_that_only_call_others_are_not_optimized() -> None:
    kernel = {"tw.exp.packed": True, "tw.exp": True, "tw.exp.parallel0": False}
    assert headers(emit_llvm_ir([add_one()], TARGET)) == {**kernel, "tw.exp.parallel0.task": True}
    assert headers(emit_llvm_ir([add_one()], Target("llvm", num_threads=1))) == {"tw.exp.packed": True, "tw.exp": False}
    assert not headers(emit_llvm_ir([caller("serial"), add_one()], TARGET, ["main"]))["tw.main"]
    x = Buffer("x", (4,))
    store = PrimFunc("one", (x,), BufferStore(x, as_expr(0.0), (as_expr(0),)))
    assert headers(emit_llvm_ir([store], TARGET)) == {"tw.one.packed": True, "tw.one": False}


def add_one() -> PrimFunc:
    """y[i] = x[i] + k over a parallel loop."""
    x, y, n, k, i = Buffer("x", (Var("n"),)), Buffer("y", (Var("n"),)), Var("n"), Var("k", "int32"), Var("i")
    x, y = Buffer("x", (n,)), Buffer("y", (n,))
    body = For(i, as_expr(0), n, "parallel", BufferStore(y, x[i] + k.astype("float32"), (i,)))
    return PrimFunc("exp", (x, y, n, k), body)


def caller(kind: str) -> PrimFunc:
    """Calls ``exp`` on each row of an array, in the order of the parameters."""
    x, y, i = Buffer("x", (6, 10)), Buffer("y", (6, 10)), Var("i")
    args = (address_of(x, i, 0), address_of(y, i, 0), as_expr(10), i.astype("int32"))
    return PrimFunc("main", (x, y), For(i, as_expr(0), as_expr(6), kind, Evaluate(Call("@exp", args, "void"))))


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_functions_call_functions_with_addresses_and_integers(kind: str) -> None:
    x, y = np.arange(60, dtype=np.float32).reshape(6, 10), np.zeros((6, 10), np.float32)
    func = caller(kind)
    call_primfunc(compile_module([func, add_one()], TARGET, ["main"]), func, x, y)
    assert (y == x + np.arange(6)[:, None]).all()


def test_functions_call_functions_of_other_modules() -> None:
    x, y = np.arange(60, dtype=np.float32).reshape(6, 10), np.zeros((6, 10), np.float32)
    func = caller("serial")
    callee = compile_module([add_one()], TARGET)
    call_primfunc(compile_module([func], TARGET, externals={"exp": callee.address("exp")}), func, x, y)
    assert (y == x + np.arange(6)[:, None]).all()
    with pytest.raises(CodegenError, match="the module calls exp; pass"):
        call_primfunc(compile_module([func], TARGET), func, x, y)


def test_a_loop_inside_of_a_parallel_loop_does_not_fork_again() -> None:
    text = emit_llvm_ir([caller("parallel"), add_one()], TARGET, ["main"])
    serial = text[text.index("define internal void @tw.exp.serial(") :]
    assert "tilewright_fork" not in serial[: serial.index("\n}")]
    assert "call void @tw.exp.serial(" in text
    assert emit_llvm_ir([scale_rows(kind="parallel")], TARGET).count("call void @tilewright_fork") == 1


def packed(text: str, name: str) -> str:
    """The function that takes the parameters of ``name`` as an array."""
    start = text.index(f"define void @tw.{name}.packed(")
    return text[start : text.index("\n}", start)]


def test_a_function_that_forks_once_gathers_no_team() -> None:
    assert "tilewright_run_team" not in emit_llvm_ir([scale_rows()], TARGET)


def test_a_function_that_forks_several_times_gathers_a_team_once() -> None:
    text = emit_llvm_ir([there_and_back()], TARGET)
    assert packed(text, "turns").count("call void @tilewright_run_team") == 1
    assert "br i1" not in packed(text, "turns")
    assert text.count("call void @tilewright_fork(ptr %team") == 3


def test_a_function_gathers_no_team_for_loops_that_are_too_small() -> None:
    lines = packed(emit_llvm_ir([there_and_back(least=1000)], TARGET), "turns")
    assert lines.index("icmp") < lines.index("br i1") < lines.index("call void @tilewright_run_team")
    assert lines.count("call void @tw.turns(") == 1  # without a team


def test_calls_hand_their_team_on() -> None:
    text = emit_llvm_ir([caller("serial"), add_one()], TARGET, ["main"])
    assert "call void @tilewright_run_team" in packed(text, "main")
    start = text.index("define void @tw.main(")
    assert "ptr %team)" in text[start : text.index("\n}", start)].split("call void @tw.exp")[1]
    # Known elsewhere, it counts too; what it does is not known otherwise.
    assert "tilewright_run_team" in emit_llvm_ir([caller("serial")], TARGET, ["main"], [add_one()])
    assert "tilewright_run_team" not in emit_llvm_ir([caller("serial")], TARGET, ["main"])


@pytest.mark.parametrize("processor", ["x86_64", "aarch64", "riscv64"])
@pytest.mark.parametrize("yields", [True, False])
def test_teams_are_for_every_processor(processor: str, yields: bool) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(team_ir(processor, yields), llvm.create_context())
    module.triple = f"{processor}-unknown-linux-gnu"
    module.verify()
    features = "+a" if processor.startswith("riscv") else ""
    machine = llvm.Target.from_triple(module.triple).create_target_machine(features=features)
    text = machine.emit_assembly(module)
    assert ("tilewright_yield" in text) == yields


def test_one_thread_needs_no_layer() -> None:
    assert "tilewright_fork" not in emit_llvm_ir([scale_rows()], Target("llvm", num_threads=1))


def test_compiling_in_several_threads() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        x, i = Buffer("x", (8,)), Var("i")
        value = call("fma", x[i], const(float(number), "float32"), const(1.0, "float32"))
        func = PrimFunc("f", (x,), For(i, as_expr(0), as_expr(8), "serial", BufferStore(x, value, (i,))))
        try:
            for _ in range(5):
                data = np.arange(8, dtype=np.float32)
                call_primfunc(compile_module([func], TARGET), func, data)
                assert (data == np.arange(8) * number + 1).all()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]
