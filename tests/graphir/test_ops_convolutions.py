"""Convolutions in one to three dimensions, transposed and deformable ones, against loops over windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tests.graphir.window_oracles import blocked, convolve, deform, plain, spread
from tilewright import graphir as gi
from tilewright.graphir.ops.common import NUMBERS
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.graph import SimplifyInference
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 1}, {"n": 2})
ONE = [
    {},
    {"strides": (2,), "padding": (1, 2), "dilation": (2,)},
    {"groups": 2, "padding": (0, 1)},
]
THREE = [
    {},
    {"strides": (2, 1, 1), "padding": (1, 0, 1, 0, 1, 2), "dilation": (1, 2, 1)},
    {"groups": 2, "padding": (0, 1, 0, 1, 0, 0)},
]


@pytest.mark.parametrize("attrs", ONE, ids=str)
def test_conv1d_agrees_with_loops(check: Any, attrs: dict[str, Any]) -> None:
    types = [(("n", 2, "w"), "float32"), ((4, 2 // attrs.get("groups", 1), 3), "float32")]
    sizes = [{"n": 1, "w": 5}, {"n": 2, "w": 8}]
    check("nn.conv1d", types, attrs, lambda x, w: convolve(x, w, attrs), None, sizes, 4)


@pytest.mark.parametrize("attrs", THREE, ids=str)
def test_conv3d_agrees_with_loops(check: Any, attrs: dict[str, Any]) -> None:
    types = [(("n", 2, 3, "h", 4), "float32"), ((4, 2 // attrs.get("groups", 1), 2, 2, 1), "float32")]
    sizes = [{"n": 1, "h": 3}, {"n": 2, "h": 4}]
    check("nn.conv3d", types, attrs, lambda x, w: convolve(x, w, attrs), None, sizes, 10)


@together("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("groups", [1, 2])
def test_conv3d_in_blocked_layouts_is_that_in_plain_ones(check: Any, groups: int, dtype: str) -> None:
    attrs = {"data_layout": "NCDHW4c", "kernel_layout": "OIDHW4i4o", "groups": groups}
    moves = {"strides": (1, 2, 1), "padding": (1, 0, 0, 0, 1, 1), "dilation": (1, 1, 2), "groups": groups}
    types = [(("n", 2, 2, "h", 3, 4), dtype), ((2, 2 // groups, 2, 2, 2, 4, 4), dtype)]

    def oracle(x: Any, w: Any) -> Any:
        weight = plain(np.moveaxis(w, -1, 1).reshape(8, *w.shape[1:-1]))
        return blocked(convolve(plain(x), weight, moves), 4)

    sizes = [{"n": 1, "h": 3}, {"n": 2, "h": 4}]
    check("nn.conv3d", types, {**attrs, **moves}, oracle, None, sizes, 10)


def test_conv3d_reads_volumes_in_any_layout(check: Any) -> None:
    def oracle(x: Any, w: Any) -> Any:
        return np.moveaxis(convolve(np.moveaxis(x, -1, 1), w.transpose(4, 3, 0, 1, 2), {}), 1, -1)

    attrs = {"data_layout": "NDHWC", "kernel_layout": "DHWIO"}
    check("nn.conv3d", [(("n", 2, 3, 4, 2), "float32"), ((2, 2, 1, 2, 3), "float32")], attrs, oracle, None, N, 4)


def test_conv1d_in_blocks_is_an_image_of_one_row_in_blocks(check: Any) -> None:
    attrs = {"data_layout": "NCW4c", "kernel_layout": "OIW4i4o", "channels": 6, "padding": (1, 0)}

    def oracle(x: Any, w: Any) -> Any:
        weight = plain(np.moveaxis(w, -1, 1).reshape(8, *w.shape[1:-1]))
        return blocked(convolve(plain(x)[:, :6], weight[:, :6], {"padding": (1, 0)}), 4)

    check("nn.conv1d", [(("n", 2, 5, 4), "float32"), ((2, 2, 3, 4, 4), "float32")], attrs, oracle, None, N, 4)


@together("dtype", NUMBERS)
def test_convolutions_take_all_numbers(check: Any, dtype: str) -> None:
    row, volume = [((1, 2, 3), dtype), ((2, 2, 2), dtype)], [((1, 2, 2, 2, 2), dtype), ((2, 2, 1, 2, 2), dtype)]
    check("nn.conv1d", row, {"padding": 1}, lambda x, w: convolve(x, w, {"padding": (1, 1)}), None, scale=20)
    check("nn.conv3d", volume, {"padding": 1}, lambda x, w: convolve(x, w, {"padding": (1,) * 6}), None, scale=20)
    flipped = [row[0], ((2, 1, 2), dtype)]
    check("nn.conv_transpose", flipped, {"strides": 3}, lambda x, w: spread(x, w, {"strides": (3,)}), None, scale=20)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"strides": (2, 3), "padding": (1, 0, 2, 1)},
        {"strides": (2, 1), "dilation": (1, 2), "output_padding": (1, 0)},
        {"groups": 2, "strides": (1, 2), "padding": (-1, 3, 0, 1)},
        {"strides": (3, 2)},  # windows side by side
        {"groups": 2, "strides": (3, 2)},
        {"groups": 4, "strides": (3, 2)},
        {"strides": (2, 3), "dilation": (2, 1), "padding": (0, 1, 1, 0)},  # gaps between the windows
        {"strides": (3, 2), "padding": (2, 1, 0, 0)},  # one convolution for all places, more than is kept
    ],
    ids=str,
)
def test_transposed_convolution_agrees_with_adding_up(check: Any, attrs: dict[str, Any]) -> None:
    types = [(("n", 4, "h", 3), "float32"), ((4, 2, 3, 2), "float32")]
    sizes = [{"n": 2, "h": 2}, {"n": 1, "h": 5}]
    check("nn.conv_transpose", types, attrs, lambda x, w: spread(x, w, attrs), None, sizes, 10)


def test_transposed_convolutions_of_any_shape() -> None:
    """Windows, strides, what is cut off and added, distances and groups drawn by chance."""
    rng = np.random.default_rng(11)
    operator, checked = gi.get_operator("nn.conv_transpose"), 0
    while checked < 150:
        rank = int(rng.integers(1, 4))

        def some(low: int, high: int, count: int = rank) -> tuple[int, ...]:
            return tuple(map(int, rng.integers(low, high, count)))

        groups, most = int(rng.integers(1, 3)), (12, 6, 4)[rank - 1]
        attrs = {"strides": some(1, 5), "dilation": some(1, 4), "padding": some(-1, 4, 2 * rank), "groups": groups}
        attrs["output_padding"] = some(0, 3)
        shape, window = some(1, most), some(1, 6)
        extents = [
            (n - 1) * s + (k - 1) * d + 1 + extra
            for n, s, k, d, extra in zip(
                shape, attrs["strides"], window, attrs["dilation"], attrs["output_padding"], strict=True
            )
        ]
        extents = [n - a - b for n, a, b in zip(extents, attrs["padding"][:rank], attrs["padding"][rank:], strict=True)]
        if min(extents) < 1 or np.prod(extents) > 2000:
            continue
        x = rng.standard_normal((1, 2 * groups, *shape))
        w = rng.standard_normal((2 * groups, int(rng.integers(1, 3)), *window))
        params = [gi.var(name, shape=value.shape, dtype="float64") for name, value in (("x", x), ("w", w))]
        function = gi.Function(params, operator(*params, **attrs))
        found = gi.evaluate(SimplifyInference()(gi.IRModule({"main": function})), x, w)
        np.testing.assert_allclose(found, spread(x, w, attrs), rtol=1e-11, atol=1e-11, err_msg=str((attrs, window)))
        checked += 1


@pytest.mark.parametrize(
    ("size", "window", "attrs", "kernels"),
    [
        (8, 2, {"strides": 2}, [(20, 4, 1, 1)]),
        (8, 4, {"strides": 2, "padding": 1}, [(5, 4, 2, 2)] * 4),
        (8, 3, {"strides": 2}, [(5, 4, 2, 2), (5, 4, 2, 1), (5, 4, 1, 2), (5, 4, 1, 1)]),
        (8, 6, {"strides": 3, "padding": 1}, [(45, 4, 2, 2)]),
        (8, 3, {"padding": 1}, [(5, 4, 3, 3)]),
        (1, 4, {}, [(80, 4, 1, 1)]),
    ],
)
def test_transposed_convolution_multiplies_no_zeros(size: int, window: int, attrs: Any, kernels: Any) -> None:
    x, w = gi.var("x", shape=(1, 4, size, size)), gi.var("w", shape=(4, 5, window, window))
    call = gi.get_operator("nn.conv_transpose")(x, w, **attrs)
    after = SimplifyInference()(gi.IRModule({"main": gi.Function([x, w], call)}))["main"].body
    convolutions = [node for node in call_nodes(after) if node.op.name == "nn.conv2d"]
    assert [node.args[1].shape for node in convolutions] == kernels
    assert not any(node.op.name == "nn.dilate" for node in call_nodes(after))


def test_transposed_convolution_of_rows_and_volumes(check: Any) -> None:
    row = {"strides": (2,), "padding": (1, 1), "output_padding": (1,)}
    check("nn.conv_transpose", [((1, 2, 4), "float32"), ((2, 3, 3), "float32")], row,
          lambda x, w: spread(x, w, row), scale=4)  # fmt: skip
    volume = {"strides": (2, 1, 2), "padding": (0, 1, 0, 1, 0, 0)}
    check("nn.conv_transpose", [((1, 2, 2, 3, 2), "float32"), ((2, 2, 3, 2, 1), "float32")], volume,
          lambda x, w: spread(x, w, volume), scale=4)  # fmt: skip


@pytest.mark.parametrize(("dtype", "has_mask"), [("float16", True), ("float32", True), ("float64", False)])
def test_deformable_convolution_agrees_with_reading_between_pixels(check: Any, dtype: str, has_mask: bool) -> None:
    attrs = {"strides": (2, 1), "padding": (1, 0, 1, 1), "dilation": (1, 2), "groups": 2, "offset_groups": 2}
    types = [(("n", 4, 4, 4), dtype), ((2, 2, 2, 2), dtype), (("n", 16, 3, 3), dtype), (("n", 8, 3, 3), dtype)]

    def oracle(x: Any, w: Any, offset: Any, *mask: Any) -> Any:
        return deform(x, w, offset, mask[0] if mask else np.ones((len(x), 8, 3, 3)), attrs)

    check("nn.deform_conv2d", types if has_mask else types[:3], attrs, oracle, None, N, 40)


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "message"),
    [
        ("nn.conv1d", [(1, 2, 5), (4, 3, 3)], {}, "weight: expected 2 input channels .* found 3"),
        ("nn.conv3d", [(1, 2, 5), (4, 2, 3)], {}, r"data: expected a tensor in layout NCDHW \(5 dimensions\)"),
        ("nn.conv1d", [(1, 2, 5), (4, 2, 6)], {}, "expected an image of at least 6"),
        ("nn.conv1d", [(1, 2, 5), (4, 2, 3)], {"strides": (1, 1)}, "strides: expected 1 integer"),
        ("nn.conv1d", [(1, 2, 5), (4, 2, 3)], {"padding": -1}, "padding: expected no negative size"),
        ("nn.conv1d", [(1, 2, 5), (4, 2, 3)], {"padding": 0.5}, "padding: expected integers or integer expressions"),
        ("nn.conv_transpose", [(1, 2, 5), (3, 2, 3)], {}, "weight: expected 2 input channels"),
        ("nn.conv_transpose", [(1, 2, 5), (2, 2, 3)], {"strides": (1, 2)}, "strides"),
        (
            "nn.conv3d",
            [(1, 2, 5), (4, 2, 3)],
            {"data_layout": "NCHW"},
            "data_layout: expected .* axes NCDHW",
        ),
        ("nn.deform_conv2d", [(1, 1, 3, 3), (1, 1, 2, 2), (1, 8, 3, 3)], {}, "offset: expected shape"),
    ],
)
def test_what_does_not_fit_is_named(name: str, shapes: Any, attrs: dict[str, Any], message: str) -> None:
    args = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes)]
    with pytest.raises(TypeInferenceError, match=f"{name}: .*{message}"):
        gi.get_operator(name)(*args, **attrs)
