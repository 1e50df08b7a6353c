"""Windows in one to three dimensions and normalizations, against loops over windows and NumPy in double precision."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.dims import symbol
from tilewright.graphir.ops.common import FLOATS, NUMBERS
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.graph import SimplifyInference
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 1}, {"n": 2})


def window(x: Any, at: Any, size: Any, attrs: Any) -> list[tuple[Any, Any, str]]:
    """(offset in the window, place, where it lies: data, padding or beyond) for each element of one window."""
    rank = len(size)
    strides, padding, dilation = (
        attrs.get("strides", size),
        attrs.get("padding", (0,) * 2 * rank),
        attrs.get("dilation"),
    )
    found = []
    for offset in itertools.product(*map(range, size)):
        place = [at[n] * strides[n] + offset[n] * (dilation[n] if dilation else 1) - padding[n] for n in range(rank)]
        inside = all(0 <= p < x.shape[n + 2] for n, p in enumerate(place))
        padded = all(-padding[n] <= p < x.shape[n + 2] + padding[n + rank] for n, p in enumerate(place))
        found.append((offset, tuple(place), "data" if inside else "padding" if padded else "beyond"))
    return found


def extents(x: Any, size: Any, attrs: Any) -> list[int]:
    """How many windows there are: counted one by one."""
    rank = len(size)
    strides, padding, dilation = (
        attrs.get("strides", size),
        attrs.get("padding", (0,) * 2 * rank),
        attrs.get("dilation"),
    )
    result = []
    for n in range(rank):
        span = (size[n] - 1) * (dilation[n] if dilation else 1) + 1
        starts = range(-padding[n], x.shape[n + 2] + padding[n + rank], strides[n])
        whole = [start for start in starts if start + span <= x.shape[n + 2] + padding[n + rank]]
        more = [start for start in starts if start not in whole and start < x.shape[n + 2]][:1]
        result.append(len(whole) + (len(more) if attrs.get("ceil_mode") else 0))
    return result


def pool(x: Any, attrs: Any, of_window: Any, dtype: Any = None) -> Any:
    """``of_window(image, window's elements)`` for each window of each channel."""
    size = attrs["pool_size"]
    out = np.zeros((*x.shape[:2], *extents(x, size, attrs)), dtype or x.dtype)
    for n, c, *at in np.ndindex(*out.shape):
        out[(n, c, *at)] = of_window(x[n, c], window(x, at, size, attrs), (n, c))
    return out


def values_of(image: Any, elements: Any) -> list[Any]:
    return [image[place] for _, place, where in elements if where == "data"]


def greatest(image: Any, elements: Any, _: Any) -> Any:
    return max(values_of(image, elements))


def average(image: Any, elements: Any, _: Any) -> Any:
    return np.mean(values_of(image, elements))


def padded_average(image: Any, elements: Any, _: Any) -> Any:
    return sum(values_of(image, elements)) / sum(where != "beyond" for *_, where in elements)


def norm(p: float) -> Any:
    return lambda image, elements, _: sum(abs(value) ** p for value in values_of(image, elements)) ** (1 / p)


def convolve(x: Any, w: Any, attrs: Any) -> Any:
    size, groups = w.shape[2:], attrs.get("groups", 1)
    attrs = {"strides": (1,) * len(size), **attrs}
    out = np.zeros((x.shape[0], w.shape[0], *extents(x, size, attrs)), x.dtype)
    for n, o, *at in np.ndindex(*out.shape):
        first = o // (w.shape[0] // groups) * w.shape[1]
        for offset, place, where in window(x, at, size, attrs):
            if where == "data":
                for c in range(w.shape[1]):
                    out[(n, o, *at)] += x[(n, first + c, *place)] * w[(o, c, *offset)]
    return out


def spread(x: Any, w: Any, attrs: Any) -> Any:
    """Transposed convolution: each product added where it lies."""
    rank, groups = x.ndim - 2, attrs.get("groups", 1)
    strides, dilation = attrs.get("strides", (1,) * rank), attrs.get("dilation", (1,) * rank)
    padding, extra = attrs.get("padding", (0,) * 2 * rank), attrs.get("output_padding", (0,) * rank)
    space = [
        (x.shape[n + 2] - 1) * strides[n]
        + (w.shape[n + 2] - 1) * dilation[n]
        + 1
        + extra[n]
        - padding[n]
        - padding[n + rank]
        for n in range(rank)
    ]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *space), x.dtype)
    for n, c, *at in np.ndindex(*x.shape):
        group = c // (x.shape[1] // groups)
        for o, *offset in np.ndindex(*w.shape[1:]):
            place = [at[k] * strides[k] + offset[k] * dilation[k] - padding[k] for k in range(rank)]
            if all(0 <= p < size for p, size in zip(place, space, strict=True)):
                out[(n, group * w.shape[1] + o, *place)] += x[(n, c, *at)] * w[(c, o, *offset)]
    return out


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


