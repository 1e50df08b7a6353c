"""Operators that gather, scatter, sort and scan, against loops over single elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.op import get_operator
from tilewright.passes.lower import LowerToTensorIR
from tilewright.tensorir import PrimFunc, assert_structural_equal, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.stmt import BufferStore, Stmt

N = ({"n": 2}, {"n": 5})
DTYPES = ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64"]
NUMBERS = DTYPES[1:]
INDICES = ["int32", "int64", "uint8"]
#: Every element type in one case, float32 in every case.
EACH_DTYPE = [*((dtype, 0) for dtype in DTYPES if dtype != "float32"), *(("float32", case) for case in range(9))]

Values = Callable[[np.random.Generator, "tuple[int, ...]", np.dtype], np.ndarray]


def indices_in(low: int, high: int, *which: tuple[Any, ...]) -> Values:
    """Small numbers; arguments whose shape (its rank and last size) is among ``which`` get indices in a range."""

    def make(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if dtype.kind in "iu" and shape in which:
            return rng.integers(max(low, 0) if dtype.kind == "u" else low, high, shape).astype(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        if dtype.kind in "iu":
            return rng.integers(1, 7, shape).astype(dtype)
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)

    return make


def places(shape: tuple[int, ...]) -> Any:
    return itertools.product(*map(range, shape))


def one_index(index: Any, extent: int) -> int:
    index = int(index)
    return index + extent if index < 0 else index


def clipped(index: Any, extent: int) -> int:
    return min(max(one_index(index, extent), 0), extent - 1)


# Gathering.


def gathered(x: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    result = np.empty(indices.shape, x.dtype)
    for place in places(indices.shape):
        source = list(place)
        source[axis] = clipped(indices[place], x.shape[axis])
        result[place] = x[tuple(source)]
    return result


@pytest.mark.parametrize(("dtype", "case"), EACH_DTYPE)
def test_gather_elements_picks_along_one_axis(check: Any, dtype: str, case: int) -> None:
    values = indices_in(-4, 5, (2, 2, 4), (5, 2, 4))
    axis, index = (0, 1, -1)[case % 3], INDICES[case // 3]
    rows = "n" if axis == 0 else 2
    check("gather_elements", [((3, 3, 5), dtype), ((rows, 2, 4), index)], {"axis": axis},
          lambda x, i: gathered(x, i, axis), values, N)  # fmt: skip


def test_gather_elements_from_sizes_that_are_known_at_run_time(check: Any) -> None:
    sizes = [{"n": 3, "m": 2, "k": 4}, {"n": 1, "m": 1, "k": 2}]
    values = indices_in(-3, 4, (3, 4), (1, 2))
    types = [(("n", "m"), "float32"), (("n", "k"), "int64")]
    check("gather_elements", types, {"axis": 1}, lambda x, i: gathered(x, i, 1), values, sizes)
    empty = [{"n": 3, "m": 0, "k": 4}]
    check("gather_elements", types, {"axis": 1}, lambda x, i: np.zeros((3, 4)), values, empty)


def gathered_nd(x: np.ndarray, indices: np.ndarray, batch: int) -> np.ndarray:
    depth = indices.shape[-1]
    result = np.empty((*indices.shape[:-1], *x.shape[batch + depth :]), x.dtype)
    for row in places(indices.shape[:-1]):
        extents = x.shape[batch : batch + depth]
        at = [clipped(i, extent) for i, extent in zip(indices[row], extents, strict=True)]
        result[row] = x[(*row[:batch], *at)]
    return result


GATHER_ND = [
    ((2, 3, 4), (2, 1), 1),
    ((3, 4), (5, 2), 0),
    ((3, 4), (5, 1), 0),
    ((2, 3, 4), (2, 5, 2), 1),
    ((2, 3, 4), (2, 3, 1), 2),
    ((3, 4), (2, 0), 0),
]


@pytest.mark.parametrize(("dtype", "case"), EACH_DTYPE[: 6 + len(GATHER_ND)])
def test_gather_nd_picks_elements_and_slices(check: Any, dtype: str, case: int) -> None:
    x, indices, batch = GATHER_ND[case]
    check("gather_nd", [(x, dtype), (indices, "int64")], {"batch_dims": batch},
          lambda x, i: gathered_nd(x, i, batch), indices_in(-4, 5, indices))  # fmt: skip


def test_gather_nd_of_symbolic_sizes(check: Any) -> None:
    check("gather_nd", [(("n", 3), "float32"), ((4, "n", 2), "int32")], {}, lambda x, i: gathered_nd(x, i, 0),
          indices_in(-6, 6, (4, 2, 2), (4, 5, 2)), N)  # fmt: skip


def reversed_rows(x: np.ndarray, lengths: np.ndarray, batch: int, time: int) -> np.ndarray:
    result = x.copy()
    for place in places(x.shape):
        length = int(lengths[place[batch]])
        if place[time] < length:
            source = list(place)
            source[time] = length - 1 - place[time]
            result[place] = x[tuple(source)]
    return result


@pytest.mark.parametrize(("dtype", "case"), EACH_DTYPE[:9])
def test_reverse_sequence_turns_each_sequence_around(check: Any, dtype: str, case: int) -> None:
    batch, time = ((0, 1), (1, 0), (0, -1))[case]
    check("reverse_sequence", [((4, 4, 4), dtype), ((4,), "int64")], {"batch_axis": batch, "time_axis": time},
          lambda x, i: reversed_rows(x, i, batch, time), indices_in(0, 5, (4,)))  # fmt: skip


def test_reverse_sequence_of_a_symbolic_batch(check: Any) -> None:
    check("reverse_sequence", [(("n", 4), "float32"), (("n",), "int32")], {"batch_axis": 0, "time_axis": 1},
          lambda x, i: reversed_rows(x, i, 0, 1), indices_in(0, 5, (2,), (5,)), N)  # fmt: skip


# Scattering.

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda a, b: b,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": lambda a, b: a if a > b else b,
    "min": lambda a, b: a if a < b else b,
}
EACH_REDUCTION = [*((dtype, "add") for dtype in NUMBERS if dtype != "float32"), *(("float32", r) for r in REDUCTIONS)]


def scattered(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str) -> np.ndarray:
    result = x.copy()
    for place in places(indices.shape):
        at = list(place)
        at[axis] = one_index(indices[place], x.shape[axis])
        if 0 <= at[axis] < x.shape[axis]:
            result[tuple(at)] = REDUCTIONS[reduction](result[tuple(at)], updates[place])
    return result


@pytest.mark.parametrize(("dtype", "reduction"), EACH_REDUCTION)
def test_scatter_elements_combines_what_falls_on_one_place(check: Any, dtype: str, reduction: str) -> None:
    place = [*REDUCTIONS].index(reduction)
    axis, index = (0, -1, 1)[place % 3], INDICES[place % 3]
    types = [((3, 2, 4), dtype), ((3, 2, 3), index), ((3, 2, 3), dtype)]
    check("scatter_elements", types, {"axis": axis, "reduction": reduction},
          lambda x, i, u: scattered(x, i, u, axis, reduction), integers_first(-4, 6))  # fmt: skip


def integers_first(low: int, high: int) -> Values:
    """Small numbers; integers of the types of indices are in the range."""

    def make(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return indices_in(low, high, shape if dtype.name in INDICES else ())(rng, shape, dtype)

    return make


def test_scatter_elements_of_bools_and_symbolic_sizes(check: Any) -> None:
    check("scatter_elements", [((3, 4), "bool"), ((3, 2), "int64"), ((3, 2), "bool")], {"axis": 1},
          lambda x, i, u: scattered(x, i, u, 1, "none"), integers_first(-4, 4))  # fmt: skip
    types = [(("n", 4), "float32"), (("m", "k"), "int64"), (("m", "k"), "float32")]
    for sizes in ({"n": 3, "m": 2, "k": 3}, {"n": 2, "m": 2, "k": 0}, {"n": 0, "m": 0, "k": 1}):
        for axis in (0, 1):
            check("scatter_elements", types, {"axis": axis, "reduction": "add"},
                  lambda x, i, u, axis=axis: scattered(x, i, u, axis, "add"), integers_first(-4, 4),
                  [sizes])  # fmt: skip


def scattered_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    result, depth = x.copy(), indices.shape[-1]
    for row in places(indices.shape[:-1]):
        at = tuple(one_index(i, extent) for i, extent in zip(indices[row], x.shape, strict=False))
        if all(0 <= i < extent for i, extent in zip(at, x.shape, strict=False)):
            for rest in places(x.shape[depth:]):
                result[(*at, *rest)] = REDUCTIONS[reduction](result[(*at, *rest)], updates[(*row, *rest)])
    return result


@pytest.mark.parametrize(("dtype", "reduction"), EACH_REDUCTION)
def test_scatter_nd_combines_elements_and_slices(check: Any, dtype: str, reduction: str) -> None:
    shapes = [((2, 3, 1), (2, 3, 4)), ((5, 2), (5,)), ((2, 0), (2, 3, 4))]
    indices, updates = shapes[[*REDUCTIONS].index(reduction) % 3]
    types = [((3, 4), dtype), (indices, "int64"), (updates, dtype)]
    check("scatter_nd", types, {"reduction": reduction},
          lambda x, i, u: scattered_nd(x, i, u, reduction), integers_first(-4, 4))  # fmt: skip


def test_scatter_nd_of_bools_and_symbolic_sizes(check: Any) -> None:
    check("scatter_nd", [((3, 4), "bool"), ((5, 1), "int32"), ((5, 4), "bool")], {},
          lambda x, i, u: scattered_nd(x, i, u, "none"), integers_first(-3, 3))  # fmt: skip
    types = [(("n", 4, "m"), "float32"), (("k", 2), "int64"), (("k", "m"), "float32")]
    sizes = [{"n": 3, "m": 2, "k": 3}, {"n": 2, "m": 0, "k": 1}, {"n": 0, "m": 2, "k": 2}]
    check("scatter_nd", types, {"reduction": "add"}, lambda x, i, u: scattered_nd(x, i, u, "add"),
          integers_first(-4, 4), sizes)  # fmt: skip


def written(x: np.ndarray, update: np.ndarray, starts: np.ndarray, axis: int, circular: bool) -> np.ndarray:
    result = x.copy()
    for place in places(update.shape):
        at = list(place)
        at[axis] += int(starts[place[0]])
        at[axis] = at[axis] % x.shape[axis] if circular else at[axis]
        if at[axis] < x.shape[axis]:
            result[tuple(at)] = update[place]
    return result


@pytest.mark.parametrize("mode", ["linear", "circular"])
@together("dtype", DTYPES)
def test_tensor_scatter_writes_a_run_into_each_batch(check: Any, dtype: str, mode: str) -> None:
    axis = 1 if mode == "linear" else -1
    update = tuple(2 if number == axis % 3 else 4 for number in range(3))
    types = [((4, 4, 4), dtype), (update, dtype), ((4,), "int64")]
    check("tensor_scatter", types, {"axis": axis, "mode": mode},
          lambda x, u, s: written(x, u, s, axis, mode == "circular"), indices_in(0, 4, (4,)))  # fmt: skip


# Masks.


@pytest.mark.parametrize(("dtype", "case"), EACH_DTYPE[:9])
def test_one_hot_marks_the_index(check: Any, dtype: str, case: int) -> None:
    axis = case - 1

    def oracle(indices: np.ndarray, on: Any, off: Any) -> np.ndarray:
        shape = list(indices.shape)
        shape.insert(axis % 3, 3)
        result = np.full(shape, off)
        for place in places(indices.shape):
            at = list(place)
            at.insert(axis % 3, one_index(indices[place], 3))
            if 0 <= at[axis % 3] < 3:
                result[tuple(at)] = on
        return result

    types = [(("n", 4), "int64"), ((), dtype), ((), dtype)]
    check("one_hot", types, {"depth": 3, "axis": axis}, oracle, indices_in(-5, 5, (2, 4), (5, 4)), N)


@pytest.mark.parametrize("name", ["tril", "triu"])
@together("dtype", DTYPES)
def test_triangles_keep_one_side_of_a_diagonal(check: Any, name: str, dtype: str) -> None:
    def oracle(x: np.ndarray, k: Any = 0) -> np.ndarray:
        return np.array([v if (p[-1] - p[-2] <= k if name == "tril" else p[-1] - p[-2] >= k) else 0
                         for p, v in np.ndenumerate(x)]).reshape(x.shape)  # fmt: skip

    check(name, [(("n", 3), dtype), ((), "int64")], {}, oracle, indices_in(-6, 7, ()), N * 4)
    if dtype == "float32":
        check(name, [((2, 3, 5), dtype)], {}, oracle)


def test_eye_has_ones_on_a_diagonal(check: Any) -> None:
    for k, dtype in ((-9, "float32"), (1, "bool"), (0, "bfloat16"), (2, "int8")):
        oracle = [[float(j - i == k) for j in range(4)] for i in range(3)]
        check("eye", [], {"n": 3, "m": 4, "k": k, "dtype": dtype}, lambda oracle=oracle: np.array(oracle))


# Loops by hand.


def test_loops_that_an_operator_writes_stay_as_they_are() -> None:
    x = gi.var("x", shape=("n", 3))
    after = LowerToTensorIR()(gi.IRModule.from_expr(gi.Function([x], get_operator("cumsum")(x, axis=1))))
    expected = parse("""
