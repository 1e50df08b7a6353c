"""Instructions of users: what they check, what they match, and that both targets call their implementations."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import tilewright as tw
from tilewright import tensorir as ti
from tilewright.passes.tensor.lower_tensor_intrin import lower_tensor_intrin
from tilewright.tensorir import tensor as te
from tilewright.tensorir import tensor_intrins as registry
from tilewright.tensorir.errors import ArtifactError, ScheduleError
from tilewright.tensorir.intrinsics import INTRINSICS

TARGETS = ("llvm", "numba")

OUTER = """
primfunc @outer(
    c: Buffer[(4, 8), float32, strides=(sc, 1)], a: Buffer[(4, 1), float32, strides=(sa, 1)],
    b: Buffer[(8,), float32], sc: int64, sa: int64
) {
  for i in range(4) {
    for j in range(8) {
      block step(vi: spatial(4) = i, vj: spatial(8) = j) {
        reads c[vi, vj], a[vi, 0], b[vj]
        writes c[vi, vj]
        c[vi, vj] = c[vi, vj] + a[vi, 0] * b[vj]
      }
    }
  }
}
"""
SIGNATURE = "void(CPointer(float32), CPointer(float32), CPointer(float32), int64, int64)"

#: Adds twice the products, so that results tell whether it ran.
LLVM_TWICE = """
define void @twice(ptr %c, ptr %a, ptr %b, i64 %sc, i64 %sa) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%n, %loop]
  %bv = load <8 x float>, ptr %b, align 4
  %ao = mul i64 %i, %sa
  %ap = getelementptr float, ptr %a, i64 %ao
  %av = load float, ptr %ap
  %two = fmul float %av, 2.0
  %s0 = insertelement <8 x float> poison, float %two, i64 0
  %s = shufflevector <8 x float> %s0, <8 x float> poison, <8 x i32> zeroinitializer
  %co = mul i64 %i, %sc
  %cp = getelementptr float, ptr %c, i64 %co
  %cv = load <8 x float>, ptr %cp, align 4
  %r = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %bv, <8 x float> %cv)
  store <8 x float> %r, ptr %cp, align 4
  %n = add i64 %i, 1
  %again = icmp slt i64 %n, 4
  br i1 %again, label %loop, label %end
