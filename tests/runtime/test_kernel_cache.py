"""Code of equal kernels is shared, and of others never."""

from __future__ import annotations

import collections
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen import llvm as llvm_codegen
from tilewright.runtime import compile as compiling
from tilewright.runtime.compile import KernelCache, Named, compile_functions
from tilewright.tensorir import PrimFunc, parse
from tilewright.tensorir.errors import CodegenError

TARGET = tw.Target("llvm")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The functions that code was generated for, with empty caches."""
    names: list[str] = []
    compile_module = llvm_codegen.compile_module

    def noting(functions: list[PrimFunc], *args: object, **named: object) -> object:
        names.extend(function.name for function in functions)
        return compile_module(functions, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(llvm_codegen, "compile_module", noting)
    monkeypatch.setattr(compiling, "_models", collections.OrderedDict())
    monkeypatch.setattr(compiling, "_kernels", KernelCache(100))
    yield names


def kernel(name: str, addend: float) -> PrimFunc:
    return parse(f"""
primfunc @{name}(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {{"num_outputs": 1}} {{
  for i in range(4) {{
    b[i] = a[i] + {addend}
  }}
}}
""")


def kernels(cache: KernelCache, *functions: PrimFunc) -> list[object]:
    found = cache.kernels([Named.of(function, TARGET) for function in functions], TARGET)
    return [found[function.name] for function in functions]


def test_kernels_that_differ_in_name_only_share_their_code(compiled: list[str]) -> None:
    cache = KernelCache(4)
    first, second, other = kernels(cache, kernel("f", 1.0), kernel("g", 1.0), kernel("h", 2.0))
    assert first is second
    assert other is not first
    assert kernels(cache, kernel("k", 2.0)) == [other]
    assert compiled == ["f", "h"]


def test_kernel_that_was_used_longest_ago_is_dropped_first(compiled: list[str]) -> None:
    cache = KernelCache(2)
    for name, addend in (("a", 1.0), ("b", 2.0), ("a", 1.0), ("c", 3.0), ("a", 1.0), ("b", 2.0)):
        kernels(cache, kernel(name, addend))
    assert compiled == ["a", "b", "c", "b"]


def model(*names: str) -> tw.IRModule:
    x = gi.var("x", shape=(4,))
    results = [gi.get_operator(name)(x) for name in names]
    return tw.IRModule.from_expr(gi.Function([x], gi.Tuple(results)))


VALUES = np.array([0.5, 1.0, 1.5, 2.0], "f4")


def test_kernels_and_models_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    monkeypatch.setattr(compiling, "structural_hash", lambda function: 7)
    with tw.PassContext(opt_level=0):
        first, second = tw.build(model("exp", "negative")), tw.build(model("square", "negative"))
    np.testing.assert_allclose(first(VALUES), [np.exp(VALUES), -VALUES], rtol=1e-6)
    np.testing.assert_allclose(second(VALUES), [VALUES**2, -VALUES], rtol=1e-6)
    assert compiled.count("negative") == 1


def test_model_that_was_built_longest_ago_is_dropped_first(
    monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    monkeypatch.setattr(compiling, "_KEPT_MODELS", 2)
    for name in ("exp", "square", "exp", "negative", "exp", "square"):
        tw.build(model(name))
    assert compiled.count("main") == 4  # exp, square and negative, and square once more


def test_code_for_one_target_is_not_used_for_another(compiled: list[str]) -> None:
    with tw.PassContext(opt_level=0):
        for threads in (1, 2, 1):
            tw.build(model("negative"), target=tw.Target("llvm", num_threads=threads))
    assert compiled == ["negative", "main"] * 2


def test_target_of_another_machine_is_refused_before_code_is_generated(compiled: list[str]) -> None:
    target = tw.Target("llvm", mtriple="aarch64-unknown-linux-gnu")
    with pytest.raises(CodegenError, match=r"aarch64.*cannot run on this machine; use codegen\.llvm\.emit_llvm_ir"):
        compile_functions([kernel("main", 1.0)], target)
    assert compiled == []


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
