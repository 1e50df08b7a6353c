"""The order of the tensor passes, from scheduled loop nests with blocks to what code generators read."""

from __future__ import annotations

from tilewright.passes.sequential import Sequential
from tilewright.passes.tensor.compact_buffer import CompactBuffer
from tilewright.passes.tensor.flatten_buffer import FlattenBuffer
from tilewright.passes.tensor.loop_partition import LoopPartition
from tilewright.passes.tensor.lower_blocks import LowerBlocks
from tilewright.passes.tensor.lower_intrin import LowerIntrin
from tilewright.passes.tensor.simplify import Simplify
from tilewright.passes.tensor.storage_rewrite import StorageRewrite
from tilewright.passes.tensor.unroll_loop import UnrollLoop
from tilewright.passes.tensor.vectorize_loop import VectorizeLoop


def tensor_pipeline() -> Sequential:
    """The tensor passes in order.

    Buffers are compacted right after blocks are gone, while loops still show who carries what. Loops are split before
    vectors are made, so that main loops have no masks. ``LowerIntrin`` comes after the last ``Simplify``: the forms
    that it writes depend on their rounding, which float algebra (opt_level 3) would change.
    """
    return Sequential(
        [
            LowerBlocks(),
            CompactBuffer(),
            Simplify(),
            LoopPartition(),
            Simplify(),
            VectorizeLoop(),
            UnrollLoop(),
            Simplify(),
            FlattenBuffer(),
            StorageRewrite(),
            Simplify(),
            LowerIntrin(),
        ],
        name="tensor_pipeline",
    )
