"""JoinDims: dimensions that are indexed by the parts of one number become one, on the same memory."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, Sequential
from tilewright.passes.graph.walk import as_group
from tilewright.passes.lower.primitive import lower_primitive
from tilewright.passes.schedule import JoinDims
from tilewright.tensorir import PrimFunc, assert_structural_equal, interpret, parse, verify

DATA = np.arange(2 * 3 * 4, dtype="f4")

BEFORE = """
primfunc @take(
    x: Buffer[(n, h, 4), float32], y: Buffer[(n * h * 4,), float32], n: int64, h: int64
) attrs {"num_outputs": 1} {
  for i in range(n * h * 4) {
    block take(vi: spatial(n * h * 4) = i) {
      reads x[vi // 4 // h, vi // 4 % h, vi % 4]
      writes y[vi]
      y[vi] = x[vi // 4 // h, vi // 4 % h, vi % 4] + 1.0
    }
  }
}
"""
AFTER = """
primfunc @take(
    x: Buffer[(n * (h * 4),), float32], y: Buffer[(n * h * 4,), float32], n: int64, h: int64
) attrs {"num_outputs": 1} {
  for i in range(n * h * 4) {
    block take(vi: spatial(n * h * 4) = i) {
      reads x[vi]
      writes y[vi]
      y[vi] = x[vi] + 1.0
    }
  }
}
"""


def joined(func: PrimFunc) -> PrimFunc:
    after = JoinDims()(IRModule({func.name: func}))[func.name]
    verify(after)
    return after


def shape(func: PrimFunc, number: int = 0) -> str:
    return "x".join(map(str, func.buffers[number].shape))


def test_parts_of_one_number_are_one_index() -> None:
    with PassContext() as ctx:
        after = joined(parse(BEFORE))
    assert_structural_equal(after, parse(AFTER))
    assert [r.message.partition(" joined, ")[0] for r in ctx.remarks] == ["dimensions of x"]
    found = np.zeros(24, "f4")
    interpret(after, DATA, found, 2, 3)
    np.testing.assert_array_equal(found, DATA + 1)


def test_number_that_may_go_beyond_keeps_its_remainder() -> None:
    text = BEFORE.replace("x[vi // 4 // h, vi // 4 % h, vi % 4]", "x[0, vi // 4 % h, vi % 4]")
    after = joined(parse(text))
    assert shape(after) == "nxh * 4"
    found = np.zeros(24, "f4")
    interpret(after, DATA.reshape(2, 12), found, 2, 3)
    np.testing.assert_array_equal(found, np.r_[DATA[:12], DATA[:12]] + 1)


@pytest.mark.parametrize(
    "index",
    [
        "vi // 4 // h, vi // 4 % h, (vi + 1) % 4",  # another number
        "vi // 4 // h, vi // 4 % h, vi % 2",  # not all elements of the dimension
        "vi // 5 // h, vi // 5 % h, vi % 4",  # steps of another length
    ],
)
def test_other_indices_stay(index: str) -> None:
    text = BEFORE.replace("vi // 4 // h, vi // 4 % h, vi % 4", index)
    assert shape(joined(parse(text))).endswith("x4")


def test_every_access_has_to_agree() -> None:
    text = BEFORE.replace("vi % 4] + 1.0", "vi % 4] + x[0, 0, vi % 4]")
    assert shape(joined(parse(text))) == "nxhx4"


def test_level_below_two_leaves_it() -> None:
    func = parse(BEFORE)
    with PassContext(opt_level=1):
        assert Sequential([JoinDims()])(IRModule({"take": func}))["take"] is func


def test_products_of_winograd_count_places_in_one_dimension() -> None:
    x = gi.var("x", shape=(2, 6, 6, "n", "h", "w", 4))
    weight = gi.const(np.zeros((36, 1, 2, 4, 4), "f4"))
    group, _ = as_group(gi.get_operator("nn.winograd_product")(x, weight))
    after = joined(lower_primitive(group, "product"))
    assert len(after.buffers[0].shape) == 4
    assert "//" not in str(after)
