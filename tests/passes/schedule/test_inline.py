"""Test which producers are inlined into every use, and which keep loops of their own."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.context import PassContext
from tilewright.passes.schedule.inline import inline_producers
from tilewright.tensorir import interpret, parse, to_text
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import as_expr, call, select
from tilewright.tensorir.functor import walk
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import BufferStore, PrimFunc


def blocks_after(func: PrimFunc) -> list[str]:
    schedule = Schedule(func)
    inline_producers(schedule)
    return [ref.name for ref in schedule.get_blocks()]


def test_chain_of_formulas_becomes_one_block() -> None:
    x = te.placeholder((4, 5), name="x")
    first = te.compute((4, 5), lambda i, j: x[i, j] * 2.0, name="first")
    second = te.compute((4, 5), lambda i, j: first[i, j] + 1.0, name="second")
    last = te.compute((4, 5), lambda i, j: call("tanh", second[i, j]), name="last")
    assert blocks_after(te.create_prim_func("f", [x], [last])) == ["last"]


@pytest.mark.parametrize(("name", "left"), [("exp", ["powers", "last"]), ("abs", ["last"])])
def test_value_that_is_read_twice_is_computed_again_only_if_it_is_cheap(name: str, left: list[str]) -> None:
    x = te.placeholder((4,), name="x")
    powers = te.compute((4,), lambda i: call(name, x[i]), name="powers")
    last = te.compute((4,), lambda i: powers[i] + powers[3 - i], name="last")
    assert blocks_after(te.create_prim_func("f", [x], [last])) == left


def test_value_that_is_read_once_is_inlined_however_costly() -> None:
    x = te.placeholder((4,), name="x")
    powers = te.compute((4,), lambda i: call("exp", x[i]), name="powers")
    assert blocks_after(te.create_prim_func("f", [x], [te.compute((4,), lambda i: powers[i] + 1.0, name="last")])) == [
        "last"
    ]


def row_sum_of(element: object) -> PrimFunc:
    x = te.placeholder((4, 5), name="x")
    k = te.reduce_axis(5, "k")
    made = te.compute((4, 5), lambda i, j: element(x[i, j]), name="made")  # type: ignore[operator]
    return te.create_prim_func("f", [x], [te.compute((4,), lambda i: te.sum(made[i, k], axis=k), name="total")])


def test_operand_that_a_reduction_reads_once_is_inlined() -> None:
    assert blocks_after(row_sum_of(lambda value: call("exp", value))) == ["total"]


def product_of(left: object) -> PrimFunc:
    """A matrix product whose left operand is computed."""
    a, b = te.placeholder((4, 5), name="a"), te.placeholder((5, 6), name="b")
    k = te.reduce_axis(5, "k")
    made = te.compute((4, 5), lambda i, j: left(a, i, j), name="made")  # type: ignore[operator]
    product = te.compute((4, 6), lambda i, j: te.sum(made[i, k] * b[k, j], axis=k), name="product")
    return te.create_prim_func("f", [a, b], [product])


def test_operand_that_a_product_reads_for_every_column_is_computed_once() -> None:
    assert blocks_after(product_of(lambda a, i, j: a[i, j] + 1.0)) == ["made", "product"]


def test_formula_of_constants_is_inlined_even_into_a_product() -> None:
    assert blocks_after(product_of(lambda a, i, j: (as_expr(i) + j).astype("float32"))) == ["product"]


def test_costly_formula_of_constants_is_computed_once() -> None:
    assert blocks_after(product_of(lambda a, i, j: call("exp", (as_expr(i) + j).astype("float32")))) == [
        "made",
        "product",
    ]


def test_result_of_the_function_keeps_its_block() -> None:
    x = te.placeholder((4,), name="x")
    first = te.compute((4,), lambda i: x[i] * 2.0, name="first")
    second = te.compute((4,), lambda i: first[i] + 1.0, name="second")
    assert blocks_after(te.create_prim_func("f", [x], [first, second])) == ["first", "second"]


def test_block_that_is_no_formula_of_one_element_keeps_its_loops() -> None:
    func = parse("""
