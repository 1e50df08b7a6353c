"""Corrupt modules in ways that break a rule for certain, hundreds of times: the verifiers catch each one."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest
from graph_corruptions import CORRUPTIONS as GRAPH_CORRUPTIONS
from loop_corruptions import CORRUPTIONS as LOOP_CORRUPTIONS

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, pipelines
from tilewright.tensorir import verify
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

TARGET = Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu", num_threads=2)

#: How often each corruption is made, each time of another function and in another place.
TIMES = 5


def graphs() -> list[gi.Function]:
    """Small models that give kernels of many kinds."""
    rng = np.random.default_rng(3)
    w = gi.const(rng.standard_normal((16, 8)).astype("f4"))
    x, n = gi.var("x", shape=(6, 8)), gi.var("n", shape=("n", 8))
    image = gi.var("image", shape=(1, 4, 9, 9))
    kernel = gi.const(rng.standard_normal((8, 4, 3, 3)).astype("f4"))
    a, b = (gi.var(name, shape=shape, dtype=d) for name, shape, d in (("a", (20, 8), "uint8"), ("b", (8, 40), "int8")))
    index = gi.var("index", shape=(5,), dtype="int64")
    return [
        gi.Function([n], gi.nn.softmax(gi.nn.relu(gi.nn.dense(n, w)))),
        gi.Function([image], gi.nn.relu(gi.nn.conv2d(image, kernel, padding=1))),
        gi.Function([a, b], gi.matmul(gi.cast(a, dtype="int32"), gi.cast(b, dtype="int32"))),
        gi.Function([x, index], gi.take(gi.exp(gi.transpose(x)), index, axis=0)),
        gi.Function([n], gi.where(gi.greater(n, gi.const(0.0)), gi.sum(n, axis=1, keepdims=True), n)),
    ]


@functools.cache
def loop_functions() -> list[PrimFunc]:
    """The functions of these models at each stage, from loop nests with blocks to vectors in flat memory."""
    found: list[PrimFunc] = []
    for graph in graphs():
        mod = IRModule.from_expr(graph)
        with TARGET, PassContext(opt_level=2):
            for pipeline in pipelines.STAGES.values():
                mod = pipeline(TARGET)(mod)
                found += [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    return found


@functools.cache
def modules() -> list[IRModule]:
    """These models as graphs: as written, with groups, and calling their kernels."""
    found: list[IRModule] = []
    for graph in graphs():
        mod = IRModule.from_expr(graph)
        found.append(mod)
        with TARGET, PassContext(opt_level=2):
            for stage in ("optimized", "tensor"):
                mod = pipelines.STAGES[stage](TARGET)(mod)
                found.append(mod)
    return found


def refusal(check: Any, corrupted: Any) -> str | None:
    """The text of the error; None if there was none. Any other error than a VerifyError is a fault of the verifier."""
    try:
        check(corrupted)
    except VerifyError as error:
        return str(error)
    return None


def all_refused(name: str, corrupt: Any, check: Any, candidates: list[Any]) -> None:
    """Corrupt candidates :data:`TIMES` times; each must be refused."""
    made = 0
    for seed in range(40 * TIMES):
        rng = random.Random(f"{name} {seed}")
        corrupted = corrupt(rng, rng.choice(candidates))
        if corrupted is None:
            continue
        assert refusal(check, corrupted) is not None, f"seed {seed}: nothing wrong was found in\n{corrupted!s}"
        made += 1
        if made == TIMES:
            return
    pytest.fail(f"only {made} places were found")


def test_what_is_corrupted_is_valid_before() -> None:
    for func in loop_functions():
        verify(func)
    for mod in modules():
        gi.verify(mod)


def test_three_hundred_corruptions_are_made() -> None:
    assert TIMES * (len(LOOP_CORRUPTIONS) + len(GRAPH_CORRUPTIONS)) >= 300


@pytest.mark.parametrize("name", LOOP_CORRUPTIONS)
def test_a_corrupted_loop_function_is_refused(name: str) -> None:
    all_refused(name, LOOP_CORRUPTIONS[name], verify, loop_functions())


@pytest.mark.parametrize("name", GRAPH_CORRUPTIONS)
def test_a_corrupted_graph_is_refused(name: str) -> None:
    all_refused(name, GRAPH_CORRUPTIONS[name], gi.verify, modules())
