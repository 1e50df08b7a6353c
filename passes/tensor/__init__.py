"""Passes over loop-level functions: lower scheduled loop nests to the form that code generators read."""

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
from tilewright.passes.tensor.parallelize_loop import ParallelizeLoop
from tilewright.passes.tensor.pipeline import tensor_pipeline
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

__all__ = [
    "CheckBounds",
    "CommonSubexprElim",
    "CompactBuffer",
    "DotProduct",
    "FlattenBuffer",
    "HoistInvariant",
    "InterleaveStores",
    "LoopPartition",
    "LowerBlocks",
    "LowerIntrin",
    "LowerTensorIntrin",
    "ParallelizeLoop",
    "PrefetchEpilogue",
    "PrefetchPanels",
    "RemoveNoOp",
    "Simplify",
    "StorageRewrite",
    "TransposeTiles",
    "UnmaskRegisters",
    "UnrollLoop",
    "VectorizeLoop",
    "VerifyMemory",
    "tensor_pipeline",
]
