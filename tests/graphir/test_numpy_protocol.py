"""Graph expressions under NumPy's functions and indices give what arrays give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.numpy_protocol import FUNCTIONS, REDUCTIONS, UFUNCS
from tilewright.tensorir.errors import TypeInferenceError

X = np.linspace(-2, 3, 24).astype(np.float32).reshape(2, 3, 4)
BOOL = X > 0


def agree(run: Any, function: Any, *arrays: Any, rtol: float = 1e-5) -> None:
    """The function of expressions gives an expression whose value is that of the function of arrays."""
    params = [gi.var(f"x{n}", shape=array.shape, dtype=array.dtype) for n, array in enumerate(arrays)]
    built = function(*params)
    assert isinstance(built, gi.Expr)
    expected = np.asarray(function(*arrays))
    found = run(params, built, arrays)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("name", UFUNCS)
def test_every_ufunc_of_the_table_is_that_of_numpy(run: Any, name: str) -> None:
    ufunc = getattr(np, name)
    array: Any = X[:, :, 0]
    if name in ("invert", "left_shift", "right_shift") or name.startswith("bitwise"):
        array = np.arange(6).reshape(2, 3)
    elif name.startswith("logical"):
        array = BOOL[:, :, 0]
    elif name in ("log", "log2", "log10", "log1p", "sqrt", "reciprocal", "power"):
        array = np.abs(array) + np.float32(0.5)
    elif name in ("arcsin", "arccos", "arctanh"):
        array = array / np.float32(4)
    elif name == "arccosh":
        array = np.abs(array) + np.float32(1.5)
    if name == "matmul":
        agree(run, np.matmul, array, np.ascontiguousarray(array.T))
    else:
        agree(run, ufunc, *[array] * ufunc.nin)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduce_of_a_ufunc_is_a_reduction_over_the_first_axis(run: Any, name: str) -> None:
    array = BOOL if name.startswith("logical") else X
    agree(run, getattr(np, name).reduce, array)
    agree(run, lambda x: getattr(np, name).reduce(x, axis=(1, 2), keepdims=True), array)


CALLS: dict[str, Any] = {
    "all": lambda x: np.all(x > 0, axis=1),
    "amax": lambda x: np.amax(x, 1),
    "amin": lambda x: np.amin(x, axis=(0, 1)),
    "any": lambda x: np.any(x > 0, axis=-1, keepdims=True),
    "argmax": lambda x: np.argmax(x, axis=1),
    "argmin": lambda x: np.argmin(x),
    "around": lambda x: np.around(x),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 2, 3, 4)),
    "clip": lambda x: np.clip(x, -1, 1) + np.clip(x, x * 2, None),
    "concatenate": lambda x: np.concatenate([x, x], axis=1),
    "copy": lambda x: np.copy(x),
    "dot": lambda x: np.dot(x, x[0].T),
    "expand_dims": lambda x: np.expand_dims(x, (0, -1)),
    "flip": lambda x: np.flip(x, (0, 2)),
    "full_like": lambda x: np.full_like(x, 2),
    "max": lambda x: np.max(x),
    "mean": lambda x: np.mean(x, axis=(0, 2)),
    "min": lambda x: np.min(x, axis=0, keepdims=True),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1) + np.moveaxis(x, (0, 1), (2, 0)).sum(),
    "ones_like": lambda x: np.ones_like(x),
    "pad": lambda x: (
        np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=3) + np.pad(x, ((0, 1), (1, 1), (2, 0)), "edge")
    ),
    "prod": lambda x: np.prod(x, axis=0),
    "ravel": lambda x: np.ravel(x),
    "repeat": lambda x: np.repeat(x, 2, axis=1).sum() + np.repeat(x, 3),
    "reshape": lambda x: np.reshape(x, (-1, 6)),
    "round": lambda x: np.round(x),
    "split": lambda x: np.split(x, 2, axis=2)[1],
    "squeeze": lambda x: np.squeeze(x[:1]),
    "stack": lambda x: np.stack([x, x], axis=-1),
    "std": lambda x: np.std(x, axis=1),
    "sum": lambda x: np.sum(x, axis=1),
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "take": lambda x: np.take(x, np.array([1, 0, -1]), axis=2).sum() + np.take(x, np.array([3, 5])),
    "tile": lambda x: np.tile(x, (2, 1, 1)),
    "transpose": lambda x: np.transpose(x, (1, 0, 2)),
    "var": lambda x: np.var(x, axis=2, ddof=1),
    "where": lambda x: np.where(x > 0, x, 0.5 * x),
    "zeros_like": lambda x: np.zeros_like(x),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_function_of_the_table_is_that_of_numpy(run: Any, name: str) -> None:
    agree(run, CALLS[name], X)


def test_every_function_has_a_call_here() -> None:
    assert set(FUNCTIONS) - {"shape", "ndim"} == set(CALLS)
    x = gi.var("x", shape=("n", 3))
    assert np.shape(x) == x.shape and np.ndim(x) == 2


def test_an_array_on_the_left_gives_an_expression(run: Any) -> None:
    agree(run, lambda x: X + x, X)
    agree(run, lambda x: X[0] @ np.transpose(x, (0, 2, 1)), X)
    agree(run, lambda x: np.float32(2) * x - np.sqrt(2.0) / (x * x + 1), X)
    agree(run, lambda x: x < X, X)


def test_operators_on_integers_are_bitwise(run: Any) -> None:
    value = np.arange(8, dtype=np.int32)
    agree(run, lambda x: (~x & 6 | 1) ^ (x << 2) >> 1, value)
    agree(run, lambda x: ~x & (x | True) ^ x, value > 3)


def test_what_numpy_can_do_and_graphs_cannot_says_what_is_near() -> None:
    x = gi.var("x", shape=(3,))
    with pytest.raises(TypeError, match=r"np\.float_power does not work on graph expressions; did you mean np\.power"):
        np.float_power(x, x)
    with pytest.raises(TypeError, match=r"np\.hypot does not work on graph expressions; supported are: absolute, add"):
        np.hypot(x, x)
    with pytest.raises(TypeError, match=r"np\.add\.accumulate does not work"):
        np.add.accumulate(x)
    with pytest.raises(TypeError, match=r"np\.cumsum does not work on graph expressions; did you mean np\..*sum"):
        np.cumsum(x)
    with pytest.raises(TypeError, match="takes no argument out"):
        np.add(x, x, out=np.zeros(3))
    with pytest.raises(TypeError, match="no value yet"):
        np.asarray(x)
    with pytest.raises(TypeError, match=r"use gi\.where"):
        bool(x > 0)
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(x)
    with pytest.raises(TypeInferenceError, match="divide: lhs: expected a floating-point tensor"):
        gi.var("i", shape=(3,), dtype="int32") / 2


@pytest.mark.parametrize(
    "key",
    [
        np.s_[1],
        np.s_[-1],
        np.s_[1:],
        np.s_[1:, None, ..., ::2],
        np.s_[..., -1],
        np.s_[0, :, 2],
        np.s_[0, 1, 2],
        np.s_[:, 0, None, ::-1],
        np.s_[None],
        np.s_[...],
        np.s_[:, 1:1],
        np.s_[None, 1, None, 1:, None],
        np.s_[-9:9, -2:],
        np.s_[:, [2, 0, 2]],
        np.s_[np.array([[1, 0]]), None, :, ::2],
    ],
    ids=str,
)
def test_indices_mean_what_they_mean_in_numpy(run: Any, key: Any) -> None:
    agree(run, lambda x: x[key], X)
    x = gi.var("x", shape=("n", "m", 4))
    np.testing.assert_array_equal(run([x], x[key], [X], n=2, m=3), X[key])


def test_wrong_indices_are_refused() -> None:
    x = gi.var("x", shape=(2, 3))
    with pytest.raises(IndexError, match="index 2 is out of bounds of axis 0 with extent 2"):
        x[2]
    with pytest.raises(IndexError, match="2 dimensions, found 3 indices"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="one ellipsis"):
        x[..., 0, ...]
    with pytest.raises(TypeError, match="found 'a'"):
        x["a"]
    with pytest.raises(TypeError, match=r"mask .* use gi.where"):
        x[x > 0]
    with pytest.raises(TypeError, match="in two steps"):
        x[0, [1, 2]]


def test_a_tuple_is_indexed_by_its_fields() -> None:
    x = gi.var("x", shape=(4,))
    parts = gi.split(x, 2)
    assert isinstance(parts[-1], gi.TupleGetItem) and parts[-1].index == 1
    with pytest.raises(IndexError, match="index 2 is out of bounds of a tuple of 2 values"):
        parts[2]
    assert gi.concatenate(parts).shape == (4,)