def blocked(x: Any, block: int) -> Any:
    """Channels, dimension 1, in blocks behind all others; the last one filled up with zeros."""
    padded = np.pad(x, [(0, -extent % block if axis == 1 else 0) for axis, extent in enumerate(x.shape)])
    return np.moveaxis(padded.reshape(x.shape[0], -1, block, *x.shape[2:]), 2, -1)


def plain(x: Any) -> Any:
    """The inverse of :func:`blocked`."""
    parts = np.moveaxis(x, -1, 2)
    return parts.reshape(x.shape[0], -1, *parts.shape[3:])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
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


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool", "nn.lp_pool"])
def test_pooling_of_blocks_of_channels(check: Any, name: str, dtype: str) -> None:
    attrs = {"pool_size": (2, 1, 3), "strides": (1, 2, 1), "padding": (1, 0, 1, 0, 0, 1)}
    of_window = {"nn.max_pool": greatest, "nn.avg_pool": average, "nn.lp_pool": norm(2)}[name]

    def oracle(x: Any) -> Any:
        return blocked(pool(plain(x), attrs, of_window), 2)

    check(name, [(("n", 2, 3, 2, 4, 2), dtype)], {**attrs, "layout": "NCDHW2c"}, oracle, None, N, 4)


@pytest.mark.parametrize("dtype", NUMBERS)
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


POOLS = [
    {"pool_size": (3,), "strides": (2,), "padding": (1, 1), "ceil_mode": True},
    {"pool_size": (2, 3), "strides": (2, 1), "padding": (1, 0, 0, 2), "dilation": (1, 2)},
    {"pool_size": (2, 1, 2), "strides": (3, 2, 2), "padding": (1, 0, 0, 0, 0, 1), "ceil_mode": True},
]


def plane(rank: int) -> list[Any]:
    return [(("n", 2, *(6, 5, 4)[:rank]), "float32")]


@pytest.mark.parametrize("attrs", POOLS, ids=str)
def test_pooling_agrees_with_loops_over_windows(check: Any, attrs: dict[str, Any]) -> None:
    types = plane(len(attrs["pool_size"]))
    check("nn.max_pool", types, attrs, lambda x: pool(x, attrs, greatest), None, N)
    check("nn.avg_pool", types, attrs, lambda x: pool(x, attrs, average), None, N)
    check("nn.avg_pool", types, {**attrs, "count_include_pad": True}, lambda x: pool(x, attrs, padded_average), None, N)
    check("nn.lp_pool", types, attrs, lambda x: pool(x, attrs, norm(2)), None, N)
    check("nn.lp_pool", types, {**attrs, "p": 3}, lambda x: pool(x, attrs, norm(3)), None, N, 4)


@pytest.mark.parametrize(("attrs", "column_major"), [(POOLS[0], False), (POOLS[1], True), (POOLS[2], True)], ids=str)
def test_indices_tell_where_the_greatest_values_are(check: Any, attrs: dict[str, Any], column_major: bool) -> None:
    def oracle(x: Any) -> Any:
        def number(image: Any, elements: Any, plane: Any) -> int:
            inside = [place for _, place, where in elements if where == "data"]
            best = max(inside, key=lambda place: image[place])
            order = "F" if column_major else "C"
            first = (plane[0] * x.shape[1] + plane[1]) * image.size
            return int(first + np.ravel_multi_index(best, image.shape, order=order))

        return pool(x, attrs, number, np.int64)

    types = plane(len(attrs["pool_size"]))
    check("nn.max_pool_indices", types, {**attrs, "column_major": column_major}, oracle, None, N)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_max_pooling_takes_all_numbers_and_never_the_padding(check: Any, dtype: str) -> None:
    def least(rng: Any, shape: Any, kind: Any) -> Any:
        low = -np.inf if kind.kind not in "iu" else np.iinfo(kind).min
        return np.where(rng.integers(0, 2, shape), 1, low).astype(kind)

    attrs = {"pool_size": (2,), "strides": (1,), "padding": (1, 1)}

    def where(image: Any, elements: Any, plane: Any) -> int:
        inside = [place for _, place, kind in elements if kind == "data"]
        return int(plane[0] * 3 + max(inside, key=lambda place: image[place])[0])

    types = [((4, 1, 3), dtype)]
    check("nn.max_pool", types, attrs, lambda x: pool(x, attrs, greatest), least)
    check("nn.max_pool_indices", types, attrs, lambda x: pool(x, attrs, where, np.int64), least)


