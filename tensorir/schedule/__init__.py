"""Schedules: rewriting the loops of a function step by step without changing what it computes."""

from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.schedule import Schedule
from tilewright.tensorir.schedule.trace import Trace

__all__ = ["BlockRef", "LoopRef", "Schedule", "Trace"]
