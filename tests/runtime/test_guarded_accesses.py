"""Handwritten loops access no memory outside of their buffers, whatever sizes and data are."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.tensorir.errors import VerifyError

HUGE = 1 << 24


GATHER = "at: Buffer[(n,), int64], x: Buffer[(m,), float32], y: Buffer[(n,), float32]"


def func(body: str, parameters: str = GATHER) -> ti.PrimFunc:
    return ti.parse(f"""primfunc @k({parameters}, n: int64, m: int64) attrs {{"num_outputs": 1}} {{ {body} }}""")


def built(loops: ti.PrimFunc, kind: str = "llvm") -> tuple[tw.Executable, list[str]]:
    with tw.PassContext() as ctx:
        model = tw.build(loops, target=kind)
    return model, [remark.message for remark in ctx.remarks if "is guarded" in remark.message]


AT = np.array([1 << 40, 0, 2, -1, 3, -(1 << 40), 1, 1, 1])
X = np.arange(1, 4, dtype="f4")
GATHERED = np.array([0, 1, 3, 0, 0, 0, 2, 2, 2], "f4")


@pytest.mark.parametrize("loop", ["range(n)", "parallel(n)"])
def test_a_load_outside_of_its_buffer_reads_zero(kind: str, loop: str) -> None:
    model, remarks = built(func(f"for i in {loop} {{ y[i] = x[at[i]] }}"), kind)
    np.testing.assert_array_equal(model(AT, X), GATHERED)
    assert remarks == ["x[at[i]] is guarded: nothing proves at[i] >= 0 and at[i] < m"]


def test_lanes_outside_of_a_buffer_read_zero(kind: str) -> None:
    body = "for i in range(n) { y[i] = x[at[i]] } y[ramp(0, 1, 8)] = x[at[ramp(0, 1, 8)]]"
    model, _ = built(func(body), kind)
    np.testing.assert_array_equal(model(AT, X), GATHERED)
    np.testing.assert_array_equal(model(AT[:3], X), GATHERED[:3])  # fewer elements than lanes


def test_a_store_outside_of_its_buffer_does_not_happen(kind: str) -> None:
    body = "for i in range(n) { y[i] = 0.0 } for i in range(n) { y[at[i]] = y[at[i]] + 1.0 }"
    model, _ = built(func(body, "at: Buffer[(n,), int64], y: Buffer[(n,), float32]"), kind)
    np.testing.assert_array_equal(model(AT, 1), [1, 3, 1, 1, 0, 0, 0, 0, 0])


def test_two_sizes_that_a_caller_chooses_keep_stores_inside(kind: str) -> None:
    loops = func("for i in range(n) { y[i] = x[i] + 1.0 }", "x: Buffer[(n,), float32], y: Buffer[(m,), float32]")
    x = gi.var("x", shape=(HUGE,))
    call = gi.Call(gi.GlobalVar("k", gi.FuncType([x.type], gi.TensorType((3,), "float32"))), [x])
    model = tw.build(tw.IRModule({"main": gi.Function([x], call), "k": loops}), target=kind)
    np.testing.assert_array_equal(model(np.zeros(HUGE, "f4")), [1, 1, 1])


@pytest.mark.parametrize("scope", ["stack", "register"])
def test_a_local_buffer_is_left_neither(kind: str, scope: str) -> None:
    body = f"""
      allocate t: Buffer[(16,), float32, {scope}]
      for i in range(16) {{ t[i] = 0.0 }}
      for i in range(n) {{ for j in range(at[i]) {{ t[j] = t[j] + x[0] }} }}
      for i in range(n) {{ y[i] = t[i % 16] }}
    """
    model, remarks = built(func(body), kind)
    np.testing.assert_array_equal(model(np.array([1, 1 << 22, 3]), X), [3, 2, 2])
    assert [each for each in remarks if each.startswith("t[")] == ["t[j] is guarded: nothing proves j < 16"]


def test_a_guard_of_a_local_buffer_touches_no_other_memory(kind: str) -> None:
    body = """
      allocate t: Buffer[(16,), float32, stack]
      for i in range(16) { t[i] = float32(i) }
      for i in range(n) { y[i] = t[at[i] where at[i] >= 0 and at[i] < 16] + x[0] }
    """
    model, remarks = built(func(body), kind)
    np.testing.assert_array_equal(model(AT, X), [1, 1, 3, 1, 4, 1, 2, 2, 2])
    assert not any(each.startswith("t[") for each in remarks)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(n) { if at[i] >= 0 and at[i] < m { y[i] = x[at[i]] } else { y[i] = 0.0 } }",
        "for i in range(n) { if 0 <= at[i] and m > at[i] { y[i] = x[at[i]] } else { y[i] = 0.0 } }",
        "for i in range(n) { y[i] = x[at[i] where at[i] > -1 and at[i] <= m - 1] }",
        "for i in range(n) { let p: int64 = at[i] if p >= 0 and p < m { y[i] = x[p] } else { y[i] = 0.0 } }",
        """for i in range(n) { block b(vi: spatial(n) = i) where at[i] >= 0 and at[i] < m {
             reads x[at[vi]] writes y[vi] y[vi] = 0.0 } }
           for i in range(n) { y[i] = 0.0 }
           for i in range(n) { if at[i] >= 0 { if at[i] < m { y[i] = x[at[i]] } } }
        """,
    ],
)
def test_what_a_condition_keeps_inside_is_not_guarded(body: str) -> None:
    model, remarks = built(func(body))
    np.testing.assert_array_equal(model(AT, X)[-3:], GATHERED[-3:])
    assert not remarks


def test_what_memory_held_before_a_store_proves_nothing(kind: str) -> None:
    body = """
      allocate t: Buffer[(1,), int64, stack]
      for i in range(n) { y[i] = x[0] }
      t[0] = at[0]
      if t[0] >= 0 and t[0] < n { t[0] = 1099511627776 y[t[0]] = 5.0 }
    """
    model, remarks = built(func(body), kind)
    np.testing.assert_array_equal(model(np.array([1, 1]), X), [1, 1])
    assert "y[t[0]] is guarded: nothing proves t[0] >= 0 and t[0] < n" in remarks


def test_a_block_proves_its_domain_only_where_its_values_keep_to_it(kind: str) -> None:
    body = """for i in range(n) { block b(vi: spatial(n) = i + m) {
      reads x[vi] writes y[vi] y[vi] = x[vi] } }"""
    parameters = "x: Buffer[(n,), float32], y: Buffer[(n,), float32]"
    model, remarks = built(func(body, parameters), kind)
    assert len(remarks) == 2
    np.testing.assert_array_equal(model(np.arange(6, dtype="f4"), 3)[3:], [3, 4, 5])
    model(np.zeros(6, "f4"), 1 << 40)


def test_indices_can_be_trusted() -> None:
    loops = func("for i in range(n) { y[i] = x[at[i]] }")
    model, remarks = built(loops.with_attr("unchecked_indices", True))
    assert not remarks
    assert "x[at[i]]" in model.ir("lowered")
    with pytest.raises(VerifyError, match="@k: attribute unchecked_indices: expected True or False, found 1"):
        tw.build(loops.with_attr("unchecked_indices", 1))


def test_an_address_may_be_that_of_the_end() -> None:
    body = "for i in range(n) { prefetch(x[i + 64]) y[i] = x[i] }"
    loops = func(body, "x: Buffer[(n,), float32], y: Buffer[(n,), float32]").with_attr("num_outputs", 1)
    assert not built(loops)[1]
