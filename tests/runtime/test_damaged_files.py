"""Artifacts and entries of the cache that were damaged in any way are refused with a reason, never run, and the cache
replaces them; a builder that is killed leaves no damaged entry to others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.onnx.bad_models import little_memory
from tilewright import graphir as gi
from tilewright.runtime import build_cache, packed_file
from tilewright.runtime.artifact import FORMAT, Artifact
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.process_caches import fresh_caches
from tilewright.tensorir.errors import ArtifactError

WEIGHT = np.random.default_rng(3).standard_normal((24, 16)).astype("f4")
ROWS = np.random.default_rng(4).standard_normal((5, 24)).astype("f4")

quick_and_exhaustive = pytest.mark.parametrize("rounds", [1, pytest.param(25, marks=pytest.mark.exhaustive)])


def network() -> gi.IRModule:
    x = gi.var("x", shape=("rows", 24))
    return tw.IRModule.from_expr(gi.Function([x], gi.tanh(gi.matmul(x, gi.const(WEIGHT))) * 2.0))


def expected() -> np.ndarray[Any, Any]:
    return np.asarray(np.tanh(ROWS.astype("f8") @ WEIGHT.astype("f8")) * 2.0)


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """Return other bytes than ``content``, damaged as disks, networks and programs do it."""
    while True:
        size = len(content)
        # Parts near the beginning, where numbers are, are as likely as all others.
        start = int(random.integers(size)) if random.random() < 0.5 else int(random.integers(min(size, 200)))
        length = int(min(size - start, random.choice([1, 2, 4, 8, 64, 512, 4096])))
        other = int(random.integers(size - length + 1))
        part = content[start : start + length]
        before, after = content[:start], content[start + length :]
        found = [
            lambda: before + bytes([part[0] ^ (1 << int(random.integers(8)))]) + part[1:] + after,  # noqa: B023
            lambda: before + random.bytes(length) + after,  # noqa: B023
            lambda: before + bytes(length) + after,  # noqa: B023
            lambda: before + b"\xff" * length + after,  # noqa: B023
            lambda: before,  # noqa: B023
            lambda: before + after,  # noqa: B023
            lambda: before + random.bytes(length) + part + after,  # noqa: B023
            lambda: before + content[other : other + length] + after,  # noqa: B023
            lambda: content + random.bytes(length),  # noqa: B023
        ][int(random.integers(9))]()
        if found != content:
            return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "net.tw"
    tw.build(network()).export(path, graph=True)
    return path


@quick_and_exhaustive
def test_damaged_artifacts_are_refused_with_the_reason(exported: Path, tmp_path: Path, rounds: int) -> None:
    content, random = exported.read_bytes(), np.random.default_rng(1)
    path = tmp_path / "damaged.tw"
    for _ in range(400 * rounds):
        path.write_bytes(damaged(content, random))
        with pytest.raises(ArtifactError, match=r"damaged\.tw (is damaged|is no artifact|has version)"):
            tw.load(path)


def other_value(random: np.random.Generator) -> Any:
    values = [None, True, -1, 0, 3, 2**31, 2**63, 2**70, 1e300, "", "x", "float32", [], {}, [[]], {"symbol": "n"}]
    return values[int(random.integers(len(values)))]


def changed(data: Any, random: np.random.Generator) -> Any:
    """Return plain data with another value at a random place."""
    if random.random() < 0.15 or not isinstance(data, (dict, list)) or not data:
        return other_value(random)
    places = list(data) if isinstance(data, dict) else list(range(len(data)))
    place = places[int(random.integers(len(places)))]
    copied = dict(data) if isinstance(data, dict) else list(data)
    if random.random() < 0.1:
        del copied[place]
    else:
        copied[place] = changed(data[place], random)
    return copied


@quick_and_exhaustive
def test_other_data_with_correct_checksums_are_read_or_refused(exported: Path, tmp_path: Path, rounds: int) -> None:
    magic = b"tilewright artifact %d\n" % FORMAT
    data, arrays = packed_file.unpack(np.frombuffer(exported.read_bytes(), np.uint8), magic)
    random = np.random.default_rng(2)
    path = tmp_path / "other.tw"
    refused = 0
    for _ in range(200 * rounds):
        with open(path, "wb") as file:
            packed_file.pack(file.write, magic, changed(json.loads(json.dumps(data)), random), arrays)
        try:
            Artifact.open(path)
        except ArtifactError as error:
            assert "expected the data of format" in str(error)
            refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    "described",
    [
        b"[]",
        b'{"data": 1}',
        b'{"data": 1, "arrays": [[-5, 0]]}',
        b'{"data": 1, "arrays": [["8", 0]]}',
        b'{"data": 1, "arrays": 7}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=["a list", "no arrays", "a negative size", "a text as size", "a number of arrays", "no text", "deep nesting"],
)
def test_a_description_that_is_none_is_damage(described: bytes) -> None:
    written = bytearray()
    packed_file.pack(written.extend, b"magic\n", {}, [])
    header = packed_file._HEADER.pack(len(described), packed_file.zlib.crc32(described))
    with pytest.raises(packed_file.DamagedFileError, match="the description"):
        packed_file.unpack(np.frombuffer(b"magic\n" + header + described, np.uint8), b"magic\n")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DiskCache]:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "kept"))
    found = build_cache.open_cache(tw.PassContext())
    assert found is not None
    yield found
    found.wait()


def build_and_call(folder: DiskCache) -> None:
    with fresh_caches():
        found = tw.build(network())(ROWS)
    folder.wait()
    np.testing.assert_allclose(found, expected(), rtol=1e-5, atol=1e-6)


@quick_and_exhaustive
def test_damaged_entries_are_removed(folder: DiskCache, rounds: int) -> None:
    build_and_call(folder)
    random = np.random.default_rng(5)
    contents = {path: path.read_bytes() for path in sorted(folder.directory.glob("*.entry"))}
    assert {path.name.split("-")[0] for path in contents} >= {"graph", "kernel"} and len(contents) >= 3
    for _ in range(400 * rounds // len(contents)):
        for path, content in contents.items():
            path.write_bytes(damaged(content, random))
            assert folder.load(path.stem) is None
            assert not path.exists()


@quick_and_exhaustive
def test_a_build_replaces_damaged_entries(folder: DiskCache, rounds: int) -> None:
    build_and_call(folder)
    random = np.random.default_rng(6)
    paths = sorted(folder.directory.glob("*.entry"))
    for _ in range(4 * rounds):
        for path in paths:
            if random.random() < 0.7:
                path.write_bytes(damaged(path.read_bytes(), random))
        build_and_call(folder)
        build_and_call(folder)  # a damaged entry of the model itself is found first, and its kernels in the next build
        assert all(folder.load(path.stem) is not None for path in paths if path.name.startswith("graph"))


@quick_and_exhaustive
def test_entries_of_something_else_with_correct_checksums_are_dropped(folder: DiskCache, rounds: int) -> None:
    build_and_call(folder)
    random = np.random.default_rng(7)
    magic = b"tilewright entry 1\n"
    builds = {}
    for path in folder.directory.glob("*.entry"):
        data, arrays = packed_file.unpack(np.frombuffer(path.read_bytes(), np.uint8), magic)
        if isinstance(data, dict) and "image" in data:
            builds[path] = data, arrays
    assert len(builds) == 1
    for _ in range(10 * rounds):
        for path, (data, arrays) in builds.items():
            with open(path, "wb") as file:
                packed_file.pack(file.write, magic, changed(json.loads(json.dumps(data)), random), arrays)
        context = tw.PassContext()
        graph = build_cache.graph_key(network(), tw.Target("llvm"), context)
        assert graph is not None
        build_cache.find(folder, graph, network(), [gi.const(WEIGHT)])  # is read, or dropped


def test_a_file_of_a_terabyte_is_refused_before_memory_is_taken(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.tw"
    for content in (exported.read_bytes(), b"", exported.read_bytes()[:30] + b"\xff" * 12):
        with open(path, "wb") as file:
            file.write(content)
            file.truncate(1 << 40)  # sparse: it takes no space
        with little_memory(), pytest.raises(ArtifactError, match="is damaged"):
            tw.load(path)


_KILLED = """
import os, random, signal, sys, time
import tilewright as tw
sys.path.insert(0, sys.argv[1])
import test_damaged_files as here
from tilewright.tensorir.target import Target