end:
  ret void
}
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
"""


@numba.cfunc(SIGNATURE)
def c_thrice(c: Any, a: Any, b: Any, sc: int, sa: int) -> None:
    for i in range(4):
        for j in range(8):
            c[i * sc + j] += 3 * a[i * sa] * b[j]


@pytest.fixture(autouse=True)
def registered_anew() -> Iterator[None]:
    """Begin without instructions, and forget those that a test registers."""
    before = dict(registry._REGISTERED)
    for name in before:
        del INTRINSICS[name]
    registry._REGISTERED.clear()
    yield
    for name in registry._REGISTERED:
        del INTRINSICS[name]
    registry._REGISTERED.clear()
    for each in before.values():
        ti.tensor_intrin(each.name, each.description, llvm=each.llvm, numba=each.cfunc)


def register(**given: Any) -> ti.TensorIntrin:
    return ti.tensor_intrin("outer", ti.parse(OUTER), **given)


def product(m: Any = 16, n: Any = 24, k: Any = 5) -> ti.PrimFunc:
    x, y = te.placeholder((m, k), "float32", "x"), te.placeholder((k, n), "float32", "y")
    r = te.reduce_axis(k, "k")
    z = te.compute((m, n), lambda i, j: te.sum(x[i, r] * y[r, j], axis=r), name="z")
    return ti.create_prim_func("matmul", [x, y], [z])


def tiled(func: ti.PrimFunc | None = None, rows: int = 4, columns: int = 8) -> tuple[ti.Schedule, Any, list[Any]]:
    schedule = ti.Schedule(product() if func is None else func)
    block = schedule.get_block("z")
    i, j, k = schedule.get_loops(block)
    outer, row = schedule.split(i, [None, rows])
    side, column = schedule.split(j, [None, columns])
    schedule.reorder(outer, side, k, row, column)
    schedule.decompose_reduction(block, k)
    return schedule, block, [outer, side, k, row, column]


def operands(m: int = 16, n: int = 24, k: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((m, k), "float32"), rng.random((k, n), "float32")


def factor(func: ti.PrimFunc, target: str, m: int = 16, n: int = 24, k: int = 5) -> float:
    """Build ``func``, and return what it multiplies the product by."""
    a, b = operands(m, n, k)
    ratio = tw.build(func, target=target)(a, b) / (a @ b)
    np.testing.assert_allclose(ratio, ratio.flat[0], rtol=1e-4)
    return float(round(ratio.flat[0]))


@pytest.mark.parametrize(
    ("target", "given", "expected"),
    [
        ("llvm", {}, 1),
        ("numba", {}, 1),
        ("llvm", {"llvm": LLVM_TWICE}, 2),
        ("numba", {"llvm": LLVM_TWICE}, 1),
        ("llvm", {"numba": c_thrice}, 3),
        ("numba", {"numba": c_thrice}, 3),
        ("llvm", {"llvm": LLVM_TWICE, "numba": c_thrice}, 2),
        ("numba", {"llvm": LLVM_TWICE, "numba": c_thrice}, 3),
    ],
)
def test_each_target_calls_its_implementation_or_runs_the_description(
    target: str, given: dict[str, Any], expected: int
) -> None:
    register(**given)
    schedule, _, loops = tiled()
    schedule.tensorize(loops[3], "outer")
    assert factor(schedule.func, target) == expected


@pytest.mark.parametrize("target", TARGETS)
def test_threads_call_it(target: str) -> None:
    register(llvm=LLVM_TWICE, numba=c_thrice)
    schedule, _, loops = tiled(product(256, 512, 64))
    schedule.parallel(loops[0])
    schedule.tensorize(loops[3], "outer")
    assert factor(schedule.func, target, 256, 512, 64) == {"llvm": 2, "numba": 3}[target]


def test_symbolic_size_is_passed_as_the_stride() -> None:
    register(llvm=LLVM_TWICE)
    k = ti.Var("k", "int64")
    schedule, _, loops = tiled(product(k=k))
    schedule.tensorize(loops[3], "outer")
    model = tw.build(schedule.func)
    for size in (1, 9):
        a, b = operands(k=size)
        np.testing.assert_allclose(model(a, b), 2 * (a @ b), rtol=1e-5)


def test_block_stands_for_its_innermost_loops() -> None:
    intrin = register()
    by_loop, _, loops = tiled()
    by_loop.tensorize(loops[3], intrin)
    by_block, block, _ = tiled()
    by_block.tensorize(block, intrin)
    ti.assert_structural_equal(by_loop.func, by_block.func)


def test_interpreter_runs_the_description_before_and_after_lowering() -> None:
    register(llvm=LLVM_TWICE)
    schedule, block, _ = tiled()
    schedule.tensorize(block, "outer")
    pipeline = [tw.passes.get_pass(name) for name in ("LowerBlocks", "CompactBuffer", "LowerTensorIntrin")]
    lowered = tw.passes.Sequential(pipeline, name="lowering")(tw.IRModule({"m": schedule.func}))["m"]
    ti.verify(lowered)
    assert "if outer(address_of(z[i_0 * 4, j_0 * 8]), address_of(x[i_0 * 4, k])" in str(lowered)
    a, b = operands()
    for func in (schedule.func, lowered):
        c = np.empty((16, 24), "float32")
        ti.interpret(func, a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_trace_is_replayed_and_the_text_parses_back() -> None:
    register()
    schedule, block, _ = tiled()
    schedule.tensorize(block, "outer")
    again = ti.Schedule(product())
    type(schedule.trace).from_json(schedule.trace.to_json()).apply(again)
    ti.assert_structural_equal(again.func, schedule.func)
    ti.assert_structural_equal(ti.parse(str(schedule.func)), schedule.func)


@pytest.mark.parametrize("target", TARGETS)
def test_local_buffer_is_compacted_before_strides_are_passed(target: str) -> None:
    """The sums of a tile lie in a buffer of the tile's size when the instruction is called."""
    register(llvm=LLVM_TWICE, numba=c_thrice)
    schedule = ti.Schedule(product())
    block = schedule.get_block("z")
    back = schedule.cache_write(block, 0, "stack")
    i, j = schedule.get_loops(back)
    _, side, _, _ = schedule.tile([i, j], [4, 8])
    schedule.compute_at(block, side)
    *_, row, column, k = schedule.get_loops(block)
    schedule.reorder(k, row, column)
    schedule.decompose_reduction(block, k)
    schedule.tensorize(block, "outer")
    assert factor(schedule.func, target) == {"llvm": 2, "numba": 3}[target]


