"""Two products with rows in between: strips of rows go through all stages, and no matrix of scores is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.schedule.kernels import apply_rule
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.graph.walk import as_group
from tilewright.passes.lower.primitive import lower_primitive
from tilewright.passes.schedule import ScheduleKernels
from tilewright.passes.schedule.chained import Chain, ScheduleChained, find_chain
from tilewright.passes.schedule.inline import inline_producers
from tilewright.passes.schedule.rule import Declined
from tilewright.passes.tensor import CompactBuffer, LowerBlocks
from tilewright.tensorir import interpret
from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import IntImm, Var, call
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Allocate, For, PrimFunc
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(3)
TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)  # 8 lanes of float32, 16 registers


def attention(s: Any, t: Any, d: int = 8, e: int = 8, heads: int = 2, **attrs: Any) -> PrimFunc:
    params = [gi.var(name, shape=shape) for name, shape in zip("qkv", ((s, d), (t, d), (t, e)), strict=True)]
    params = [gi.var(param.name, shape=(heads, *param.shape)) for param in params]
    attended = gi.nn.attention(*params, **attrs)
    assert isinstance(attended, gi.Call)
    return lower_primitive(as_group(attended)[0], "attention")


def oracle(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    powers = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
    return powers @ v / powers.sum(-1, keepdims=True)


def scheduled(func: PrimFunc, opt_level: int = 3) -> tuple[PrimFunc, list[str]]:
    with PassContext(opt_level=opt_level) as ctx, TARGET:
        made = ScheduleKernels()(IRModule({func.name: func}))[func.name]
    return made, [remark.message for remark in ctx.remarks]


@pytest.mark.parametrize("opt_level", [2, 3])
@pytest.mark.parametrize(("s", "t", "e"), [(2, 2, 1), (3, 9, 8), (13, 17, 5), (31, 8, 20), (7, 40, 8)])
def test_values_stay(s: int, t: int, e: int, opt_level: int) -> None:
    func, remarks = scheduled(attention(s, t, e=e), opt_level)
    assert "scheduled by the rule 'chained'" in remarks
    arrays = [RNG.standard_normal((2, *shape)).astype(np.float32) for shape in ((s, 8), (t, 8), (t, e))]
    found = np.full((2, s, e), np.nan, np.float32)
    interpret(func, *arrays, found)
    np.testing.assert_allclose(found, oracle(*arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("s", "t"), [(0, 3), (1, 1), (1, 20), (25, 1), (26, 11)])
def test_one_schedule_serves_any_number_of_words(s: int, t: int) -> None:
    func, remarks = scheduled(attention("s", "t"))
    assert "scheduled by the rule 'chained'" in remarks
    arrays = [RNG.standard_normal((2, *shape)).astype(np.float32) for shape in ((s, 8), (t, 8), (t, 8))]
    found = np.full((2, s, 8), np.nan, np.float32)
    interpret(func, *arrays, found, *[{"s": s, "t": t}[var.name] for var in func.variables])
    np.testing.assert_allclose(found, oracle(*arrays), rtol=1e-4, atol=1e-5)


def test_scores_are_a_strip_of_rows() -> None:
    words, rows = 1024, 48
    func, _ = scheduled(attention(words, words, d=64, e=64))
    with PassContext(), TARGET:
        mod = CompactBuffer()(LowerBlocks()(IRModule({func.name: func})))
    body = mod[func.name].body
    sizes = [
        int(np.prod([extent.value for extent in node.buffer.shape if isinstance(extent, IntImm)]))
        for node in walk(body)
        if isinstance(node, Allocate) and words in [getattr(extent, "value", 0) for extent in node.buffer.shape]
    ]
    assert sizes and max(sizes) <= max(rows * words, 2 * 64 * words)


def test_both_products_are_tiles_in_registers_in_one_parallel_loop() -> None:
    func, _ = scheduled(attention(64, 64, d=16, e=32))
    parallel = [node for node in walk(func.body) if isinstance(node, For) and node.kind == "parallel"]
    (task,) = [loop for loop in parallel if "attention_exp" in str(loop)]
    for name in ("attention_products", "attention_values"):
        block = f"block {name}("
        assert block in str(task)
        loops = [loop for loop in walk(task) if isinstance(loop, For) and block in str(loop)]
        assert [loop.kind for loop in loops][-3:] == ["unrolled", "unrolled", "vectorized"]


def test_a_few_heads_give_every_thread_tasks() -> None:
    func, _ = scheduled(attention(256, 16, heads=1))
    task = next(node for node in walk(func.body) if isinstance(node, For) and "attention_exp" in str(node))
    assert isinstance(task.extent, IntImm) and task.extent.value >= 4 * TARGET.num_threads


def chain_of(first: te.Tensor, inputs: list[te.Tensor], weights: Any, value: te.Tensor) -> Schedule:
    k = te.reduce_axis(first.shape[-1], "j")
    between = te.compute(first.shape, lambda *place: weights(first, place), name="between")
    shape = (*first.shape[:-1], value.shape[-1])
    last = te.compute(shape, lambda *place: te.sum(between[(*place[:-1], k)] * value[k, place[-1]], axis=k))
    schedule = Schedule(te.create_prim_func("chain", [*inputs, value], [last]))
    inline_producers(schedule)
    return schedule


def test_any_function_of_rows_may_be_between() -> None:
    """The rule goes by what is computed: two layers with an activation that is dear to compute are a chain, too."""
    a, b, c = te.placeholder((9, 6)), te.placeholder((6, 11)), te.placeholder((11, 8))
    r = te.reduce_axis(6, "r")
    first = te.compute((9, 11), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="first")
    schedule = chain_of(first, [a, b], lambda x, place: call("tanh", x[place]), c)
    assert isinstance(find_chain(schedule, TARGET), Chain)
    assert apply_rule(ScheduleChained(), schedule)
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((9, 6), (6, 11), (11, 8))]
    found = np.full((9, 8), np.nan, np.float32)
    interpret(schedule.func, *arrays, found)
    x, y, z = (array.astype(np.float64) for array in arrays)
    np.testing.assert_allclose(found, np.tanh(x @ y) @ z, rtol=1e-4, atol=1e-5)


def test_a_row_that_needs_other_rows_is_no_chain() -> None:
    a, b, c = te.placeholder((9, 6)), te.placeholder((6, 11)), te.placeholder((11, 8))
    r = te.reduce_axis(6, "r")
    first = te.compute((9, 11), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="first")
    schedule = chain_of(first, [a, b], lambda x, place: call("tanh", x[(8 - place[0], place[1])]), c)
    before = schedule.func
    assert isinstance(find_chain(schedule, TARGET), Declined)
    assert not apply_rule(ScheduleChained(), schedule) and schedule.func is before


def test_single_products_and_single_rows_are_no_chain() -> None:
    x, w = te.placeholder((Var("m"), 8)), te.placeholder((8, 8))
    k = te.reduce_axis(8, "k")
    product = te.compute((x.shape[0], 8), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k))
    assert isinstance(find_chain(Schedule(te.create_prim_func("product", [x, w], [product])), TARGET), Declined)
    assert isinstance(find_chain(Schedule(attention(1, 9)), TARGET), Declined)
