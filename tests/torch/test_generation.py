"""Generation with a cache of keys and values: the tokens are PyTorch's, and a new length builds nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch.nn import functional as F  # noqa: E402, N812 - everybody calls it so

from tests.torch import networks  # noqa: E402
from tests.torch.compiling import compile_  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

#: Lengths of prompts, and how many tokens follow.
LENGTHS = ((5, 6), (9, 4), (3, 8))
LONGEST = 16


class Growing(torch.nn.Module):
    """A Llama that returns its cache, and scores of words."""

    def __init__(self) -> None:
        super().__init__()
        self.llama = networks.Llama()
        self.head = torch.nn.Linear(16, 40)

    def forward(self, ids: torch.Tensor, cache: Any) -> Any:
        found = self.llama(ids, cache)
        return self.head(found["hidden"]), found["cache"]

    def empty(self) -> Any:
        return {name: torch.zeros(2, 2, 0, 4) for name in ("key", "value")}


class Fixed(torch.nn.Module):
    """One layer of attention, whose cache has a fixed length and is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(40, 16), torch.nn.Embedding(LONGEST, 16)
        self.joint, self.head = torch.nn.Linear(16, 48), torch.nn.Linear(16, 40)

    def forward(self, ids: torch.Tensor, cache: Any) -> Any:
        at = cache["length"] + torch.arange(ids.shape[1])
        x = self.words(ids) + self.places(at)
        query, key, value = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.joint(x).chunk(3, -1))
        cache["key"].index_copy_(2, at, key)
        cache["value"].index_copy_(2, at, value)
        cache["length"].add_(ids.shape[1])
        seen = torch.arange(LONGEST) <= at[:, None]
        y = F.scaled_dot_product_attention(query, cache["key"], cache["value"], seen)
        return self.head(x + y.transpose(1, 2).flatten(2)), cache

    def empty(self) -> Any:
        kept = {name: torch.zeros(2, 4, LONGEST, 4) for name in ("key", "value")}
        return {**kept, "length": torch.zeros((), dtype=torch.int64)}


def continued(call: Callable[..., Any], cache: Any, length: int, count: int) -> torch.Tensor:
    """Return so many tokens that follow a prompt, greedily."""
    ids = torch.randint(0, 40, (2, length), generator=torch.Generator().manual_seed(length))
    tokens = []
    with torch.no_grad():
        for _ in range(count):
            scores, cache = call(ids, cache)
            ids = scores[:, -1].argmax(-1, keepdim=True)
            tokens.append(ids)
    return torch.cat(tokens, 1)


@pytest.mark.parametrize("kind", [Growing, Fixed])
def test_tokens_are_those_of_pytorch_and_a_new_length_builds_nothing(kind: Any, builds: list[Any]) -> None:
    module = kind().eval()
    model = compile_(module, dynamic=True, options={"fallback": False})
    found = [continued(model, module.empty(), *lengths) for lengths in LENGTHS]
    expected = [continued(module, module.empty(), *lengths) for lengths in LENGTHS]
    assert all(map(torch.equal, found, expected))
    assert len(torch.cat(expected, 1).unique()) > 4
    assert len(builds) == 2, "one for prompts, one for single tokens"
