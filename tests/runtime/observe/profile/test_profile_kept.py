"""A build that is found on disk is profiled with the cached machine code: only ``main`` is compiled again."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profiled_models import looping, perceptron

import tilewright as tw
from tilewright.codegen import llvm as llvm_codegen
from tilewright.runtime import kernel_cache, process_caches
from tilewright.runtime.generated_code import MachineCode, ObjectCode
from tilewright.runtime.loaded_code import LoadedCode
from tilewright.tensorir import PrimFunc

X = np.random.default_rng(0).standard_normal((6, 64)).astype("f4")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[set[str]]]:
    """Collect the names of the functions of each module that LLVM compiles; builds are kept in a temporary folder."""
    found: list[set[str]] = []
    compile_module, compile_kernel = llvm_codegen.compile_module, kernel_cache.compile_kernel

    @functools.wraps(compile_module)
    def watched(functions: Sequence[PrimFunc], *args: Any, **options: Any) -> Any:
        found.append({function.name for function in functions} - {kernel_cache.ANY_NAME})
        return compile_module(functions, *args, **options)

    @functools.wraps(compile_kernel)
    def watched_kernel(function: PrimFunc, *args: Any) -> Any:
        found.append({function.name})
        return compile_kernel(function, *args)

    monkeypatch.setattr(llvm_codegen, "compile_module", watched)
    monkeypatch.setattr(kernel_cache, "compile_kernel", watched_kernel)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "kept"))
    yield found


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the caches of compiled code of this process."""
    monkeypatch.setattr(process_caches, "_current", process_caches.ProcessCaches())


def build(mod: tw.IRModule) -> tw.Executable:
    return tw.build(mod, tw.Target("llvm", num_threads=2))


@pytest.mark.parametrize("make", [perceptron, looping])
def test_only_main_is_compiled_again(make: Any, modules: list[set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [X] if make is perceptron else [X[:, :16], np.array(True)]
    fresh = build(make())
    expected = fresh.profile(*inputs, repeat=2)
    forget(monkeypatch)
    modules.clear()
    again = build(make())
    assert modules == []
    found = again.profile(*inputs, repeat=2)
    assert modules == [{"main"}] * len(again._built.segments)
    for name in ("kernel", "origins", "runs", "operations", "bytes", "dtype", "vector_bits"):
        assert [getattr(call, name) for call in found.calls] == [getattr(call, name) for call in expected.calls]
    assert found.allocations == expected.allocations
    np.testing.assert_array_equal(again(*inputs), fresh(*inputs))


def test_a_second_profile_runs_no_passes(modules: list[set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    build(perceptron())
    forget(monkeypatch)
    again = build(perceptron())
    lowered = again._built.segments[0].lowered()
    again.profile(X, repeat=1)
    assert again._built.segments[0].lowered() is lowered


def test_code_of_kernels_with_other_names_is_compiled(modules: list[set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a precaution, as equal keys of builds imply equal names."""
    fresh = build(perceptron())._built.segments[0].lowered()
    code = fresh.code
    assert isinstance(code, MachineCode)
    functions = [function for function in fresh.modules["lowered"].functions.values() if isinstance(function, PrimFunc)]
    kept = code.object_code()
    target = tw.Target("llvm", num_threads=2)
    forget(monkeypatch)
    modules.clear()
    assert isinstance(LoadedCode(kept, target).of(functions), MachineCode) and not modules
    other = ObjectCode(kept.objects, [(f"{name}_1", place, symbol) for name, place, symbol in kept.symbols[:1]])
    renamed = LoadedCode.__new__(LoadedCode)
    renamed._target, renamed._symbols, renamed._modules = target, list(other.symbols), []
    assert isinstance(renamed.of(functions), MachineCode)
    assert {name for names in modules for name in names} == {function.name for function in functions}


def test_it_works_in_another_process(modules: list[set[str]], tmp_path: Path) -> None:
    expected = build(perceptron())(X)
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import test_profile_kept as tests
from tilewright.codegen import llvm
compile_module, llvm.compile_module = llvm.compile_module, None  # what compiles
model = tests.build(tests.perceptron())
llvm.compile_module = compile_module
profile = model.profile(tests.X, repeat=1)
print(*[call.kernel for call in profile.calls], profile.facts["sizes"])
np.save({str(tmp_path / "result.npy")!r}, model(tests.X))
"""
    ran = subprocess.run([sys.executable, "-c", script], check=True, env=os.environ, capture_output=True, text=True)
    assert ran.stdout.split()[-2:] == ["{'batch':", "6}"]
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), expected)
