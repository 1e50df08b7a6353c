"""Artifacts run like the exported model, in any process; other files, and code for other machines, are rejected."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright import passes
from tilewright.runtime import build_cache, packed_file
from tilewright.runtime.artifact import FORMAT, Artifact
from tilewright.runtime.process_caches import fresh_caches
from tilewright.tensorir import target as targets
from tilewright.tensorir.errors import ArtifactError

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(3)
WEIGHT = RANDOM.standard_normal((24, 16)).astype("f4")
ROWS = RANDOM.standard_normal((5, 24)).astype("f4")


def network() -> gi.IRModule:
    """Build a model with symbolic rows, two results, one in a tuple of its own, a packed weight and another one."""
    x = gi.var("x", shape=("rows", 24))
    hidden = gi.tanh(gi.matmul(x, gi.const(WEIGHT)) + gi.const(WEIGHT[0].copy()))
    return tw.IRModule.from_expr(gi.Function([x], gi.Tuple([hidden, gi.Tuple([gi.sum(hidden, axis=0)])])))


def nonzero_network() -> gi.IRModule:
    """Build a model of two functions, the size of whose result becomes known only while it runs."""
    x = gi.var("x", shape=("n",))
    return tw.IRModule.from_expr(gi.Function([x], gi.nonzero(x) + gi.const(np.arange(1, dtype="int64"))))


def scaled_network(weight: Array) -> gi.IRModule:
    """Build ``x * weight`` of one element type."""
    x = gi.var("x", shape=("n", weight.size), dtype=str(weight.dtype))
    return tw.IRModule.from_expr(gi.Function([x], gi.multiply(x, gi.const(weight))))


def build(mod: gi.IRModule, level: int = 3, **options: Any) -> tw.Executable:
    with tw.PassContext(opt_level=level):
        return tw.build(mod, **options)


def flat(result: Any) -> list[Array]:
    return [array for part in result for array in flat(part)] if isinstance(result, tuple) else [result]


NARROW = {
    "bfloat16": np.arange(-20, 20).astype(ml_dtypes.bfloat16),
    "float16": np.arange(-20, 20).astype("f2"),
    "int8": np.arange(-20, 20).astype("i1"),
    "uint8": np.arange(0, 40).astype("u1"),
}
CASES: dict[str, tuple[Callable[[], gi.IRModule], Array]] = {
    "several results": (network, ROWS),
    "sizes known while it runs": (nonzero_network, np.array([0, 2, 0, 3, 4], "f4")),
    **{
        name: (functools.partial(scaled_network, weight), np.stack([weight[::-1]] * 3))
        for name, weight in NARROW.items()
    },
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the artifact of ``network``, with its graph."""
    path = tmp_path_factory.mktemp("artifact") / "net.tw"
    build(network()).export(path, graph=True)
    return path


@pytest.mark.parametrize("case", CASES)
def test_a_fresh_process_computes_the_same_from_the_artifact(case: str, tmp_path: Path) -> None:
    make, values = CASES[case]
    model = build(make())
    model.export(tmp_path / "net.tw")
    np.save(tmp_path / "values.npy", values.view("u1"))
    script = f"""
import sys
import numpy as np, ml_dtypes
import tilewright as tw
from tilewright.runtime import lower_model
lower_model.lower = None  # what would run passes
values = np.load({str(tmp_path / "values.npy")!r}).view({values.dtype.str if case not in NARROW else case!r})
model = tw.load({str(tmp_path / "net.tw")!r})
assert str(model.signature) == sys.argv[1], model.signature
results = model(values)
flat = lambda r: [a for p in r for a in flat(p)] if isinstance(r, tuple) else [r]
np.savez({str(tmp_path / "results.npz")!r}, *[array.view("u1") for array in flat(results)])
"""
    subprocess.run([sys.executable, "-c", script, str(model.signature)], check=True)
    with np.load(tmp_path / "results.npz") as results:
        expected = flat(model(values))
        assert len(results) == len(expected)
        for name, array in zip(results, expected, strict=True):
            np.testing.assert_array_equal(results[name], array.view("u1"))


