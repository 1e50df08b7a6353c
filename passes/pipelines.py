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
    DropUnitDims,
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
    """Return the graph passes: simplify, fold, choose layouts and algorithms, eliminate, fuse, hoist."""
    return Sequential(
        [
            graph.InferType(),
            graph.SpecializeCalls(),
            graph.InlineFunctions(),
            graph.RemoveUnusedFunctions(),
            graph.SimplifyInference(),
            graph.NarrowProducts(),  # before casts of constants are folded
            graph.WidenHalves(),
            graph.TrimConvolutions(),  # before equal slices are shared
            # Before folding: two equal results of folding are not known to be equal, and both would be packed.
            graph.EliminateCommonSubexpr(),
            graph.FoldConstant(),
            graph.SimplifyExpr(),
            graph.FuseAttention(),
            graph.WinogradWindows(),
            graph.SimplifyExpr(),  # cancels adjacent transposes of keys, and of images
            graph.FoldScaleAxis(),
            graph.FoldConstant(),  # scaled weights become constants, which AlterOpLayout requires
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
    """Return the pass that lowers fused groups to loop nests."""
    return Sequential([LowerToTensorIR()], name="lower", given=GRAPH | {TYPED})


def schedule_pipeline(target: Target | None = None) -> Sequential:
    """Return the passes that tile, vectorize and parallelize loop nests."""
    if target is not None and target.kind == "numba":  # loops and indices are not changed
        return Sequential([ScheduleKernels(), DecomposeReductions()], name="schedule", given=NEST)
    return Sequential(
        [
            JoinDims(),
            DropUnitDims(),
            CollapseDims(),
            ScheduleKernels(),
            SkipUnseen(),
            DecomposeReductions(),
            MergeKernels(),
        ],
        name="schedule",
        given=NEST,
    )


def kernel_pipeline(
    target: Target | None = None, done: Announce | None = None, supply: Supply | None = None
) -> Sequential:
    """Return the passes that lower scheduled loop nests for code generators, and the model to one function on planned
    memory. ``done`` is called with kernels for which code can be generated while others wait; ``supply`` may provide
    kernels from a cache (see :class:`PartByPart`)."""
    readable = target is not None and target.kind == "numba"
    kernels = readable_pipeline() if readable else tensor_pipeline(target)
    parts = kernels if done is None else PartByPart(kernels, done, supply)
    return Sequential([parts, PlanMemory()], name="kernels", given=SCHEDULED_NEST)


def readable_pipeline() -> Sequential:
    """Return the tensor passes for readable code: loops and indices are not changed, and the compiler of that code
    (numba) vectorizes them."""
    return Sequential(
        [
            tensor.LowerBlocks(),
            tensor.CompactBuffer(),
            tensor.LowerTensorIntrin(),
            tensor.Simplify(),
            tensor.ParallelizeLoop(),
            tensor.CheckBounds(),
            tensor.StorageRewrite(),
            tensor.Simplify(),
            tensor.RemoveNoOp(),
            tensor.VerifyMemory(),
        ],
        name="tensor_pipeline",
        given=SCHEDULED_NEST,
    )


#: The stages of compilation in order: their names and the pipelines that lead to them.
STAGES: dict[str, Callable[[Target], Sequential]] = {
    "optimized": graph_pipeline,
    "tensor": lowering_pipeline,
    "scheduled": schedule_pipeline,
    "lowered": kernel_pipeline,
}
