"""Build the digits network as a Tilewright model graph; layer by layer the same as numpy_net.py."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

import tilewright as tw
from tilewright import graphir as gi

EPSILON = 1e-5


def build_module(weights: Mapping[str, npt.NDArray[np.float32]]) -> tw.IRModule:
    """Build a module whose ``main`` takes ``images [batch, 1, 8, 8]`` (float32, ink from 0 to 1) to ``[batch, 10]``.

    ``batch`` is symbolic: one compilation serves every number of images. ``weights`` are the arrays that
    ``train.py`` saves, by name.
    """
    parameter = {name: gi.const(value) for name, value in weights.items()}

    def conv_block(x: gi.Expr, index: int) -> gi.Expr:
        convolved = gi.nn.conv2d(x, parameter[f"conv{index}.weight"], padding=(1, 1))
        statistics = (parameter[f"bn{index}.{name}"] for name in ("gamma", "beta", "mean", "variance"))
        return gi.nn.relu(gi.nn.batch_norm(convolved, *statistics, epsilon=EPSILON))

    images = gi.var("images", shape=("batch", 1, 8, 8), dtype="float32")
    x = conv_block(images, 1)
    x = conv_block(x, 2)
    x = gi.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = conv_block(x, 3)
    x = gi.nn.batch_flatten(gi.nn.global_avg_pool2d(x))
    logits = gi.nn.bias_add(gi.nn.dense(x, parameter["dense.weight"]), parameter["dense.bias"])
    return tw.IRModule.from_expr(gi.Function([images], gi.nn.softmax(logits)))
