"""Test kernels over plain sizes: layers share them, and they compute the same at every size of the model."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.lower.generalize import SizeGeneralizer
from tilewright.passes.pipelines import graph_pipeline
from tilewright.tensorir import PrimFunc, parse, to_text


def pooled(value: gi.Expr, times: int) -> gi.Expr:
    for _ in range(times):
        value = gi.nn.max_pool2d(value, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    return value


def reference(x: np.ndarray, times: int) -> np.ndarray:
    """Windows of three by three, two apart, around each second element."""
    for _ in range(times):
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
        x = windows.max(axis=(4, 5))
    return x


def lowered(function: gi.Function) -> tw.IRModule:
    return LowerToTensorIR()(graph_pipeline()(tw.IRModule.from_expr(function)))


def kernels(module: tw.IRModule) -> list[PrimFunc]:
    return [function for function in module.functions.values() if isinstance(function, PrimFunc)]


def image() -> gi.Var:
    return gi.var("x", shape=("n", 3, "h", "w"), dtype="float32")


def test_layers_whose_sizes_are_other_formulas_share_a_kernel() -> None:
    x = image()
    found = kernels(lowered(gi.Function([x], pooled(x, 5))))
    assert len(found) == 2  # over h and w, and over the sizes of all that follow
    assert {var.name for var in found[1].variables} == {"n", "size_0", "size_1"}


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 7, 30), (1, 64, 33), (3, 17, 16)])
def test_one_build_computes_all_sizes(size: tuple[int, int, int]) -> None:
    x = image()
    model = tw.build(gi.Function([x], gi.nn.relu(pooled(x, 4))))
    n, h, w = size
    data = np.random.default_rng(3).standard_normal((n, 3, h, w)).astype("float32")
    np.testing.assert_array_equal(model(data), np.maximum(reference(data, 4), 0))


def group(*params: gi.Var, body: gi.Expr) -> gi.Function:
    return gi.Function(list(params), body, attrs={"Primitive": True, "kind": "opaque"})


def test_a_size_that_follows_from_another_stays_its_formula() -> None:
    h = gi.symbol("h")
    x = gi.var("x", shape=(1, 3, (h + 3) // 4, 8), dtype="float32")
    y = gi.var("y", shape=(1, 3, (h + 7) // 8, 4), dtype="float32")
    found = SizeGeneralizer().generalize(group(x, y, body=pooled(x, 1) + y))
    assert [str(dim) for param in found.params for dim in param.type.shape[2:3]] == ["size_0", "(size_0 + 1) // 2"]


def test_sizes_with_a_relation_that_typing_needs_stay() -> None:
    h = gi.symbol("h")
    x = gi.var("x", shape=(2 * h, 6), dtype="float32")
    whole = group(x, body=gi.reshape(x, (h, 12)))
    assert SizeGeneralizer().generalize(whole) is whole


def test_a_symbol_of_the_model_is_not_taken_for_a_size() -> None:
    x = gi.var("x", shape=("size_0", (gi.symbol("size_0") + 1) // 2), dtype="float32")
    found = SizeGeneralizer().generalize(group(x, body=gi.tanh(x)))
    first, second = found.params[0].type.shape
    assert first is gi.symbol("size_0") and second.name != "size_0"


def test_generalized_kernels_read_back() -> None:
    x = image()
    kernel = kernels(lowered(gi.Function([x], pooled(x, 2))))[1]
    assert to_text(parse(to_text(kernel))) == to_text(kernel)


def output_of_tiles(height: str, tiles: str, *, relu: bool = False) -> gi.Function:
    """The last step of Winograd's algorithm on an image of a height that is a formula, in tiles of four rows."""
    dims = [gi.parse(f"def @main(%x: Tensor[({text}, 1), float32]) {{ %x }}")["main"] for text in (height, tiles)]
    rows, count = (function.params[0].type.shape[0] for function in dims)  # type: ignore[union-attr]
    products = gi.var("p", shape=(8, 36, count, 16), dtype="float32")
    body: gi.Expr = gi.Call("nn.winograd_output", [products], {"tile": 4, "size": (1, rows, 4)})
    return group(products, body=gi.nn.relu(body) if relu else body)


def test_a_result_in_rounded_up_parts_of_a_dimension_is_counted_in_these() -> None:
    sizes = SizeGeneralizer()
    found = sizes.generalize(output_of_tiles("(h + 15) // 16", "(h + 63) // 64"))
    assert [str(dim) for dim in found.params[0].type.shape] == ["8", "36", "(size_0 + 3) // 4", "16"]  # type: ignore[union-attr]
    assert [str(dim) for dim in found.body.type.shape] == ["1", "8", "size_0", "4", "16"]  # type: ignore[union-attr]
    other = sizes.generalize(output_of_tiles("(h + 7) // 8", "(h + 31) // 32"))
    gi.assert_structural_equal(found, other)


@pytest.mark.parametrize(
    ("height", "tiles"),
    [
        ("h", "(h + 3) // 4"),  # plain already
        ("(h + 14) // 16", "((h + 14) // 16 + 3) // 4"),  # rounded in another way
        ("h * 3", "(h * 3 + 3) // 4"),
    ],
)
def test_sizes_that_are_no_rounded_up_parts_stay(height: str, tiles: str) -> None:
    before = output_of_tiles(height, tiles, relu=True)
    assert SizeGeneralizer().generalize(before) is before


@pytest.mark.parametrize(("height", "width"), [(1, 1), (64, 33), (49, 130)])
def test_convolutions_of_halved_images_compute_what_numpy_does(height: int, width: int) -> None:
    x = gi.var("x", shape=("n", 16, "h", "w"), dtype="float32")
    rng = np.random.default_rng(4)
    weight = (rng.standard_normal((16, 16, 3, 3)) / 12).astype("f4")
    value = gi.nn.conv2d(pooled(x, 2), gi.const(weight), padding=(1, 1))
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([x], gi.nn.relu(value)))
    assert "winograd_output" in model.ir("scheduled"), "the test is of kernels whose results tell sizes"
    data = rng.standard_normal((2, 16, height, width)).astype("f4")
    image = np.pad(reference(data, 2).astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
    expected = np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight.astype("f8")), 0)
    np.testing.assert_allclose(model(data), expected, rtol=1e-4, atol=2e-5)
