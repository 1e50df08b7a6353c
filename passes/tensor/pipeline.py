"""The order of the tensor passes, from scheduled loop nests with blocks to the form that code generators read."""

from __future__ import annotations

from tilewright.passes.properties import SCHEDULED_NEST
from tilewright.passes.sequential import Sequential
from tilewright.passes.tensor.check_bounds import CheckBounds
from tilewright.passes.tensor.common_subexpr_elim import CommonSubexprElim
from tilewright.passes.tensor.compact_buffer import CompactBuffer
from tilewright.passes.tensor.dot_product import DotProduct
from tilewright.passes.tensor.flatten_buffer import FlattenBuffer
from tilewright.passes.tensor.hoist_invariant import HoistInvariant
from tilewright.passes.tensor.interleave_stores import InterleaveStores
from tilewright.passes.tensor.loop_partition import LoopPartition
from tilewright.passes.tensor.lower_blocks import LowerBlocks
from tilewright.passes.tensor.lower_intrin import LowerIntrin
from tilewright.passes.tensor.lower_tensor_intrin import LowerTensorIntrin
from tilewright.passes.tensor.name_indices import NameIndices
from tilewright.passes.tensor.parallelize_loop import ParallelizeLoop
from tilewright.passes.tensor.part_by_part import TensorPipeline
from tilewright.passes.tensor.prefetch_epilogue import PrefetchEpilogue
from tilewright.passes.tensor.prefetch_panels import PrefetchPanels
from tilewright.passes.tensor.remove_no_op import RemoveNoOp
from tilewright.passes.tensor.simplify import Simplify
from tilewright.passes.tensor.storage_rewrite import StorageRewrite
from tilewright.passes.tensor.transpose_tiles import TransposeTiles
from tilewright.passes.tensor.unmask_registers import UnmaskRegisters
from tilewright.passes.tensor.unroll_loop import UnrollLoop
from tilewright.passes.tensor.vectorize_loop import VectorizeLoop
from tilewright.passes.tensor.verify_memory import VerifyMemory
from tilewright.tensorir.target import Target


def tensor_pipeline(target: Target | None = None) -> Sequential:
    """Return the tensor passes in order; ``target`` is the machine, by default :meth:`Target.current` when they run.

    Buffers are compacted right after blocks are lowered, while loops still show which of them carry a value from one
    iteration to the next; then the parts of fused loops get names. Loops are split before vectorization, so that main
    loops have no masks. Parallel loops are chosen on vectorized code, before storage is planned, which gives each
    iteration of a parallel loop its own workspace. ``UnmaskRegisters`` inspects stores, before ``CommonSubexprElim``
    gives names to loaded values.
    ``CheckBounds`` comes after all that moves accesses or changes their indices, and before ``FlattenBuffer``, after
    which an index has no dimension of its own.
    ``DotProduct`` and ``InterleaveStores`` match loops over neighbouring elements, which are adjacent once buffers
    are flat.
    ``LowerIntrin`` comes after the last ``Simplify``: its expansions depend on their rounding, which float algebra
    (opt_level 3) would change. ``UnrollLoop`` is last, so that the passes before it see a tile once, not each copy.
    """
    return TensorPipeline(
        [
            LowerBlocks(),
            CompactBuffer(),
            LowerTensorIntrin(),
            NameIndices(),
            Simplify(),
            LoopPartition(),
            Simplify(),
            TransposeTiles(),
            VectorizeLoop(target),
            ParallelizeLoop(target),
            UnmaskRegisters(),
            CommonSubexprElim(),
            HoistInvariant(),
            CheckBounds(),
            FlattenBuffer(),
            StorageRewrite(),
            Simplify(),
            DotProduct(target),
            InterleaveStores(),
            PrefetchPanels(target),
            PrefetchEpilogue(target),
            LowerIntrin(target),
            RemoveNoOp(),
            VerifyMemory(),
            UnrollLoop(),
        ],
        name="tensor_pipeline",
        given=SCHEDULED_NEST,
    )
