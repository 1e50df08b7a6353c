"""Copies of what a block reads and writes: when they would hold other values, they are refused."""

from __future__ import annotations

import pytest

from tilewright.tensorir import Schedule
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.parser import parse


def schedule(*blocks: str) -> Schedule:
    """Return the schedule of a function of ``x`` and ``y`` with these blocks, named b0, b1, ..., each in its loop."""
    loops = "".join(
        f"for i{n} in range(8) {{ block b{n}(v: spatial(8) = i{n}) {{ {body} }} }}\n" for n, body in enumerate(blocks)
    )
    return Schedule(parse(f"primfunc @f(x: Buffer[(8,), float32], y: Buffer[(8,), float32]) {{ {loops} }}"))


def test_a_block_that_writes_what_it_reads_has_no_copy_of_it() -> None:
    sch = schedule("reads x[v] writes x[v] x[v] = x[v] + 1.0")
    with pytest.raises(ScheduleError, match="cannot cache x: block b0 also writes it"):
        sch.cache_read(sch.get_block("b0"), "x", "stack")


def test_a_copy_is_made_after_all_writes() -> None:
    sch = schedule("reads x[v] writes y[v] y[v] = x[v]", "writes x[v] x[v] = 0.0")
    with pytest.raises(ScheduleError, match="cannot cache x: block b1 writes it after block b0"):
        sch.cache_read(sch.get_block("b0"), "x", "stack")


def test_a_result_of_two_blocks_is_not_copied() -> None:
    sch = schedule("writes y[v] y[v] = 1.0", "reads x[v] writes y[v] y[v] = x[v]")
    with pytest.raises(ScheduleError, match="cannot cache y: block b1 also writes it"):
        sch.cache_write(sch.get_block("b0"), "y", "stack")


def test_a_sum_onto_earlier_contents_is_not_begun_in_a_copy() -> None:
    sch = schedule("reads x[v], y[v] writes y[v] y[v] = y[v] + x[v]")
    with pytest.raises(ScheduleError, match="cannot cache y: block b0 accumulates onto its earlier contents"):
        sch.cache_write(sch.get_block("b0"), "y", "stack")
