"""Schedule kernels by rules that match the computation of a loop nest, never the operator that it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.passes.schedule.collapse_dims import CollapseDims
    from tilewright.passes.schedule.decompose_reductions import DecomposeReductions
    from tilewright.passes.schedule.drop_unit_dims import DropUnitDims
    from tilewright.passes.schedule.join_dims import JoinDims
    from tilewright.passes.schedule.merge_kernels import MergeKernels
    from tilewright.passes.schedule.rule import (
        Declined,
        Nest,
        ScheduleRule,
        register_schedule_rule,
        schedule_rules,
        unregister_schedule_rule,
    )
    from tilewright.passes.schedule.schedule_kernels import ScheduleKernels
    from tilewright.passes.schedule.skip_unseen import SkipUnseen

__all__ = [
    "CollapseDims",
    "Declined",
    "DecomposeReductions",
    "DropUnitDims",
    "JoinDims",
    "MergeKernels",
    "Nest",
    "ScheduleKernels",
    "ScheduleRule",
    "SkipUnseen",
    "register_schedule_rule",
    "schedule_rules",
    "unregister_schedule_rule",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
