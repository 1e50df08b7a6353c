"""From the graph-level IR to the loop-level IR."""

from __future__ import annotations

from tilewright.passes.lower.lower_to_tensorir import LowerToTensorIR
from tilewright.passes.lower.plan_memory import PlanMemory

__all__ = ["LowerToTensorIR", "PlanMemory"]
