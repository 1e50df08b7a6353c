"""Define the pipelines: the order of passes from a graph to the input of code generators.

The level from which a pass runs is ``opt_level`` in the decorator of the pass.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.passes import graph, tensor
from tilewright.passes.lower import LowerToTensorIR, PlanMemory
from tilewright.passes.properties import GRAPH, NEST, SCHEDULED_NEST, TYPED
from tilewright.passes.schedule import (
    CollapseDims,
    DecomposeReductions,
    JoinDims,
    MergeKernels,
    ScheduleKernels,
    SkipUnseen,
)
from tilewright.passes.sequential import Sequential
from tilewright.passes.tensor.part_by_part import Announce, PartByPart, Supply
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.tensorir.target import Target


def graph_pipeline(target: Target | None = None) -> Sequential:
    """The graph passes: simplify, fold, choose layouts and algorithms, eliminate, fuse, hoist."""
    return Sequential(
        [
            graph.InferType(),
            graph.InlineFunctions(),
            graph.RemoveUnusedFunctions(),
            graph.SimplifyInference(),
            graph.NarrowProducts(),  # before what is cast is folded
            graph.WidenHalves(),
            # What is equal is folded once: two results of folding are not known to be equal, and each would be packed.
            graph.EliminateCommonSubexpr(),
            graph.FoldConstant(),
            graph.SimplifyExpr(),
            graph.FuseAttention(),
            graph.SimplifyExpr(),  # transposes of keys that meet
            graph.FoldScaleAxis(),
            graph.FoldConstant(),  # AlterOpLayout asks which weights are constants: those that took a scale up are, too
            graph.AlterOpLayout(),
            graph.FoldConstant(),
            graph.Winograd(),
            graph.FoldConstant(),
            graph.SimplifyExpr(),
            graph.EliminateCommonSubexpr(),
            graph.DeadCodeElimination(),
            graph.PlaceParts(),
            graph.FuseOps(),
            graph.PadRows(),
            graph.HoistLoopInvariant(),
        ],
        name="graph",
        given=GRAPH,
    )


def lowering_pipeline(target: Target | None = None) -> Sequential:
    """Fused groups become loop nests."""
    return Sequential([LowerToTensorIR()], name="lower", given=GRAPH | {TYPED})


def schedule_pipeline(target: Target | None = None) -> Sequential:
    """Loop nests are tiled, vectorized and made parallel."""
    if target is not None and target.kind == "numba":  # loops and indices stay as they are written
        return Sequential([ScheduleKernels(), DecomposeReductions()], name="schedule", given=NEST)
    return Sequential(
        [JoinDims(), CollapseDims(), ScheduleKernels(), SkipUnseen(), DecomposeReductions(), MergeKernels()],
        name="schedule",
        given=NEST,
    )


def kernel_pipeline(
    target: Target | None = None, done: Announce | None = None, supply: Supply | None = None
) -> Sequential:
    """Scheduled loop nests become what code generators take, and the model one function on planned memory. ``done`` is
    told of kernels that code can be generated of, while others wait; ``supply`` knows some from elsewhere (see
    :class:`PartByPart`)."""
    readable = target is not None and target.kind == "numba"
    kernels = readable_pipeline() if readable else tensor_pipeline(target)
    parts = kernels if done is None else PartByPart(kernels, done, supply)
    return Sequential([parts, PlanMemory()], name="kernels", given=SCHEDULED_NEST)


def readable_pipeline() -> Sequential:
    """The tensor passes for code that people read: loops and indices stay as they are written, and the compiler behind
    (numba) makes vectors of them."""
    return Sequential(
        [
            tensor.LowerBlocks(),
            tensor.CompactBuffer(),
            tensor.Simplify(),
            tensor.ParallelizeLoop(),
            tensor.StorageRewrite(),
            tensor.Simplify(),
            tensor.RemoveNoOp(),
            tensor.VerifyMemory(),
        ],
        name="tensor_pipeline",
        given=SCHEDULED_NEST,
    )


#: The stages of compilation in order: their name, and what leads to them.
STAGES: dict[str, Callable[[Target], Sequential]] = {
    "optimized": graph_pipeline,
    "tensor": lowering_pipeline,
    "scheduled": schedule_pipeline,
    "lowered": kernel_pipeline,
}