@pytest.mark.parametrize("target", TARGETS)
def test_loop_that_it_does_not_depend_on_repeats_it(target: str) -> None:
    @numba.cfunc("void(CPointer(float32), CPointer(float32))")
    def add(c: Any, a: Any) -> None:
        for i in range(8):
            c[i] += a[i]

    repeated = """
primfunc @repeat(c: Buffer[(8,), float32], a: Buffer[(8,), float32]) {
  for t in range(5) {
    for i in range(8) {
      block z(vt: reduction(5) = t, vi: spatial(8) = i) {
        reads c[vi], a[vi]
        writes c[vi]
        c[vi] = c[vi] + a[vi]
      }
    }
  }
}
"""
    description = ti.parse(
        """
primfunc @add8(c: Buffer[(8,), float32], a: Buffer[(8,), float32]) {
  for i in range(8) {
    block z(vi: spatial(8) = i) {
      reads c[vi], a[vi]
      writes c[vi]
      c[vi] = a[vi] + c[vi]
    }
  }
}
"""
    )
    ti.tensor_intrin("add8", description, numba=add)
    schedule = ti.Schedule(ti.parse(repeated))
    schedule.tensorize(schedule.get_block("z"), "add8")
    c, a = np.ones(8, "float32"), np.arange(8, dtype="float32")
    np.testing.assert_array_equal(tw.build(schedule.func, target=target)(c, a), 1 + 5 * a)


# Errors.


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


# Artifacts.

_LOAD = """
import numpy as np, tilewright as tw
a, b = np.ones((16, 5), "float32"), np.ones((5, 24), "float32")
print(tw.load({path!r})(a, b)[0, 0])
"""


def in_another_process(path: Path) -> str:
    command = [sys.executable, "-c", _LOAD.format(path=str(path))]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return run.stdout + run.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"llvm": LLVM_TWICE}, "10.0"),
        ({"numba": c_thrice}, "calls the C function of the tensor intrinsic outer, which is not part of it"),
    ],
)
def test_artifact_holds_llvm_code_and_names_what_it_lacks(given: dict[str, Any], expected: str, tmp_path: Path) -> None:
    register(**given)
    schedule, block, _ = tiled()
    schedule.tensorize(block, "outer")
    tw.build(schedule.func).export(tmp_path / "net.tw")
    assert expected in in_another_process(tmp_path / "net.tw")


def test_artifact_runs_where_the_c_function_is_registered(tmp_path: Path) -> None:
    register(numba=c_thrice)
    schedule, block, _ = tiled()
    schedule.tensorize(block, "outer")
    tw.build(schedule.func).export(tmp_path / "net.tw")
    a, b = operands()
    np.testing.assert_allclose(tw.load(tmp_path / "net.tw")(a, b), 3 * (a @ b), rtol=1e-5)


def test_artifact_refuses_a_c_function_of_another_description(tmp_path: Path) -> None:
    register(numba=c_thrice)
    schedule, block, _ = tiled()
    schedule.tensorize(block, "outer")
    tw.build(schedule.func).export(tmp_path / "net.tw")
    ti.tensor_intrin("outer", ti.parse(OUTER.replace("+ a", "- a")), numba=c_thrice, override=True)
    with pytest.raises(ArtifactError, match="as another description says"):
        tw.load(tmp_path / "net.tw")
