"""Test the records of a profiled main, and that code without a profile contains nothing of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
import pytest

from tilewright import graphir as gi
from tilewright.codegen import numba_
from tilewright.codegen.llvm import CompiledModule, call_primfunc, clock, compile_module, emit_llvm_ir
from tilewright.codegen.llvm.clock import CLOCK, PROFILE_FUNCTIONS, TICKS, uses_counter
from tilewright.codegen.llvm.team import profiling_functions, seconds_per_tick, team_functions
from tilewright.codegen.llvm.team_ir import team_ir
from tilewright.codegen.threads import ensure_threads, thread_limit
from tilewright.graphir.module import IRModule
from tilewright.passes.tensor.profile_calls import ProfileCalls
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.profiling import BEGIN, BUSY, END, RUNS, TOTAL, records_shape
from tilewright.tensorir.target import Target

Records = npt.NDArray[np.int64]

ROWS = 64
#: ``rows`` forks where it has several; ``shift`` never does.
TEXT = """
primfunc @rows(x: Buffer[(n, 256), float32], y: Buffer[(n, 256), float32], n: int64) {
  for i in parallel(n) annotations {"parallel_if": expr(n > 1), "grain": 1} {
    for j in range(256) {
      y[i, j] = sqrt(x[i, j]) + x[i, j] / (y[i, j] + 2.0)
    }
  }
}
primfunc @shift(x: Buffer[(n, 256), float32], y: Buffer[(n, 256), float32], n: int64) {
  for i in range(n) {
    y[i, 0] = x[i, 0] + 1.0
  }
}
primfunc @main(x: Buffer[(n, 256), float32], y: Buffer[(n, 256), float32], often: int64, n: int64) {
  @rows(address_of(x[0, 0]), address_of(y[0, 0]), n)
  @shift(address_of(x[0, 0]), address_of(y[0, 0]), n)
  for i in range(often) {
    @rows(address_of(y[0, 0]), address_of(y[0, 0]), n)
  }
  if often > 100 {
    @shift(address_of(x[0, 0]), address_of(y[0, 0]), n)
  }
  @rows(address_of(x[0, 0]), address_of(y[0, 0]), 1)
}
"""
ROWS_CALL, SHIFT_CALL, LOOP_CALL, BRANCH_CALL, SINGLE_CALL = range(5)


def functions(mod: IRModule) -> list[PrimFunc]:
    return [function for function in mod.functions.values() if isinstance(function, PrimFunc)]


class Program:
    """A program, with or without the clock in it."""

    def __init__(self, threads: int, profiled: bool, kind: str = "llvm") -> None:
        self.target = Target(kind, num_threads=threads)
        mod = gi.parse(TEXT)
        with self.target:
            self.mod = ProfileCalls()(mod) if profiled else mod
        self.profiled = profiled
        main = self.mod["main"]
        assert isinstance(main, PrimFunc)
        self.main = main
        self.compiled: Any
        if kind == "numba":
            self.compiled = numba_.compile_module(functions(self.mod), self.target)
        else:
            self.compiled = compile_module(functions(self.mod), self.target, ("main",))

    def __call__(self, often: int = 3, rows: int = ROWS) -> tuple[Records, npt.NDArray[np.float32]]:
        """Run the program; return the records and its result."""
        x = np.random.default_rng(0).random((rows, 256), np.float32)
        y = np.ones_like(x)
        records = np.zeros(records_shape(5, self.target.num_threads), np.int64)
        args: list[Any] = [x, y, *([records] if self.profiled else []), often, rows]
        if isinstance(self.compiled, CompiledModule):
            call_primfunc(self.compiled, self.main, *args)
        else:
            self.compiled.call("main", *args)
        assert not records[:, 5:].any()
        return records[:, :5], y


@pytest.fixture(scope="module", params=[("llvm", 1), ("llvm", 2), ("llvm", 3), ("numba", 2)], ids=str)
def program(request: pytest.FixtureRequest) -> Program:
    kind, threads = request.param
    return Program(threads, profiled=True, kind=kind)


def test_each_place_counts_its_runs(program: Program) -> None:
    assert program(often=3)[0][RUNS].tolist() == [1, 1, 3, 0, 1]
    assert program(often=0)[0][RUNS].tolist() == [1, 1, 0, 0, 1]
    assert program(often=101)[0][RUNS].tolist() == [1, 1, 101, 1, 1]


def test_calls_begin_before_they_end_and_in_order_of_the_program(program: Program) -> None:
    records, _ = program(often=101)
    times = records[[BEGIN, END]].T.reshape(-1).tolist()
    assert sorted(times) == times


def test_ticks_are_of_the_length_that_is_told(program: Program) -> None:
    tick = 1e-9 if program.target.kind == "numba" else seconds_per_tick()
    shares = []
    for _ in range(5):  # other programs may run in between
        before = time.perf_counter()
        records, _ = program(often=2000)
        after = time.perf_counter()
        shares.append((records[END, SINGLE_CALL] - records[BEGIN, ROWS_CALL]) * tick / (after - before))
    assert all(share < 1.001 for share in shares)
    assert max(shares) > 0.8


def test_the_frequency_of_a_counter_is_found() -> None:
    begin = time.perf_counter()
    found = clock.seconds_per_tick(lambda: int((time.perf_counter() - begin) * 3e6))
    assert found == pytest.approx(1 / 3e6, rel=1e-3)


def test_the_counter_is_read_where_the_system_tells_the_time_by_it() -> None:
    profiling_ir = team_ir(llvm.get_process_triple().split("-")[0], True, profiling=True, counter=uses_counter())
    assert ("@llvm.readcyclecounter" in profiling_ir) == uses_counter() == (f"@{CLOCK}(" not in profiling_ir)


def test_what_does_not_run_leaves_no_trace(program: Program) -> None:
    assert not program()[0][:, BRANCH_CALL].any()


def test_totals_are_sums_over_the_runs(program: Program) -> None:
    records, _ = program(often=101)
    last = records[END] - records[BEGIN]
    for call in (ROWS_CALL, SHIFT_CALL, BRANCH_CALL, SINGLE_CALL):
        assert records[TOTAL, call] == last[call]
    # All 101 runs are between the call before and the one behind.
    assert last[LOOP_CALL] < records[TOTAL, LOOP_CALL] <= records[BEGIN, BRANCH_CALL] - records[END, SHIFT_CALL]


def test_a_second_run_adds_to_the_records() -> None:
    program = Program(2, profiled=True)
    x, records = np.ones((ROWS, 256), np.float32), np.zeros(records_shape(5, 2), np.int64)
    totals = []
    for _ in range(2):
        call_primfunc(program.compiled, program.main, x, x.copy(), records, 3, ROWS)
        totals.append(records[TOTAL].copy())
    assert records[RUNS].tolist() == [2, 2, 6, 0, 2, 0, 0, 0]
    assert (totals[1][[0, 2]] > totals[0][[0, 2]]).all()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_work_no_longer_than_the_call_takes(threads: int) -> None:
    program = Program(threads, profiled=True)
    for _ in range(20):
        records, _ = program(often=20)
        busy = records[BUSY:]
        assert len(busy) == threads
        assert (busy >= 0).all() and (busy <= records[TOTAL]).all()
        forked = busy[:, [ROWS_CALL, LOOP_CALL]]
        if thread_limit() > 1:
            assert (forked.sum(axis=0) > 0).all()
            assert (forked.sum(axis=0) <= min(threads, thread_limit()) * records[TOTAL, [ROWS_CALL, LOOP_CALL]]).all()


def test_a_loop_that_does_not_fork_says_nothing_of_threads() -> None:
    records, _ = Program(2, profiled=True)()
    assert not records[BUSY:, [SHIFT_CALL, SINGLE_CALL]].any()


@pytest.mark.parametrize(("kind", "threads"), [("llvm", 1), ("numba", 2)])
def test_one_thread_and_numba_say_nothing_of_threads(kind: str, threads: int) -> None:
    records, _ = Program(threads, profiled=True, kind=kind)()
    assert not records[BUSY:].any()


def test_the_last_thread_to_work_is_waited_for() -> None:
    """All that threads add to their times is stored when the call ends: sums do not change afterwards."""
    program = Program(3, profiled=True)
    for _ in range(50):
        records, _ = program(often=5)
        then = records.copy()
        time.sleep(0.0005)
        np.testing.assert_array_equal(records, then)


@pytest.mark.parametrize("threads", [1, 2])
def test_code_without_the_pass_has_nothing_of_the_clock(threads: int) -> None:
    program = Program(threads, profiled=False)
    text = emit_llvm_ir(functions(program.mod), program.target, ("main",))
    names = [*PROFILE_FUNCTIONS.values(), CLOCK, TICKS, "profile"]
    assert not any(name in text for name in names)
    assert not any(name.encode() in program.compiled.object_bytes for name in names)


def test_source_without_the_pass_has_nothing_of_the_clock() -> None:
    text = numba_.emit_source(functions(gi.parse(TEXT)))
    assert "profile" not in text and "perf_counter" not in text


def test_threads_of_plain_code_read_no_clock() -> None:
    processor = llvm.get_process_triple().split("-")[0]
    plain, profiling = (team_ir(processor, True, each) for each in (False, True))
    for name in ("now", CLOCK, TICKS, *PROFILE_FUNCTIONS.values()):
        assert f"@{name}(" not in plain and f"@{name}(" in profiling
    assert "readcyclecounter" not in plain


def test_plain_code_is_linked_with_plain_threads_whatever_was_profiled_before() -> None:
    ensure_threads()
    plain, profiling = team_functions(), profiling_functions()
    assert set(plain).isdisjoint({TICKS, *PROFILE_FUNCTIONS.values()})
    assert not set(plain.values()) & set(profiling.values())


def test_kernels_of_another_module_are_linked_again_with_the_clock_and_not_compiled() -> None:
    target = Target("llvm", num_threads=2)
    mod = gi.parse(TEXT)
    with target:
        main = ProfileCalls()(mod)["main"]
    kernels = [function for function in functions(mod) if function.name != "main"]
    plain = compile_module(kernels, target)
    again = plain.for_profiling()
    assert again.object_bytes is plain.object_bytes
    assert isinstance(main, PrimFunc)
    for module, tells in ((plain, False), (again, True)):
        addresses = {name: module.address(name) for name in ("rows", "shift")}
        entry = compile_module([main], target, ("main",), addresses, kernels)
        # The first thread works in what the kernel was linked with, those that come to help it in what main was, which
        # has the clock; in the first call of a program they come too late.
        first = []
        for _ in range(20):
            x, records = np.ones((ROWS, 256), np.float32), np.zeros(records_shape(5, 2), np.int64)
            call_primfunc(entry, main, x, x.copy(), records, 3, ROWS)
            assert records[RUNS].tolist() == [1, 1, 3, 0, 1, 0, 0, 0]
            first.append(records[BUSY, ROWS_CALL])
        assert any(first) == (tells and thread_limit() > 1)


def test_profiled_and_plain_code_run_at_the_same_time() -> None:
    programs = [Program(2, profiled) for profiled in (True, False)]
    _, expected = programs[1](often=7)
    errors: list[str] = []

    def run(program: Program) -> None:
        for _ in range(200):
            records, found = program(often=7)
            if not (found == expected).all():
                errors.append("the result is another")
            if program.profiled and records[RUNS].tolist() != [1, 1, 7, 0, 1]:
                errors.append(f"records: {records[RUNS]}")
            if (records[BUSY:] > records[TOTAL]).any():
                errors.append(f"a thread worked longer than its call: {records}")

    workers = [threading.Thread(target=run, args=(program,)) for program in programs * 2]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors[:3]