def test_an_artifact_of_another_process_runs_here(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_artifacts as tests
tests.build(tests.network()).export({str(tmp_path / "net.tw")!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    hidden, (total,) = tw.load(tmp_path / "net.tw")(ROWS)
    expected = np.tanh(ROWS.astype("f8") @ WEIGHT + WEIGHT[0])
    np.testing.assert_allclose(hidden, expected, atol=1e-5)
    np.testing.assert_allclose(total, expected.sum(axis=0), atol=1e-4)


def test_one_artifact_serves_all_sizes(exported: Path) -> None:
    model = tw.load(exported)
    for rows in (1, 5, 3, 0):
        np.testing.assert_allclose(model(ROWS[:rows])[0], np.tanh(ROWS[:rows] @ WEIGHT + WEIGHT[0]), atol=1e-5)


def test_wrong_inputs_of_a_loaded_model_are_refused(exported: Path) -> None:
    with pytest.raises(tw.TilewrightError, match=r"input 'x': expected float32 of shape \(rows, 24\)"):
        tw.load(exported)(ROWS[:, :3])


def test_sizes_that_a_model_takes_for_equal_are_checked_after_loading(tmp_path: Path) -> None:
    x, y = gi.var("x", shape=("n",)), gi.var("y", shape=("m",))
    build(tw.IRModule.from_expr(gi.Function([x, y], gi.match_shape(x, shape=("m",)) + y))).export(tmp_path / "net.tw")
    with pytest.raises(tw.TilewrightError, match="the sizes are n=2, m=3"):
        tw.load(tmp_path / "net.tw")(np.ones(2, "f4"), np.ones(3, "f4"))


def test_signature_target_and_memory_are_those_of_the_model(exported: Path) -> None:
    model, loaded = build(network()), tw.load(exported)
    assert str(loaded.signature) == str(model.signature)
    assert loaded.signature.result_names == model.signature.result_names
    assert loaded.target == model.target
    assert loaded.arena_bytes(rows=100) == model.arena_bytes(rows=100)


def test_names_of_results_are_kept(tmp_path: Path) -> None:
    x = gi.var("x", shape=(2,))
    function = gi.Function([x], gi.Tuple([x + x, x * x])).with_attr("results", ("sum", "square"))
    build(tw.IRModule.from_expr(function)).export(tmp_path / "net.tw")
    assert tw.load(tmp_path / "net.tw").signature.result_names == ("sum", "square")


def test_every_stage_of_a_model_with_its_graph_can_be_read_after_loading(exported: Path) -> None:
    model, loaded = build(network()), tw.load(exported)
    assert loaded.stages == model.stages
    for stage in model.stages:
        assert loaded.ir(stage) == model.ir(stage)
    assert loaded.ir("graph", constants="inline") == model.ir("graph", constants="inline")


def test_a_model_with_its_graph_can_be_profiled_after_loading(exported: Path) -> None:
    model, loaded = build(network()), tw.load(exported)
    expected = [(call.kernel, call.origins) for call in model.profile(ROWS, repeat=1).calls]
    assert [(call.kernel, call.origins) for call in loaded.profile(ROWS, repeat=1).calls] == expected


def test_labels_of_operators_are_kept(tmp_path: Path) -> None:
    x = gi.var("x", shape=(2, 24))
    call = gi.matmul(x, gi.const(WEIGHT))
    labelled = gi.Call(call.op, call.args, call.attrs, call.type, "first layer")
    build(tw.IRModule.from_expr(gi.Function([x], gi.tanh(labelled)))).export(tmp_path / "net.tw", graph=True)
    calls = tw.load(tmp_path / "net.tw").profile(ROWS[:2], repeat=1).calls
    kernels = Artifact.open(tmp_path / "net.tw").functions[0].kernels
    for uses in (calls, kernels):
        assert [origin.label for use in uses for origin in use.origins] == ["first layer", None]


def test_without_its_graphs_weights_a_model_shows_its_graph_and_refuses_the_rest(tmp_path: Path) -> None:
    model = build(network())
    model.export(tmp_path / "net.tw")
    loaded = tw.load(tmp_path / "net.tw")
    assert loaded.ir("graph") == model.ir("graph")
    for ask in (lambda: loaded.ir("lowered"), lambda: loaded.profile(ROWS), lambda: loaded.ir("graph", "inline")):
        with pytest.raises(ArtifactError, match=r"1 of the weights .* export\(path, graph=True\)"):
            ask()


def test_passes_of_another_version_are_not_run_on_a_stored_graph(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_cache, "source_version", lambda: "another")
    loaded = tw.load(exported)
    assert loaded.ir("graph") and loaded(ROWS)
    with pytest.raises(ArtifactError, match="another version of Tilewright"):
        loaded.ir("lowered")


def test_a_model_with_passes_of_ones_own_runs_but_cannot_be_lowered_again(tmp_path: Path) -> None:
    @passes.module_pass(opt_level=0, name="Mine")
    def mine(mod: gi.IRModule, ctx: tw.PassContext) -> gi.IRModule:
        return mod

    build(network(), passes={"optimized": mine}).export(tmp_path / "net.tw", graph=True)
    loaded = tw.load(tmp_path / "net.tw")
    np.testing.assert_allclose(loaded(ROWS)[0], np.tanh(ROWS @ WEIGHT + WEIGHT[0]), atol=1e-5)
    with pytest.raises(ArtifactError, match=r"passes of its own \(after optimized\)"):
        loaded.ir("lowered")


def test_settings_of_the_build_hold_for_a_stored_graph(tmp_path: Path) -> None:
    with tw.PassContext(opt_level=1, disabled_pass=["FuseOps"]):
        model = tw.build(network())
    model.export(tmp_path / "net.tw", graph=True)
    assert tw.load(tmp_path / "net.tw").ir("lowered") == model.ir("lowered")


def test_equal_models_make_equal_files_also_after_loading(exported: Path, tmp_path: Path) -> None:
    build(network()).export(tmp_path / "again.tw", graph=True)
    tw.load(exported).export(tmp_path / "loaded.tw", graph=True)
    assert exported.read_bytes() == (tmp_path / "again.tw").read_bytes()
    assert exported.read_bytes() == (tmp_path / "loaded.tw").read_bytes()


def test_weights_are_in_the_file_once(tmp_path: Path) -> None:
    weight = RANDOM.standard_normal(100_000).astype("f4")
    build(scaled_network(weight)).export(tmp_path / "net.tw", graph=True)
    assert weight.nbytes < (tmp_path / "net.tw").stat().st_size < 1.2 * weight.nbytes


def test_a_model_that_was_kept_on_disk_is_exported_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "kept"))
    build(network()).export(tmp_path / "first.tw")
    cache = build_cache.open_cache(tw.PassContext())
    assert cache is not None
    cache.wait()
    build(network()).export(tmp_path / "second.tw")
    assert (tmp_path / "first.tw").read_bytes() == (tmp_path / "second.tw").read_bytes()


def test_a_model_keeps_what_it_loaded_when_the_file_changes(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.tw"
    path.write_bytes(exported.read_bytes())
    model = tw.load(path)
    with open(path, "r+b") as file:
        file.truncate(10)
    np.testing.assert_allclose(model(ROWS)[0], np.tanh(ROWS @ WEIGHT + WEIGHT[0]), atol=1e-5)


def test_python_source_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"Python source.*target='llvm'"):
        build(network(), target="numba").export(tmp_path / "net.tw")
    assert list(tmp_path.iterdir()) == []


def test_writing_that_fails_leaves_the_old_file(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net.tw").write_bytes(b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packed_file.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        tw.load(exported).export(tmp_path / "net.tw")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("net.tw", b"old")]


def test_the_file_can_be_read_by_whom_the_umask_allows(exported: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    assert exported.stat().st_mode & 0o777 == 0o666 & ~mask


# Files that are rejected.


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_changed_bytes_anywhere_are_refused(data: st.DataObject, exported: Path) -> None:
    content = bytearray(exported.read_bytes())
    header = st.integers(0, 63)  # as likely as all the rest
    changes = data.draw(
        st.dictionaries(header | st.integers(0, len(content) - 1), st.integers(1, 255), min_size=1, max_size=4)
    )
    for place, change in changes.items():
        content[place] ^= change
    _refused(bytes(content), exported)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_that_is_cut_off_or_longer_is_refused(data: st.DataObject, exported: Path) -> None:
    content = exported.read_bytes()
    end = data.draw(st.integers(0, 100) | st.integers(0, len(content) - 1))
    rest = data.draw(st.binary(min_size=1, max_size=9))
    for changed in (content[:end], content + rest):
        _refused(changed, exported)


def _refused(content: bytes, exported: Path) -> None:
    path = exported.with_name("changed.tw")
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"changed\.tw (is damaged|is no artifact|has version)"):
        tw.load(path)


def test_another_format_is_refused_by_its_number(exported: Path, tmp_path: Path) -> None:
    other = exported.read_bytes().replace(b"artifact %d\n" % FORMAT, b"artifact %d\n" % (FORMAT + 1), 1)
    (tmp_path / "net.tw").write_bytes(other)
    with pytest.raises(ArtifactError, match=f"has version {FORMAT + 1} of the format.*; expected version {FORMAT}"):
        tw.load(tmp_path / "net.tw")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "net.tw", "wb") as file:
        np.save(file, ROWS)
    with pytest.raises(ArtifactError, match=r"is no artifact of Tilewright.*expected it to begin with.*NUMPY"):
        tw.load(tmp_path / "net.tw")


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tw.load(tmp_path / "net.tw")


def changed(exported: Path, path: Path, change: Callable[[Any], None]) -> Path:
    """Write the artifact with other data and correct checksums."""
    magic = b"tilewright artifact %d\n" % FORMAT
    data, arrays = packed_file.unpack(np.frombuffer(exported.read_bytes(), np.uint8), magic)
    data = json.loads(json.dumps(data))
    change(data)
    with open(path, "wb") as file:
        packed_file.pack(file.write, magic, data, arrays)
    return path


@pytest.mark.parametrize("key", ["inputs", "functions", "graph", "wiring", "interface"])
def test_data_that_lack_something_are_refused(exported: Path, tmp_path: Path, key: str) -> None:
    with pytest.raises(ArtifactError, match=f"expected the data of format {FORMAT}.*{key}"):
        tw.load(changed(exported, tmp_path / "net.tw", lambda data: data.pop(key)))


def test_code_with_instructions_that_this_machine_lacks_is_refused_but_can_be_inspected(
    exported: Path, tmp_path: Path
) -> None:
    path = changed(
        exported,
        tmp_path / "net.tw",
        lambda data: data["graph"]["target"].update(mcpu="future", features=["sse2", "avx99"]),
    )
    with pytest.raises(ArtifactError, match=r"net\.tw cannot run here: .*processor future.*lacks: avx99; build it"):
        tw.load(path)
    artifact = Artifact.open(path)
    assert artifact.features == {"sse2", "avx99"} and len(artifact.obstacles()) == 1


def test_a_machine_without_the_instructions_of_an_artifact_refuses_it(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "_host_cpu", lambda: ("old", frozenset({"sse2", "sse3"})))
    with pytest.raises(ArtifactError, match=r"may use instructions that this machine \(old\) lacks: "):
        tw.load(exported)


def test_code_for_a_processor_that_is_named_needs_no_more_than_that_one_has(tmp_path: Path) -> None:
    build(network(), target=tw.Target("llvm", mcpu="x86-64-v2")).export(tmp_path / "net.tw")
    assert "avx" not in Artifact.open(tmp_path / "net.tw").features


def test_a_machine_writes_artifacts_for_another_that_has_more_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tw.Target("llvm", mcpu="x86-64-v3")
    if not target.is_runnable:
        pytest.skip("this machine does not run code for x86-64-v3")
    with monkeypatch.context() as patched, fresh_caches():  # this process becomes another machine
        patched.setattr(targets, "_host_cpu", lambda: ("old", frozenset({"sse2", "sse3"})))
        model = build(network(), target=target)
        model.export(tmp_path / "net.tw")
        with pytest.raises(tw.TilewrightError, match=r"cannot run on this machine, old; model\.export"):
            model(ROWS)
        with pytest.raises(ArtifactError, match="lacks: avx"):
            tw.load(tmp_path / "net.tw")
    loaded = tw.load(tmp_path / "net.tw")
    np.testing.assert_allclose(loaded(ROWS)[0], np.tanh(ROWS @ WEIGHT + WEIGHT[0]), atol=1e-5)
    np.testing.assert_array_equal(loaded(ROWS)[0], build(network(), target=target)(ROWS)[0])


def test_an_artifact_for_another_architecture_holds_its_code(tmp_path: Path) -> None:
    other = {"x86_64": ("aarch64", 183)}.get(tw.Target("llvm").mtriple.split("-")[0], ("x86_64", 62))
    target = tw.Target("llvm", mtriple=f"{other[0]}-unknown-linux-gnu")
    build(network(), target=target).export(tmp_path / "net.tw")
    artifact = Artifact.open(tmp_path / "net.tw")
    machines = {
        int.from_bytes(content[18:20], "little") for content in artifact.functions[0].code.objects
    }  # ELF's number
    assert machines == {other[1]}
    with pytest.raises(ArtifactError, match=f"its code is for {other[0]}"):
        tw.load(tmp_path / "net.tw")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["graph"]["target"].update(mtriple="riscv64-unknown-linux-gnu"), "code is for riscv64"),
        (lambda data: data.update(interface=99), "expects version 99 of the run time"),
    ],
)
def test_code_for_another_system_or_run_time_is_refused(
    exported: Path, tmp_path: Path, change: Callable[[Any], None], message: str
) -> None:
    with pytest.raises(ArtifactError, match=message):
        tw.load(changed(exported, tmp_path / "net.tw", change))


def test_the_maker_of_a_machine_does_not_matter(exported: Path, tmp_path: Path) -> None:
    def renamed(data: Any) -> None:
        architecture, _, *system = data["graph"]["target"]["mtriple"].split("-")
        data["graph"]["target"]["mtriple"] = "-".join([architecture, "acme", *system])

    assert tw.load(changed(exported, tmp_path / "net.tw", renamed))(ROWS)
