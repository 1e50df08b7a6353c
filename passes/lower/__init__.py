"""Lower the graph-level IR to the loop-level IR, and plan the memory of ``main``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.passes.lower.lower_to_tensorir import LowerToTensorIR
    from tilewright.passes.lower.plan_memory import PlanMemory

__all__ = ["LowerToTensorIR", "PlanMemory"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
