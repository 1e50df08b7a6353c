"""Test calls that only give a tensor another shape: they become views of its memory, where nothing overwrites that."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tests.tensorir.both_targets import on_both_targets
from tilewright import graphir as gi
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import is_view
from tilewright.graphir.visitor import post_order
from tilewright.passes import PassContext
from tilewright.passes.graph.walk import as_group, children_outside_groups
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.lower.instructions import Copy, KernelCall, Program
from tilewright.passes.lower.linearize import linearize
from tilewright.passes.lower.plan_memory import plan

Array = np.ndarray[Any, Any]


def lowered(function: gi.Function) -> tuple[gi.IRModule, gi.Function]:
    module = LowerToTensorIR()(gi.IRModule.from_expr(function))
    main = module["main"]
    assert isinstance(main, gi.Function)
    return module, main


def views(function: gi.Function) -> list[gi.Call]:
    """The views that remain in the function that calls the kernels."""
    order = post_order(lowered(function)[1], children_of=children_outside_groups)
    return [node for node in order if isinstance(node, gi.Call) and is_view(node)]


def program(function: gi.Function) -> Program:
    module, main = lowered(function)
    return linearize(main, module)


def is_reshape(call: gi.Expr) -> bool:
    assert isinstance(call, gi.Call) and isinstance(call.op, Operator)
    return call.op.is_reshape([arg.tensor_type for arg in call.args], call.attrs)


# What is a reshape.


@pytest.mark.parametrize("shape", list(itertools.product((1, 2, 3), repeat=3)), ids=str)
def test_a_transpose_is_a_reshape_if_it_moves_only_axes_of_one_element(shape: tuple[int, ...]) -> None:
    x = np.arange(math.prod(shape)).reshape(shape)
    for axes in itertools.permutations(range(3)):
        keeps = x.transpose(axes).reshape(-1).tolist() == x.reshape(-1).tolist()
        assert is_reshape(gi.transpose(gi.var("x", shape=shape), axes=axes)) == keeps, axes


LAYOUTS = ["NCHW", "NHWC", "NCHW2c", "NCHW4c", "NCHW2c2c", "NHWC4c", "NCHW2n", "CNHW2c", "NCHW2n2c", "HC4cNW"]


@given(
    source=st.sampled_from(LAYOUTS),
    target=st.sampled_from(LAYOUTS),
    extents=st.tuples(*[st.sampled_from([1, 2, 4, 8])] * 4),
)
def test_a_change_of_layout_that_is_said_to_be_a_reshape_keeps_the_order(
    source: str, target: str, extents: tuple[int, ...]
) -> None:
    shape = parse_layout(source).shape(dict(zip("NCHW", extents, strict=True)))
    call = gi.layout_transform(gi.var("x", shape=shape), src_layout=source, dst_layout=target)
    x = np.arange(1, math.prod(shape) + 1).reshape(shape)
    assert isinstance(call.op, Operator)
    moved = call.op.reference([x], call.attrs)
    if is_reshape(call):
        assert moved.reshape(-1).tolist() == x.reshape(-1).tolist()


@pytest.mark.parametrize(
    ("shape", "source", "target", "keeps"),
    [
        ((2, 4, 1, 1, 16), "NCHW16c", "NCHW", True),
        (("n", 4, 1, 1, 16), "NCHW16c", "NCHW", True),
        (("n", 1, 1, 1, 16), "NCHW16c", "NCHW", True),
        (("n", 64, 1, 1), "NCHW", "NCHW16c", True),
        (("n", "h", "w", 16), "NHWC", "NCHW16c", True),
        (("n", 4, 1, "w", 16), "NCHW16c", "NCHW", False),
        (("n", 4, 1, "w", 16), "NCHW16c", "NHWC", False),
        (("n", 24, 1, 1), "NCHW", "NCHW16c", False),  # padded
        (("n", 32, 1, 1), "NCHW", "NCHW16c", True),
    ],
)
def test_blocks_of_pixels_in_one_piece_need_no_change(
    shape: tuple[Any, ...], source: str, target: str, keeps: bool
) -> None:
    assert is_reshape(gi.layout_transform(gi.var("x", shape=shape), src_layout=source, dst_layout=target)) == keeps


def test_padding_that_is_dropped_is_no_reshape() -> None:
    x = gi.var("x", shape=(1, 2, 1, 1, 16))
    dropped = gi.layout_transform(x, src_layout="NCHW16c", dst_layout="NCHW", extents={"C": 20})
    assert not is_reshape(dropped)


# Where a view may be.

X = gi.var("x", shape=("n", 4, 6))


def flat(x: gi.Expr) -> gi.Expr:
    return gi.reshape(x, newshape=("n", 24))


def test_a_reshape_between_kernels_is_a_view() -> None:
    function = gi.Function([X], gi.cumsum(flat(gi.nn.softmax(X)), axis=1))
    (view,) = views(function)
    assert view.shape == flat(X).shape
    assert [call.kernel for call in program(function).body if isinstance(call, KernelCall)] == ["softmax", "cumsum"]


def test_a_group_of_reshapes_is_one_view() -> None:
    x = gi.var("x", shape=("n", 2, 3, 3, 4))
    pooled = gi.nn.global_avg_pool2d(x, layout="NCHW4c")
    plain = gi.nn.batch_flatten(gi.layout_transform(pooled, src_layout="NCHW4c", dst_layout="NCHW"))
    function = gi.Function([x], gi.cumsum(plain, axis=1))
    with PassContext(opt_level=2):
        fused = tw.transform.FuseOps()(tw.transform.InferType()(gi.IRModule.from_expr(function)))["main"]
    assert isinstance(fused, gi.Function)
    (view,) = views(fused)
    assert view.shape == plain.shape


def test_inputs_and_constants_have_views() -> None:
    constant = gi.const(np.zeros((4, 6), "f4"))
    assert len(views(gi.Function([X], gi.cumsum(flat(X), axis=1)))) == 1
    assert len(views(gi.Function([], gi.cumsum(gi.reshape(constant, newshape=(24,)), axis=0)))) == 1


@pytest.mark.parametrize("shape", [(), (1, 1)], ids=str)
def test_a_constant_of_one_element_has_a_view(shape: tuple[int, ...]) -> None:
    """Kernels have such constants in their formulas."""
    constant = gi.const(np.full(shape, 3, "int64"))
    function = gi.Function([], gi.cumsum(gi.reshape(constant, newshape=(1,)), axis=0))
    with PassContext(opt_level=0):
        assert len(views(function)) == 1
        np.testing.assert_array_equal(tw.build(function)(), [3])


def test_the_parameter_of_an_inner_function_has_none() -> None:
    module = gi.parse("""
