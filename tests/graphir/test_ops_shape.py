"""Operators that move elements, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi

N = ({"n": 2}, {"n": 3})
DTYPES = ["bool", "int8", "uint64", "float16", "bfloat16", "float64"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((2, 3, 4), (6, 4), (6, 4)),
        ((2, 3, 4), (-1,), (24,)),
        ((6, 4), (3, 8), (3, 8)),
        ((2, 6, 5), (4, 3, 5), (4, 3, 5)),
        ((), (1, 1), (1, 1)),
        ((1,), (), ()),
        ((0, 3), (3, 0), (3, 0)),
        ((0, 3), (-1, 3), (0, 3)),
        ((3, 1, 2), (3, 2), (3, 2)),
    ],
)
@together("dtype", DTYPES)
def test_reshape_keeps_the_order_of_elements(check: Any, old: Any, new: Any, expected: Any, dtype: str) -> None:
    check("reshape", [(old, dtype)], {"newshape": new}, lambda x: x.ravel().reshape(expected))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (("n", 3, 4), ("n", -1), lambda n: (n, 12)),
        (("n", 3, 4), (-1, 4), lambda n: (n * 3, 4)),
        (("n", 12), ("n", 3, 4), lambda n: (n, 3, 4)),
        (("n", "n"), (-1,), lambda n: (n * n,)),
        (("n", 4, "n"), ("n", "n", -1), lambda n: (n, n, 4)),
        ((4, "n"), ("n", 2, -1), lambda n: (n, 2, 2)),
    ],
)
def test_reshape_of_symbolic_dimensions_works_for_every_size(check: Any, old: Any, new: Any, expected: Any) -> None:
    sizes = [{"n": n} for n in (1, 2, 3)]
    for binding in sizes:
        shape = expected(binding["n"])
        check("reshape", [(old, "float32")], {"newshape": new}, lambda x, s=shape: x.reshape(s), None, [binding])


@together("dtype", DTYPES)
def test_axes_are_permuted_added_and_dropped(check: Any, dtype: str) -> None:
    check("transpose", [(("n", 3, 2), dtype)], {}, lambda x: x.T, None, N)
    check("transpose", [((2, 3, 4), dtype)], {"axes": (1, -1, 0)}, lambda x: np.moveaxis(x, 0, 2))
    check("expand_dims", [(("n", 3), dtype)], {"axis": 1}, lambda x: x[:, None], None, N)
    check("expand_dims", [((2, 3), dtype)], {"axis": -1, "num_newaxis": 2}, lambda x: x[:, :, None, None])
    check("expand_dims", [((2, 3), dtype)], {"axis": (0, -1)}, lambda x: x[None, :, :, None])
    check("squeeze", [((1, 3, 1), dtype)], {}, lambda x: x[0, :, 0])
    check("squeeze", [(("n", 1, 1), dtype)], {"axis": -1}, lambda x: x[:, :, 0], None, N)
    check("squeeze", [(("n", 1, 1), dtype)], {}, lambda x: x[:, 0, 0], None, ({"n": 1}, {"n": 3}))
    check("flip", [(("n", 3), dtype)], {"axis": 0}, lambda x: x[::-1], None, N)
    check("flip", [((2, 3), dtype)], {}, lambda x: x[::-1, ::-1])


@together("dtype", DTYPES)
def test_elements_are_repeated(check: Any, dtype: str) -> None:
    check("broadcast_to", [((3, 1), dtype)], {"shape": (2, 3, 4)}, lambda x: np.broadcast_to(x, (2, 3, 4)))
    check("tile", [((2, 3), dtype)], {"reps": (2,)}, lambda x: np.concatenate([x, x], 1))
    check("tile", [(("n", 2), dtype)], {"reps": (2, 2, 1)}, lambda x: np.stack([np.concatenate([x, x])] * 2), None, N)
    check("tile", [((0, 2), dtype)], {"reps": (2, 0)}, lambda x: np.zeros((0, 0), x.dtype))
    check("repeat", [(("n", 2), dtype)], {"repeats": 3, "axis": 1}, lambda x: x[:, [0, 0, 0, 1, 1, 1]], None, N)
    check("repeat", [((2, 2), dtype)], {"repeats": 0}, lambda x: x[:0])


def test_broadcast_to_a_symbolic_dimension(check: Any) -> None:
    for n in (0, 1, 3):
        check("broadcast_to", [((2,), "float32")], {"shape": ("n", 2)}, lambda x, n=n: np.stack([x] * n) if n else
              np.zeros((0, 2)), None, [{"n": n}])  # fmt: skip


@together("dtype", DTYPES)
def test_tensors_are_joined(check: Any, dtype: str) -> None:
    types = [(("n", 2), dtype), (("n", 3), dtype), (("n", 1), dtype)]
    check("concatenate", types, {"axis": 1}, lambda *x: np.concatenate(x, 1), None, N)
    check(
        "concatenate", [(("n", 2), dtype), ((0, 2), dtype), ((2, 2), dtype)], {}, lambda *x: np.concatenate(x), None, N
    )
    check("concatenate", [((2,), dtype)], {}, lambda x: x)
    check("stack", [(("n", 2), dtype)] * 3, {"axis": -1}, lambda *x: np.stack(x, 2), None, N)
    check("stack", [((), dtype)] * 2, {}, lambda *x: np.stack(x))


@together("stride", [1, 2, 3, -1, -2])
@together("end", [None, 0, 2, 4, 9, -1, -3, -9])
@pytest.mark.parametrize("begin", [None, 0, 1, 3, 9, -1, -2, -9])
def test_slices_are_those_of_python_for_static_and_symbolic_extents(
    check: Any, begin: int | None, end: int | None, stride: int
) -> None:
    attrs = {"begin": (begin,), "end": (end,), "strides": (stride,), "axes": (1,)}
    check("slice", [((2, 5), "int32")], attrs, lambda x: x[:, begin:end:stride])
    sizes = [{"n": n} for n in (0, 1, 4)]
    check("slice", [((1, "n"), "int32")], attrs, lambda x: x[:, begin:end:stride], None, sizes)


def test_slice_bounds_may_be_symbolic(check: Any) -> None:
    n = gi.symbol("n")
    attrs = {"begin": (1,), "end": (n - 1,)}
    check("slice", [(("n",), "int32")], attrs, lambda x: x[1:-1], None, [{"n": 2}, {"n": 5}])
    assert gi.strided_slice is gi.get_operator("slice")


def test_split_gives_the_parts_of_numpy(check: Any) -> None:
    check("split", [(("n", 6), "float32")], {"indices_or_sections": 3, "axis": 1},
          lambda x: tuple(np.split(x, 3, 1)), None, N)  # fmt: skip
    check("split", [((7,), "float32")], {"indices_or_sections": (2, 5)}, lambda x: (x[:2], x[2:5], x[5:]))


@together("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad_agrees_with_numpy(check: Any, dtype: str, mode: Any) -> None:
    width = ((1, 1), (2, 0), (0, 0))
    check("pad", [((3, 4, 2), dtype)], {"pad_width": width, "mode": mode}, lambda x: np.pad(x, width, mode=mode))
    check("pad", [(("n", 3), dtype)], {"pad_width": ((0, 1), (1, 2)), "mode": mode},
          lambda x: np.pad(x, ((0, 1), (1, 2)), mode=mode), None, N)  # fmt: skip


def test_pad_takes_any_value(check: Any) -> None:
    attrs = {"pad_width": ((1, 0),), "pad_value": float("-inf")}
    check("pad", [((2,), "float32")], attrs, lambda x: np.concatenate([[-np.inf], x]))
    attrs = {"pad_width": ((2, 1),), "pad_value": 7}
    check("pad", [((0,), "int64")], attrs, lambda x: np.array([7, 7, 7]))


@pytest.mark.parametrize("index", ["int8", "int64", "uint8"])
@together("dtype", DTYPES)
def test_take_picks_elements_and_moves_indices_inside(check: Any, dtype: str, index: str) -> None:
    def values(rng: Any, shape: Any, kind: Any) -> Any:
        if kind == np.dtype(index) and shape == (2, 3):
            return np.array([[0, 2, 1], [3, 9, 100]]).astype(kind)
        return rng.integers(0, 2, shape).astype(kind)

    places = np.array([[0, 2, 1], [3, 3, 3]])
    check("take", [((4, 2), dtype), ((2, 3), index)], {}, lambda x, i: x[places], values)
    check("take", [(("n", 4), dtype), ((2, 3), index)], {"axis": 1}, lambda x, i: x[:, places], values, N)


def test_take_counts_negative_indices_from_the_end(check: Any) -> None:
    def values(rng: Any, shape: Any, kind: Any) -> Any:
        return np.array([-1, -3, -9], kind) if kind.kind == "i" else rng.random(shape).astype(kind)

    check("take", [((3, 2), "float32"), ((3,), "int32")], {}, lambda x, i: x[[2, 0, 0]], values)


@pytest.mark.parametrize(
    ("source", "target", "shape", "oracle"),
    [
        ("NCHW", "NHWC", (2, 3, 4, 5), lambda x: x.transpose(0, 2, 3, 1)),
        ("NCHW", "NCHW4c", (2, 8, 1, 3), lambda x: x.reshape(2, 2, 4, 1, 3).transpose(0, 1, 3, 4, 2)),
        ("NCHW4c", "NCHW", (2, 2, 1, 3, 4), lambda x: x.transpose(0, 1, 4, 2, 3).reshape(2, 8, 1, 3)),
        ("NCHW4c", "NCHW2c", (1, 2, 1, 1, 4), lambda x: x.reshape(1, 4, 1, 1, 2)),
        (
            "OIHW",
            "OIHW4i2o",
            (6, 8, 1, 2),
            lambda x: x.reshape(3, 2, 2, 4, 1, 2).transpose(0, 2, 4, 5, 3, 1),
        ),
    ],
)
def test_layouts_are_transformed(check: Any, source: str, target: str, shape: Any, oracle: Any) -> None:
    check("layout_transform", [(shape, "float32")], {"src_layout": source, "dst_layout": target}, oracle)


def test_a_blocked_layout_is_padded_with_zeros_and_the_inverse_drops_them(check: Any, run: Any) -> None:
    def oracle(x: Any) -> Any:
        padded = np.concatenate([x, np.zeros((x.shape[0], 2, 2, 1))], 1)
        return padded.reshape(-1, 2, 4, 2, 1).transpose(0, 1, 3, 4, 2)

    attrs = {"src_layout": "NCHW", "dst_layout": "NCHW4c"}
    check("layout_transform", [(("n", 6, 2, 1), "float32")], attrs, oracle, None, N)
    x = gi.var("x", shape=("n", 6, 2, 1))
    back = gi.layout_transform(gi.layout_transform(x, "NCHW", "NCHW4c"), "NCHW4c", "NCHW", extents={"C": 6})
    assert back.type == x.type
    value = np.arange(24, dtype=np.float32).reshape(2, 6, 2, 1)
    np.testing.assert_array_equal(run([x], back, [value], n=2), value)


def test_tensors_are_made_from_attributes(check: Any) -> None:
    check("zeros", [], {"shape": (2, 3)}, lambda: np.zeros((2, 3)))
    check("ones", [], {"shape": ("n",), "dtype": "int8"}, lambda: np.ones(3, np.int8), None, [{"n": 3}])
    check("full", [], {"shape": (), "fill": -2.5, "dtype": "bfloat16"}, lambda: np.array(-2.5))
    check("full", [], {"shape": (2,), "fill": True, "dtype": "bool"}, lambda: np.array([True, True]))
    check("arange", [], {"start": 5}, lambda: np.arange(5))
    check("arange", [], {"start": 7, "stop": 1, "step": -2, "dtype": "uint8"}, lambda: np.array([7, 5, 3], np.uint8))
    check("arange", [], {"start": 0.5, "stop": 2, "step": 0.25}, lambda: np.arange(0.5, 2, 0.25))
    check("arange", [], {"start": "n"}, lambda: np.arange(4), None, [{"n": 4}])
    check("arange", [], {"start": 1, "stop": "n", "step": 2}, lambda: np.array([1, 3]), None, [{"n": 5}])
    check("arange", [], {"start": 3, "stop": 3}, lambda: np.zeros(0, np.int64))


def test_batch_flatten_keeps_the_batch(check: Any) -> None:
    check("nn.batch_flatten", [(("n", 2, 3), "float32")], {}, lambda x: x.reshape(-1, 6), None, N)
    check("nn.batch_flatten", [((4,), "float32")], {}, lambda x: x.reshape(4, 1))
