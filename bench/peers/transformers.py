"""Write transformers as ONNX models, operator by operator as PyTorch exports them; the weights are random."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx_writer import Writer

from bench.peers.kernels import Model, normal

Array = np.ndarray[Any, Any]

LAYERS, HEADS, WIDTH, WORDS = 12, 12, 768, 50257
HEAD = WIDTH // HEADS
BERT_EPSILON, GPT_EPSILON = 1e-12, 1e-5


def _block_weights(layer: int) -> Iterator[tuple[str, Array]]:
    """Yield two norms, the attention's four matrices and the two of the dense part, by name."""
    seed = 100 * layer
    for name in ("norm1", "norm2"):
        yield f"{layer}.{name}.weight", 1 + normal(WIDTH, seed=seed, scale=0.1)
        yield f"{layer}.{name}.bias", normal(WIDTH, seed=seed + 1, scale=0.1)
        seed += 2
    sizes = {"query": (1, 1), "key": (1, 1), "value": (1, 1), "mixed": (1, 1), "wide": (1, 4), "narrow": (4, 1)}
    for name, (of, to) in sizes.items():
        yield f"{layer}.{name}.matrix", normal(of * WIDTH, to * WIDTH, seed=seed, scale=(of * WIDTH) ** -0.5)
        yield f"{layer}.{name}.bias", normal(to * WIDTH, seed=seed + 1, scale=0.1)
        seed += 2


class _Blocks(Writer):
    """The parts that both networks share."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__(dict(pair for layer in range(layers) for pair in _block_weights(layer)))

    def dense(self, x: str, name: str) -> str:
        return self("Add", self("MatMul", x, self.weight(f"{name}.matrix")), self.weight(f"{name}.bias"))

    def attention(self, query: str, keys: str, values: str, joined: str) -> str:
        """Attend with ``query [n, heads, words, head]``, ``keys [n, heads, head, words]``; the result has one axis for
        heads."""
        scores = self("Div", self("MatMul", query, keys), self.constant(np.float32(math.sqrt(HEAD)), "scale"))
        mixed = self("MatMul", self("Softmax", scores, axis=-1), values)
        return self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), joined)


def bert(batch: int, words: int, layers: int = LAYERS) -> Model:
    """Write the encoder of BERT-base without its embeddings: layers over ``[batch, words, 768]``, norms after the
    sums."""
    o, x = _Blocks(layers), normal(batch, words, WIDTH)
    split, joined = o.integers(batch, words, HEADS, HEAD), o.integers(batch, words, WIDTH)
    value = "x"
    for layer in range(layers):
        query, key, content = (
            o("Reshape", o.dense(value, f"{layer}.{name}"), split) for name in ("query", "key", "value")
        )
        query, content = (o("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, content))
        mixed = o.attention(query, o("Transpose", key, perm=[0, 2, 3, 1]), content, joined)
        value = o.norm(o("Add", o.dense(mixed, f"{layer}.mixed"), value), f"{layer}.norm1", BERT_EPSILON)
        inner = o("Gelu", o.dense(value, f"{layer}.wide"))
        value = o.norm(o("Add", o.dense(inner, f"{layer}.narrow"), value), f"{layer}.norm2", BERT_EPSILON)
    o.named(value, "y")
    return Model(o.model({"x": x}, {"y": x.shape}, "bert"), {"x": x})


def gpt_step(cached: int) -> Model:
    """Write the step of GPT-2 small for one word: its number and the keys and values of ``cached`` words in, the scores
    of all words and the new keys and values out, which the caller puts into its cache. Norms come first; gelu is the
    variant with tanh."""
    o = _Blocks()
    words = o.constant(normal(WORDS, WIDTH, seed=5000, scale=0.02), "words")
    place = o.constant(normal(1, 1, WIDTH, seed=5001, scale=0.02), "place")
    o.weights = {**o.weights, "last.weight": 1 + normal(WIDTH, scale=0.1), "last.bias": normal(WIDTH, scale=0.1)}
    inputs: dict[str, Array] = {"word": np.array([[1234]], np.int64)}
    outputs: dict[str, tuple[int, ...]] = {"scores": (1, WORDS)}
    split, joined = o.integers(1, 1, HEADS, HEAD), o.integers(1, 1, WIDTH)
    value = o("Add", o("Gather", words, "word"), place)
    for layer in range(LAYERS):
        for number, name in enumerate(("keys", "values")):
            inputs[f"{name}{layer}"] = normal(1, HEADS, cached, HEAD, seed=6000 + 2 * layer + number)
        inner = o.norm(value, f"{layer}.norm1", GPT_EPSILON)
        query, key, content = (
            o("Transpose", o("Reshape", o.dense(inner, f"{layer}.{name}"), split), perm=[0, 2, 1, 3])
            for name in ("query", "key", "value")
        )
        for new, name in ((key, "key"), (content, "value")):
            outputs[o.named(new, f"{name}{layer}")] = (1, HEADS, 1, HEAD)
        keys = o("Concat", f"keys{layer}", f"key{layer}", axis=2)
        values = o("Concat", f"values{layer}", f"value{layer}", axis=2)
        mixed = o.attention(query, o("Transpose", keys, perm=[0, 1, 3, 2]), values, joined)
        value = o("Add", value, o.dense(mixed, f"{layer}.mixed"))
        inner = o.norm(value, f"{layer}.norm2", GPT_EPSILON)
        inner = o("Gelu", o.dense(inner, f"{layer}.wide"), approximate="tanh")
        value = o("Add", value, o.dense(inner, f"{layer}.narrow"))
    last = o("Reshape", o.norm(value, "last", GPT_EPSILON), o.integers(1, WIDTH))
    o.named(o("Gemm", last, words, transB=1), "scores")
    return Model(o.model(inputs, outputs, "gpt"), inputs)