def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(6,), float32] {
  %0 = @inner(%x) : Tensor[(6,), float32]
  %0
}
def @inner(%y: Tensor[(2, 3), float32]) -> Tensor[(6,), float32] {
  %0 = reshape(%y, newshape=(6,)) : Tensor[(6,), float32]
  %1 = cumsum(%0, axis=0) : Tensor[(6,), float32]
  %1
}
""")
    inner = LowerToTensorIR()(module)["inner"]
    assert isinstance(inner, gi.Function)
    assert not any(map(is_view, post_order(inner)))


def in_group(call: gi.Expr, **attrs: Any) -> gi.Call:
    """``call`` in a group of its own with attributes."""
    assert isinstance(call, gi.Call)
    group, places = as_group(call)
    return gi.Call(
        gi.Function(group.params, group.body, attrs={**group.attrs, **attrs}), [call.args[n] for n in places]
    )


@pytest.mark.parametrize("primitive", [True, False])
def test_a_mark_that_a_graph_brings_along_is_not_believed(primitive: bool) -> None:
    p = gi.var("p", shape=("n", 4, 6))
    marked = gi.Function([p], gi.add(p, p), attrs={"Primitive": primitive, "kind": "broadcast", "view": True})
    function = gi.Function([X], gi.cumsum(gi.Call(marked, [X]), axis=0))
    with PassContext(opt_level=0):
        found = tw.build(function)(np.ones((1, 4, 6), "f4"))
    np.testing.assert_array_equal(found, np.full((1, 4, 6), 2, "f4"))


def test_padded_rows_have_no_view() -> None:
    padded = in_group(gi.nn.softmax(X), row_padding=16)
    assert not views(gi.Function([X], gi.cumsum(flat(padded), axis=1)))
    assert not views(gi.Function([X], gi.cumsum(in_group(flat(gi.nn.softmax(X)), row_padding=16), axis=1)))


def test_what_must_lie_in_a_larger_value_is_no_view() -> None:
    part = flat(gi.nn.softmax(X))
    whole = in_group(gi.concatenate(part, gi.cumsum(part, axis=1), axis=0), in_place=(0, 1))
    assert not views(gi.Function([X], gi.cumsum(whole, axis=1)))


def test_a_kernel_writes_the_result_that_is_a_view() -> None:
    made = program(gi.Function([X], flat(flat(gi.nn.softmax(X)))))
    (call,) = made.body
    assert isinstance(call, KernelCall) and call.results[0].owner is made.outputs[0]
    assert made.outputs[0].type.shape == flat(X).shape


def test_an_input_is_copied_to_the_result_by_a_kernel() -> None:
    made = program(gi.Function([X], flat(X)))
    assert [call.kernel for call in made.body if isinstance(call, KernelCall)] == ["reshape"]


def test_the_parts_of_a_value_lie_in_its_own_memory() -> None:
    value = gi.nn.softmax(X)
    whole = in_group(gi.concatenate(value, gi.cumsum(value, axis=1), axis=1), in_place=(0, 1))
    assert not views(gi.Function([X], gi.reshape(whole, newshape=("n", 48))))


def test_a_result_and_its_view_are_two_results() -> None:
    value = gi.nn.softmax(X)
    made = program(gi.Function([X], gi.Tuple([value, flat(value)])))
    assert [call.kernel for call in made.body if isinstance(call, KernelCall)] == ["softmax", "reshape"]
    assert len({output.owner for output in made.outputs}) == 2


def test_two_views_of_one_value_are_two_results() -> None:
    value = gi.nn.softmax(X)
    twice = gi.Tuple([flat(value), gi.reshape(value, newshape=("n", 2, 12))])
    made = program(gi.Function([X], twice))
    assert [type(instruction) for instruction in made.body] == [KernelCall, Copy]
    assert len({output.owner for output in made.outputs}) == 2


def test_a_value_lives_as_long_as_its_views() -> None:
    seen = flat(gi.nn.softmax(X))
    later = gi.cumsum(gi.cumsum(gi.exp(gi.cumsum(seen, axis=1)), axis=0), axis=1)
    made = program(gi.Function([X], gi.add(seen, later)))
    (first, *_, last) = [call for call in made.body if isinstance(call, KernelCall)]
    (life,) = [life for life in plan(made).lives if life.value is first.results[0]]
    assert life.last is last


# Results, on both targets.


def run(function: gi.Function, target: tw.Target, *inputs: Array) -> Any:
    with PassContext(opt_level=3):
        return tw.build(function, target=target)(*inputs)


@on_both_targets
def test_views_of_views_of_parts_hold_their_elements(target: tw.Target) -> None:
    x = np.random.default_rng(0).random((3, 4, 6), "f4")
    value = gi.nn.softmax(X)
    joined = gi.concatenate(value, gi.cumsum(value, axis=2), axis=1)
    view = gi.reshape(gi.reshape(joined, newshape=("n", 2, 24)), newshape=("n", 48))
    soft = np.exp(x - x.max(-1, keepdims=True))
    soft /= soft.sum(-1, keepdims=True)
    wanted = np.concatenate([soft, soft.cumsum(2)], 1).reshape(3, 48).cumsum(1)
    np.testing.assert_allclose(run(gi.Function([X], gi.cumsum(view, axis=1)), target, x), wanted, rtol=1e-4)


@on_both_targets
def test_the_state_of_a_loop_is_not_read_after_it_has_changed(target: tw.Target) -> None:
    step, a, b = gi.var("step", shape=(), dtype="int64"), gi.var("a", shape=(2, 3)), gi.var("b", shape=(3, 2))
    body = gi.Function([step, a, b], gi.Tuple([gi.reshape(b, newshape=(2, 3)), gi.reshape(a, newshape=(3, 2))]))
    x, y = gi.var("x", shape=(2, 3)), gi.var("y", shape=(3, 2))
    loop = gi.Loop(gi.const(3, "int64"), None, body, [x, y])
    function = gi.Function([x, y], gi.Tuple([gi.TupleGetItem(loop, 0), gi.TupleGetItem(loop, 1)]))
    given_x, given_y = np.arange(6, dtype="f4").reshape(2, 3), np.arange(6, 12, dtype="f4").reshape(3, 2)
    found = run(function, target, given_x, given_y)
    np.testing.assert_array_equal(found[0], given_y.reshape(2, 3))
    np.testing.assert_array_equal(found[1], given_x.reshape(3, 2))


@on_both_targets
def test_a_branch_chooses_by_a_view_and_returns_one(target: tw.Target) -> None:
    sums = gi.sum(gi.cast(gi.reshape(X, newshape=("n", 24)), dtype="int32"), axis=(0, 1), keepdims=True)
    condition = gi.reshape(gi.greater(sums, gi.const(0, "int32")), newshape=())
    value = gi.nn.softmax(X)
    chosen = gi.If(condition, flat(value), flat(gi.cumsum(value, axis=2)))
    function = gi.Function([X], gi.cumsum(chosen, axis=1))
    x = np.random.default_rng(0).random((2, 4, 6), "f4") + 1
    for sign in (1, -1):
        soft = np.exp(sign * x - (sign * x).max(-1, keepdims=True))
        soft /= soft.sum(-1, keepdims=True)
        wanted = (soft if sign > 0 else soft.cumsum(2)).reshape(2, 24).cumsum(1)
        np.testing.assert_allclose(run(function, target, sign * x), wanted, rtol=1e-4)


def test_a_remark_says_which_reshapes_are_copied_and_why() -> None:
    function = gi.Function([X], gi.Tuple([gi.cumsum(flat(gi.nn.softmax(X)), axis=1), flat(X)]))
    with PassContext(opt_level=3) as ctx:
        lowered(function)
    found = [(remark.kind, remark.message) for remark in ctx.remarks if remark.pass_name == "LowerToTensorIR"]
    assert found == [
        ("applied", "a view of its argument's memory, which nothing copies"),
        ("missed", "copied, though only the shape changes: it is a result"),
    ]
