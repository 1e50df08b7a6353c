"""Products of groups of rows, each with a matrix of its own, agree with PyTorch's and with those of transformers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tests.torch.compiling import compile_  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

#: Where four groups of sixteen rows end: some are empty, and rows may be left.
ENDS = ([3, 3, 7, 16], [0, 5, 6, 6], [0, 0, 16, 16])


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this PyTorch has no products of groups")
def test_products_of_groups_are_those_of_pytorch() -> None:
    def function(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, weight, ends)

    model = compile_(function, options={"fallback": False})
    x, weight = torch.randn(16, 8).bfloat16(), torch.randn(4, 8, 8).bfloat16()
    for ends in (torch.tensor(each, dtype=torch.int32) for each in ENDS):
        found, expected = (call(x, weight, ends)[: ends[-1]] for call in (model, function))  # PyTorch leaves the rest
        torch.testing.assert_close(found, expected)


def test_products_of_experts_are_those_of_transformers() -> None:
    pytest.importorskip("transformers.integrations.moe", reason="transformers is not installed")

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 6, 5))

        def forward(self, x: torch.Tensor, ends: torch.Tensor) -> Any:
            return torch.ops.transformers.grouped_mm_fallback(x * 2, self.weight, ends).sin()

    module = Experts()
    model = compile_(module, options={"fallback": False}, dynamic=True)
    x = torch.randn(16, 6, requires_grad=True)
    for ends in map(torch.tensor, ENDS):
        found, expected = model(x, ends), module(x, ends)
        torch.testing.assert_close(found, expected)
        weight = torch.randn(expected.shape)
        gradients = [torch.autograd.grad((y * weight).sum(), (x, module.weight)) for y in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(model(x, ends), expected)
