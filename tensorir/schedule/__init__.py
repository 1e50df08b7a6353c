"""Schedules: rewrite the loops of a function step by step without changing its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
    from tilewright.tensorir.schedule.schedule import Schedule
    from tilewright.tensorir.schedule.trace import Trace

__all__ = ["BlockRef", "LoopRef", "Schedule", "Trace"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
