"""Functions that somebody wrote as loops become kernels: arguments stand before results, places tell sizes, and updated
buffers are copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import tensorir as ti
from tilewright.passes.lower.adopt import adopt
from tilewright.tensorir.errors import PassError, TypeInferenceError, VerifyError


def test_what_a_function_updates_it_gets_as_an_argument_and_copies() -> None:
    before = ti.parse("""
        primfunc @add(total: Buffer[(n, 3), float32], x: Buffer[(n, 3), float32], n: int64) {
          for i in range(n) { for j in range(3) { total[i, j] = total[i, j] + x[i, j] } }
        }""")
    expected = ti.parse("""
        primfunc @add(
          total_1: Buffer[(n, 3), float32], x: Buffer[(n, 3), float32], total: Buffer[(n, 3), float32], n: int64
        ) attrs {"num_inputs": 2, "num_outputs": 1, "schedule": "manual", "sizes_from": ((0, 0),)} {
          for i0 in range(n) { for i1 in range(3) {
            block total_before(v0: spatial(n) = i0, v1: spatial(3) = i1) annotations {"schedule": "auto"} {
              reads total_1[v0, v1]
              writes total[v0, v1]
              total[v0, v1] = total_1[v0, v1]
            } } }
          for i in range(n) { for j in range(3) { total[i, j] = total[i, j] + x[i, j] } }
        }""")
    made = adopt(before, "add")
    ti.assert_structural_equal(made, expected)
    ti.verify(made)
    x, total = np.ones((4, 3), "f4"), np.full((4, 3), 2, "f4")
    result = np.empty_like(total)
    ti.interpret(made, total, x, result, 4)
    np.testing.assert_array_equal(result, np.full((4, 3), 3, "f4"))
    np.testing.assert_array_equal(total, np.full((4, 3), 2, "f4"))


def test_arguments_come_before_results() -> None:
    before = ti.parse("""
        primfunc @f(
          c: Buffer[(m,), int8], a: Buffer[(n,), int8], b: Buffer[(n, m), int8], n: int64, m: int64, k: int64
        ) {
          for i in range(n) { a[i] = int8(k) } for j in range(m) { c[j] = b[0, j] }
        }""")
    made = adopt(before, "g")
    assert [param.name for param in made.params] == ["b", "c", "a", "n", "m", "k"]
    assert made.attrs["num_inputs"] == 1 and made.attrs["num_outputs"] == 2
    assert made.attrs["sizes_from"] == ((0, 0), (0, 1), (0,))
    assert made.name == "g"


def test_what_code_generation_relies_on_is_not_taken_over() -> None:
    text = "primfunc @f(a: Buffer[(4,), int8], b: Buffer[(4,), int8]) { for i in range(4) { b[i] = a[3 - i] } }"
    func = ti.parse(text)
    for name, value in {"overwrites": (0,), "kernel_key": "x", "small_buffers": (0,)}.items():
        assert name not in adopt(func.with_attr(name, value), "f").attrs
    assert adopt(func.with_attr("my_own", 3), "f").attrs["my_own"] == 3


@pytest.mark.parametrize(
    "params, body, error, message",
    [
        ("a: Buffer[(4,), int8]", "for i in range(5) { a[i] = int8(0) }", VerifyError, "out of bounds"),
        (
            "a: Buffer[(4,), int8, align=64]",
            "a[0] = int8(0)",
            TypeInferenceError,
            "parameter a: expected a buffer that is",
        ),
        ("a: Buffer[(4, 4), int8, strides=(8, 1)]", "a[0, 0] = int8(0)", TypeInferenceError, "parameter a: .* strides"),
        (
            "a: Buffer[(4,), int8], n: int32",
            "a[0] = int8(n)",
            TypeInferenceError,
            "size n: expected int64, found int32",
        ),
    ],
)
def test_what_no_call_can_give_is_refused(params: str, body: str, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        adopt(ti.parse(f"primfunc @f({params}) {{ {body} }}"), "f")
    assert "primfunc @f(" in str(caught.value) and "^" in str(caught.value)


def test_names_and_attributes_of_the_compiler_are_refused() -> None:
    func = ti.parse("primfunc @f(a: Buffer[(4,), int8]) { a[0] = int8(0) }")
    with pytest.raises(PassError, match="attribute 'schedule': expected 'manual' or 'auto', found 'automatic'"):
        adopt(func.with_attr("schedule", "automatic"), "f")
    with pytest.raises(TypeInferenceError, match="'row_padding' is the compiler's; found 16"):
        adopt(func.with_attr("row_padding", 16), "f")
    with pytest.raises(TypeInferenceError, match="@tilewright_copy: expected another name"):
        adopt(func, "tilewright_copy")
