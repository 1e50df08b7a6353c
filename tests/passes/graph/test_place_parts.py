"""PlaceParts: compute values directly in the memory of the value that contains them, where that is possible and
pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both_targets import LLVM, NUMBA
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.parts import in_place
from tilewright.graphir.visitor import post_order
from tilewright.passes import PassContext
from tilewright.passes.graph import PlaceParts

RNG = np.random.default_rng(7)
EAGER = {"graphir.PlaceParts": {"least_bytes": 0, "least_piece": 0, "most_border": 1e9}}


def normal(*shape: int) -> gi.Constant:
    return gi.const((RNG.standard_normal(shape) / 4).astype("f4"))


def dense(x: gi.Expr, outputs: int) -> gi.Expr:
    return gi.nn.dense(x, normal(outputs, x.shape[-1]))


def conv(x: gi.Expr, filters: int, size: int = 1, **attrs: Any) -> gi.Expr:
    return gi.nn.conv2d(x, normal(filters, x.shape[1], size, size), **attrs)


def placed(mod: gi.IRModule) -> list[tuple[str, tuple[int, ...]]]:
    """The operators that put their arguments together in place, with the numbers of the arguments."""
    nodes = [node for node in post_order(mod["main"].body) if in_place(node)]
    return [(node.op.body.op.name, in_place(node)) for node in nodes]


def run(body: gi.Expr, *params: gi.Var, **config: Any) -> tuple[gi.IRModule, PassContext]:
    settings = {"graphir.PlaceParts": {**EAGER["graphir.PlaceParts"], **config}}
    with PassContext(opt_level=3, config=settings) as ctx:
        mod = PlaceParts()(gi.IRModule.from_expr(gi.Function(params, body)))
    gi.verify(mod)
    return mod, ctx


def reason(ctx: PassContext) -> str:
    """Return the reason why something was not placed."""
    (remark,) = [remark for remark in ctx.remarks if remark.kind == "missed"]
    return remark.message


def test_concatenation_and_border_become_groups(rewrites: Callable[..., PassContext]) -> None:
    weights = [normal(*shape) for shape in ((16, 16, 1, 1), (32, 16, 1, 1), (8, 48, 3, 3))]
    attrs = {"Primitive": True, "kind": "opaque"}

    def network(is_placed: bool) -> gi.IRModule:
        x = gi.var("x", shape=(1, 16, 64, 64))
        parts = [gi.nn.conv2d(x, weights[0]), gi.nn.relu(gi.nn.conv2d(x, weights[1]))]
        if not is_placed:
            joined = gi.concatenate(parts, axis=1)
            return gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(joined, weights[2], padding=1)))
        params = [gi.var(f"p{number}", part.type) for number, part in enumerate(parts)]
        join = gi.Function(params, gi.concatenate(params, axis=1), attrs={**attrs, "in_place": (0, 1)})
        joined = gi.Call(join, parts)
        inner = gi.var("p0", joined.type)
        around = gi.pad(inner, pad_width=((0, 0), (0, 0), (1, 1), (1, 1)))
        padded = gi.Call(gi.Function([inner], around, attrs={**attrs, "in_place": (0,)}), [joined])
        return gi.IRModule.from_expr(gi.Function([x], gi.nn.conv2d(padded, weights[2])))

    rewrites(PlaceParts(), network(False), network(True))


def test_levels_below_two_leave_everything() -> None:
    x = gi.var("x", shape=(1, 16, 56, 56))
    mod = gi.IRModule.from_expr(gi.Function([x], gi.concatenate(conv(x, 16), conv(x, 16), axis=1)))
    with PassContext(opt_level=1):
        assert not placed(tw.passes.Sequential([PlaceParts()])(mod))


def test_input_of_the_model_is_copied_and_what_is_computed_is_not() -> None:
    x = gi.var("x", shape=(8, 16))
    mod, _ = run(gi.concatenate(dense(x, 60), x, axis=1), x)
    assert placed(mod) == [("concatenate", (0,))]


def test_value_lies_in_one_place() -> None:
    x = gi.var("x", shape=(8, 16))
    a, b, c = dense(x, 8), dense(x, 60), dense(x, 60)
    mod, _ = run(gi.Tuple([gi.concatenate(a, b, axis=1), gi.concatenate(a, c, axis=1)]), x)
    assert placed(mod) == [("concatenate", (0, 1)), ("concatenate", (1,))]


def test_value_that_is_given_twice_is_copied() -> None:
    x = gi.var("x", shape=(8, 16))
    a = dense(x, 8)
    mod, _ = run(gi.concatenate(a, a, dense(x, 90), axis=1), x)
    assert placed(mod) == [("concatenate", (2,))]


def test_result_of_the_model_is_no_part() -> None:
    x = gi.var("x", shape=(8, 16))
    a = dense(x, 8)
    mod, _ = run(gi.Tuple([a, gi.concatenate(a, dense(x, 60), axis=1)]), x)
    assert placed(mod) == [("concatenate", (1,))]


def test_joined_values_are_parts_of_what_they_are_joined_to() -> None:
    x = gi.var("x", shape=(8, 16))
    inner = gi.concatenate(dense(x, 8), dense(x, 8), axis=1)
    mod, _ = run(gi.concatenate(inner, dense(inner, 8), axis=1), x)
    assert placed(mod) == [("concatenate", (0, 1)), ("concatenate", (0, 1))]


def test_formulas_of_one_element_are_left_to_fusion() -> None:
    x = gi.var("x", shape=(8, 16))
    mod, ctx = run(gi.concatenate(gi.tanh(x), gi.exp(x), axis=1), x)
    assert not placed(mod)
    assert "most are elementwise and can be fused with it instead" in reason(ctx)


def test_formula_that_branches_behind_a_contraction_is_its_epilogue() -> None:
    x = gi.var("x", shape=(8, 16))
    a = dense(x, 64)
    mod, _ = run(gi.concatenate(a * gi.clip(a + 3, a_min=0, a_max=6), gi.exp(x), axis=1), x)
    assert placed(mod) == [("concatenate", (0, 1))]


def test_part_whose_place_is_symbolic_is_copied() -> None:
    x, y = gi.var("x", shape=("n", 16)), gi.var("y", shape=(90, 16))
    mod, _ = run(gi.concatenate(dense(y, 16), dense(x, 16), dense(x, 16), axis=0), x, y, unknown=4)
    assert placed(mod) == [("concatenate", (0, 1))]


def test_rows_at_symbolic_distance_are_copied() -> None:
    x, y = gi.var("x", shape=(8, "n")), gi.var("y", shape=(8, 16))
    mod, ctx = run(gi.concatenate(dense(y, 64), gi.tanh(x), axis=1), x, y)
    assert not placed(mod)
    assert "its row stride depends on symbolic dimensions" in reason(ctx)


def test_small_results_and_short_pieces_are_left() -> None:
    x = gi.var("x", shape=(8, 16))
    body = gi.concatenate(dense(x, 8), dense(x, 8), axis=1)
    assert not placed(run(body, x, least_bytes=1000)[0])
    mod, ctx = run(body, x, least_piece=64)
    assert not placed(mod)
    assert "pieces of 32 bytes" in reason(ctx)


def test_wide_border_is_left_to_the_operator() -> None:
    x = gi.var("x", shape=(1, 4, 10, 10))
    body = conv(conv(x, 4), 4, 3, padding=1)
    assert placed(run(body, x, most_border=0.5)[0]) == [("pad", (0,))]
    mod, ctx = run(body, x, most_border=0.4)
    assert not placed(mod)
    assert "its padding of 176 elements around 400 is more than most_border = 0.4" in reason(ctx)


def test_image_without_rows_is_left_to_the_operator() -> None:
    x = gi.var("x", shape=(1, 4, 0, 10))
    assert not placed(run(conv(gi.nn.relu(x), 4, 3, padding=2), x, most_border=1.0)[0])


def test_two_readers_share_a_border() -> None:
    x = gi.var("x", shape=(1, 4, 10, 10))
    inner = conv(x, 4)
    mod, _ = run(gi.add(conv(inner, 4, 3, padding=1), conv(inner, 4, 3, padding=1)), x)
    assert placed(mod) == [("pad", (0,))]


def test_models_with_branches_stay() -> None:
    x, condition = gi.var("x", shape=(8, 16)), gi.var("condition", shape=(), dtype="bool")
    branch = gi.If(condition, gi.concatenate(dense(x, 8), dense(x, 8), axis=1), gi.concatenate(x, axis=1))
    assert not placed(run(branch, x, condition)[0])


@st.composite
def networks(draw: st.DrawFn) -> gi.Function:
    """Convolutions, formulas and poolings whose results are joined along any axis or padded, again and again."""
    batch = draw(st.sampled_from([1, 2, "n"]))
    x = gi.var("x", shape=(batch, draw(st.sampled_from([3, 16])), draw(st.integers(4, 7)), draw(st.integers(4, 7))))
    values: list[gi.Expr] = [x]
    for _ in range(draw(st.integers(2, 7))):
        value = draw(st.sampled_from(values[-3:]))
        kind = draw(st.sampled_from(["conv", "window", "relu", "pool", "join", "pad"]))
        if kind == "conv":
            value = gi.nn.relu(conv(value, draw(st.sampled_from([3, 8, 16, 24]))))
        elif kind == "window":
            value = conv(value, draw(st.sampled_from([5, 16])), 3, padding=1, strides=draw(st.sampled_from([1, 2])))
        elif kind == "relu":
            value = gi.nn.relu(value + 0.5)
        elif kind == "pool":
            value = gi.nn.max_pool2d(value, pool_size=3, strides=1, padding=1)
        elif kind == "pad":
            before, behind = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            value = gi.pad(value, pad_width=((0, 0), (0, 0), (before, behind), (1, 0)), pad_value=0.25)
        else:
            axis = draw(st.integers(1, 3))
            others = [
                other
                for other in values
                if all(a == b for n, (a, b) in enumerate(zip(other.shape, value.shape, strict=True)) if n != axis)
            ]
            last = conv(value, 4) if axis == 1 else value
            value = gi.concatenate(value, draw(st.sampled_from(others)), last, axis=axis)
        values.append(value)
    return gi.Function([x], gi.Tuple([values[-1], gi.nn.relu(values[-2])]))


def stays(target: tw.Target, function: gi.Function) -> None:
    """Compare a build with the references."""
    mod = gi.IRModule.from_expr(function)
    shape = tuple(extent if isinstance(extent, int) else 3 for extent in function.params[0].shape)
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    with PassContext(opt_level=3, config=EAGER):
        found = tw.build(mod, target=target)(x)
    expected = gi.evaluate(mod, x, dtype="float64")
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * max(1.0, float(np.abs(b).max())))


@settings(max_examples=8, deadline=None)
@given(function=networks())
def test_values_stay(function: gi.Function) -> None:
    stays(LLVM, function)


@pytest.mark.parametrize("examples", [2, pytest.param(8, marks=pytest.mark.exhaustive)])  # numba takes seconds for one
def test_values_stay_through_numba(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(function=networks())
    def each(function: gi.Function) -> None:
        stays(NUMBA, function)

    each()
