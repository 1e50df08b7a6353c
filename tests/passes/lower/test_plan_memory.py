"""The model's main calls the kernels on memory in which no two live values overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Sequential
from tilewright.passes.lower import LowerToTensorIR, PlanMemory
from tilewright.passes.lower.linearize import linearize, model_constants
from tilewright.passes.lower.plan_memory import plan
from tilewright.passes.lower.storage import ALIGNMENT, ArenaAllocator
from tilewright.passes.tensor.compact_buffer import CompactBuffer
from tilewright.passes.tensor.flatten_buffer import FlattenBuffer
from tilewright.passes.tensor.lower_blocks import LowerBlocks
from tilewright.passes.tensor.storage_rewrite import StorageRewrite
from tilewright.runtime.dims import compile_dims
from tilewright.tensorir import PrimFunc, interpret
from tilewright.tensorir.errors import CodegenError

LOWER = Sequential([LowerBlocks(), CompactBuffer(), FlattenBuffer(), StorageRewrite(), PlanMemory()])


def run(function: gi.Function, *inputs: np.ndarray, **sizes: int) -> list[np.ndarray]:
    """The results of ``function``, lowered and interpreted."""
    mod = LowerToTensorIR()(IRModule.from_expr(function))
    lowered = LOWER(mod)
    main = lowered["main"]
    assert isinstance(main, PrimFunc)
    values = [sizes[var.name] for var in main.variables]
    (arena_bytes,) = compile_dims([main.attrs["arena_bytes"]], main.variables)(*values)
    result = function.type.result
    types = result.fields if isinstance(result, gi.TupleType) else [result]
    outputs = []
    for found in types:
        shape = compile_dims(found.shape, main.variables)(*values)
        outputs.append(np.zeros(shape, found.dtype.numpy))
    constants = [constant.data for constant in model_constants(mod["main"], mod)]
    arena = np.full(max(arena_bytes, 1), 0xAB, np.uint8)[:arena_bytes]
    functions = {key.name: kernel for key, kernel in lowered.functions.items()}
    interpret(main, *inputs, *constants, *outputs, arena, *values, functions=functions)
    return outputs


def test_values_flow_through_the_arena() -> None:
    x = gi.var("x", shape=("n", 3))
    weight = np.arange(9, dtype="f4").reshape(3, 3)
    hidden = gi.matmul(gi.add(x, 1.0), gi.const(weight))
    function = gi.Function([x], gi.Tuple([gi.maximum(hidden, 0.0), gi.add(gi.maximum(hidden, 0.0), hidden), x]))
    values = np.linspace(-2, 1, 15, dtype="f4").reshape(5, 3)
    found = run(function, values, n=5)
    expected = (values + 1) @ weight
    np.testing.assert_allclose(found[0], np.maximum(expected, 0), rtol=1e-6)
    np.testing.assert_allclose(found[1], np.maximum(expected, 0) + expected, rtol=1e-6)
    np.testing.assert_array_equal(found[2], values)


def test_result_that_is_returned_twice_is_in_both_places() -> None:
    x = gi.var("x", shape=(4,))
    doubled = gi.add(x, x)
    found = run(gi.Function([x], gi.Tuple([doubled, doubled])), np.ones(4, "f4"))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("flag", [False, True])
def test_if_computes_the_taken_branch(flag: bool) -> None:
    x, condition = gi.var("x", shape=(3,)), gi.var("condition", shape=(), dtype="bool")
    shared = gi.add(x, 1.0)
    body = gi.If(condition, gi.multiply(shared, 2.0), gi.multiply(gi.add(shared, shared), 5.0))
    (found,) = run(gi.Function([x, condition], gi.add(body, shared)), np.ones(3, "f4"), np.array(flag))
    np.testing.assert_array_equal(found, np.full(3, 2 * 2 + 2 if flag else 4 * 5 + 2, "f4"))


def test_loop_carries_its_state_and_may_swap_it() -> None:
    x, y = gi.var("x", shape=(2,)), gi.var("y", shape=(2,))
    i, a, b = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(2,)), gi.var("b", shape=(2,))
    step = gi.Function([i, a, b], gi.Tuple([b, gi.add(a, b)]))  # Fibonacci
    trips = gi.var("trips", shape=(), dtype="int64")
    function = gi.Function([x, y, trips], gi.Loop(trips, None, step, [x, y]))
    found = run(function, np.array([0, 1], "f4"), np.array([1, 1], "f4"), np.array(5))
    np.testing.assert_array_equal(found[0], [5, 8])
    np.testing.assert_array_equal(found[1], [8, 13])


def test_loop_stops_when_its_condition_fails() -> None:
    x = gi.var("x", shape=())
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=())
    body = gi.Function([i, a], gi.Tuple([gi.multiply(a, 2.0)]))
    condition = gi.Function([i, a], gi.less(a, 100.0))
    function = gi.Function([x], gi.Loop(gi.const(1000), condition, body, [x]))
    (found,) = run(function, np.array(3, "f4"))
    assert found == 192


def test_function_calls_are_inlined_where_they_stand() -> None:
    p = gi.var("p", shape=(2,))
    twice = gi.GlobalVar("twice", gi.FuncType([p.type], p.type))
    x = gi.var("x", shape=(2,))
    main = gi.Function([x], gi.Call(twice, [gi.Call(twice, [x])]))
    mod = IRModule({gi.GlobalVar("main"): main, twice: gi.Function([p], gi.add(p, p))})
    lowered = LOWER(LowerToTensorIR()(mod))
    out = np.zeros(2, "f4")
    main_func = lowered["main"]
    assert isinstance(main_func, PrimFunc)
    size = main_func.attrs["arena_bytes"].value
    functions = {key.name: kernel for key, kernel in lowered.functions.items()}
    interpret(main_func, np.ones(2, "f4"), out, np.zeros(size, "u1"), functions=functions)
    np.testing.assert_array_equal(out, [4, 4])


def test_recursion_is_an_error() -> None:
    p = gi.var("p", shape=(2,))
    forever = gi.GlobalVar("main", gi.FuncType([p.type], p.type))
    with pytest.raises(CodegenError, match="calls itself"):
        LOWER(LowerToTensorIR()(IRModule({forever: gi.Function([p], gi.Call(forever, [p]))})))


def test_chain_needs_the_memory_of_two_values() -> None:
    x = gi.var("x", shape=(1000,))
    value: gi.Expr = x
    for _ in range(20):
        value = gi.tanh(value)
    mod = LowerToTensorIR()(IRModule.from_expr(gi.Function([x], value)))
    main = mod["main"]
    assert isinstance(main, gi.Function)
    arena = plan(linearize(main, mod))
    assert arena.static_bytes == 2 * -(-4000 // ALIGNMENT) * ALIGNMENT


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 9)), max_size=60))
def test_live_values_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Each step takes some bytes, and gives back the value at a position if there is one."""
    arena = ArenaAllocator()
    live: list[tuple[int, int, object]] = []
    for size, drop in steps:
        place = arena.allocate(size)
        assert place.offset % ALIGNMENT == 0
        assert place.offset + size <= arena.static_bytes
        for offset, length, _ in live:
            assert place.offset >= offset + length or place.offset + max(size, 1) <= offset
        live.append((place.offset, max(size, 1), place))
        if drop < len(live):
            arena.free(live.pop(drop)[2])  # type: ignore[arg-type]
