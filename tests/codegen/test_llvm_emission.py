"""Generate code in several threads at once, each with its own target machine; the code equals that of one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm import compile as compiling
from tilewright.codegen.llvm import emission
from tilewright.codegen.llvm.compile import CompiledModule, Effort, compile_module
from tilewright.tensorir import PrimFunc, parse
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=1)


def kernel(number: int) -> PrimFunc:
    return parse(f"""
primfunc @f{number}(x: Buffer[(64,), float32], y: Buffer[(64,), float32]) {{
  for i in range(64) {{
    y[i] = x[i] * {number}.5 + {number + 1}.0
  }}
}}
""")


def code(number: int) -> bytes:
    return compile_module([kernel(number)], TARGET).object_bytes


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Return a function that wraps the call that generates code."""

    def put(around: Callable[..., Any]) -> None:
        emit = emission._without_lock()
        assert emit is not None, "llvmlite is made otherwise"
        monkeypatch.setattr(emission, "_without_lock", lambda: lambda *args: around(emit, *args))

    return put


def test_threads_generate_the_code_that_one_thread_does() -> None:
    numbers = list(range(4))
    alone = [code(number) for number in numbers]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(code, numbers * 2)) == alone * 2


def test_threads_are_in_the_code_generator_at_once(without_lock: Callable[[Callable[..., Any]], None]) -> None:
    both = threading.Barrier(2, timeout=120)

    def meet(emit: Callable[..., Any], *args: Any) -> Any:
        both.wait()
        return emit(*args)

    without_lock(meet)
    with ThreadPoolExecutor(2) as threads:
        assert all(threads.map(code, [1, 2]))


def test_llvmlites_lock_is_free_meanwhile(without_lock: Callable[[Callable[..., Any]], None]) -> None:
    held, seen = [0], []
    callbacks = (lambda: held.append(held.pop() + 1)), (lambda: held.append(held.pop() - 1))

    def look(emit: Callable[..., Any], *args: Any) -> Any:
        seen.append(held[0])
        return emit(*args)

    without_lock(look)
    llvm.ffi.register_lock_callback(*callbacks)
    try:
        code(3)
    finally:
        llvm.ffi.unregister_lock_callback(*callbacks)
    assert seen == [0]


def test_another_llvmlite_keeps_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = code(4)
    monkeypatch.setattr(emission, "_without_lock", lambda: None)
    assert code(4) == usual


def test_a_machine_is_lent_to_one_thread_at_a_time() -> None:
    borrowed = compiling._borrowed_machine
    with borrowed(TARGET, Effort.SCHEDULED) as first, borrowed(TARGET, Effort.SCHEDULED) as second:
        assert second is not first
    with borrowed(TARGET, Effort.SCHEDULED) as again:
        assert again in (first, second), "it is lent again"


def test_addresses_may_come_after_the_code() -> None:
    main = parse("""
primfunc @main(x: Buffer[(64,), float32], y: Buffer[(64,), float32]) {
  @f7(address_of(x[0]), address_of(y[0]))
}
""")
    inner: CompiledModule = compile_module([kernel(7)], TARGET)
    outer = compile_module([main], TARGET, ("main",), elsewhere=[kernel(7)])
    assert outer.unresolved == ("f7",)
    outer.resolve({"f7": inner.address("f7")})
    assert outer.unresolved == () and outer.packed_address("main")


def test_nobody_else_gets_a_machine_that_generates_code() -> None:
    target = Target("llvm", mcpu="haswell", mtriple="x86_64-unknown-linux-gnu")
    with compiling._borrowed_machine(target, Effort.SCHEDULED) as mine:
        assert compiling.create_target_machine(target) is not mine
        with compiling._borrowed_machine(target, Effort.SCHEDULED) as other:
            assert other is not mine
    with compiling._borrowed_machine(target, Effort.SCHEDULED) as again:
        assert again in (mine, other)
