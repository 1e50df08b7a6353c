"""Test compiled and cached code: evicted models, kernels written by hand, constants of any layout."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen import llvm as llvm_codegen
from tilewright.runtime import kernel_cache, process_caches
from tilewright.runtime.process_caches import ModelCache, ProcessCaches
from tilewright.tensorir import PrimFunc, parse
from tilewright.tensorir.errors import CodegenError, ExecutionError


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the functions that code is generated for, starting with empty caches."""
    names: list[str] = []
    compile_module, compile_kernel = llvm_codegen.compile_module, kernel_cache.compile_kernel

    def noting(functions: list[PrimFunc], *args: object, **named: object) -> object:
        names.extend(function.name for function in functions if function.name != kernel_cache.ANY_NAME)
        return compile_module(functions, *args, **named)  # type: ignore[arg-type]

    def noting_kernels(function: PrimFunc, *args: object) -> object:
        names.append(function.name)
        return compile_kernel(function, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(llvm_codegen, "compile_module", noting)
    monkeypatch.setattr(kernel_cache, "compile_kernel", noting_kernels)
    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    yield names


def kernel(name: str, value: str) -> PrimFunc:
    return parse(f"""
primfunc @{name}(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {{"num_outputs": 1}} {{
  for i in range(4) {{
    b[i] = {value}
  }}
}}
""")


def model(name: str) -> tw.IRModule:
    x = gi.var("x", shape=(4,))
    return tw.IRModule.from_expr(gi.Function([x], gi.get_operator(name)(x)))


VALUES = np.array([0.5, 1.0, 1.5, 2.0], "f4")


def test_model_that_was_built_longest_ago_is_dropped_first(
    monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    monkeypatch.setattr(process_caches, "_current", ProcessCaches(models=ModelCache(2)))
    for name in ("exp", "square", "exp", "negative", "exp", "square"):
        tw.build(model(name))
    assert compiled.count("main") == 4  # exp, square and negative, and square once more


def test_models_of_one_hash_whose_kernels_have_the_same_names_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    monkeypatch.setattr(kernel_cache, "structural_hash", lambda *args: 7)
    x = gi.var("x", shape=(4,))
    models = [tw.build(gi.Function([x], gi.add(x, addend))) for addend in (1.0, 2.0)]
    np.testing.assert_array_equal([found(VALUES) for found in models], [VALUES + 1, VALUES + 2])


def test_models_whose_kernels_swap_their_names_are_told_apart(compiled: list[str]) -> None:
    text = """
def @main(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {
  %0 = @first(%x) : Tensor[(4,), float32]
  %1 = @second(%0) : Tensor[(4,), float32]
  %1
}
"""
    added, doubled = kernel("first", "a[i] + 1.0"), kernel("second", "a[i] * 2.0")
    found = tw.build(gi.parse(f"{text}{added}\n{doubled}\n"))(VALUES)
    np.testing.assert_array_equal(found, (VALUES + 1) * 2)
    added, doubled = kernel("second", "a[i] + 1.0"), kernel("first", "a[i] * 2.0")
    found = tw.build(gi.parse(f"{text}{added}\n{doubled}\n"))(VALUES)
    np.testing.assert_array_equal(found, VALUES * 2 + 1)


def test_equal_kernels_for_two_processors_are_compiled_for_each(compiled: list[str]) -> None:
    with tw.PassContext(opt_level=0):  # the loops are the same for both
        for target in (tw.Target("llvm"), tw.Target("llvm", mcpu="x86-64-v3"), tw.Target("llvm")):
            tw.build(model("negative"), target=target)
    assert sorted(compiled) == ["main", "main", "negative", "negative"]  # in any order: threads compile them


def test_code_for_another_machine_is_generated_but_not_run() -> None:
    model_for_arm = tw.build(model("negative"), target=tw.Target("llvm", mtriple="aarch64-unknown-linux-gnu"))
    assert "fneg" in model_for_arm.ir("assembly")
    for call in (model_for_arm, model_for_arm.profile):
        with pytest.raises(ExecutionError, match=r"aarch64.*cannot run on this machine.*model\.export\(path\)"):
            call(VALUES)


def test_python_source_is_for_this_machine_only() -> None:
    with pytest.raises(CodegenError, match="numba compiles for this machine only"):
        tw.build(model("negative"), target=tw.Target("numba", mtriple="aarch64-unknown-linux-gnu"))


@pytest.mark.parametrize("opt_level", [0, 2])
@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_kernels_that_are_written_by_hand_and_call_each_other_run(kind: str, opt_level: int) -> None:
    mod = gi.parse("""
def @main(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {
  %0 = @outer(%x) : Tensor[(4,), float32]
  %0
}
primfunc @outer(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  @inner(address_of(a[0]), address_of(b[0]))
}
primfunc @inner(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  for i in range(4) {
    b[i] = a[i] + 1.0
  }
}
""")
    with tw.PassContext(opt_level=opt_level):
        np.testing.assert_array_equal(tw.build(mod, target=kind)(VALUES), VALUES + 1)


@pytest.mark.parametrize("kind", ["llvm", "numba"])
@pytest.mark.parametrize(
    "layout",
    [np.asfortranarray, lambda array: array[:, ::-1], lambda array: array.astype(">f4")],
    ids=["fortran", "reversed", "big-endian"],
)
def test_constant_of_any_layout_is_read_right(layout: object, kind: str) -> None:
    values = layout(np.arange(12, dtype="f4").reshape(3, 4))  # type: ignore[operator]
    x = gi.var("x", shape=(3, 4))
    with tw.PassContext(opt_level=0):
        found = tw.build(gi.Function([x], gi.add(x, gi.const(values))), target=kind)(np.zeros((3, 4), "f4"))
    np.testing.assert_array_equal(found, values)
