"""Builds are found in the cache exactly when everything that they depend on is unchanged."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import passes
from tilewright.graphir.spelling import digest
from tilewright.passes.instrument import PassInstrument
from tilewright.runtime import build_cache, lower_model
from tilewright.runtime.disk_cache import DiskCache
from tilewright.tensorir.errors import SettingError

VALUES = np.random.default_rng(1).standard_normal((5, 24)).astype("f4")
WEIGHT = np.random.default_rng(2).standard_normal((40, 24)).astype("f4")
TARGET = tw.Target("llvm", num_threads=2)


def network(weight: np.ndarray = WEIGHT, name: str = "x", scale: float = 1.0) -> gi.IRModule:
    """Build a model with one constant that is computed when the model is built, and one that is used as given."""
    x = gi.var(name, shape=("n", weight.shape[1]))
    computed = gi.sum(gi.const(weight), axis=0)
    hidden = gi.exp(x * computed) + gi.const(weight[0].copy())
    return tw.IRModule.from_expr(gi.Function([x], gi.Tuple([gi.sum(hidden * scale, axis=0), hidden])))


def nonzero_network() -> gi.IRModule:
    """Build a model of two segments, the size of whose result becomes known only while it runs."""
    x = gi.var("x", shape=("n",))
    return tw.IRModule.from_expr(gi.Function([x], gi.nonzero(x) + gi.const(np.arange(1, dtype="int64"))))


class Counter:
    """Count builds that run passes."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Counter]:
    """Count how many times passes run; builds are kept in a temporary folder."""
    counter = Counter()
    lower = lower_model.lower

    def counting(*args: object) -> object:
        counter.count += 1
        return lower(*args)

    monkeypatch.setattr(lower_model, "lower", counting)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "kept"))
    yield counter


def folder() -> DiskCache:
    found = build_cache.open_cache(tw.PassContext())
    assert found is not None
    return found


def entries() -> list[Path]:
    """Return the files of builds, without those of kernels and those that record which graphs were kept."""
    return [path for path in folder().directory.glob("*.entry") if not path.name.startswith(("kernel-", "graph-"))]


def build(
    mod: gi.IRModule | None = None, target: tw.Target = TARGET, level: int = 3, **settings: object
) -> tw.Executable:
    with tw.PassContext(opt_level=level, **settings):  # type: ignore[arg-type]
        made = tw.build(mod if mod is not None else network(), target=target)
    folder().wait()
    return made


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("size", [2, 24])
def test_a_constant_used_twice_is_told_from_two_equal_ones(lowered: Counter, size: int, level: int) -> None:
    def model(twice: bool) -> gi.IRModule:
        first, last = np.arange(size, dtype="f4"), np.arange(size, dtype="f4") + 50
        a = gi.const(first)
        b = a if twice else gi.const(first.copy())
        x = gi.var("x", shape=(size,))
        return tw.IRModule.from_expr(gi.Function([x], gi.Tuple([x + a, x * b, x - gi.const(last)])))

    x = np.full(size, 100, "f4")
    for twice in (True, False, True):
        for found, expected in zip(
            build(model(twice), level=level)(x),
            [x + np.arange(size), x * np.arange(size), 50 - np.arange(size)],
            strict=True,
        ):
            np.testing.assert_array_equal(found, expected)


def test_an_equal_model_is_found_and_computes_the_same(lowered: Counter) -> None:
    first = build()
    assert lowered.count == 1
    second = build()
    assert lowered.count == 1
    for rows in (5, 1, 3):
        for a, b in zip(first(VALUES[:rows]), second(VALUES[:rows]), strict=True):
            np.testing.assert_array_equal(a, b)
    assert str(first.signature) == str(second.signature)
    assert first.arena_bytes(n=100) == second.arena_bytes(n=100)


def test_another_process_finds_it(lowered: Counter, tmp_path: Path) -> None:
    model = build()
    np.savez(tmp_path / "values.npz", weight=WEIGHT, values=VALUES)
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
import test_build_cache as tests
tests.tw.runtime.lower_model.lower = None  # what would run passes
np.save({str(tmp_path / "result.npy")!r}, tests.build()(tests.VALUES)[0])
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ)
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), model(VALUES)[0])


def test_a_model_of_several_segments_is_found(lowered: Counter) -> None:
    values = np.array([0, 2, 0, 3, 4], "f4")
    mod = nonzero_network()
    first = build(mod)
    assert lowered.count == 2
    second = build(mod)
    assert lowered.count == 2
    np.testing.assert_array_equal(first(values), second(values))