def test_the_first_nan_of_a_window_is_its_greatest_value(run: Any) -> None:
    x = gi.var("x", shape=(1, 1, 4))
    value = np.array([[[1, np.nan, 3, np.nan]]], np.float32)
    np.testing.assert_array_equal(run([x], gi.nn.max_pool(x, (4,)), [value]).ravel(), [np.nan])
    np.testing.assert_array_equal(run([x], gi.nn.max_pool_indices(x, (4,)), [value]).ravel(), [1])


@pytest.mark.parametrize("dtype", FLOATS)
def test_means_and_norms_take_all_floats(check: Any, dtype: str) -> None:
    attrs = {"pool_size": (2,), "strides": (1,), "padding": (1, 0)}
    types = [(("n", 2, "w"), dtype)]
    sizes = [{"n": 1, "w": 1}, {"n": 2, "w": 4}]
    check("nn.avg_pool", types, attrs, lambda x: pool(x, attrs, average), None, sizes)
    check("nn.lp_pool", types, attrs, lambda x: pool(x, attrs, norm(2)), None, sizes, 2)
    check("nn.lp_norm", types, {"axis": (1, 2), "keepdims": True},
          lambda x: np.sqrt((x * x).sum((1, 2), keepdims=True)), None, sizes, 2)  # fmt: skip


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool", "nn.lp_pool"])
def test_ceil_mode_over_a_symbolic_size(check: Any, name: str) -> None:
    attrs = {"pool_size": (3,), "strides": (2,), "padding": (1, 1), "ceil_mode": True}
    oracle = {"nn.max_pool": greatest, "nn.avg_pool": average, "nn.lp_pool": norm(2)}[name]
    sizes = [{"w": size} for size in (1, 2, 3, 4, 5, 8)]
    check(name, [((1, 2, "w"), "float32")], attrs, lambda x: pool(x, attrs, oracle), None, sizes, 2)


