"""Convert numeric operators of classical machine learning (domain ``ai.onnx.ml``)."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.ops.calls import cast, reshape, take

CLASSICAL = "ai.onnx.ml"


@converter("Binarizer", domain=CLASSICAL)
def binarizer(node: Node) -> Expr:
    """Return 1 above a threshold, 0 elsewhere. The threshold of integers may lie between two of them."""
    dtype = node.type().dtype
    x = node[0] if dtype.is_float else cast(node[0], dtype="float64")
    threshold = np.array(node.attribute("threshold", 0.0), dtype.numpy if dtype.is_float else np.float64)
    return cast(x > const(threshold), dtype=dtype)


@converter("ArrayFeatureExtractor", domain=CLASSICAL)
def array_feature_extractor(node: Node) -> Expr:
    """Pick columns by indices; of a vector, into a matrix of one row."""
    picked = take(node[0], reshape(node[1], newshape=(-1,)), axis=-1)
    return picked if len(node.shape()) > 1 else reshape(picked, newshape=(1, -1))
