"""UnmaskRegisters: use whole vectors where the masked lanes are dead, and keep masks elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.tensor.unmask_registers import unmask_registers
from tilewright.tensorir import parse, structural_equal

SUM = """
primfunc @f(A: Buffer[(5, 8), float32], B: Buffer[(6,), float32]) attrs {"num_outputs": 1} {
  allocate T: Buffer[(8,), float32, register]
  let m: boolx8 = ramp(int32(0), int32(1), 8) < broadcast(int32(6), 8)
  T[ramp(0, 1, 8)MASK] = broadcast(0.0, 8)
  for k in range(5) {
    let again: boolx8 = ramp(int32(0), int32(1), 8) < broadcast(int32(6), 8)
    T[ramp(0, 1, 8)AGAIN] = T[ramp(0, 1, 8)AGAIN] + A[k, ramp(0, 1, 8)LOAD]
  }
  B[ramp(0, 1, 8) where m] = T[ramp(0, 1, 8)MASK]
}
"""
MASKED = SUM.replace("MASK", " where m").replace("AGAIN", " where again").replace("LOAD", " where again")
WHOLE = SUM.replace("MASK", "").replace("AGAIN", "")


def test_accumulator_of_which_some_lanes_count_is_a_whole_vector_and_so_is_what_is_added(rewrites, keeps_results):
    rewrites(unmask_registers, MASKED, WHOLE.replace("LOAD", ""))
    keeps_results(unmask_registers, MASKED)


@pytest.mark.parametrize("operand", ["Buffer[(5, 7), float32]", "Buffer[(4, 8), float32]"])
def test_what_may_be_beyond_its_buffer_is_loaded_with_its_mask(rewrites, operand):
    masked = MASKED.replace("Buffer[(5, 8), float32]", operand)
    whole = WHOLE.replace("LOAD", " where again").replace("Buffer[(5, 8), float32]", operand)
    rewrites(unmask_registers, masked, whole)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Another predicate for the same place: its lanes were seen.
        ("broadcast(int32(6), 8)\n    T", "broadcast(int32(4), 8)\n    T"),
        ("T[ramp(0, 1, 8) where m] = broadcast(0.0, 8)", "T[ramp(0, 1, 8)] = broadcast(0.0, 8)"),
        # Not a whole vector of the buffer.
        ("Buffer[(8,), float32, register]", "Buffer[(6,), float32, register]"),
        # Memory that is no register, and integers.
        ("float32, register", "float32, stack"),
        ("float32", "int32"),
        # Seen by a store without the predicate, or by a value that has a name.
        ("B[ramp(0, 1, 8) where m] = ", "A[0, ramp(0, 1, 8)] = "),
        (
            "B[ramp(0, 1, 8) where m] = T[ramp(0, 1, 8) where m]",
            "let v: float32x8 = T[ramp(0, 1, 8) where m]\n  B[ramp(0, 1, 8) where m] = v",
        ),
        # Moved to another lane.
        ("= T[ramp(0, 1, 8) where m]", "= interleave_low(T[ramp(0, 1, 8) where m], broadcast(0.0, 8))"),
        ("= T[ramp(0, 1, 8) where m]", "= broadcast(reduce_add(T[ramp(0, 1, 8) where m]), 8)"),
        # A place that depends on a loop.
        ("T[ramp(0, 1, 8) where again] =", "T[ramp(k * 8, 1, 8) where again] ="),
    ],
)
def test_masks_stay_where_other_lanes_may_be_seen(old, new):
    text = MASKED.replace(old, new).replace(
        "broadcast(0.0", "broadcast(int32(0)" if new == "int32" else "broadcast(0.0"
    )
    assert text != MASKED
    func = parse(text)
    assert structural_equal(unmask_registers(func), func)


ROWS = """
primfunc @f(A: Buffer[(5, 4, 8), float32], B: Buffer[(4, 6), float32], n: int32) attrs {"num_outputs": 1} {
  allocate T: Buffer[(4, 8), float32, register]
  for i in unrolled(4) {
    T[i, ramp(0, 1, 8)START] = broadcast(0.0, 8)
  }
  for k in range(5) {
    for j in unrolled(4) {
      T[j, ramp(0, 1, 8)ADD] = T[j, ramp(0, 1, 8)ADD] + A[k, j, ramp(0, 1, 8)LOAD]
    }
  }
  for i in unrolled(4) {
    B[i, ramp(0, 1, 8) where ramp(int32(0), int32(1), 8) < broadcast(n - int32(i), 8)] = T[i, ramp(0, 1, 8)START]
  }
}
"""
LIMIT = " where ramp(int32(0), int32(1), 8) < broadcast(n - int32({}), 8)"


def of_rows(start: str, add: str, load: str) -> str:
    return ROWS.replace("START", start).replace("ADD", add).replace("LOAD", load)


def test_rows_of_unrolled_loops_may_have_a_predicate_each(rewrites):
    masked = of_rows(LIMIT.format("i"), LIMIT.format("j"), LIMIT.format("j"))
    rewrites(unmask_registers, masked, of_rows("", "", ""))


@pytest.mark.parametrize("add", ["k", "3 - j", "j + 1"])
def test_masks_stay_where_a_row_has_another_predicate_elsewhere(add):
    masked = of_rows(LIMIT.format("i"), LIMIT.format(add), LIMIT.format(add))
    func = parse(masked.replace("int32(3 - j)", "int32(3) - int32(j)").replace("int32(j + 1)", "int32(j) + int32(1)"))
    assert structural_equal(unmask_registers(func), func)


def test_masks_stay_where_copies_of_an_access_meet_at_one_place():
    func = parse(
        of_rows(LIMIT.format("i"), LIMIT.format("j"), LIMIT.format("j")).replace("T[i,", "T[0,").replace("T[j,", "T[0,")
    )
    assert structural_equal(unmask_registers(func), func)


@pytest.mark.parametrize("limit", ["int32(i)", "N[0]"])
def test_masks_stay_that_change_while_the_accumulator_is_there(limit):
    """Lanes that one iteration masks off are read by a later one."""
    func = parse(f"""
    primfunc @f(N: Buffer[(1,), int32], A: Buffer[(8,), float32], B: Buffer[(5, 8), float32]) {{
      allocate T: Buffer[(8,), float32, register]
      for i in range(5) {{
        let m: boolx8 = ramp(int32(0), int32(1), 8) < broadcast({limit}, 8)
        T[ramp(0, 1, 8) where m] = A[ramp(0, 1, 8) where m]
        B[i, ramp(0, 1, 8) where m] = T[ramp(0, 1, 8) where m]
      }}
    }}
    """)
    assert structural_equal(unmask_registers(func), func)


@pytest.mark.parametrize("columns", [1, 7, 10, 17, 30, 100])
@pytest.mark.parametrize("rows", [1, 6, 20])
def test_products_with_any_number_of_columns(rows, columns):
    random = np.random.default_rng(columns)
    data, weight = random.standard_normal((rows, 12)).astype("f4"), random.standard_normal((columns, 12)).astype("f4")
    x = gi.var("x", shape=data.shape)
    model = tw.build(gi.Function([x], gi.tanh(gi.nn.dense(x, gi.const(weight)))))
    np.testing.assert_allclose(model(data), np.tanh(data.astype("f8") @ weight.T), rtol=1e-5, atol=1e-5)
