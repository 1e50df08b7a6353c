"""Test instructions of users: what they match, and that both targets call their implementations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import tilewright as tw
from tests.codegen.outer_product import (
    LLVM_TWICE,
    OUTER,
    TARGETS,
    c_thrice,
    operands,
    product,
    register,
    tiled,
)
from tilewright import tensorir as ti
from tilewright.tensorir.errors import ArtifactError

pytestmark = pytest.mark.usefixtures("no_instructions")


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
