"""Build a convolutional network of the kind that runs on telephones: separable convolutions, gates over channels,
steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import IRModule
from tilewright import graphir as gi

#: Channels, kernel and stride of each block; half of the channel counts are not a multiple of a vector.
BLOCKS = (
    (16, 3, 2), (24, 3, 2), (24, 3, 1), (40, 5, 2), (40, 5, 1), (40, 5, 1), (56, 3, 1), (56, 3, 1),
    (96, 5, 2), (96, 5, 1), (96, 5, 1), (120, 3, 1), (120, 3, 1), (120, 5, 1),
)  # fmt: skip


def mobile_network(height: int | str, width: int | str) -> IRModule:
    """Build the network for images of that size; a name stands for any size."""
    random = np.random.default_rng(5)

    def weights(*shape: int) -> gi.Expr:
        return gi.const((random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def convolution(value: Any, channels: int, of: int, kernel: int, stride: int, groups: int = 1) -> Any:
        at = (kernel // 2, kernel // 2)
        made = gi.nn.conv2d(
            value, weights(channels, of // groups, kernel, kernel), strides=(stride, stride), padding=at, groups=groups
        )
        return made + weights(channels, 1, 1)

    x = gi.var("x", shape=(1, 3, height, width), dtype="float32")
    value, channels = gi.nn.relu(convolution(x, 16, 3, 3, 2)), 16
    for number, (wanted, kernel, stride) in enumerate(BLOCKS):
        wide = 4 * channels
        inner = gi.nn.relu(convolution(value, wide, channels, 1, 1))
        inner = gi.nn.relu(convolution(inner, wide, wide, kernel, stride, groups=wide))
        if number % 2:
            gate = gi.mean(inner, axis=(2, 3), keepdims=True)
            inner = inner * gi.sigmoid(convolution(gate, wide, wide, 1, 1))
        inner = convolution(inner, wanted, wide, 1, 1)
        value = value + inner if wanted == channels and stride == 1 else inner
        channels = wanted
    return IRModule.from_expr(gi.Function([x], gi.mean(value, axis=(2, 3))))
