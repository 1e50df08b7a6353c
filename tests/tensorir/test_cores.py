"""Test the number of cores that a process may use, read from files as Linux has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.tensorir import cores
from tilewright.tensorir.cores import available_cores, default_threads, quota_cores
from tilewright.tensorir.target import Target

V2_MOUNT = "31 23 0:28 {root} /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct"
V1_FOLDER = "sys/fs/cgroup/cpu,cpuacct"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


def system(root: Path, group: str, limits: dict[str, str], mount: str = V2_MOUNT, mounted: str = "/") -> Path:
    """A system whose process is in ``group``, with the files ``limits`` under ``/sys/fs/cgroup``."""
    other = "27 1 254:0 / / rw,relatime - ext4 /dev/root rw"
    write(root, {"proc/self/cgroup": group, "proc/self/mountinfo": f"{other}\n{mount.format(root=mounted)}"})
    write(root, {f"sys/fs/cgroup/{name}": text for name, text in limits.items()})
    return root


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max 100000", None),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("100001 100000", 2),
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("1000 100000", 1),
        ("40000 10000", 4),
        ("max", None),
        ("", None),
        ("much 100000", None),
    ],
)
def test_quota_of_version_2_is_rounded_up(tmp_path: Path, limit: str, expected: int | None) -> None:
    assert quota_cores(system(tmp_path, "0::/", {"cpu.max": limit})) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", None), ("150000", 2), ("100000", 1), ("20000", 1)])
def test_quota_of_version_1_is_rounded_up(tmp_path: Path, quota: str, expected: int | None) -> None:
    limits = {"cpu,cpuacct/cpu.cfs_quota_us": quota, "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    groups = "4:memory:/elsewhere\n3:cpu,cpuacct:/\n0::/"
    assert quota_cores(system(tmp_path, groups, limits, V1_MOUNT)) == expected


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [("max 100000", "300000 100000", 3), ("400000 100000", "250000 100000", 3), ("100000 100000", "max 100000", 1)],
)
def test_tightest_of_nested_groups_counts(tmp_path: Path, inner: str, outer: str, expected: int) -> None:
    limits = {"a/cpu.max": outer, "a/b/c/cpu.max": inner, "other/cpu.max": "1000 100000"}
    assert quota_cores(system(tmp_path, "0::/a/b/c", limits)) == expected


def test_tightest_of_nested_groups_of_version_1_counts(tmp_path: Path) -> None:
    limits = {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}
    outer = {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}
    files = {f"cpu,cpuacct/a/b/{name}": text for name, text in limits.items()}
    files |= {f"cpu,cpuacct/a/{name}": text for name, text in outer.items()}
    assert quota_cores(system(tmp_path, "3:cpu,cpuacct:/a/b", files, V1_MOUNT)) == 2


@pytest.mark.parametrize("group", ["0::/docker/7f", "0::/docker/7f/inner", "0::/", "0::/../other"])
def test_container_whose_mount_begins_at_its_group(tmp_path: Path, group: str) -> None:
    assert quota_cores(system(tmp_path, group, {"cpu.max": "300000 100000"}, mounted="/docker/7f")) == 3


def test_mount_of_another_group_of_a_similar_name_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    limits = {"cpu.max": "300000 100000", "0/cpu.max": "100000 100000"}
    assert quota_cores(system(tmp_path, "0::/docker/7f0", limits, mounted="/docker/7f")) == 3


def test_both_versions_at_once(tmp_path: Path) -> None:
    limits = {"cpu,cpuacct/cpu.cfs_quota_us": "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}
    limits |= {"unified/cgroup.procs": "1"}
    mount = V1_MOUNT + "\n" + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    assert quota_cores(system(tmp_path, "3:cpu,cpuacct:/\n0::/", limits, mount)) == 3


def test_mount_with_a_space_in_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"my groups/cpu.max": "100000 100000", "proc/self/cgroup": "0::/"})
    mount = V2_MOUNT.replace("/sys/fs/cgroup", r"/my\040groups").format(root="/")
    write(tmp_path, {"proc/self/mountinfo": mount})
    assert quota_cores(tmp_path) == 1


@pytest.mark.parametrize(
    "files", [{}, {"proc/self/cgroup": "0::/"}, {"proc/self/cgroup": "x", "proc/self/mountinfo": "y"}]
)
def test_no_quota_where_nothing_is_found(tmp_path: Path, files: dict[str, str]) -> None:
    write(tmp_path, files)
    assert quota_cores(tmp_path) is None


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(("limit", "expected"), [("max 100000", 8), ("250000 100000", 3), ("6400000 100000", 8)])
def test_target_has_a_thread_for_each_core_of_mask_and_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, expected: int
) -> None:
    monkeypatch.setattr(cores, "ROOT", system(tmp_path, "0::/", {"cpu.max": limit}))
    assert available_cores() == default_threads() == Target("llvm").num_threads == expected


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(("asked", "expected"), [("5", 5), ("16", 16), ("many", 3), ("0", 3), ("", 3)])
def test_what_the_user_asks_for_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, expected: int
) -> None:
    monkeypatch.setattr(cores, "ROOT", system(tmp_path, "0::/", {"cpu.max": "300000 100000"}))
    monkeypatch.setenv("NUMBA_NUM_THREADS", asked)
    assert (available_cores(), Target("llvm").num_threads) == (3, expected)
    assert Target("llvm", num_threads=7).num_threads == 7


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "1.5", "9" * 5000, "\u0662"])
def test_a_number_of_threads_that_is_none_is_ignored(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    assert cores.chosen_threads() is None
    assert cores.default_threads() == cores.available_cores()