def test_constants_that_stay_as_they_are_are_not_kept_again(lowered: Counter) -> None:
    build(network(np.ones((2, 300_000), "f4")))
    (path,) = entries()
    assert 300_000 * 4 < path.stat().st_size < 300_000 * 4 * 1.5


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names of the threads that digest constants."""
    threads: list[str] = []

    def noted(constant: gi.Constant) -> str:
        threads.append(threading.current_thread().name)
        return digest(constant)

    monkeypatch.setattr(build_cache, "digest", noted)
    return threads


def test_constants_are_digested_behind_a_build_of_a_new_graph(lowered: Counter, digested: list[str]) -> None:
    build()
    assert digested and set(digested) == {"tilewright-cache"}
    digested.clear()
    build(network(WEIGHT + 1))
    assert digested[0] == "MainThread" and digested[-1] == "tilewright-cache"


def test_files_are_written_behind_a_build(lowered: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    store = DiskCache.store

    def noted(*args: object) -> None:
        threads.append(threading.current_thread().name)
        store(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(DiskCache, "store", noted)
    build(nonzero_network())
    assert threads and set(threads) == {"tilewright-cache"}


def test_a_build_that_would_not_be_found_sooner_is_not_kept(lowered: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "_ALWAYS_KEPT", 0)
    monkeypatch.setattr(build_cache, "_BYTES_PER_SECOND", 1000.0)  # so digests would take seconds
    build()
    assert entries() == []
    monkeypatch.setattr(build_cache, "_BYTES_PER_SECOND", 1e12)
    build()
    build()
    assert lowered.count == 2 and len(entries()) == 1


def test_remarks_are_repeated(lowered: Counter) -> None:
    remarks = []
    for _ in range(2):
        with tw.PassContext(opt_level=3) as context:
            tw.build(network(), target=TARGET)
        folder().wait()
        remarks.append(context.remarks)
    assert lowered.count == 1
    assert remarks[0] and remarks[0] == remarks[1]


def test_stages_are_made_when_asked_for(lowered: Counter) -> None:
    first, second = build(), build()
    assert lowered.count == 1 and first.stages == second.stages
    for stage in first.stages:
        assert first.ir(stage) == second.ir(stage)
    assert lowered.count == 2


@dataclasses.dataclass
class _Watch(PassInstrument):
    seen: int = 0

    def run_before_pass(self, mod: gi.IRModule, info: passes.PassInfo) -> None:
        self.seen += 1


OTHERS: dict[str, Callable[[], object]] = {
    "weights": lambda: build(network(WEIGHT + 1)),
    "names": lambda: build(network(name="y")),
    "attributes": lambda: build(network(scale=0.5)),
    "threads": lambda: build(target=tw.Target("llvm", num_threads=1)),
    "processor": lambda: build(target=tw.Target("llvm", mcpu="x86-64-v2", num_threads=2)),
    "features": lambda: build(target=tw.Target("llvm", mattr="-avx2", num_threads=2)),
    "level": lambda: build(level=2),
    "disabled passes": lambda: build(disabled_pass=["FuseOps"]),
    "required passes": lambda: build(required_pass=["FuseOps"]),
    "options": lambda: build(config={"tensorir.UnrollLoop": {"auto_max_step": 4}}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other(lowered: Counter, what: str) -> None:
    if what in ("processor", "features") and not tw.Target("llvm", mcpu="x86-64-v2").is_runnable:
        pytest.skip("no x86-64")
    build()
    OTHERS[what]()
    assert lowered.count == 2


def test_other_source_or_libraries(lowered: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    build()
    monkeypatch.setattr(build_cache, "source_version", lambda: "another")
    build()
    assert lowered.count == 2


def test_source_that_changed_while_the_program_runs_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "_BEGIN", 0.0)
    assert build_cache.source_version.__wrapped__() is None


def test_instruments_see_the_passes(lowered: Counter) -> None:
    build()
    watch = _Watch()
    build(instruments=[watch])
    assert lowered.count == 2 and watch.seen > 10
    build(trace=lambda mod, info, is_before: None)
    assert lowered.count == 3


def test_passes_of_the_users_own_run(lowered: Counter) -> None:
    build()
    ran: list[str] = []

    @passes.module_pass(opt_level=0, name="Watch")
    def watch(mod: gi.IRModule, ctx: tw.PassContext) -> gi.IRModule:
        ran.append("watch")
        return mod

    for _ in range(2):
        with tw.PassContext(opt_level=3):
            tw.build(network(), target=TARGET, passes={"optimized": watch})
    assert ran == ["watch", "watch"]


def test_operators_from_elsewhere_are_not_kept(lowered: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(gi.get_operator("exp")), "__module__", "elsewhere")
    build()
    build()
    assert lowered.count == 2
    assert entries() == []


def test_a_damaged_entry_is_built_anew(lowered: Counter) -> None:
    expected = build()(VALUES)
    (path,) = entries()
    path.write_bytes(path.read_bytes()[:-100])
    for count in (2, 2):
        found = build()(VALUES)
        assert lowered.count == count
        np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("value", ["much", "1e9", "-1", "1_000", "9" * 5000, "\u0663"])
def test_a_limit_that_is_no_number_of_bytes(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_BYTES", value)
    with pytest.raises(SettingError, match="TILEWRIGHT_CACHE_BYTES: expected a number of bytes, found"):
        tw.build(network())


def test_it_can_be_switched_off(lowered: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    build()
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    with tw.PassContext(opt_level=3):
        tw.build(network(), target=TARGET)
    assert lowered.count == 2


def test_a_folder_that_cannot_be_used_is_told(
    lowered: Counter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file"))
    with tw.PassContext() as context:
        model = tw.build(network(), target=TARGET)
    assert any("not cached" in remark.message for remark in context.remarks)
    assert model(VALUES)[0].shape == (24,)


def test_large_constants_are_digested_on_several_cores(monkeypatch: pytest.MonkeyPatch, digested: list[str]) -> None:
    monkeypatch.setattr(build_cache, "_DIGESTED_IN_THREADS", 1000)
    keys: list[str] = []
    for cores in (1, 2):
        monkeypatch.setattr(build_cache, "available_cores", lambda cores=cores: cores)
        x = gi.var("x", shape=(300,))
        mod = gi.IRModule({"main": gi.Function([x], x * np.arange(300, dtype="f4") + np.ones(300, "f4"))})
        build_cache._digest_constants(mod)
        keys.append(build_cache.key_of("graph", mod))
        assert ("MainThread" in digested[:2]) == (cores == 1)
        digested.clear()
    assert keys[0] == keys[1]
