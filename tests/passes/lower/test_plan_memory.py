"""The model's main calls the kernels on memory in which no two live values overlap."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Sequential
from tilewright.passes.lower import LowerToTensorIR, PlanMemory
from tilewright.passes.lower.linearize import linearize, model_constants
from tilewright.passes.lower.plan_memory import copy_kernel, plan
from tilewright.passes.lower.storage import ALIGNMENT
from tilewright.passes.tensor.compact_buffer import CompactBuffer
from tilewright.passes.tensor.flatten_buffer import FlattenBuffer
from tilewright.passes.tensor.lower_blocks import LowerBlocks
from tilewright.passes.tensor.storage_rewrite import StorageRewrite
from tilewright.runtime.dims import compile_dims
from tilewright.tensorir import PrimFunc, interpret
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.verify import verify

LOWER = Sequential([LowerBlocks(), CompactBuffer(), FlattenBuffer(), StorageRewrite(), PlanMemory()])


def run(function: gi.Function | IRModule, *inputs: np.ndarray, dirt: int = 0xAB, **sizes: int) -> list[np.ndarray]:
    """The results of ``function``, lowered and interpreted; ``dirt`` is in every byte of the arena before."""
    mod = LowerToTensorIR()(function if isinstance(function, IRModule) else IRModule.from_expr(function))
    lowered = LOWER(mod)
    main = lowered["main"]
    assert isinstance(main, PrimFunc)
    values = [sizes[var.name] for var in main.variables]
    (arena_bytes,) = compile_dims([main.attrs["arena_bytes"]], main.variables)(*values)
    result = mod["main"].type.result
    types = result.fields if isinstance(result, gi.TupleType) else [result]
    outputs = []
    for found in types:
        shape = compile_dims(found.shape, main.variables)(*values)
        outputs.append(np.zeros(shape, found.dtype.numpy))
    constants = [constant.data for constant in model_constants(mod["main"], mod)]
    arena = np.full(max(arena_bytes, 1), dirt, np.uint8)[:arena_bytes]
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


def test_result_that_is_a_constant_leaves_the_constant_readable() -> None:
    x, table = gi.var("x", shape=(4,)), gi.const(np.arange(4, dtype="f4"))
    found = run(gi.Function([x], gi.Tuple([gi.add(x, table), table])), np.ones(4, "f4"))
    np.testing.assert_array_equal(found[0], [1, 2, 3, 4])
    np.testing.assert_array_equal(found[1], [0, 1, 2, 3])


def test_constants_without_elements_have_an_address() -> None:
    x, empty = gi.var("x", shape=("n", 3)), gi.const(np.zeros((0, 3), np.float32))
    function = gi.Function([x], gi.Tuple([gi.concatenate([x, empty], axis=0), empty]))
    module = Sequential([LowerToTensorIR(), PlanMemory()])(IRModule.from_expr(function))
    assert "address_of(constant_0[0, 0])" in str(module["main"])
    verify(module["main"])


def test_constants_of_called_functions_are_constants_of_the_model() -> None:
    p, x, y = gi.var("p", shape=(4,)), gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    helper = gi.GlobalVar("helper", gi.FuncType([p.type], p.type))
    inner = gi.Function([p], gi.add(p, gi.const(np.arange(4, dtype="f4"))))
    body = gi.add(gi.Call(helper, [x]), gi.multiply(gi.Call(helper, [y]), gi.const(np.full(4, 10, "f4"))))
    mod = IRModule({gi.GlobalVar("main"): gi.Function([x, y], body), helper: inner})
    (found,) = run(mod, np.zeros(4, "f4"), np.ones(4, "f4"))
    np.testing.assert_array_equal(found, [10, 21, 32, 43])


def test_main_takes_sizes_in_the_order_of_the_inputs_shapes() -> None:
    x, y = gi.var("x", shape=("rows", 2, "columns")), gi.var("y", shape=("columns", "depth"))
    mod = LOWER(LowerToTensorIR()(IRModule.from_expr(gi.Function([x, y], gi.Tuple([gi.tanh(x), gi.tanh(y)])))))
    main = mod["main"]
    assert isinstance(main, PrimFunc)
    assert [var.name for var in main.variables] == ["rows", "columns", "depth"]


def test_whole_lives_from_its_first_part_on() -> None:
    x = gi.var("x", shape=(40,))
    params = [gi.var("a", shape=(40,)), gi.var("b", shape=(40,))]
    attrs = {"Primitive": True, "kind": "opaque", "in_place": (0, 1)}
    join = gi.Function(params, gi.concatenate(params, axis=0), attrs=attrs)
    joined = gi.Call(join, [gi.tanh(x), gi.sqrt(gi.exp(x))])  # exp(x) is in memory between the parts
    (found,) = run(gi.Function([x], gi.abs(joined)), values := np.linspace(-1, 1, 40, dtype="f4"))
    np.testing.assert_allclose(found, np.abs(np.r_[np.tanh(values), np.sqrt(np.exp(values))]), rtol=1e-5)


def test_planned_module_stays_as_it_is() -> None:
    x = gi.var("x", shape=(4,))
    planned = PlanMemory()(LowerToTensorIR()(IRModule.from_expr(gi.Function([x], gi.tanh(x)))))
    assert PlanMemory()(planned)["main"] is planned["main"]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 128, 200])
def test_copy_kernel_copies_every_byte_and_no_more(count: int) -> None:
    source = np.arange(1, 201, dtype=np.uint8)
    target = np.zeros(200, np.uint8)
    interpret(copy_kernel(), source[:count], target[:count], count)
    np.testing.assert_array_equal(target, np.where(np.arange(200) < count, source, 0))


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


def test_loop_swaps_its_state() -> None:
    x, y = gi.var("x", shape=(2,)), gi.var("y", shape=(2,))
    i, a, b = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(2,)), gi.var("b", shape=(2,))
    function = gi.Function([x, y], gi.Loop(gi.const(3), None, gi.Function([i, a, b], gi.Tuple([b, a])), [x, y]))
    found = run(function, np.array([1, 2], "f4"), np.array([3, 4], "f4"))
    np.testing.assert_array_equal(found, [[3, 4], [1, 2]])


def test_loop_body_of_the_module_may_hold_constants() -> None:
    x, i, a = gi.var("x", shape=(2,)), gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(2,))
    body = gi.Function([i, a], gi.Tuple([gi.add(a, gi.const(np.array([1, 10], "f4")))]))
    step = gi.GlobalVar("step", body.type)
    main = gi.Function([x], gi.Loop(gi.const(3), None, step, [x]))
    (found,) = run(IRModule({gi.GlobalVar("main"): main, step: body}), np.zeros(2, "f4"))
    np.testing.assert_array_equal(found, [3, 30])


def test_loop_counts_its_iterations_beyond_a_byte() -> None:
    """The trip count is a value in the arena, and so is the counter that the body adds up."""
    half = gi.var("half", shape=(), dtype="int64")
    i, total = (gi.var(name, shape=(), dtype="int64") for name in ("i", "total"))
    body = gi.Function([i, total], gi.Tuple([gi.add(total, i)]))
    function = gi.Function([half], gi.Loop(gi.add(half, half), None, body, [gi.const(0)]))
    (found,) = run(function, np.array(150))
    assert found == sum(range(300))


@pytest.mark.parametrize("dirt", [0x00, 0xAB])
def test_loop_that_stopped_does_not_go_on(dirt: int) -> None:
    """The condition is false in one iteration and would be true in the next."""
    x = gi.var("x", shape=())
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=())
    condition = gi.Function([i, a], gi.not_equal(i, 3))
    body = gi.Function([i, a], gi.Tuple([gi.add(a, 1.0)]))
    (found,) = run(gi.Function([x], gi.Loop(gi.const(10), condition, body, [x])), np.array(0, "f4"), dirt=dirt)
    assert found == 3


def test_value_from_outside_lives_through_every_iteration() -> None:
    x = gi.var("x", shape=(3,))
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(3,))
    outside = gi.add(x, 1.0)
    body = gi.Function([i, a], gi.Tuple([gi.negative(gi.multiply(gi.add(a, outside), 2.0))]))
    (found,) = run(gi.Function([x], gi.Loop(gi.const(3), None, body, [outside])), np.array([0, 1, 2], "f4"))
    expected = np.array([1, 2, 3], "f4")
    for _ in range(3):
        expected = -2 * (expected + np.array([1, 2, 3], "f4"))
    np.testing.assert_array_equal(found, expected)


def test_condition_that_its_branches_read_gives_its_memory_back_once() -> None:
    x = gi.var("x", shape=())
    condition = gi.greater(x, 0.0)
    chosen = gi.If(condition, gi.where(condition, gi.add(x, 1.0), x), gi.where(condition, x, gi.add(x, 2.0)))
    first, second = gi.multiply(chosen, 2.0), gi.multiply(chosen, 3.0)
    fourth = gi.add(gi.multiply(first, second), gi.subtract(first, second))
    for value, expected in ((1.0, 24 - 2), (-1.0, 6 - 1)):
        (found,) = run(gi.Function([x], fourth), np.array(value, "f4"))
        assert found == expected


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


def test_loop_whose_body_is_the_function_that_holds_it_is_an_error() -> None:
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(2,))
    step = gi.GlobalVar("step", gi.FuncType([i.type, a.type], gi.TupleType([a.type])))
    x = gi.var("x", shape=(2,))
    mod = IRModule(
        {
            "main": gi.Function([x], gi.Loop(gi.const(3), None, step, [x])),
            "step": gi.Function([i, a], gi.Loop(i, None, step, [a])),
        }
    )
    with pytest.raises(CodegenError, match="calls itself"):
        LOWER(LowerToTensorIR()(mod))


def test_chain_that_moves_elements_needs_the_memory_of_two_values() -> None:
    x = gi.var("x", shape=(25, 40))
    value: gi.Expr = x
    for _ in range(20):
        value = gi.transpose(value)
    mod = LowerToTensorIR()(IRModule.from_expr(gi.Function([x], value)))
    main = mod["main"]
    assert isinstance(main, gi.Function)
    arena = plan(linearize(main, mod)).arena
    assert arena.static_bytes == 2 * -(-4000 // ALIGNMENT) * ALIGNMENT


def arena_bytes(function: gi.Function) -> int:
    mod = LowerToTensorIR()(IRModule.from_expr(function))
    main = mod["main"]
    assert isinstance(main, gi.Function)
    arena = plan(linearize(main, mod)).arena
    assert not arena.slots
    return arena.static_bytes


def chain(value: gi.Expr, length: int) -> gi.Expr:
    for _ in range(length):
        value = gi.tanh(value)
    return value


def test_chain_in_a_branch_needs_the_memory_of_one_value() -> None:
    """Each overwrites the one before it, and the branch's result, which is the model's, needs none."""
    x, condition = gi.var("x", shape=(16,)), gi.var("condition", shape=(), dtype="bool")
    assert arena_bytes(gi.Function([x, condition], gi.If(condition, chain(x, 20), chain(x, 20)))) == ALIGNMENT


def test_memory_of_what_a_loop_reads_is_used_again_after_it() -> None:
    """Three large values live in the loop (what it reads, its state, and the next state), three after it, and a
    counter."""
    x = gi.var("x", shape=(1024,))
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(1024,))
    outside = gi.add(x, 1.0)
    body = gi.Function([i, a], gi.Tuple([gi.add(a, outside)]))
    first = gi.tanh(gi.Loop(gi.const(3), None, body, [outside])[0])
    second = gi.exp(first)
    function = gi.Function([x], gi.multiply(gi.add(first, second), first))
    assert arena_bytes(function) == 3 * 4096 + ALIGNMENT


def test_workspaces_of_a_chain_share_their_memory() -> None:
    mod = gi.parse(WITH_WORKSPACE)
    main = mod["main"]
    assert isinstance(main, gi.Function)
    assert plan(linearize(main, mod)).arena.static_bytes == 4096 + 2 * ALIGNMENT


def test_workspaces_in_a_branch_share_their_memory() -> None:
    text = WITH_WORKSPACE.replace("(%x:", "(%c: Tensor[(), bool], %x:")
    mod = gi.parse(text)
    main = mod["main"]
    assert isinstance(main, gi.Function)
    branch = gi.Function(main.params, gi.If(main.params[0], main.body, main.params[1]))
    assert plan(linearize(branch, mod)).arena.static_bytes == 4096 + 2 * ALIGNMENT


def test_workspace_is_apart_from_arguments_and_results() -> None:
    mod = PlanMemory()(gi.parse(WITH_WORKSPACE))
    main = mod["main"]
    assert isinstance(main, PrimFunc)
    values, out = np.arange(16, dtype="f4"), np.zeros(16, "f4")
    arena = np.full(main.attrs["arena_bytes"].value, 0xAB, np.uint8)
    interpret(main, values, out, arena, functions={key.name: kernel for key, kernel in mod.functions.items()})
    np.testing.assert_array_equal(out, values * 16)


WITH_WORKSPACE = """
def @main(%x: Tensor[(16,), float32]) -> Tensor[(16,), float32] {
  %0 = @double(%x) : Tensor[(16,), float32]
  %1 = @double(%0) : Tensor[(16,), float32]
  %2 = @double(%1) : Tensor[(16,), float32]
  %3 = @double(%2) : Tensor[(16,), float32]
  %3
}
primfunc @double(a: Buffer[(16,), float32], b: Buffer[(16,), float32], scratch: Buffer[(1024,), float32])
    attrs {"num_outputs": 1, "num_workspaces": 1} {
  for i in range(1024) {
    scratch[i] = 0.0
  }
  for i in range(16) {
    scratch[i] = a[i]
  }
  for i in range(16) {
    b[i] = a[i] + scratch[i]
  }
}
"""


def test_an_arena_may_have_more_slots_than_a_size_has_terms() -> None:
    """Values of many different symbolic sizes that live at once: their sum is no size of a tensor."""
    x = gi.var("x", shape=("n",), dtype="float32")
    parts = [gi.concatenate([x] * count, axis=0) for count in range(2, 42)]
    whole = gi.concatenate(parts, axis=0)
    lowered = Sequential([LowerToTensorIR(), PlanMemory()], name="lower")(IRModule.from_expr(gi.Function([x], whole)))
    main = lowered["main"]
    assert isinstance(main, PrimFunc)
    (found,) = compile_dims([main.attrs["arena_bytes"]], main.variables)(5)
    assert found == sum(-(-count * 5 * 4 // ALIGNMENT) * ALIGNMENT for count in range(2, 42))
