"""Attention by ``torch.nn.functional.scaled_dot_product_attention``: masks, and lengths that PyTorch tells apart."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch.nn import functional as F  # noqa: E402, N812 - everybody calls it so

from tests.torch.compiling import assert_close, compile_  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def appended(query: Any, keys: Any, values: Any) -> Any:
    """Attend to a cache and one word more."""
    key, value = query[:, :, :1], query[:, :, :1] * 2
    return F.scaled_dot_product_attention(query, torch.cat([keys, key], 2), torch.cat([values, value], 2))


@pytest.mark.parametrize("gradients", [False, True])
def test_keys_and_values_may_have_dynamic_lengths_of_their_own(builds: list[Any], gradients: bool) -> None:
    compiled = compile_(appended, options={"fallback": False})
    query = torch.randn(2, 2, 1, 8, requires_grad=gradients)
    for words in (3, 5, 7):  # the second length makes PyTorch trace again, with a symbol for each of the two
        cache = [torch.randn(2, 2, words, 8, requires_grad=gradients) for _ in range(2)]
        found, expected = compiled(query, *cache), appended(query, *cache)
        assert_close(found, expected)
        if gradients:
            given = [torch.autograd.grad(each.square().sum(), (query, *cache)) for each in (found, expected)]
            torch.testing.assert_close(*given)
    assert len(builds) == (4 if gradients else 2)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_no_key_gives_zero(gradients: bool, kind: str) -> None:
    query, key, value = (torch.randn(2, 2, words, 8, requires_grad=gradients) for words in (4, 3, 3))
    mask = torch.ones(2, 1, 4, 3, dtype=torch.bool)
    mask[1, 0, 2] = False
    if kind == "float":
        mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    found = compile_(F.scaled_dot_product_attention)(query, key, value, mask)
    assert_close(found, F.scaled_dot_product_attention(query, key, value, mask))
    assert not found[1, :, 2].any()


@pytest.mark.parametrize("gradients", [False, True])
def test_heads_of_queries_may_share_keys(gradients: bool) -> None:
    def attended(query: Any, key: Any, value: Any) -> Any:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

    compiled = compile_(attended, options={"fallback": False})
    for words in (5, 7):
        parts = [torch.randn(2, heads, words, 8, requires_grad=gradients) for heads in (6, 2, 2)]
        found, expected = compiled(*parts), attended(*parts)
        assert_close(found, expected)
        if gradients:
            given = [torch.autograd.grad(each.square().sum(), parts) for each in (found, expected)]
            torch.testing.assert_close(*given)


@pytest.mark.parametrize("gradients", [False, True])
def test_the_width_may_be_dynamic(gradients: bool) -> None:
    compiled = compile_(F.scaled_dot_product_attention, dynamic=True, options={"fallback": False})
    parts = [torch.randn(2, 3, 5, 8, requires_grad=gradients) for _ in range(3)]
    found, expected = compiled(*parts), F.scaled_dot_product_attention(*parts)
    assert_close(found, expected)
    if gradients:
        torch.testing.assert_close(*[torch.autograd.grad(each.square().sum(), parts) for each in (found, expected)])
