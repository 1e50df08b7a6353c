"""Single rows times matrices that follow one another: each matrix is read once, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.lower.primitive import lower_primitive
from tilewright.passes.schedule import ScheduleKernels
from tilewright.tensorir import interpret
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Block, For, PrimFunc
from tilewright.tensorir.target import Target

RNG = np.random.default_rng(3)
TARGET = Target("llvm", mcpu="x86-64-v3", num_threads=2)  # 8 lanes of float32


def step(cached: Any, d: int, e: int, heads: int = 2, shared: int | None = None, new: bool = True) -> PrimFunc:
    """Attention of one query over the cached keys and, ``new``, one more."""
    shared = heads if shared is None else shared
    query = gi.var("q", shape=(heads, 1, d))
    parts = [[gi.var(f"old_{name}", shape=(shared, cached, n))] for name, n in (("k", d), ("v", e))]
    for (old,), name in zip(parts, "kv", strict=True) if new else ():
        parts["kv".index(name)].append(gi.var(name, shape=(shared, 1, old.shape[-1])))
    key, value = (gi.concatenate(*part, axis=1) for part in parts)
    params = [query, *parts[0], *parts[1]]
    return lower_primitive(Function(params, gi.nn.attention(query, key, value), attrs={"kind": "reduction"}), "step")


def scheduled(func: PrimFunc, opt_level: int = 3) -> tuple[PrimFunc, list[str]]:
    with PassContext(opt_level=opt_level) as ctx, TARGET:
        made = ScheduleKernels()(IRModule({func.name: func}))[func.name]
    return made, [remark.message for remark in ctx.remarks]


def check(func: PrimFunc, shapes: list[tuple[int, ...]], shared: int, new: bool = True, **sizes: int) -> None:
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    found = np.full((*shapes[0][:2], shapes[-1][-1]), np.nan, np.float32)
    interpret(func, *arrays, found, *[sizes[var.name] for var in func.variables])
    q, *parts = (array.astype(np.float64) for array in arrays)
    half = len(parts) // 2
    k, v = (np.repeat(np.concatenate(part, 1), len(q) // shared, 0) for part in (parts[:half], parts[half:]))
    powers = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]))
    np.testing.assert_allclose(found, powers @ v / powers.sum(-1, keepdims=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opt_level", [2, 3])
@pytest.mark.parametrize(("cached", "d", "e"), [(1, 1, 1), (6, 5, 9), (40, 16, 8), (17, 33, 70), (3, 64, 64)])
@pytest.mark.parametrize("new", [False, True])
def test_values_stay(cached: int, d: int, e: int, new: bool, opt_level: int) -> None:
    func, remarks = scheduled(step(cached, d, e, new=new), opt_level)
    assert "scheduled by the rule 'single rows'" in remarks or cached + new == 1
    shapes = [(2, cached, d), (2, 1, d), (2, cached, e), (2, 1, e)]
    check(func, [(2, 1, d), *(shapes if new else shapes[::2])], 2, new)


@pytest.mark.parametrize("cached", [0, 1, 20, 33])
def test_one_schedule_serves_any_length_of_the_cache(cached: int) -> None:
    func, remarks = scheduled(step("t", 16, 8))
    assert "scheduled by the rule 'single rows'" in remarks
    check(func, [(2, 1, 16), (2, cached, 16), (2, 1, 16), (2, cached, 8), (2, 1, 8)], 2, t=cached)


def test_heads_that_share_keys() -> None:
    func, _ = scheduled(step(20, 8, 8, heads=6, shared=2))
    check(func, [(6, 1, 8), (2, 20, 8), (2, 1, 8), (2, 20, 8), (2, 1, 8)], 2)


def test_keys_are_read_where_they_are_in_one_parallel_loop() -> None:
    func, _ = scheduled(step(40, 16, 16))
    assert {block.name for block in walk(func.body) if isinstance(block, Block)}.isdisjoint({"concatenate"})
    outermost = next(node for node in walk(func.body) if isinstance(node, For))
    assert outermost.kind == "parallel"
    assert sum(isinstance(node, For) and node.kind == "parallel" for node in walk(func.body)) == 1


def test_other_functions_stay() -> None:
    x = gi.var("x", shape=(4, 1, 16))
    func = lower_primitive(Function([x], gi.nn.softmax(x), attrs={"kind": "reduction"}), "softmax")
    _, remarks = scheduled(func)
    assert not any("'single rows'" in remark for remark in remarks)
    assert Schedule(func).get_blocks()
