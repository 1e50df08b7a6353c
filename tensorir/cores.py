"""Count the cores that this process may use, as the system says (:mod:`.machine_queries`), and by the quota of its
control group, if it has one.

A container that may use "1.5 CPUs" of a machine with 64 sees all 64: its threads run on any of them, until together
they have run for 1.5 times the period (mostly 100 ms); then all of them are stopped till the next one.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from tilewright.tensorir.machine_queries import system_text, usable_processors

#: Where the files of the system lie.
ROOT = Path("/")
#: For how many seconds at most a quota counts that has been read.
_RECENT = 0.1


def available_cores() -> int:
    """Cores that this process may use now, at least one: those of its affinity mask (on macOS, which has none, the
    fastest kind), or fewer if its quota is less."""
    count = usable_processors()
    quota = _recent_quota(ROOT, int(time.monotonic() / _RECENT))
    return max(1, count if quota is None else min(count, quota))


@functools.lru_cache(maxsize=1)
def _recent_quota(root: Path, period: int) -> int | None:
    """The quota, read once in each period: a small build asks five times in a hundredth of a second."""
    return quota_cores(root)


def chosen_threads() -> int | None:
    """Return the value of the environment variable NUMBA_NUM_THREADS; None if it is not set or numba rejects it."""
    asked = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    # Not asked about each time: the first use of a pattern takes a quarter of a millisecond.
    return int(asked) if asked and re.fullmatch("0*[1-9][0-9]{0,8}", asked) else None


def default_threads() -> int:
    """Return the default number of threads of parallel loops: :func:`chosen_threads`, which is the size of numba's
    pool, or else one for each of :func:`available_cores`."""
    return chosen_threads() or available_cores()


def quota_cores(root: Path) -> int | None:
    """Cores that the control group of this process, and those around it, may keep busy (cgroup v1 and v2); None without
    a quota.

    Rounded up, as the JVM and Go do: of 1.5 cores, one thread would leave a third unused. Two threads that never wait
    are stopped for the last quarter of each period.

    Args:
        root: the directory with ``proc``, and the place of what is mounted.
    """
    found = [cores for place in _control_groups(root) if (cores := _cores_at(place)) is not None]
    return min(found, default=None)


def _control_groups(root: Path) -> Sequence[str]:
    """Return the directories that may hold a quota of this process: its group and all visible ancestors."""
    top = str(root).rstrip("/")
    try:
        return _places(top, system_text(f"{top}/proc/self/cgroup"), system_text(f"{top}/proc/self/mountinfo"))
    except (OSError, UnicodeDecodeError):
        return ()  # not Linux


@functools.lru_cache(maxsize=4)  # both texts hardly ever change
def _places(top: str, groups: str, mounts: str) -> tuple[str, ...]:
    """Return the directories that the texts of ``/proc/self/cgroup`` and ``/proc/self/mountinfo`` tell, below ``top``,
    which is empty for the root."""
    paths: dict[str, str] = {}  # the group by the name of its controller; that of version 2 has none
    places: list[str] = []
    for line in groups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths.update(dict.fromkeys(controllers.split(","), path))
    for line in mounts.splitlines():
        head, _, kind = line.partition(" - ")
        fields, described = head.split(" "), kind.split(" ")
        if len(fields) < 5 or len(described) < 3:
            continue
        if described[0] == "cgroup2":
            group = paths.get("")
        elif described[0] == "cgroup" and "cpu" in described[2].split(","):
            group = paths.get("cpu")
        else:
            continue
        if group is None:
            continue
        mounted, place = _parts(_plain(fields[3])), _parts(group)
        # In a container the mount begins at the container's own group; a group outside the mount counts as that one.
        seen = place[: len(mounted)] == mounted and ".." not in place
        inner = place[len(mounted) :] if seen else []
        found = f"{top}/{_plain(fields[4]).strip('/')}"
        places.extend("/".join([found, *inner[:depth]]) for depth in range(len(inner), -1, -1))
    return tuple(places)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _plain(path: str) -> str:
    """Decode a path from ``mountinfo``, which writes spaces and the like as octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path) if "\\" in path else path


def _cores_at(group: str) -> int | None:
    """The quota of one control group in cores, rounded up; None if it has none."""
    try:
        try:
            quota, period = system_text(f"{group}/cpu.max").split()
        except FileNotFoundError:
            quota, period = system_text(f"{group}/cpu.cfs_quota_us"), system_text(f"{group}/cpu.cfs_period_us")
        if quota == "max" or int(quota) <= 0 or int(period) <= 0:
            return None
        return -(-int(quota) // int(period))
    except (OSError, ValueError):
        return None
