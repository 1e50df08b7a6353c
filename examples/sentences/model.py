"""Build all-MiniLM-L6-v2 as a Tilewright model graph: a BERT encoder, the mean over the words, a vector of length 1.

The architecture is that of *BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding*,
J. Devlin and others, 2019, with the sizes of *MiniLM*, W. Wang and others, 2020; pooling and normalization are those
of *Sentence-BERT*, N. Reimers and I. Gurevych, 2019.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import tilewright as tw
from tilewright import graphir as gi

Weights = Mapping[str, npt.NDArray[np.float32]]


class Config(NamedTuple):
    """The sizes of the network, named as in the file ``config.json`` beside its weights."""

    hidden_size: int
    num_attention_heads: int
    num_hidden_layers: int
    layer_norm_eps: float

    @classmethod
    def load(cls, folder: Path) -> Config:
        """Read the sizes from ``folder``."""
        found = json.loads((folder / "config.json").read_text())
        return cls(*(found[name] for name in cls._fields))


def linear(x: gi.Expr, weights: Weights, name: str) -> gi.Expr:
    """Apply a fully connected layer: ``[..., in]`` to ``[..., out]``."""
    return gi.nn.dense(x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]


def layer_norm(x: gi.Expr, weights: Weights, name: str, config: Config) -> gi.Expr:
    """Normalize each word's vector to mean 0 and variance 1, then scale and shift it."""
    gamma, beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return gi.nn.layer_norm(x, gamma, beta, epsilon=config.layer_norm_eps)


def embed(ids: gi.Expr, weights: Weights, config: Config) -> gi.Expr:
    """Map words ``[batch, words]`` to vectors ``[batch, words, hidden]``: the sum of word and position embeddings."""
    words = gi.take(weights["embeddings.word_embeddings.weight"], ids)
    length = ids.shape[1]
    table = gi.const(weights["embeddings.position_embeddings.weight"])
    # The number of positions is limited: a call with longer sentences is an error.
    places = gi.match_shape(table[:length], (length, config.hidden_size))
    first_sentence = weights["embeddings.token_type_embeddings.weight"][0]
    return layer_norm(words + places + first_sentence, weights, "embeddings.LayerNorm", config)


def attention(x: gi.Expr, bias: gi.Expr, weights: Weights, name: str, config: Config) -> gi.Expr:
    """Mix every word's vector with those of all words, with different weights in each head.

    Args:
        bias: ``[batch, 1, 1, words]``, added to the logarithms of the weights: 0 for a word, very low for padding.
    """
    batch, words, _ = x.shape
    heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads

    def split(part: str) -> gi.Expr:
        return linear(x, weights, f"{name}.self.{part}").reshape(batch, words, heads, width).transpose(0, 2, 1, 3)

    query, key, value = split("query"), split("key"), split("value")
    scores = query @ key.transpose(0, 1, 3, 2) * np.float32(1 / math.sqrt(width))
    mixed = gi.nn.softmax(scores + bias) @ value
    return linear(
        mixed.transpose(0, 2, 1, 3).reshape(batch, words, config.hidden_size), weights, f"{name}.output.dense"
    )


def encoder_layer(x: gi.Expr, bias: gi.Expr, weights: Weights, name: str, config: Config) -> gi.Expr:
    """Apply attention, then a two-layer network for each word, each with a residual addition and a normalization."""
    mixed = attention(x, bias, weights, f"{name}.attention", config)
    x = layer_norm(x + mixed, weights, f"{name}.attention.output.LayerNorm", config)
    wide = gi.nn.gelu(linear(x, weights, f"{name}.intermediate.dense"))
    return layer_norm(x + linear(wide, weights, f"{name}.output.dense"), weights, f"{name}.output.LayerNorm", config)


def build_module(weights: Weights, config: Config) -> tw.IRModule:
    """Build a module whose ``main`` maps sentences to vectors of length 1, ``[batch, hidden]``.

    Its parameters are ``ids [batch, words]`` (int64), the numbers of the words, and ``mask`` of the same shape
    (int64), 1 for a word and 0 for padding; each sentence has at least one word. Both sizes are symbolic: one
    compilation serves every number of sentences and every length.
    """
    ids = gi.var("ids", shape=("batch", "words"), dtype="int64")
    mask = gi.var("mask", shape=("batch", "words"), dtype="int64")
    present = mask.astype("float32")
    bias = (1 - present[:, None, None, :]) * np.finfo(np.float32).min
    x = embed(ids, weights, config)
    for number in range(config.num_hidden_layers):
        x = encoder_layer(x, bias, weights, f"encoder.layer.{number}", config)
    mean = (x * present[:, :, None]).sum(axis=1) / present.sum(axis=1, keepdims=True)
    return tw.IRModule.from_expr(gi.Function([ids, mask], gi.nn.lp_normalize(mean, axis=-1, p=2)))