primfunc @cumsum(x: Buffer[(n, 3), float32], cumsum: Buffer[(n, 3), float32], n: int64)
    attrs {"kind": "opaque", "num_inputs": 1, "num_outputs": 1} {
  for i0 in parallel(n) {
    allocate total: Buffer[(1,), float32, register]
    total[0] = 0.0
    for k in range(3) {
      total[0] = total[0] + x[i0, k]
      cumsum[i0, k] = total[0]
    }
  }
}
""")
    kernel = after["cumsum"]
    assert isinstance(kernel, PrimFunc)
    assert_structural_equal(kernel, expected, map_free_vars=True)


def test_a_result_of_written_loops_that_nothing_uses_is_memory_of_the_function() -> None:
    x = te.placeholder((4,), "float32", "x")

    def loops(outputs: list[Buffer]) -> Stmt:
        from_x = BufferStore(outputs[0], x[0], (0,))  # type: ignore[arg-type]
        return te.sequence(from_x, BufferStore(outputs[1], outputs[0][0], (0,)))  # type: ignore[arg-type]

    _, second = te.extern([((1,), "float32"), ((1,), "float32")], loops, "pair")
    after = te.compute((1,), lambda i: second[i] + 1.0, "after")
    expected = parse("""
primfunc @f(x: Buffer[(4,), float32], after: Buffer[(1,), float32]) attrs {"num_outputs": 1} {
  allocate pair_0: Buffer[(1,), float32, arena]
  allocate pair_1: Buffer[(1,), float32, arena]
  pair_0[0] = x[0]
  pair_1[0] = pair_0[0]
  for i in range(1) {
    block after(vi: spatial(1) = i) {
      reads pair_1[vi]
      writes after[vi]
      after[vi] = pair_1[vi] + 1.0
    }
  }
}
""")
    assert_structural_equal(te.create_prim_func("f", [x], [after]), expected)


def test_written_loops_read_tensors_only() -> None:
    stranger = Buffer("stranger", (te.as_expr(1),))
    with pytest.raises(TypeError, match="reads stranger, which is not a tensor"):
        te.extern([((1,), "float32")], lambda outs: BufferStore(outs[0], stranger[0], (te.as_expr(0),)))


def t(*shape: Any, dtype: str = "float32") -> gi.Var:
    return gi.var("t", shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gi.gather_elements(t(2, 3), t(2, 3)), "indices: expected an integer tensor"),
        (lambda: gi.gather_elements(t(2, 3), t(2, dtype="int64")), "indices: expected 2 dimensions"),
        (lambda: gi.gather_elements(t(2, 3), t(3, 3, dtype="int64"), axis=1), "at most 2 elements along axis 0"),
        (lambda: gi.gather_nd(t(2, 3), t(2, 3, dtype="int64")), "a last axis of known size, at most 2"),
        (lambda: gi.gather_nd(t(2, 3), t(2, "n", dtype="int64")), "a last axis of known size"),
        (lambda: gi.gather_nd(t(2, 3), t(3, 1, dtype="int64"), batch_dims=1), "2 elements along batch dimension 0"),
        (lambda: gi.scatter_nd(t(2, 3), t(4, 1, dtype="int64"), t(4)), "updates: expected a tensor of shape"),
        (lambda: gi.scatter_elements(t(2), t(2, dtype="int64"), t(2), reduction="sum"), "expected one of none, add"),
        (lambda: gi.scatter_elements(t(2), t(2, dtype="int64"), t(3)), "updates: expected the shape of the indices"),
        (lambda: gi.top_k(t(2, 3), k=4), "k: expected at most the 3 elements along axis 1"),
        (lambda: gi.searchsorted(t(2, 3), t(3, 3)), r"values: expected rows for those of the elements, \(2, m\)"),
        (lambda: gi.searchsorted(t(), t(3)), "elements: expected at least one dimension, found"),
        (lambda: gi.cumsum(t(2, 3), axis=2), "axis: expected an axis of a tensor with 2 dimensions"),
        (lambda: gi.tril(t(2)), "x: expected at least 2 dimensions"),
        (lambda: gi.one_hot(t(2), 1.0, 0.0, depth=3), "indices: expected an integer tensor"),
        (lambda: gi.reverse_sequence(t(2, 3), t(2, dtype="int64")), "lengths: expected a vector of 3 lengths"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        call()