W = symbol("w")
#: Padding that depends on the size, and the same for an array.
FORMULAS = {"padding": (W % 2, (W + 1) // 3)}
PADDED = [{"w": size} for size in (3, 4, 5)]


def formulas_of(x: Any) -> tuple[int, int]:
    size = x.shape[-1]
    return size % 2, (size + 1) // 3


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool", "nn.lp_pool"])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_whose_padding_is_an_expression(check: Any, name: str, ceil_mode: bool) -> None:
    attrs = {"pool_size": (3,), "strides": (2,), "ceil_mode": ceil_mode}
    oracle = {"nn.max_pool": greatest, "nn.avg_pool": average, "nn.lp_pool": norm(2)}[name]
    check(name, [((1, 2, "w"), "float32")], {**attrs, **FORMULAS},
          lambda x: pool(x, {**attrs, "padding": formulas_of(x)}, oracle), None, PADDED, 2)  # fmt: skip


def test_convolutions_whose_padding_is_an_expression(check: Any) -> None:
    (before, behind), weight = FORMULAS["padding"], ((3, 2, 2, 2), "float32")
    check("nn.conv1d", [(("n", 2, "w"), "float32"), ((4, 2, 3), "float32")], FORMULAS,
          lambda x, w: convolve(x, w, {"padding": formulas_of(x)}), None, [{"n": 2, **size} for size in PADDED],
          4)  # fmt: skip
    check("nn.conv2d", [((1, 2, 3, "w"), "float32"), weight], {"padding": (1, before, 0, behind)},
          lambda x, w: convolve(x, w, {"padding": (1, formulas_of(x)[0], 0, formulas_of(x)[1])}), None, PADDED,
          4)  # fmt: skip
    check("nn.conv3d", [((1, 2, 2, 3, "w"), "float32"), ((3, 2, 1, 2, 2), "float32")],
          {"padding": (0, 1, before, 0, 0, behind)},
          lambda x, w: convolve(x, w, {"padding": (0, 1, formulas_of(x)[0], 0, 0, formulas_of(x)[1])}), None, PADDED,
          4)  # fmt: skip


def test_text_with_padding_that_is_an_expression_is_read_back() -> None:
    x, w = gi.var("x", shape=(1, 2, 3, "w")), gi.var("k", shape=(2, 2, 1, 1))
    mod = gi.IRModule.from_expr(gi.Function([x, w], gi.nn.conv2d(x, w, padding=(0, W % 2))))
    assert gi.structural_equal(gi.parse(str(mod)), mod)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_unpooling_brings_values_back(run: Any, dtype: str) -> None:
    x, i = gi.var("x", shape=("n", 1, 2), dtype=dtype), gi.var("i", shape=("n", 1, 2), dtype="int64")
    shape = (gi.symbol("n"), 1, 4)
    values, places = np.array([[[5, 7]], [[1, 2]]]).astype(x.dtype.numpy), np.array([[[1, 2]], [[4, 7]]])
    found = run([x, i], gi.nn.max_unpool(x, i, shape=shape), [values, places], n=2)
    np.testing.assert_array_equal(found.astype(np.float64), [[[0, 5, 7, 0]], [[1, 0, 0, 2]]])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [2, 9])
def test_local_response_normalization(check: Any, dtype: str, size: int) -> None:
    def oracle(x: Any) -> Any:
        total = np.zeros_like(x)
        for c in range(x.shape[1]):
            for k in range(c - (size - 1) // 2, c + size // 2 + 1):
                total[:, c] += x[:, k] ** 2 if 0 <= k < x.shape[1] else 0
        return x / (2 + 0.5 / size * total) ** 0.75

    check("nn.lrn", [(("n", 5, 2), dtype)], {"size": size, "alpha": 0.5, "bias": 2.0}, oracle, None, N, 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [1, 3])
def test_division_by_the_norm(check: Any, dtype: str, p: int) -> None:
    def oracle(x: Any) -> Any:
        size = (np.abs(x) ** p).sum(1, keepdims=True) ** (1 / p)
        return np.divide(x, size, out=np.zeros_like(x), where=size != 0)

    def some_zero(rng: Any, shape: Any, kind: Any) -> Any:
        return (rng.standard_normal(shape) * np.array([[[0, 1]]])).astype(kind)

    check("nn.lp_normalize", [(("n", 3, 2), dtype)], {"axis": 1, "p": p}, oracle, some_zero, N, 2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_normalization_by_the_batch(check: Any, dtype: str) -> None:
    def oracle(x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        mean, var = x.mean((0, 2)), x.var((0, 2))
        result = (x - mean[:, None]) / np.sqrt(var + 1e-3)[:, None] * gamma[:, None] + beta[:, None]
        return result, running_mean * 0.75 + mean * 0.25, running_var * 0.75 + var * 0.25

    types = [((4, 3, "w"), dtype), *[((3,), dtype)] * 4]
    sizes = [{"w": 2}, {"w": 3}]
    check("nn.batch_norm_training", types, {"epsilon": 1e-3, "momentum": 0.75}, oracle, None, sizes, 8)


def deform(x: Any, w: Any, offset: Any, mask: Any, attrs: Any) -> Any:
    """Each element of each window read by itself."""
    (sh, sw), (dh, dw), (top, left, _, _) = attrs["strides"], attrs["dilation"], attrs["padding"]
    o, i, kh, kw = w.shape
    groups, parts = attrs["groups"], attrs["offset_groups"]
    moved = offset.reshape(x.shape[0], parts, kh, kw, 2, *offset.shape[2:])
    weights = mask.reshape(x.shape[0], parts, kh, kw, *mask.shape[2:])

    def read(image: Any, y: float, z: float) -> float:
        total = 0.0
        for row, column in np.ndindex(*image.shape):
            total += image[row, column] * max(0, 1 - abs(y - row)) * max(0, 1 - abs(z - column))
        return total

    out = np.zeros((x.shape[0], o, *offset.shape[2:]))
    for n, c, y, z in np.ndindex(*out.shape):
        for k, row, column in np.ndindex(i, kh, kw):
            own = c // (o // groups) * i + k
            part = own // (x.shape[1] // parts)
            dy, dz = moved[n, part, row, column, :, y, z]
            at = y * sh - top + row * dh + dy, z * sw - left + column * dw + dz
            out[n, c, y, z] += w[c, k, row, column] * read(x[n, own], *at) * weights[n, part, row, column, y, z]
    return out


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
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2, 2)}, "data: expected a tensor with 4 dimensions"),
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2,), "padding": 2}, "padding: expected less than .* span 2"),
        ("nn.lp_pool", [(1, 2, 5)], {"pool_size": (2,), "p": 0}, "p: expected a number above 0"),
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2,), "layout": "NCH"}, "layout: expected a layout of NCW"),
        ("nn.max_pool", [(1, 2, 5)], {"pool_size": (2,), "layout": "NCW4c"}, "data: expected .* layout NCW4c"),
        (
            "nn.conv3d",
            [(1, 2, 5), (4, 2, 3)],
            {"data_layout": "NCHW"},
            "data_layout: expected .* axes NCDHW",
        ),
        ("nn.lrn", [(1, 2, 5)], {"size": 0}, "size: expected at least 1"),
        ("nn.deform_conv2d", [(1, 1, 3, 3), (1, 1, 2, 2), (1, 8, 3, 3)], {}, "offset: expected shape"),
    ],
)
def test_what_does_not_fit_is_named(name: str, shapes: Any, attrs: dict[str, Any], message: str) -> None:
    args = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes)]
    with pytest.raises(TypeInferenceError, match=f"{name}: .*{message}"):
        gi.get_operator(name)(*args, **attrs)