chance = random.Random(int(sys.argv[2]))
Target("llvm")  # what every build asks first
for _ in range(int(sys.argv[3])):
    children = []
    for _ in range(2):
        child = os.fork()
        if not child:
            try:
                here.build_as_program()
            finally:
                os._exit(0 if not sys.exc_info()[0] else 1)
        children.append(child)
    time.sleep(chance.uniform(0, float(sys.argv[4])))
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    _, status = os.waitpid(children[1], 0)
    assert status == 0, status
    here.every_entry_is_whole()
    here.clean(chance)
"""


def build_as_program() -> None:
    """Build as a program that finds what others have kept."""
    found = build_cache.open_cache(tw.PassContext())
    assert found is not None
    build_and_call(found)


def every_entry_is_whole() -> None:
    """Check that no entry is damaged, without removing any."""
    found = build_cache.open_cache(tw.PassContext())
    assert found is not None
    for path in found.directory.glob("*.entry"):
        packed_file.unpack(np.frombuffer(path.read_bytes(), np.uint8), b"tilewright entry 1\n")


def clean(chance: Any) -> None:
    """Remove some entries, so that later builders have something to write."""
    found = build_cache.open_cache(tw.PassContext())
    assert found is not None
    for path in sorted(found.directory.glob("*.entry")):
        if chance.random() < 0.5:
            path.unlink()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.parametrize("kills", [8, pytest.param(500, marks=pytest.mark.exhaustive)])
def test_a_builder_that_is_killed_leaves_no_damaged_entry(tmp_path: Path, kills: int) -> None:
    environment = {**os.environ, "TILEWRIGHT_CACHE": "on", "TILEWRIGHT_CACHE_DIR": str(tmp_path / "kept")}
    arguments = [str(Path(__file__).parent), "7", str(kills), "0.4"]
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, *arguments], env=environment, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stderr


def test_a_full_disk_is_told_once_and_the_build_goes_on(folder: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tilewright.runtime.disk_cache.pack", full)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build_and_call(folder)
        build_and_call(folder)
    told = [str(each.message) for each in caught if "not cached" in str(each.message)]
    assert len(told) == 1 and "No space left on device" in told[0]
    assert not list(folder.directory.iterdir())


@pytest.mark.parametrize("seconds", [-(10**6), 10**6, 10**11])
def test_a_clock_that_jumps_harms_no_entry(folder: DiskCache, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    build_and_call(folder)
    before = sorted(folder.directory.iterdir())
    import time

    now = time.time
    monkeypatch.setattr("tilewright.runtime.disk_cache.time.time", lambda: now() + seconds)
    for path in before:
        os.utime(path, (now() + seconds, now() + seconds))
    build_and_call(folder)
    folder._evict()
    assert sorted(folder.directory.iterdir()) == before