primfunc @f(x: Buffer[(4,), float32], y: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  allocate t: Buffer[(4,), float32] {
    for i in range(4) {
      block t(vi: spatial(4) = i) {
        t[vi] = x[vi]
        if vi < 2 {
          t[vi] = 0.0
        }
      }
    }
    for i in range(4) {
      block y(vi: spatial(4) = i) {
        y[vi] = t[vi]
      }
    }
  }
}
""")
    assert blocks_after(func) == ["t", "y"]


@pytest.mark.parametrize(("terms", "left"), [(4, ["last"]), (60, ["long", "last"])])
def test_long_formula_that_is_read_often_is_not_copied(terms: int, left: list[str]) -> None:
    x = te.placeholder((8,), name="x")
    long = te.compute((8,), lambda i: sum((x[i] * float(n) for n in range(1, terms)), x[i]), name="long")
    last = te.compute((8,), lambda i: long[i] * long[7 - i] + long[i], name="last")
    assert blocks_after(te.create_prim_func("f", [x], [last])) == left


@pytest.mark.parametrize("window", [1, 3])
def test_border_that_windows_of_a_contraction_share_is_made_once(window: int) -> None:
    x, weight = te.placeholder((4, 8), name="x"), te.placeholder((4, window), name="weight")
    k = te.reduce_axis(window, "k")
    border = te.compute((4, 10), lambda c, i: select((i >= 1) & (i < 9), x[c, i - 1], 0.0), name="border")
    shape = (4, 11 - window)
    total = te.compute(shape, lambda c, i: te.sum(border[c, i + k] * weight[c, k], axis=k), name="total")
    assert blocks_after(te.create_prim_func("f", [x, weight], [total])) == ["border", "total"]


@pytest.mark.parametrize("level", [2, 3])
def test_hundreds_of_operators_are_several_formulas(level: int) -> None:
    x = gi.var("x", shape=(7,))
    value: gi.Expr = x
    for _ in range(120):
        value = gi.tanh(value + x) * 0.5
    with PassContext(opt_level=level):
        model = tw.build(gi.Function([x], value))
    given = np.random.default_rng(0).standard_normal(7).astype("f4")
    expected = given.astype("f8")
    for _ in range(120):
        expected = np.tanh(expected + given) * 0.5
    np.testing.assert_allclose(model(given), expected, rtol=1e-5)


MASKED = """
primfunc @f(x: Buffer[(6,), int32], y: Buffer[(6,), int32], out: Buffer[(8,), int32]) attrs {"num_outputs": 1} {
  allocate t: Buffer[(6,), int32]
  for i in range(6) {
    block t(vi: spatial(6) = i) {
      reads x[vi], y[vi]
      writes t[vi]
      t[vi] = VALUE
    }
  }
  for i in range(8) {
    block out(vi: spatial(8) = i) {
      reads t[vi - 1]
      writes out[vi]
      out[vi] = select(vi >= 1 and vi < 7, t[vi - 1 where vi >= 1 and vi < 7], 5)
    }
  }
}
"""


def test_what_is_read_under_a_predicate_is_computed_under_it() -> None:
    func = parse(MASKED.replace("VALUE", "x[vi] * y[vi] + 1"))
    schedule = Schedule(func)
    schedule.compute_inline(schedule.get_block("t"))
    (store,) = [node for node in walk(schedule.func.body) if isinstance(node, BufferStore)]
    # The loads are guarded, where x and y have no elements; the condition is asked once.
    guarded = "x[vi - 1 where vi >= 1 and vi < 7] * y[vi - 1 where vi >= 1 and vi < 7] + 1"
    assert to_text(store.value) == f"select(vi >= 1 and vi < 7, {guarded}, 5)"
    x, y = np.arange(6, dtype="int32"), np.full(6, 3, "int32")
    expected, found = np.zeros(8, "int32"), np.ones(8, "int32")
    interpret(func, x, y, expected)
    interpret(schedule.func, x, y, found)
    np.testing.assert_array_equal(found, expected)


def test_what_would_divide_by_zero_outside_of_the_predicate_stays() -> None:
    schedule = Schedule(parse(MASKED.replace("VALUE", "truncdiv(x[vi], y[vi])")))
    with pytest.raises(ScheduleError, match=r"cannot inline: .* would divide by zero"):
        schedule.compute_inline(schedule.get_block("t"))


def test_what_is_masked_by_lane_stays_where_its_operands_would_be_gathered() -> None:
    with tw.PassContext(opt_level=3):
        for axis, allocated in ((0, False), (1, False), (2, True)):
            values = [
                gi.var(name, shape=(4, 32)) for name in "abcdefghijklmnopq"
            ]  # more than are interleaved in registers
            model = tw.build(gi.Function(values, gi.stack(values, axis=axis)))
            assert ("allocate" in model.ir("scheduled")) == allocated


def reasons(func: PrimFunc) -> list[str]:
    return inline_producers(Schedule(func))


def test_reasons_name_the_block_and_what_inlining_would_repeat() -> None:
    x = te.placeholder((4,), name="x")
    powers = te.compute((4,), lambda i: call("exp", x[i]), name="powers")
    twice = te.create_prim_func("f", [x], [te.compute((4,), lambda i: powers[i] + powers[3 - i], name="last")])
    assert reasons(twice) == [
        "block powers not inlined: an element costs more than a load, and is read 2 times",
    ]
    once = te.create_prim_func("f", [x], [te.compute((4,), lambda i: powers[i] + 1.0, name="last")])
    assert reasons(once) == []


def test_reason_is_a_remark_of_the_pass() -> None:
    with PassContext() as ctx:
        tw.build(gi.Function([v := gi.var("v", shape=(64, 64))], gi.nn.softmax(v)), target=tw.Target("llvm"))
    assert [r.message for r in ctx.remarks if r.pass_name == "ScheduleKernels" and "not inlined" in r.message]
