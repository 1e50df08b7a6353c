"""Code is generated once in a process for equal models, for equal kernels of different models, in several threads."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen import llvm as llvm_codegen
from tilewright.codegen.llvm.compile import CompiledModule, ModuleText
from tilewright.passes.collector import pause_collector, resume_collector
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.runtime import background_compile, kernel_cache, kernel_supply, process_caches
from tilewright.runtime.background_compile import BackgroundCompiler
from tilewright.runtime.kernel_cache import ANY_NAME, Kernel, KernelCache, NamedFunction
from tilewright.runtime.process_caches import ModelCache, ProcessCaches
from tilewright.tensorir import PrimFunc, parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Var
from tilewright.tensorir.structural import structural_hash

TARGET = tw.Target("llvm", num_threads=1)
VALUES = np.random.default_rng(3).standard_normal((5, 12)).astype("f4")


def network(width: int = 12, operators: Sequence[str] = ("exp",), seed: int = 0) -> gi.IRModule:
    """Build a dense layer, and operators that are not fused with it because of a transposition in between."""
    x = gi.var("x", shape=("n", width))
    weight = np.random.default_rng(seed).standard_normal((9, width)).astype("f4")
    value = gi.nn.softmax(gi.nn.dense(x, gi.const(weight)), axis=0)
    for operator in operators:
        value = gi.nn.softmax(gi.get_operator(operator)(value), axis=0)
    return tw.IRModule.from_expr(gi.Function([x], value))


def expected(mod: gi.IRModule, values: np.ndarray) -> np.ndarray:
    return gi.evaluate(mod["main"], values, dtype="float64")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the names of the functions that machine code is generated for; the caches start empty. No kernel goes to
    a worker process, as happens where a busy machine makes passes slow: what that generates would not be counted."""
    names: list[str] = []
    compile_module, compile_kernel = llvm_codegen.compile_module, kernel_cache.compile_kernel

    def counting(functions: Sequence[PrimFunc], *args: object, **named: object) -> CompiledModule:
        names.extend(function.name for function in functions if function.name != ANY_NAME)
        return compile_module(functions, *args, **named)  # type: ignore[arg-type]

    def counting_kernels(function: PrimFunc, *args: object) -> CompiledModule:
        names.append(function.name)
        return compile_kernel(function, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(llvm_codegen, "compile_module", counting)
    monkeypatch.setattr(kernel_cache, "compile_kernel", counting_kernels)
    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    monkeypatch.setattr(kernel_supply, "can_start", lambda: False)
    yield names


def test_building_the_same_module_twice_generates_code_once(compiled: list[str]) -> None:
    first = tw.build(network())
    count = len(compiled)
    second = tw.build(network())
    assert count >= 2
    assert len(compiled) == count
    np.testing.assert_array_equal(first(VALUES), second(VALUES))


def test_another_target_is_other_code(compiled: list[str]) -> None:
    tw.build(network(), target=tw.Target("llvm", num_threads=1))
    count = len(compiled)
    tw.build(network(), target=tw.Target("llvm", num_threads=2))
    assert len(compiled) == 2 * count


def test_models_share_the_kernels_that_they_have_in_common(compiled: list[str]) -> None:
    first = tw.build(network())
    before = len(compiled)
    second = tw.build(network(operators=("exp", "tanh")))
    added = compiled[before:]
    assert "main" in added
    assert not any("dense" in name for name in added)
    assert any("tanh" in name for name in added)
    np.testing.assert_allclose(first(VALUES), expected(network(), VALUES), rtol=1e-5)
    np.testing.assert_allclose(second(VALUES), expected(network(operators=("exp", "tanh")), VALUES), rtol=1e-5)


def test_threads_that_build_one_module_generate_code_once(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tw.build(network(operators=("tanh",)))
    alone = len(compiled)
    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    together = threading.Barrier(6)

    def build(_: int) -> np.ndarray:
        together.wait()
        return tw.build(network(operators=("tanh",)))(VALUES)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(build, range(6)))
    assert len(compiled) == 2 * alone
    for result in results:
        np.testing.assert_allclose(result, expected(network(operators=("tanh",)), VALUES), rtol=1e-5)


def test_models_are_told_apart_where_all_hashes_are_equal(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache, "structural_hash", lambda function, most_nodes: 7)
    modules = [network(operators=names) for names in (("exp",), ("tanh",), ("exp", "tanh"), ("sigmoid",), ("exp",))]
    models = [tw.build(mod) for mod in modules]
    for mod, model in zip(modules, models, strict=True):
        np.testing.assert_allclose(model(VALUES), expected(mod, VALUES), rtol=1e-5)


def scaling(name: str, factor: float, length: int | Var = 4) -> PrimFunc:
    x = te.placeholder((length,), "float32", "x")
    return te.create_prim_func(name, [x], [te.compute((length,), lambda i: x[i] * factor, "y")])


def run(kernel: Kernel) -> list[float]:
    values, result = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(kernel.address)
    function(values.ctypes.data, result.ctypes.data)
    return result.tolist()


def lowered(function: PrimFunc) -> PrimFunc:
    with tw.PassContext(), TARGET:
        mod = tw.IRModule({gi.GlobalVar(function.name): function})
        return tensor_pipeline()(mod)[function.name]


def test_kernels_of_one_hash_are_told_apart() -> None:
    kernels = KernelCache(8)
    functions = [lowered(scaling(f"f{n}", factor)) for n, factor in enumerate((2.0, 3.0, 2.0))]
    named = [NamedFunction(f, NamedFunction.of(f, TARGET).unnamed, (TARGET, 0)) for f in functions]
    found = kernels.kernels(named[:2], TARGET) | kernels.kernels(named[2:], TARGET)
    assert run(found["f0"]) == run(found["f2"]) == [0, 2, 4, 6]
    assert run(found["f1"]) == [0, 3, 6, 9]
    assert found["f2"] is found["f0"]


def test_the_kernels_used_longest_ago_are_forgotten_first() -> None:
    kernels = KernelCache(2)
    named = [NamedFunction.of(lowered(scaling("f", factor)), TARGET) for factor in (2.0, 3.0, 4.0)]
    first = kernels.kernels(named[:1], TARGET)["f"]
    second = kernels.kernels(named[1:2], TARGET)["f"]
    assert kernels.kernels(named[:1], TARGET)["f"] is first
    kernels.kernels(named[2:], TARGET)
    assert kernels.kernels(named[:1], TARGET)["f"] is first
    assert kernels.kernels(named[1:2], TARGET)["f"] is not second


def test_code_lives_as_long_as_a_model_that_runs_it(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    caches = ProcessCaches(kernels=KernelCache(1), models=ModelCache(1))
    monkeypatch.setattr(process_caches, "_current", caches)
    model = tw.build(network())
    (code,) = [code for _, code in caches.models._models.values()]
    modules = [weakref.ref(kernel.module) for kernel in code._kernels.values()]  # type: ignore[attr-defined]
    del code
    x = gi.var("x", shape=(3,))
    tw.build(gi.Function([x], gi.negative(x)))  # the caches forget the first model's code and kernels for this one's
    gc.collect()
    assert modules and all(module() is not None for module in modules)
    np.testing.assert_allclose(model(VALUES), expected(network(), VALUES), rtol=1e-5)
    del model
    gc.collect()
    assert all(module() is None for module in modules)


def test_kernels_are_compiled_while_others_are_made(compiled: list[str]) -> None:
    functions = [lowered(scaling(f"f{n}", n + 2.0)) for n in range(3)]
    with BackgroundCompiler(TARGET) as background:
        background.add(functions[:2])
        background.add(functions[2:])
        kernels = background.kernels()
    assert sorted(compiled) == ["f0", "f1", "f2"]
    assert [run(kernels[function])[1] for function in functions] == [2, 3, 4]


@pytest.mark.parametrize(
    ("length", "threads", "starts"),
    [(1 << 20, 2, True), (Var("n"), 2, True), (8, 2, False), (1 << 20, 1, False)],
    ids=["long", "of any length", "short", "one thread"],
)
def test_threads_start_before_kernels_are_scheduled_whose_loops_they_will_run(
    monkeypatch: pytest.MonkeyPatch, length: int | Var, threads: int, starts: bool
) -> None:
    started = threading.Event()
    monkeypatch.setattr(background_compile.team, "team_functions", started.set)
    with BackgroundCompiler(tw.Target("llvm", num_threads=threads)) as background:
        background.expect([scaling("f", 2.0, length)])
    assert started.is_set() == starts


@pytest.mark.parametrize("kind", ["parallel", "range"])
def test_the_pool_is_there_when_the_kernels_are(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The thread that builds starts it while it waits for LLVM."""
    begun: list[threading.Thread] = []
    monkeypatch.setattr(background_compile, "ensure_threads", lambda: begun.append(threading.current_thread()))
    function = parse(f"""
primfunc @f(x: Buffer[(64,), float32]) {{
  for i in {kind}(64) {{
    x[i] = 1.0
  }}
}}
""")
    with BackgroundCompiler(tw.Target("llvm", num_threads=2)) as background:
        background.add([function])
        background.kernels()
    assert begun == ([threading.current_thread()] if kind == "parallel" else [])


def test_garbage_is_collected_while_llvm_works() -> None:
    function, generations = lowered(scaling("f", 2.0)), []

    def noting(phase: str, info: dict[str, int]) -> None:
        generations.append((phase, info["generation"]))

    for paused in (True, False):
        with BackgroundCompiler(TARGET) as background:
            background.add([function])
            pause_collector() if paused else gc.disable()  # where the program has it off, it stays off
            gc.callbacks.append(noting)
            try:
                background.kernels()
            finally:
                gc.callbacks.remove(noting)
                resume_collector() if paused else gc.enable()
        assert generations == [("start", 0), ("stop", 0)]


def test_a_kernel_that_another_thread_compiles_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    compile_kernel, count = kernel_cache.compile_kernel, []

    def slow(*args: object) -> CompiledModule:
        count.append(1)
        begun.set()
        assert go_on.wait(120)
        return compile_kernel(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_cache, "compile_kernel", slow)
    kernels = KernelCache(8)
    named = [NamedFunction.of(lowered(scaling(name, 2.0)), TARGET) for name in ("f", "g")]
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(kernels.kernels, named[:1], TARGET)
        assert begun.wait(120)
        second = threads.submit(kernels.kernels, named[1:], TARGET)
        go_on.set()
        assert second.result(10)["g"] is first.result(10)["f"]
    assert len(count) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks processes")
def test_a_process_forked_while_a_kernel_is_handed_over_finds_it() -> None:
    """The thread that holds the lock then is not in the new process."""
    kernels = KernelCache(8)
    named = [NamedFunction.of(lowered(scaling("f", 2.0)), TARGET)]
    kernels.kernels(named, TARGET)
    (entry,) = kernels._kernels.values()
    with entry.kernel._condition:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                signal.alarm(60)
                entry.kernel._condition = None  # type: ignore[assignment]  # (this thread could take it again)
                code = 0 if run(kernels.kernels(named, TARGET)["f"]) == [0, 2, 4, 6] else 2
            finally:
                os._exit(code)
    assert os.waitpid(process, 0)[1] == 0


def test_a_kernel_that_was_refused_is_compiled_when_it_is_wanted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = KernelCache(8)
    named = [NamedFunction.of(lowered(scaling(f"f{n}", n + 2.0)), TARGET) for n in range(2)]

    def refused(*_: object, **__: object) -> CompiledModule:
        raise CodegenError("refused")

    with monkeypatch.context() as patched, pytest.raises(CodegenError, match="refused"):
        patched.setattr(kernel_cache, "compile_kernel", refused)
        kernels.kernels(named, TARGET)
    found = kernels.kernels(named, TARGET)
    assert [run(found[f"f{n}"])[1] for n in range(2)] == [2, 3]


def test_kernels_that_no_thread_has_begun_are_compiled_by_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_compile, "available_cores", lambda: 2)
    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    compile_kernel, here = kernel_cache.compile_kernel, threading.Event()

    def noting(*args: object) -> CompiledModule:
        if threading.current_thread() is threading.main_thread():
            here.set()
        else:
            assert here.wait(120), "the waiting thread has not compiled anything"
        return compile_kernel(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(kernel_cache, "compile_kernel", noting)
    functions = [lowered(scaling(f"f{n}", n + 2.0)) for n in range(3)]
    with BackgroundCompiler(TARGET) as background:
        for function in functions:
            background.add([function])
        kernels = background.kernels()
        assert background.kernels() == kernels, "they are there"
    assert [run(kernels[function])[1] for function in functions] == [2, 3, 4]


def test_on_one_core_kernels_are_compiled_by_who_waits_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM and the passes would only take turns there."""
    monkeypatch.setattr(background_compile, "available_cores", lambda: 1)
    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    compile_text, threads = ModuleText.compile, []

    def noting(text: ModuleText, *args: object) -> CompiledModule:
        threads.append(threading.current_thread())
        return compile_text(text, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(ModuleText, "compile", noting)
    functions = [lowered(scaling(f"f{n}", n + 2.0)) for n in range(3)]
    with BackgroundCompiler(TARGET) as background:
        for function in functions:
            background.add([function])
        assert threads == []
        kernels = background.kernels()
        assert background.kernels() == kernels, "they are there"
    assert threads == [threading.current_thread()] * 3
    assert [run(kernels[function])[1] for function in functions] == [2, 3, 4]


def test_main_is_compiled_while_kernels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_text, main = ModuleText.compile, threading.Event()

    def noting(text: ModuleText, *args: object) -> CompiledModule:
        if "main" in text.names:
            main.set()
        else:
            assert main.wait(120), "main waits for kernels"
        return compile_text(text, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    monkeypatch.setattr(ModuleText, "compile", noting)
    found = tw.build(network(), TARGET)(VALUES)
    np.testing.assert_allclose(found, expected(network(), VALUES), rtol=1e-5)


def test_kernels_that_passes_make_are_not_hashed_again(monkeypatch: pytest.MonkeyPatch, compiled: list[str]) -> None:
    hashed: list[PrimFunc] = []

    def noting(function: PrimFunc, *args: int) -> int:
        hashed.append(function)
        return structural_hash(function, *args)

    monkeypatch.setattr(kernel_cache, "structural_hash", noting)
    tw.build(network(), TARGET)
    assert len(compiled) > 1 and len(hashed) == 1, "main's"


def test_what_cannot_be_compiled_ahead_is_an_error_of_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> CompiledModule:
        raise CodegenError("refused")

    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    monkeypatch.setattr(llvm_codegen, "emit_module", refused)
    with pytest.raises(CodegenError, match="refused"):
        tw.build(network())


def test_the_thread_that_runs_the_passes_emits_kernels_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emit_kernel, threads = kernel_cache.emit_kernel, []

    def noting(*args: object) -> ModuleText:
        threads.append(threading.current_thread())
        return emit_kernel(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(process_caches, "_current", ProcessCaches())
    monkeypatch.setattr(kernel_cache, "emit_kernel", noting)
    functions = [lowered(scaling(f"f{n}", n + 2.0)) for n in range(3)]
    with BackgroundCompiler(TARGET) as background:
        for function in functions:
            background.add([function])
        kernels = background.kernels()
        background.add(functions)
        assert background.kernels() == kernels
    assert threads == [threading.current_thread()] * 3
    assert [run(kernels[function])[1] for function in functions] == [2, 3, 4]


def test_a_kernel_that_llvm_rejects_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(text: ModuleText, *_: object) -> CompiledModule:
        raise CodegenError(f"rejected {', '.join(text.names)}")

    monkeypatch.setattr(ModuleText, "compile", reject)
    named = [NamedFunction.of(lowered(scaling("of_the_model", 2.0)), TARGET)]
    cache = KernelCache(8)
    for texts in (None, cache.emit_missing(named, TARGET)):
        with pytest.raises(CodegenError, match="rejected of_the_model"):
            cache.kernels(named, TARGET, texts)
