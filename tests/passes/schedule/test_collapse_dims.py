"""CollapseDims: merge adjacent dimensions; kernels compute the same on the same memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import CollapseDims
from tilewright.tensorir import assert_structural_equal, interpret, parse, verify
from tilewright.tensorir import tensor as te
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import Expr, IntImm, Var, maximum, select
from tilewright.tensorir.functor import free_vars, substitute
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.tensor import Tensor

DATA = np.random.default_rng(11).standard_normal(2 * 3 * 4 * 5).astype("f4")

BEFORE = """
primfunc @relu(x: Buffer[(2, 3, 4), float32], y: Buffer[(2, 3, 4), float32]) attrs {"num_outputs": 1} {
  for i in range(2) {
    for j in range(3) {
      for k in range(4) {
        block relu(vi: spatial(2) = i, vj: spatial(3) = j, vk: spatial(4) = k) {
          reads x[vi, vj, vk]
          writes y[vi, vj, vk]
          y[vi, vj, vk] = max(x[vi, vj, vk], 0.0)
        }
      }
    }
  }
}
"""
AFTER = """
primfunc @relu(x: Buffer[(24,), float32], y: Buffer[(24,), float32]) attrs {"num_outputs": 1} {
  for i in range(24) {
    block relu(vi: spatial(24) = i) {
      reads x[vi]
      writes y[vi]
      y[vi] = max(x[vi], 0.0)
    }
  }
}
"""


def collapsed(func: PrimFunc) -> PrimFunc:
    after = CollapseDims()(IRModule({func.name: func}))[func.name]
    verify(after)
    return after


def shapes(func: PrimFunc) -> list[str]:
    return ["x".join(map(str, buffer.shape)) for buffer in func.buffers]


def test_dimensions_that_are_walked_whole_become_one() -> None:
    with PassContext() as ctx:
        assert_structural_equal(collapsed(parse(BEFORE)), parse(AFTER))
    assert [r.message for r in ctx.remarks] == [
        "neighbouring dimensions of y, x collapsed, as loops traverse them as one"
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x: Buffer[(2, 3, 4)", "x: Buffer[(2, 5, 6)"),  # rows of x are longer than what is read of them
        ("max(x[vi, vj, vk], 0.0)", "max(x[vi, vj, 3 - vk], float32(vj))"),
        ("y[vi, vj, vk] = max(x[vi, vj, vk], 0.0)", "y[vi, vj, vk] = max(x[vi, vj, vk], x[vi, 0, vk])"),
        ("= max(x[vi, vj, vk], 0.0)", "= x[vi, vj, vk where vj > 0 and vk > 0] + float32(vi)"),
        ("= j, ", "= j * 1, "),
        ("for j in range(3) {", 'for j in range(3) annotations {"note": 1} {'),
    ],
)
def test_what_is_walked_otherwise_stays(old: str, new: str) -> None:
    func = parse(BEFORE.replace(old, new))
    assert shapes(collapsed(func)) == shapes(func)


def test_a_pair_that_one_stage_needs_apart_is_kept_by_all() -> None:
    x = te.placeholder((2, 3, 4, 5), name="x")
    doubled = te.compute((2, 3, 4, 5), lambda *i: x[i] * 2.0, name="doubled")
    turned = te.compute((2, 4, 3, 5), lambda a, b, c, d: doubled[a, c, b, d], name="turned")
    func = te.create_prim_func("f", [x], [turned])
    assert shapes(collapsed(func)) == ["2x3x4x5", "2x4x3x5"]
    by_row = te.compute((2, 3), lambda a, b: doubled[a, b, 0, 0], name="by_row")
    assert shapes(collapsed(te.create_prim_func("g", [x], [by_row]))) == ["6x4x5", "6"]


def test_a_variable_that_says_what_is_needed_stays_by_itself() -> None:
    x = te.placeholder((2, 3, 4), name="x")
    doubled = te.compute((2, 3, 4), lambda *i: x[i] * 2.0, name="doubled", needed=lambda a, b, c: a <= 1)
    func = te.create_prim_func("f", [x], [te.compute((2, 3, 4), lambda *i: doubled[i] + 1.0)])
    assert shapes(collapsed(func)) == ["2x12", "2x12"]


def test_pixels_under_a_single_step_of_a_window_become_one_dimension() -> None:
    data, weight = te.placeholder((1, 6, 7, 5), name="data"), te.placeholder((4, 6, 1, 1), name="weight")
    c, kh, kw = te.reduce_axis(6, "c"), te.reduce_axis(1, "kh"), te.reduce_axis(1, "kw")
    conv = te.compute(
        (1, 4, 7, 5),
        lambda n, o, y, x: te.sum(data[n, c, y + kh, x + kw] * weight[o, c, kh, kw], axis=[c, kh, kw]),
        name="conv",
    )
    func = te.create_prim_func("conv", [data, weight], [te.compute((1, 4, 7, 5), lambda *i: maximum(conv[i], 0.0))])
    assert shapes(collapsed(func)) == ["1x6x35", "4x6x1x1", "1x4x35"]


def softmax(x: Tensor) -> Tensor:
    *rows, columns = x.shape
    k = te.reduce_axis(columns, "k")
    total = te.compute(rows, lambda *i: te.sum(x[(*i, k)], axis=k), name="total")
    return te.compute(x.shape, lambda *i: x[i] / total[i[:-1]], name="share")


def padded(x: Tensor) -> Tensor:
    a, b, c, d = x.shape
    shape = (a, b, c + 2, d)
    return te.compute(
        shape,
        lambda i, j, y, z: select((y >= 1) & (y < c + 1), x[i, j, maximum(y - 1, 0) % c, z], 0.0),
        name="padded",
    )


def column_sums(x: Tensor) -> Tensor:
    a, b, c, d = x.shape
    i, j = te.reduce_axis(a, "i"), te.reduce_axis(b, "j")
    return te.compute((c, d), lambda y, z: te.sum(x[i, j, y, z], axis=[i, j]), name="sums")


FORMULAS: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "softmax": (softmax, ["24x5", "24x5"]),
    "padded": (padded, ["6x4x5", "6x6x5"]),
    "column sums": (column_sums, ["6x20", "20"]),
}


def size(extent: Expr, sizes: dict[str, int]) -> int:
    values: dict[Var, Expr] = {var: IntImm(sizes[var.name]) for var in free_vars(extent)}
    found = Analyzer().simplify(substitute(extent, values))
    assert isinstance(found, IntImm)
    return found.value


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_kernels_compute_the_same_on_the_same_memory(name: str, symbolic: bool) -> None:
    formula, expected = FORMULAS[name]
    sizes = {"a": 2, "b": 3, "c": 4, "d": 5}
    extents = [Var(letter) for letter in sizes] if symbolic else list(sizes.values())
    x = te.placeholder(extents, name="x")
    before = te.create_prim_func("f", [x], [formula(x)])
    after = collapsed(before)
    assert symbolic or shapes(after) == expected
    results = []
    for func in (before, after):
        given, out = [[size(extent, sizes) for extent in buffer.shape] for buffer in func.buffers]
        found = np.full(out, np.nan, np.float32)
        interpret(func, DATA.reshape(given), found, *[sizes[var.name] for var in func.variables])
        results.append(found.reshape(-1))
    np.testing.assert_array_equal(results[1], results[0])


STRIDED = """
primfunc @relu(x: Buffer[(2, 3, 4), float32, strides=(30, 4, 1)], y: Buffer[(2, 3, 4), float32, strides=(18, 6, 1)])
    attrs {"num_outputs": 1} {
  for i in range(2) {
    for j in range(3) {
      for k in range(4) {
        block relu(vi: spatial(2) = i, vj: spatial(3) = j, vk: spatial(4) = k) {
          reads x[vi, vj, vk]
          writes y[vi, vj, vk]
          y[vi, vj, vk] = max(x[vi, vj, vk], 0.0)
        }
      }
    }
  }
}
"""


def test_dimensions_with_strides_become_one_where_they_lie_like_one() -> None:
    # Of x the inner two do, of y the outer two.
    func = parse(STRIDED)
    assert shapes(collapsed(func)) == ["2x3x4", "2x3x4"]
    dense = parse(STRIDED.replace("strides=(18, 6, 1)", "strides=(90, 4, 1)"))
    after = collapsed(dense)
    assert shapes(after) == ["2x12", "2x12"]
    assert [[str(stride) for stride in buffer.strides] for buffer in after.buffers] == [["30", "1"], ["90", "1"]]
    memory = np.zeros(200, "f4")
    out = np.lib.stride_tricks.as_strided(memory, (2, 12), (90 * 4, 4))
    source = np.lib.stride_tricks.as_strided(DATA[:60], (2, 12), (30 * 4, 4))
    interpret(after, source, out)
    np.testing.assert_array_equal(out, np.maximum(source, 0))
    assert np.count_nonzero(memory) == np.count_nonzero(out)


def test_dimension_of_one_element_does_not_join_its_neighbours() -> None:
    text = STRIDED.replace("(2, 3, 4)", "(3, 1, 4)").replace("range(2)", "range(3)").replace("spatial(2)", "spatial(3)")
    text = text.replace("in range(3) {\n      for k", "in range(1) {\n      for k").replace(
        "vj: spatial(3)", "vj: spatial(1)"
    )
    after = collapsed(parse(text.replace("(30, 4, 1)", "(6, 6, 1)").replace("(18, 6, 1)", "(5, 5, 1)")))
    assert shapes(after) == ["3x4", "3x4"]
    assert [[str(stride) for stride in buffer.strides] for buffer in after.buffers] == [["6", "1"], ["5", "1"]]
