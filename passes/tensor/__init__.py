"""Passes over loop-level functions: from scheduled loop nests to what code generators read."""

from tilewright.passes.tensor.compact_buffer import CompactBuffer
from tilewright.passes.tensor.flatten_buffer import FlattenBuffer
from tilewright.passes.tensor.loop_partition import LoopPartition
from tilewright.passes.tensor.lower_blocks import LowerBlocks
from tilewright.passes.tensor.lower_intrin import LowerIntrin
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.passes.tensor.simplify import Simplify
from tilewright.passes.tensor.storage_rewrite import StorageRewrite
from tilewright.passes.tensor.unroll_loop import UnrollLoop
from tilewright.passes.tensor.vectorize_loop import VectorizeLoop

__all__ = [
    "CompactBuffer",
    "FlattenBuffer",
    "LoopPartition",
    "LowerBlocks",
    "LowerIntrin",
    "Simplify",
    "StorageRewrite",
    "UnrollLoop",
    "VectorizeLoop",
    "tensor_pipeline",
]
