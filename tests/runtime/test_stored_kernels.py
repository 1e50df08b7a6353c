"""Stored kernels are found by their scheduled loop nests, in this process and in others, and no pass runs on them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.codegen.forks import outline, several_forks
from tilewright.passes.context import PassContext
from tilewright.passes.tensor.part_by_part import RunPart
from tilewright.runtime import build_cache, process_caches
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.kernel_supply import KernelSupply
from tilewright.runtime.stored_kernels import KernelMemory
from tilewright.tensorir import PrimFunc, parse

TARGET = tw.Target("llvm", num_threads=2)
VALUES = np.random.default_rng(3).standard_normal((5, 12)).astype("f4")


def network(operators: Sequence[str] = ("exp",), scale: float = 1.0) -> gi.IRModule:
    """Build a model whose kernels are a dense layer, and for each operator one after a transposition."""
    x = gi.var("x", shape=("n", 12))
    weight = np.random.default_rng(0).standard_normal((9, 12)).astype("f4")
    value = gi.nn.softmax(gi.nn.dense(x, gi.const(weight)) * scale, axis=0)
    for operator in operators:
        value = gi.nn.softmax(gi.get_operator(operator)(value), axis=0)
    return tw.IRModule.from_expr(gi.Function([x], value))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Collect the kernels that the tensor passes run on in builds; entries are kept in a temporary folder."""
    names: list[str] = []
    run_passes = KernelSupply._run

    def noting(self: KernelSupply, mod: gi.IRModule, run: RunPart, ctx: PassContext) -> dict[gi.GlobalVar, PrimFunc]:
        names.extend(name.name for name in mod.functions)
        return run_passes(self, mod, run, ctx)

    monkeypatch.setattr(KernelSupply, "_run", noting)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "kept"))
    forget(monkeypatch)
    yield names


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the kernels of this process."""
    known = process_caches.process_caches()
    monkeypatch.setattr(process_caches, "_current", dataclasses.replace(known, lowered=KernelMemory(100)))


def folder() -> DiskCache:
    found = build_cache.open_cache(tw.PassContext())
    assert found is not None
    return found


def kernel_files() -> list[Path]:
    folder().wait()
    return sorted(folder().directory.glob("kernel-*"))


def build(mod: gi.IRModule, target: tw.Target = TARGET, level: int = 2, **settings: object) -> tw.Executable:
    """Build a model without looking up the build as a whole."""
    folder().wait()
    for path in folder().directory.glob("*.entry"):
        if not path.name.startswith("kernel-"):
            path.unlink()
    with tw.PassContext(opt_level=level, **settings):  # type: ignore[arg-type]
        made = tw.build(mod, target=target)
    folder().wait()
    return made


def uncached(mod: gi.IRModule, monkeypatch: pytest.MonkeyPatch) -> tuple[tw.Executable, list[str]]:
    """Build the model without caches; return it and the remarks of the passes."""
    with monkeypatch.context() as patched:
        patched.setenv("TILEWRIGHT_CACHE", "off")
        with tw.PassContext(opt_level=2) as context:
            made = tw.build(mod, target=TARGET)
    return made, [str(remark) for remark in context.remarks]


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_neighbouring_model_runs_passes_on_what_is_new(
    ran: list[str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(network())
    known = list(ran)
    assert any("dense" in name for name in known)
    if where == "disk":
        forget(monkeypatch)
    ran.clear()
    second = network(("exp", "tanh"))
    model = build(second)
    assert ran and not any("dense" in name for name in ran)
    np.testing.assert_allclose(model(VALUES), gi.evaluate(second["main"], VALUES, dtype="float64"), rtol=1e-5)


def test_a_model_of_kept_kernels_says_the_same(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expected, said = uncached(network(("exp", "tanh")), monkeypatch)
    build(network(("tanh",)))
    forget(monkeypatch)
    for times in (1, 2):
        ran.clear()
        with tw.PassContext(opt_level=2) as context:
            found = tw.build(network(("exp", "tanh")), target=TARGET)
        folder().wait()
        assert [str(remark) for remark in context.remarks] == said
        for stage in expected.stages:
            assert found.ir(stage) == expected.ir(stage), (times, stage)
        np.testing.assert_array_equal(found(VALUES), expected(VALUES))
        assert found.arena_bytes(n=50) == expected.arena_bytes(n=50)
        calls, others = (model.profile(VALUES, repeat=1).as_dict() for model in (found, expected))
        assert [call["kernel"] for call in calls["attributes"]["calls"]] == [
            call["kernel"] for call in others["attributes"]["calls"]
        ]
    assert not ran  # the second build is found as a whole, and its stages need no passes over kernels either


def test_another_process_finds_them(ran: list[str], tmp_path: Path) -> None:
    expected = build(network())(VALUES)
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import test_stored_kernels as tests
def run(*_):
    raise AssertionError("a kernel was not found")
tests.KernelSupply._run = run
np.save({str(tmp_path / "result.npy")!r}, tests.build(tests.network())(tests.VALUES))
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ)
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), expected)


def test_dimensions_that_no_argument_tells_are_the_models(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes(rows: str, columns: str) -> gi.IRModule:
        x = gi.var("x", shape=(rows, columns))
        return tw.IRModule.from_expr(gi.Function([x], gi.exp(x) + gi.const(np.float32(1.0))))

    build(sizes("n", "m"))
    assert ran
    ran.clear()
    values = np.ones((3, 5), "f4")
    for where in ("memory", "disk"):
        if where == "disk":
            forget(monkeypatch)
        model = build(sizes("height", "width"))
        np.testing.assert_allclose(model(values), np.exp(values) + 1, rtol=1e-6)
        assert "height" in model.ir("lowered")
    assert ran == []


KERNEL = """
primfunc @{name}(
  {a}: Buffer[(256,), float32],
  {b}: Buffer[(256,), float32],
) attrs {{"num_inputs": 1, "num_outputs": 1}} {{
  for {i} in range(256) {{
    {b}[{i}] = exp({a}[{i}]) + {addend}
  }}
}}
"""
CALLS = """
def @main(%x: Tensor[(256,), float32]) -> Tensor[(256,), float32] {{
  %0 = @{first}(%x) : Tensor[(256,), float32]
  %1 = @{second}(%0) : Tensor[(256,), float32]
  %1
}}
"""


def two_kernels(
    names: tuple[str, str] = ("f", "g"), first: str = "abi", second: str = "abi", addend: float = 1.0
) -> gi.IRModule:
    texts = [
        KERNEL.format(name=name, a=letters[0], b=letters[1], i=letters[2], addend=number)
        for name, letters, number in ((names[0], first, 1.0), (names[1], second, addend))
    ]
    return gi.parse(CALLS.format(first=names[0], second=names[1]) + "".join(texts))


def test_kernels_with_other_names_are_found_and_show_their_own(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build(two_kernels(addend=2.0))
    assert ran == ["f", "g"]
    ran.clear()
    other = two_kernels(("other", "names"), "xyk", "uvw", 2.0)
    model = build(other)
    assert ran == []
    expected, _ = uncached(other, monkeypatch)
    for stage in expected.stages:
        assert model.ir(stage) == expected.ir(stage)
    values = np.linspace(-1, 1, 256, dtype="f4")
    np.testing.assert_array_equal(model(values), expected(values))


def test_models_of_kept_kernels_that_look_alike_are_told_apart(ran: list[str]) -> None:
    values = np.linspace(-1, 1, 256, dtype="f4")
    for _ in range(2):  # the second time all kernels are outlines, which differ only in the functions behind them
        for addend in (2.0, 3.0):
            found = build(two_kernels(addend=addend))(values)
            np.testing.assert_allclose(found, np.exp(np.exp(values) + 1) + addend, rtol=1e-5)
    assert ran == ["f", "g", "g"]


@pytest.mark.parametrize("cache", ["on", "off"])
def test_equal_kernels_of_a_module_go_through_the_passes_once(
    ran: list[str], cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", cache)
    with tw.PassContext(opt_level=2) as context:
        model = tw.build(two_kernels(second="uvw"), target=TARGET)
    assert ran == ["f"]
    values = np.linspace(-1, 1, 256, dtype="f4")
    np.testing.assert_allclose(model(values), np.exp(np.exp(values) + 1) + 1, rtol=1e-5)
    assert "v[" in model.ir("lowered")
    said = [remark.message.replace("loop i", "loop w") for remark in context.remarks if remark.function == "f"]
    assert said == [remark.message for remark in context.remarks if remark.function == "g"]


OTHERS: dict[str, Callable[[], object]] = {
    "formula": lambda: build(two_kernels(addend=3.0)),
    "threads": lambda: build(two_kernels(), tw.Target("llvm", num_threads=1)),
    "processor": lambda: build(two_kernels(), tw.Target("llvm", mcpu="x86-64-v2", num_threads=2)),
    "features": lambda: build(two_kernels(), tw.Target("llvm", mattr="-avx2", num_threads=2)),
    "level": lambda: build(two_kernels(), level=3),
    "disabled passes": lambda: build(two_kernels(), disabled_pass=["VectorizeLoop"]),
    "required passes": lambda: build(two_kernels(), required_pass=["VectorizeLoop"]),
    "options": lambda: build(two_kernels(), config={"tensorir.UnrollLoop": {"auto_max_step": 4}}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other(ran: list[str], what: str) -> None:
    build(two_kernels())
    ran.clear()
    OTHERS[what]()
    assert ran == (["g"] if what == "formula" else ["f"])


def test_other_source(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build(two_kernels())
    monkeypatch.setattr(build_cache, "source_version", lambda: "another")
    build(two_kernels())
    assert ran == ["f", "f"]


def test_source_that_changed_keeps_no_kernels(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "source_version", lambda: None)
    build(two_kernels())
    build(two_kernels())
    assert ran == ["f", "f"] and kernel_files() == []


def test_without_a_cache_nobody_asks_for_the_version_of_the_source(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> str:
        raise AssertionError("every file was read for a key under which nothing is kept")

    monkeypatch.setattr(build_cache, "source_version", asked)
    uncached(two_kernels(), monkeypatch)
    assert ran == ["f"]


@pytest.mark.parametrize("damage", ["a byte", "the end", "other data"])
def test_a_damaged_kernel_is_dropped_and_made_again(
    ran: list[str], damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(two_kernels())
    (path,) = kernel_files()
    content = bytearray(path.read_bytes())
    if damage == "a byte":
        content[-20] ^= 1
    elif damage == "the end":
        del content[-20:]
    if damage == "other data":
        folder().store(path.stem, {"what": "else"}, [np.zeros(3, "u1")] * 3)
        folder().wait()
    else:
        path.write_bytes(content)
    for expected in (["f", "f"], ["f", "f"]):
        forget(monkeypatch)
        values = np.linspace(-1, 1, 256, dtype="f4")
        np.testing.assert_allclose(build(two_kernels())(values), np.exp(np.exp(values) + 1) + 1, rtol=1e-5)
        assert ran == expected


def test_who_watches_sees_passes_on_all_kernels(ran: list[str]) -> None:
    build(two_kernels())
    ran.clear()
    timing = tw.PassTimingInstrument()
    with tw.PassContext(instruments=[timing]):
        tw.build(two_kernels(), target=TARGET)
    assert "VectorizeLoop" in timing.render()
    seen: list[str] = []
    build(two_kernels(), trace=lambda mod, info, is_before: seen.append(info.name))
    assert "VectorizeLoop" in seen and ran == []


def test_found_in_the_cache_is_said(ran: list[str], caplog: pytest.LogCaptureFixture) -> None:
    build(two_kernels(addend=2.0))
    with caplog.at_level("DEBUG", "tilewright.cache"):
        build(two_kernels(addend=2.0))
    assert any("found in the cache: 2 of 2 kernels" in message for message in caplog.messages)


def test_switched_off_nothing_is_found(ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    build(two_kernels())
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    with tw.PassContext():
        tw.build(two_kernels(), target=TARGET)
    assert ran == ["f", "f"]


def test_an_outline_forks_as_its_kernel() -> None:
    func = parse("""
primfunc @k(a: Buffer[(8,), float32], b: Buffer[(8,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in parallel(8) annotations {"parallel_if": expr(n > 100)} {
    b[i] = a[i]
  }
  for j in range(4) {
    for i in parallel(8) annotations {"parallel_if": expr(n > 200)} {
      b[i] = a[i]
    }
  }
}
""")
    stub = outline(func)
    for least in (1, 2, 3):
        assert str(several_forks(stub, {}, least)) == str(several_forks(func, {}, least))
    assert stub.params == func.params and stub.attrs == func.attrs
    assert "b[" not in str(stub)
