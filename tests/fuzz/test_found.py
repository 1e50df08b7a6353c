"""The smallest graphs of the failures that random models have shown."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.fuzz.check import Build, check
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.tensorir.errors import InputError

LEVELS = tuple(Build(level) for level in range(4))


def _check(text: str, *inputs: object, builds: tuple[Build, ...] = LEVELS) -> None:
    check(gi.parse(text), [lambda: inputs], builds)


def test_a_let_beside_a_run_time_size_is_built_at_level_0() -> None:
    _check(
        """
        def @main(%x: Tensor[(5,), float32], %k: Tensor[(), int64]) {
          let %v = negative(%x)
          %0 = slice(%x, begin=(0,), end=(dim[size],), strides=(1,), axes=(0,))
          %1 = bind_size(%0, %k, dim=dim[size])
          %2 = (%1, %v)
          %2
        }""",
        np.arange(5, dtype="float32"),
        np.int64(3),
    )


def test_a_copy_that_fits_one_vector_is_built_for_wide_vectors() -> None:
    """A parallel loop of at most one iteration, whose variable is always 0."""
    module = gi.parse("""
        def @main(%x: Tensor[(1, 17), float16], %k: Tensor[(), int64]) {
          %0 = slice(%x, begin=(0,), end=(dim[size],), strides=(1,), axes=(0,))
          %1 = bind_size(%0, %k, dim=dim[size])
          %1
        }""")
    with tw.PassContext(opt_level=2):
        model = tw.build(module, target=tw.Target("llvm", num_threads=2, mcpu="znver4"))
    assert "in parallel(" in model.ir("scheduled") and "in parallel(" not in model.ir("lowered")


def test_a_function_that_returns_its_parameter_is_inlined() -> None:
    _check(
        """
        def @main(%x: Tensor[(3,), float32]) {
          %0 = @f(%x) : Tensor[(3,), float32]
          %1 = tanh(%0)
          %1
        }
        def @f(%y: Tensor[(3,), float32]) -> Tensor[(3,), float32] {
          %y
        }""",
        np.arange(3, dtype="float32"),
    )


@pytest.mark.parametrize("space", [1, 2])
def test_a_transposed_convolution_of_which_all_is_cropped_is_empty(space: int) -> None:
    x, w = gi.var("x", shape=(1, 2, *[1] * space)), gi.const(np.ones((2, 3, *[2] * space), "float32"))
    made = gi.nn.conv_transpose(x, w, padding=1)
    check(IRModule.from_expr(gi.Function([x], made)), [lambda: [np.ones((1, 2, *[1] * space), "float32")]], LEVELS)


def test_a_cropped_transposed_convolution_keeps_its_size_beside_others_of_the_size() -> None:
    """A slice may be empty: its size was ``max(n * 2 - 1, 0)``, which does not broadcast with ``n * 2 - 1``."""
    text = """
        def @main(%x: Tensor[(1, 4, n), float32], %w: Tensor[(4, 2, 3), float32]) -> Tensor[(1, 2, n * 2 - 1), bool] {
          %0 = nn.conv_transpose(%x, %w, strides=(2,), padding=(1,))
          %1 = broadcast_to(float32(0.0), shape=(1, 2, dim[n * 2 - 1]))
          %2 = less(%0, %1)
          %2
        }
        """
    rng = np.random.default_rng(0)
    _check(text, rng.standard_normal((1, 4, 5), "f4"), rng.standard_normal((4, 2, 3), "f4"))
    with pytest.raises(InputError, match="n must be at least 1"):
        tw.build(gi.parse(text))(np.zeros((1, 4, 0), "f4"), np.zeros((4, 2, 3), "f4"))


def test_causal_attention_to_no_keys_is_built() -> None:
    query = gi.var("query", shape=(1, 2, 3, 4))
    key, value = (gi.const(np.zeros((1, 2, 0, width), "float32")) for width in (4, 5))
    made = gi.nn.attention(query, key, value, causal=True)
    check(IRModule.from_expr(gi.Function([query], made)), [lambda: [np.ones((1, 2, 3, 4), "float32")]], LEVELS)


def test_the_reference_of_a_deformable_convolution_takes_nothing_from_outside_of_the_image() -> None:
    data, offset = gi.var("data", shape=(1, 1, 2, 2)), gi.var("offset", shape=(1, 2, 2, 2))
    made = gi.nn.deform_conv2d(data, gi.const(np.ones((1, 1, 1, 1), "float32")), offset)
    image = np.array([[[[np.nan, 1], [2, 3]]]], "float32")
    moved = np.full((1, 2, 2, 2), 1, "float32")
    found = gi.evaluate(gi.Function([data, offset], made), image, moved)
    np.testing.assert_array_equal(found, [[[[3, 0], [0, 0]]]])
    check(IRModule.from_expr(gi.Function([data, offset], made)), [lambda: [image, moved]], LEVELS)


def test_a_deformable_convolution_of_no_images_has_a_reference() -> None:
    data, offset = np.zeros((0, 2, 5, 3), "float32"), np.zeros((0, 8, 4, 2), "float32")
    made = gi.nn.deform_conv2d(gi.const(data), gi.const(np.ones((2, 2, 2, 2), "float32")), gi.const(offset))
    check(IRModule.from_expr(gi.Function([], made)), [lambda: []], LEVELS)


def test_a_build_that_normalizes_an_empty_constant_gives_no_warning() -> None:
    empty, scale = gi.const(np.ones((2, 0), "float32")), gi.const(np.ones(0, "float32"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Build(2)(IRModule.from_expr(gi.Function([], gi.nn.layer_norm(empty, scale, scale))))()
    assert found.shape == (2, 0)


def test_an_attribute_that_is_left_out_has_the_digits_of_one_that_is_given() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [1])
    y = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [1])
    found = []
    for given in ({}, {"alpha": 0.01}):
        graph = helper.make_graph([helper.make_node("LeakyRelu", ["x"], ["y"], **given)], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        found.append(gi.evaluate(tw.from_onnx(model), np.array([-2.5])))
    np.testing.assert_array_equal(*found)


def test_a_window_that_is_padding_alone_reads_no_number_of_a_stored_type() -> None:
    codes = gi.encode(gi.const(np.array([1.5, -2, 0], "float32").reshape(3, 1, 1, 1)), dtype="float8_e5m2fnuz")
    stored = gi.evaluate(gi.Function([], codes))
    _check(
        """
        def @main(%x: Tensor[(m, 1, 1, 1), float8_e5m2fnuz]) {
          %0 = decode(%x)
          %1 = nn.lp_pool(%0, pool_size=(1, 2), strides=(2, 2), padding=(0, 1, 0, 1), p=1.0)
          %1
        }""",
        stored,
    )


def test_gathered_numbers_of_a_stored_type_are_zero_bits_outside() -> None:
    _check(
        """
        def @main(%x: Tensor[(m, 1), int32], %at: Tensor[(n, 1), int32]) {
          %0 = encode(%x, dtype="uint2")
          %1 = decode(%0)
          %2 = gather_nd(%1, %at)
          %2
        }""",
        np.array([[1], [3], [2]], "int32"),
        np.array([[2], [0], [1], [1]], "int32"),
    )
