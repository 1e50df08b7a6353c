"""Blocks of channels: a vector's lanes, or half of them."""

from __future__ import annotations

import pytest

from tilewright.graphir.ops.nn.channel_blocks import channel_block, group_block
from tilewright.tensorir import Var


@pytest.mark.parametrize(
    ("channels", "lanes", "block", "whole"),
    [
        (64, 16, 16, 16),
        (24, 16, 16, 8),  # two vectors take less time than three halves, but do not divide the channels
        (9, 16, 16, None),
        (8, 16, 8, 8),
        (7, 16, None, None),
        (2, 2, 2, 2),
        (1, 2, None, None),
        (0, 16, None, None),
        (Var("n"), 16, None, None),
    ],
)
def test_blocks_fill_vectors(channels: int, lanes: int, block: int | None, whole: int | None) -> None:
    assert channel_block(channels, lanes) == block
    assert channel_block(channels, lanes, whole=True) == whole


@pytest.mark.parametrize(
    ("channels", "block"), [(48, 16), (16, 16), (8, 8), (24, None), (40, None), (4, None), (Var("n"), None)]
)
def test_a_group_has_whole_vectors_or_one_half(channels: int, block: int | None) -> None:
    assert group_block(channels, 16) == block
