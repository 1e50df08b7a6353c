"""The variables that stand for numbers of lanes."""

from __future__ import annotations

import sys
import threading

from tilewright.tensorir.arith.lane_numbers import LANES, lane_number


def test_whoever_finds_a_variable_finds_how_many_lanes_it_stands_for() -> None:
    """Several threads look up the same new variables, with as many thread switches as possible."""
    missing: list[int] = []
    together = threading.Barrier(4)

    def ask() -> None:
        together.wait()
        missing.extend(lanes for lanes in range(10_000, 40_000) if LANES.get(lane_number(lanes)) != lanes)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not missing
