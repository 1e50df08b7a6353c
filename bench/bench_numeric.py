"""Measure numerical bisection: from a build with a broken pass to the pass, operator, element and smallest graph."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import count_operators, rewrite
from tilewright.passes import Pass, function_pass, primfunc_pass
from tilewright.runtime.observe.numeric import Failure, NumericError
from tilewright.tensorir import For, PrimFunc
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import Mutator
from tilewright.tensorir.keys import OPERATORS

SECONDS = 60.0
OPERATORS_LEFT = 5
LAYERS = 56
BROKEN = LAYERS // 2
WIDTH = 48


def network() -> tw.IRModule:
    """Build 500 operators in residual layers, of several kinds; the broken one is labelled."""
    random = np.random.default_rng(0)
    x = gi.var("x", shape=(8, WIDTH))
    value: Any = x
    for number in range(LAYERS):
        activation = (gi.tanh, gi.sigmoid, gi.nn.relu, gi.exp)[number % 4]
        weight = gi.const((random.standard_normal((WIDTH, WIDTH)) / WIDTH).astype(np.float32))
        scale = gi.exp(gi.const((random.standard_normal(WIDTH) / 8).astype(np.float32)))
        hidden = activation(gi.nn.dense(value, weight) * scale + gi.const(random.standard_normal(WIDTH), "float32"))
        difference = gi.subtract(hidden, value * np.float32(0.1))
        if number == BROKEN:
            object.__setattr__(difference, "span", "broken")
        value = value + gi.tanh(difference)
    return tw.IRModule.from_expr(gi.Function([x], value))


@function_pass(opt_level=0, name="SwapsOperands")
def swaps_operands(func: gi.Function, mod: tw.IRModule, ctx: tw.PassContext) -> gi.Function:
    """Swap the operands of one subtraction in the middle."""

    def transform(old: gi.Expr, new: gi.Expr) -> gi.Expr:
        return gi.subtract(new.args[1], new.args[0]) if isinstance(new, gi.Call) and new.span == "broken" else new

    return func.with_body(rewrite(func.body, transform))


class _Shorter(Mutator):  # type: ignore[misc]
    """Shortens the longest serial loops by one iteration."""

    def mutate_For(self, loop: For) -> For:
        extent = loop.extent
        if isinstance(extent, IntImm) and extent.value == WIDTH and loop.kind == "serial":
            extent = IntImm(WIDTH - 1)
        return For(loop.var, loop.min, extent, loop.kind, self.mutate(loop.body), loop.annotations)


@primfunc_pass(opt_level=0, name="ShortensLoops")
def shortens_loops(func: PrimFunc, mod: tw.IRModule, ctx: tw.PassContext) -> PrimFunc:
    """Drop the last iteration of loops in the kernels of one kind."""
    return func.with_body(_Shorter().mutate(func.body)) if "sigmoid" in func.attrs.get(OPERATORS, ()) else func


def find(broken: Pass, stage: str, folder: Path) -> Failure:
    """Return the failure that a build with the broken pass reports."""
    check = tw.NumericCheck(seed=1, folder=folder)
    with pytest.raises(NumericError) as caught, tw.PassContext(opt_level=3, instruments=[check]):
        tw.build(network(), target="llvm", passes={stage: broken})
    return caught.value.failure


@pytest.mark.parametrize(
    ("broken", "stage", "operator"),
    [
        (swaps_operands, "graph", "subtract"),
        (shortens_loops, "tensor", "sigmoid"),
        (shortens_loops, "lowered", "sigmoid"),
    ],
    ids=["graph pass", "loop pass", "pass over code"],
)
def test_bisection(benchmark: Any, tmp_path: Path, broken: Pass, stage: str, operator: str) -> None:
    """Measure the whole build with its checks, up to the error with the smallest graph and the file."""
    found: list[Failure] = []
    benchmark.pedantic(lambda: found.append(find(broken, stage, tmp_path)), rounds=3)
    failure = found[-1]
    assert failure.pass_name == broken.info.name
    assert failure.operator.startswith(operator) and failure.element is not None and failure.minimized is not None
    left = count_operators(failure.minimized["main"])
    assert left <= OPERATORS_LEFT
    operators = count_operators(network()["main"])
    benchmark.extra_info.update(
        title=f"bisection, {operators} operators to {left}: broken pass behind the stage {stage!r}",
        threads=tw.Target("llvm").num_threads,
        median=statistics.median(benchmark.stats.stats.data),
        questions=failure.questions,
        goals={"median": SECONDS},
    )
