"""Test what instructions of users refuse: other loops, formulas and types, and descriptions that are none."""

from __future__ import annotations

from typing import Any

import numba
import pytest

import tilewright as tw
from tests.codegen.outer_product import (
    LLVM_TWICE,
    OUTER,
    product,
    register,
    tiled,
)
from tilewright import tensorir as ti
from tilewright.passes.tensor.lower_tensor_intrin import lower_tensor_intrin
from tilewright.tensorir import tensor_intrins as registry
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.intrinsics import INTRINSICS

pytestmark = pytest.mark.usefixtures("no_instructions")


@pytest.mark.parametrize(
    ("rows", "columns", "found"),
    [
        (2, 8, "loop i_1: expected the extent 4, found 2"),
        (4, 12, "loop j_1: expected the extent 8, found 12"),
        (5, 8, "loop i_1: expected the extent 4, found 5"),
    ],
)
def test_extents_that_differ_are_an_error(rows: int, columns: int, found: str) -> None:
    register()
    schedule, block, _ = tiled(rows=rows, columns=columns)
    before = schedule.func
    with pytest.raises(ScheduleError, match=found):
        schedule.tensorize(block, "outer")
    assert schedule.func is before


def test_predicate_of_a_split_with_a_remainder_is_an_error() -> None:
    register()
    schedule, block, _ = tiled(product(m=15))
    with pytest.raises(ScheduleError, match="block z has a predicate"):
        schedule.tensorize(block, "outer")


def test_init_is_an_error_that_names_the_primitive() -> None:
    register()
    schedule = ti.Schedule(product(4, 8, 1))
    block = schedule.get_block("z")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(k, i, j)
    with pytest.raises(ScheduleError, match="block z has an init: use decompose_reduction before tensorize"):
        schedule.tensorize(i, "outer")


def test_other_formula_is_an_error_that_shows_it() -> None:
    register()
    schedule, block, _ = tiled(ti.parse(str(product()).replace("x[vi, vk] * y[vk, vj]", "(x[vi, vk] - y[vk, vj])")))
    with pytest.raises(ScheduleError, match=r"expected a\[vi, 0\] \* b\[vj\], found x\[vi, vk\] - y\[vk, vj\]"):
        schedule.tensorize(block, "outer")


def test_other_element_type_is_an_error() -> None:
    register()
    schedule, block, _ = tiled(ti.parse(str(product()).replace("float32", "float64")))
    with pytest.raises(ScheduleError, match=r"buffer c: expected float32, found float64 \(z\)"):
        schedule.tensorize(block, "outer")


def test_stride_that_the_description_does_not_allow_is_an_error() -> None:
    text = OUTER.replace(", strides=(sc, 1)", "").replace(" sc: int64,", "")
    ti.tensor_intrin("outer", ti.parse(text))
    schedule, block, _ = tiled()
    message = r"buffer c \(z\): expected neighbours in dimension 0 at distance 8, found 24; a stride that is a variable"
    with pytest.raises(ScheduleError, match=message):
        schedule.tensorize(block, "outer")


def test_one_buffer_in_two_roles_is_an_error() -> None:
    ti.tensor_intrin(
        "add4",
        ti.parse(
            """
primfunc @add4(c: Buffer[(4,), float32], a: Buffer[(4,), float32]) {
  for i in range(4) {
    block s(vi: spatial(4) = i) { reads a[vi]  writes c[vi]  c[vi] = a[vi] + 1.0 }
  }
}
"""
        ),
    )
    shifted = ti.parse(
        """
primfunc @shift(b: Buffer[(8,), float32]) {
  for i in range(4) {
    block s(vi: spatial(4) = i) { reads b[vi + 4]  writes b[vi]  b[vi] = b[vi + 4] + 1.0 }
  }
}
"""
    )
    schedule = ti.Schedule(shifted)
    with pytest.raises(ScheduleError, match="c and a are both b, which is written"):
        schedule.tensorize(schedule.get_block("s"), "add4")


def test_tensorizing_twice_and_in_a_vector_is_an_error() -> None:
    register()
    schedule, block, loops = tiled()
    schedule.tensorize(block, "outer")
    with pytest.raises(ScheduleError, match="loop i_1 is tensorized already"):
        schedule.tensorize(loops[3], "outer")
    schedule, block, loops = tiled()
    schedule.vectorize(loops[1])
    with pytest.raises(ScheduleError, match="inside of the vectorized loop j_0"):
        schedule.tensorize(block, "outer")


def test_unknown_instruction_is_an_error_that_lists_the_known() -> None:
    register()
    schedule, block, _ = tiled()
    with pytest.raises(ScheduleError, match=r"no tensor intrinsic 'inner'.*registered: outer"):
        schedule.tensorize(block, "inner")


def test_loops_that_change_afterwards_are_an_error_of_the_build() -> None:
    register()
    schedule, block, loops = tiled()
    schedule.tensorize(block, "outer")
    schedule.split(loops[4], [2, 4])
    with pytest.raises(ScheduleError, match="the loops have changed since tensorize"):
        tw.build(schedule.func)


def test_other_implementation_since_tensorize_is_an_error_of_the_build() -> None:
    register()
    schedule, block, _ = tiled()
    schedule.tensorize(block, "outer")
    register(llvm=LLVM_TWICE, override=True)
    with pytest.raises(ScheduleError, match="another one than when the loop was tensorized"):
        lower_tensor_intrin(schedule.func)


def test_second_registration_must_be_equal_or_override() -> None:
    assert register().digest == register().digest
    with pytest.raises(ValueError, match="registered already; override=True"):
        register(llvm=LLVM_TWICE)


@numba.cfunc("void(CPointer(float64), CPointer(float32), CPointer(float32), int64, int64)")
def c_of_doubles(c: Any, a: Any, b: Any, sc: int, sa: int) -> None:
    c[0] = a[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"llvm": "define void @f(ptr %a) { ret }"}, "LLVM rejects it: .*"),
        ({"llvm": "define void @f(ptr %a) { ret void }"}, r"expected void \(ptr, ptr, ptr, i64, i64\), for c, a, b"),
        ({"llvm": "declare void @f(ptr %a)"}, "expected a function @outer, found none"),
        ({"llvm": "define void @f() { ret void }\ndefine void @g() { ret void }"}, "found @f, @g"),
        ({"numba": c_of_doubles}, r"expected void\(CPointer\(float32\), .*found void\(CPointer\(float64\), "),
        ({"numba": print}, "expected the result of @numba.cfunc, found builtin_function_or_method"),
    ],
)
def test_implementations_are_checked_when_they_are_registered(given: dict[str, Any], message: str) -> None:
    with pytest.raises(registry.TensorIntrinError, match=message):
        register(**given)
    assert "outer" not in INTRINSICS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("for i in range", "for i in parallel"), "loop i: expected a serial loop, found a parallel one"),
        (("sa: int64", "sa: int64, t: int64"), "variable t is neither an extent nor a stride"),
        (("c[vi, vj] = c", "init { c[vi, vj] = 0.0 }\n        c[vi, vj] = c"), "block step has an init"),
    ],
)
def test_descriptions_are_checked(change: tuple[str, str], message: str) -> None:
    with pytest.raises(registry.TensorIntrinError, match=message):
        ti.tensor_intrin("outer", ti.parse(OUTER.replace(*change)))


def test_names_are_checked() -> None:
    description = ti.parse(OUTER)
    for name, message in (("a b", "expected an identifier"), ("exp", "Tilewright has an intrinsic of this name")):
        with pytest.raises(registry.TensorIntrinError, match=message):
            ti.tensor_intrin(name, description)
