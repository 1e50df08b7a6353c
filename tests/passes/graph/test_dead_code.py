"""DeadCodeElimination removes expressions that no result depends on."""

from __future__ import annotations

import pytest

from tilewright.passes.graph import DeadCodeElimination

HEAD = "def @main(%x: Tensor[(2,), float32]) {"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("let %v = exp(%x) %x", "%x"),
        ("let %v = exp(%x) let %w = exp(%v) %x", "%x"),
        ("let %v = exp(%x) let %w = tanh(%v) %w", "let %v = exp(%x) let %w = tanh(%v) %w"),
        ("%0 = exp(%x) %1 = (%0, %x) %2 = %1.1 %2", "%x"),
        ("%0 = exp(%x) let %t = (%0, %x) %2 = %t.1 %2", "%x"),
    ],
)
def test_rewrites(rewrites, before, after):
    rewrites(DeadCodeElimination(), f"{HEAD} {before} }}", f"{HEAD} {after} }}")
