"""Random graphs through passes in random legal orders, with random passes left out: the result is right, or the error
names the pass that is needed."""

from __future__ import annotations

import dataclasses
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import tilewright as tw
from tests.fuzz.loop_programs import Order, fuzzing, orders
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, Sequential
from tilewright.passes.pipelines import STAGES, graph_pipeline
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=2)


@dataclasses.dataclass(frozen=True)
class Model:
    """A graph, as text where an example is shown, and its inputs."""

    function: gi.Function
    inputs: tuple[np.ndarray[Any, Any], ...]

    def __repr__(self) -> str:
        return f"{self.function!s}"

    def expected(self) -> list[np.ndarray[Any, Any]]:
        return as_list(gi.evaluate(self.function, *self.inputs, dtype="float64"))


def as_list(found: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def assert_close(found: Any, model: Model) -> None:
    for one, other in zip(as_list(found), model.expected(), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.astype("f8"), other.astype("f8"), rtol=1e-3, atol=1e-3)


UNARY = ("relu", "tanh", "sigmoid", "scale", "shift", "softmax", "transpose", "halves", "mean", "dense", "norm", "let")


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Two to eight operators on matrices, or a convolution with operators behind it."""
    rows = draw(st.sampled_from((1, 4, 7)))
    symbolic = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    x = gi.var("x", shape=("n" if symbolic else rows, 8))
    value = rng.standard_normal((rows, 8)).astype("f4")
    if draw(st.integers(0, 4)) == 0:
        return convolution(draw, rng)
    nodes: list[gi.Expr] = [x]
    for _ in range(draw(st.integers(1, 7))):
        one, other = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        kind = draw(st.sampled_from((*UNARY, "add", "multiply", "add")))
        if kind in ("add", "multiply"):
            if one.type == other.type:
                nodes.append(getattr(gi, kind)(one, other))
        else:
            nodes.append(unary(kind, one, rng))
    body = gi.Tuple([nodes[-1], nodes[len(nodes) // 2]]) if draw(st.booleans()) else nodes[-1]
    return Model(gi.Function([x], body), (value,))


def unary(kind: str, x: gi.Expr, rng: np.random.Generator) -> gi.Expr:
    if kind == "scale":
        return x * gi.const(np.float32(1.0)) * gi.const(np.float32(0.5))
    if kind == "shift":
        return x + gi.const(np.float32(0.0)) - gi.const(np.float32(1.5))
    if kind == "halves":
        return gi.concatenate([gi.nn.relu(x), gi.tanh(x)], axis=0) if x.shape[0] == 1 else gi.cast(x, dtype="float32")
    if kind == "mean":
        return x - gi.mean(x, axis=1, keepdims=True)
    if kind == "norm":
        return gi.nn.layer_norm(x, gi.ones_like(gi.mean(x, axis=0)), gi.zeros_like(gi.mean(x, axis=0)))
    if kind == "dense":
        if not isinstance(x.shape[1], int):
            return gi.exp(gi.tanh(x))
        return gi.nn.dense(x, gi.const((rng.standard_normal((8, x.shape[1])) / 4).astype("f4")))
    if kind == "let":
        bound = gi.Var("bound", x.type)
        return gi.Let(bound, gi.tanh(x), bound + bound)
    made: gi.Expr = {"relu": gi.nn.relu, "softmax": gi.nn.softmax, "sigmoid": gi.sigmoid}.get(
        kind, getattr(gi, kind, None)
    )(x)
    return made


def convolution(draw: st.DrawFn, rng: np.random.Generator) -> Model:
    image = gi.var("image", shape=(1, 16, 9, 9))
    node: gi.Expr = image
    for _ in range(draw(st.integers(1, 2))):
        weights = gi.const((rng.standard_normal((16, 16, 3, 3)) / 12).astype("f4"))
        node = gi.nn.conv2d(node, weights, padding=1)
        if draw(st.booleans()):
            node = node * gi.const(rng.standard_normal((16, 1, 1)).astype("f4"))
        if draw(st.booleans()):
            node = gi.nn.relu(node)
    return Model(gi.Function([image], node), (rng.standard_normal((1, 16, 9, 9)).astype("f4"),))


GRAPH_ORDERS = orders(graph_pipeline(TARGET), most_moves=6, most_left_out=6)

#: All passes of a build.
NAMES = sorted(
    {
        child.info.name
        for stage in STAGES.values()
        for each in stage(TARGET).passes
        for child in (each.passes if isinstance(each, Sequential) else (each,))
    }
)


@fuzzing(quick=60, in_a_minute=300)
@given(models(), GRAPH_ORDERS, st.integers(0, 3))
def test_graph_passes_in_any_legal_order_keep_the_results(model: Model, order: Order, level: int) -> None:
    with TARGET, PassContext(opt_level=level, disabled_pass=order.left_out):
        after = Sequential(order.passes, name="random", given=graph_pipeline(TARGET).given)(
            IRModule.from_expr(model.function)
        )
    assert_close(gi.evaluate(after, *model.inputs), model)


def build_or_reason(model: Model, target: Target, left_out: frozenset[str], level: int, order: Order | None) -> Any:
    """The built model; None if the error names a pass that was left out and is needed."""
    with PassContext(opt_level=level, disabled_pass=left_out):
        try:
            module = IRModule.from_expr(model.function)
            if order is not None:
                with target:
                    module = Sequential(order.passes, name="random", given=graph_pipeline(target).given)(module)
            return tw.build(module, target)
        except TilewrightError as error:
            assert any(name in str(error) for name in left_out), "the error names no pass that was left out"
            return None


@fuzzing(quick=25, in_a_minute=60)
@given(models(), st.sets(st.sampled_from(NAMES), max_size=6), st.integers(0, 3))
def test_a_build_without_some_passes_is_right_or_names_what_is_needed(
    model: Model, left_out: set[str], level: int
) -> None:
    built = build_or_reason(model, TARGET, frozenset(left_out), level, None)
    if built is not None:
        assert_close(built(*model.inputs), model)


@fuzzing(quick=15, in_a_minute=60)
@given(models(), GRAPH_ORDERS, st.integers(0, 3))
def test_a_build_of_a_graph_that_went_through_another_order_is_right(model: Model, order: Order, level: int) -> None:
    """A graph that has groups and layouts already goes through the passes of a build once more."""
    built = build_or_reason(model, TARGET, order.left_out, level, order)
    if built is not None:
        assert_close(built(*model.inputs), model)


#: Those of them that a build for numba does differently without.
FOR_NUMBA = (
    "FuseOps",
    "LowerToTensorIR",
    "ScheduleKernels",
    "LowerBlocks",
    "CompactBuffer",
    "StorageRewrite",
    "PlanMemory",
)


@pytest.mark.parametrize(
    ("name", "target"), [*((name, "llvm") for name in NAMES), *((name, "numba") for name in FOR_NUMBA)]
)
def test_each_pass_alone_may_be_left_out_or_is_named(name: str, target: str) -> None:
    rng = np.random.default_rng(0)
    x = gi.var("x", shape=("n", 16))
    weights = gi.const(rng.standard_normal((24, 16)).astype("f4"))
    body = gi.nn.softmax(gi.nn.relu(gi.nn.dense(x, weights)) + 1.0)
    model = Model(gi.Function([x], gi.transpose(body)), (rng.standard_normal((5, 16)).astype("f4"),))
    built = build_or_reason(model, Target(target, num_threads=2), frozenset({name}), 2, None)
    if built is not None:
        assert_close(built(*model.inputs), model)
