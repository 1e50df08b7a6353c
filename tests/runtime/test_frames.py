"""Frames of deep recursion are in one chunk of memory during a build."""

from __future__ import annotations

import sys

import pytest

from tilewright.runtime.frames import with_frame_memory

resource = pytest.importorskip("resource", reason="page faults are counted where the system says how many there were")

#: More frames than four of CPython's chunks hold.
DEPTH = 400
CALLS = 50


def leaf(a: int, b: int) -> int:
    return a + b


def walk(depth: int) -> int:
    """Call a function repeatedly at each depth, one of which is at the end of a chunk."""
    total = 0
    for number in range(CALLS):
        total += leaf(number, depth)
    return total + (walk(depth - 1) if depth else 0)


def page_faults(depth: int) -> int:
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    walk(depth)
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="faults are not told by thread here")
@pytest.mark.skipif(sys.implementation.name != "cpython", reason="about CPython's frames")
def test_no_chunk_of_frames_is_mapped_again_and_again() -> None:
    walk(DEPTH)
    faults = with_frame_memory(page_faults, DEPTH)
    assert faults < CALLS + DEPTH // 10, f"{faults} page faults"


def test_arguments_result_and_errors_pass_through() -> None:
    assert with_frame_memory(leaf, 2, 3) == 5
    with pytest.raises(ZeroDivisionError):
        with_frame_memory(lambda: 1 // 0)


def test_builds_run_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    import tilewright as tw
    from tilewright import graphir as gi

    depths: list[int] = []
    x = gi.var("x", shape=(4,))

    @tw.passes.module_pass(opt_level=0)
    def look(mod: tw.IRModule, ctx: tw.PassContext) -> tw.IRModule:
        depths.append(page_faults(DEPTH))
        depths.append(page_faults(DEPTH))
        return mod

    tw.build(gi.Function([x], gi.exp(x)), passes={"graph": look})
    assert depths[1] < CALLS, f"{depths[1]} page faults"
