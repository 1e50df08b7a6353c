"""ProfileCalls puts the clock around each kernel call of main, and changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from both_targets import on_both_targets

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.tensor.profile_calls import ProfileCalls
from tilewright.runtime.observe.profile.recording import Recording
from tilewright.tensorir import PrimFunc, interpret, verify
from tilewright.tensorir.keys import PROFILED_CALLS
from tilewright.tensorir.profiling import records_shape

KERNELS = """
primfunc @double(x: Buffer[(n,), float32], y: Buffer[(n,), float32], n: int64) {
  for i in range(n) {
    y[i] = x[i] * 2.0
  }
}
primfunc @copy(x: Buffer[(n,), float32], y: Buffer[(n,), float32], n: int64) {
  for i in range(n) {
    y[i] = x[i]
  }
}
"""

BEFORE = """
primfunc @main(x: Buffer[(n,), float32], y: Buffer[(n,), float32], z: Buffer[(n,), float32], n: int64) {
  @double(address_of(x[0]), address_of(y[0]), n)
  for i in range(3) {
    @double(address_of(y[0]), address_of(z[0]), n)
    if i < 2 {
      @copy(address_of(z[0]), address_of(y[0]), n)
    } else {
      @copy(address_of(x[0]), address_of(y[0]), n)
    }
    prefetch(y[0])
    z[0] = z[0] + y[0]
  }
}
"""

EXPECTED = """
primfunc @main(
    x: Buffer[(n,), float32],
    y: Buffer[(n,), float32],
    z: Buffer[(n,), float32],
    profile: Buffer[(6, 8), int64],
    n: int64
) attrs {"num_workspaces": 1, "profiled_calls": ("double", "double", "copy", "copy")} {
  profile_begin(address_of(profile[0, 0]), 8)
  @double(address_of(x[0]), address_of(y[0]), n)
  profile_end(address_of(profile[0, 0]), 8)
  for i in range(3) {
    profile_begin(address_of(profile[0, 1]), 8)
    @double(address_of(y[0]), address_of(z[0]), n)
    profile_end(address_of(profile[0, 1]), 8)
    if i < 2 {
      profile_begin(address_of(profile[0, 2]), 8)
      @copy(address_of(z[0]), address_of(y[0]), n)
      profile_end(address_of(profile[0, 2]), 8)
    } else {
      profile_begin(address_of(profile[0, 3]), 8)
      @copy(address_of(x[0]), address_of(y[0]), n)
      profile_end(address_of(profile[0, 3]), 8)
    }
    prefetch(y[0])
    z[0] = z[0] + y[0]
  }
}
"""


def profiled(mod: tw.IRModule, threads: int = 2) -> tw.IRModule:
    with tw.Target("llvm", num_threads=threads):
        return ProfileCalls()(mod)


def test_calls_in_loops_and_branches_have_a_record_for_each_place() -> None:
    found = profiled(gi.parse(BEFORE + KERNELS))
    gi.assert_structural_equal(found, gi.parse(EXPECTED + KERNELS))


@pytest.mark.parametrize("threads", [1, 4, 5, 13])
def test_records_have_a_row_for_every_thread_in_whole_cache_lines(threads: int) -> None:
    main = profiled(gi.parse(BEFORE + KERNELS), threads)["main"]
    assert isinstance(main, PrimFunc)
    assert [extent.value for extent in main.buffers[-1].shape] == [4 + threads, 8] == [*records_shape(4, threads)]


@pytest.mark.parametrize("calls", [0, 1, 8, 9, 40])
def test_there_is_a_column_for_every_call(calls: int) -> None:
    columns = records_shape(calls, 1)[1]
    assert columns >= max(calls, 1) and columns % 8 == 0


def test_a_statement_that_stands_in_two_places_has_two_records() -> None:
    mod = gi.parse(BEFORE + KERNELS)
    main = mod["main"]
    assert isinstance(main, PrimFunc)
    twice = main.with_body(type(main.body)((main.body, main.body)))
    found = profiled(tw.IRModule({**mod.functions, mod.get_global_var("main"): twice}))["main"]
    assert isinstance(found, PrimFunc)
    assert found.attrs[PROFILED_CALLS] == ("double", "double", "copy", "copy") * 2
    assert "profile[0, 7]" in str(found)


def test_only_main_changes() -> None:
    mod = gi.parse(BEFORE + KERNELS)
    found = profiled(mod)
    assert found["double"] is mod["double"] and found["copy"] is mod["copy"]
    other = gi.parse(BEFORE.replace("@main", "@other") + KERNELS)
    assert profiled(other) is other


def test_running_it_twice_is_running_it_once() -> None:
    once = profiled(gi.parse(BEFORE + KERNELS))
    assert profiled(once) is once


def test_the_result_verifies_and_reads_back() -> None:
    found = profiled(gi.parse(BEFORE + KERNELS))
    main = found["main"]
    assert isinstance(main, PrimFunc)
    verify(main)
    gi.assert_structural_equal(gi.parse(str(found)), found)


def test_the_interpreter_computes_the_same_with_and_without() -> None:
    mod = gi.parse(BEFORE + KERNELS)
    results = []
    for each in (mod, profiled(mod)):
        main, functions = each["main"], {key.name: function for key, function in each.functions.items()}
        assert isinstance(main, PrimFunc)
        y, z = np.zeros(5, np.float32), np.zeros(5, np.float32)
        records = [np.zeros(records_shape(4, 2), np.int64)] if PROFILED_CALLS in main.attrs else []
        interpret(main, np.arange(5, dtype=np.float32), y, z, *records, 5, functions=functions)
        results.append([y, z])
    np.testing.assert_array_equal(*results)


def looping_model() -> tw.IRModule:
    """Products in a loop, a branch, and values that are kept, of a symbolic number of rows."""
    x, c = gi.var("x", shape=("n", 16)), gi.var("c", shape=(), dtype="bool")
    weight = gi.const((np.random.default_rng(0).standard_normal((16, 16)) / 4).astype("f4"))
    i, state = gi.var("i", shape=(), dtype="int64"), gi.var("state", shape=("n", 16))
    step = gi.Function([i, state], gi.Tuple([gi.nn.relu(gi.matmul(state, weight)) + state]))
    loop = gi.TupleGetItem(gi.Loop(gi.const(3), None, step, [gi.tanh(x)]), 0)
    branch = gi.If(c, gi.nn.softmax(loop), gi.exp(gi.matmul(loop, weight)))
    return tw.IRModule.from_expr(gi.Function([x, c], gi.Tuple([branch, gi.sum(loop, axis=1)])))


@on_both_targets
def test_compiled_results_are_equal_bit_for_bit_with_and_without(target: tw.Target) -> None:
    model = tw.build(looping_model(), target)
    recording = Recording(model._built)
    x = np.random.default_rng(1).standard_normal((7, 16)).astype("f4")
    for taken in (True, False):
        inputs: list[Any] = [x, np.array(taken)]
        for plain, clocked in zip(model(*inputs), recording(inputs, (7,)), strict=True):
            np.testing.assert_array_equal(plain, clocked)
