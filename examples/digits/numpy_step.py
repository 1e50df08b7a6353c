"""Compute one training step of the digits network in plain NumPy: the loss and its gradients, derived by hand. It is
the reference for the results and the speed of the compiled step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data import CLASSES
from numpy_net import CONVOLUTIONS, EPSILON, POOL_AFTER, conv2d, im2col, softmax

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.int64]
Parameters = dict[str, FloatArray]

LABEL_SMOOTHING = 0.05
STATISTICS_MOMENTUM = 0.05  # weight of the newest batch in the running mean and variance


def smoothed(labels: IndexArray) -> FloatArray:
    """Return the probabilities to learn, ``[n, 10]``: a little of each goes to the other classes."""
    targets = np.full((len(labels), CLASSES), LABEL_SMOOTHING / CLASSES, np.float32)
    targets[np.arange(len(labels)), labels] += 1 - LABEL_SMOOTHING
    return targets


class ConvBlock:
    """Convolution, batch norm with batch statistics, relu and optionally max pool: forward and backward."""

    def __init__(self, index: int, parameters: Parameters, statistics: Parameters) -> None:
        self.conv, self.bn = f"conv{index}", f"bn{index}"
        self.pools = index == POOL_AFTER
        self.parameters, self.statistics = parameters, statistics

    def forward(self, x: FloatArray) -> FloatArray:
        """Map ``x [n, c, h, w]`` to ``[n, o, h, w]`` (half the height and width with a pool)."""
        weight = self.parameters[f"{self.conv}.weight"]
        self.columns = im2col(x, 3, 1).transpose(0, 2, 1).reshape(-1, weight[0].size)  # one row for each pixel
        rows = self.columns @ weight.reshape(len(weight), -1).T
        mean, variance = rows.mean(axis=0), rows.var(axis=0)
        for name, batch_value in (("mean", mean), ("variance", variance)):
            running = self.statistics[f"{self.bn}.{name}"]
            running += np.float32(STATISTICS_MOMENTUM) * (batch_value - running)
        self.inverse_deviation = 1 / np.sqrt(variance + np.float32(EPSILON))
        self.normalized = (rows - mean) * self.inverse_deviation
        n, _, h, w = x.shape
        activated = self.normalized * self.parameters[f"{self.bn}.gamma"] + self.parameters[f"{self.bn}.beta"]
        y: FloatArray = np.maximum(activated, 0).reshape(n, h, w, -1).transpose(0, 3, 1, 2)
        self.positive = activated > 0
        if not self.pools:
            return y
        blocks = y.reshape(n, -1, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, -1, h // 2, w // 2, 4)
        self.winner = blocks.argmax(axis=-1)[..., None]
        pooled: FloatArray = np.take_along_axis(blocks, self.winner, axis=-1)[..., 0]
        return pooled

    def backward(self, gradient: FloatArray, gradients: Parameters) -> FloatArray:
        """Map the gradient by the output to that by the input; put the parameters' into ``gradients``."""
        if self.pools:
            n, o, h, w = gradient.shape
            blocks = np.zeros((n, o, h, w, 4), np.float32)
            np.put_along_axis(blocks, self.winner, gradient[..., None], axis=-1)
            gradient = blocks.reshape(n, o, h, w, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, o, 2 * h, 2 * w)
        n, o, h, w = gradient.shape
        rows = gradient.transpose(0, 2, 3, 1).reshape(-1, o) * self.positive
        gradients[f"{self.bn}.beta"] = rows.sum(axis=0)
        gradients[f"{self.bn}.gamma"] = (rows * self.normalized).sum(axis=0)
        rows = rows * self.parameters[f"{self.bn}.gamma"]
        rows = self.inverse_deviation * (
            rows - rows.mean(axis=0) - self.normalized * (rows * self.normalized).mean(axis=0)
        )
        weight = self.parameters[f"{self.conv}.weight"]
        gradients[f"{self.conv}.weight"] = (rows.T @ self.columns).reshape(weight.shape)
        # The gradient by the input of a convolution is a convolution with the kernel rotated by 180 degrees.
        turned = np.ascontiguousarray(weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
        return conv2d(rows.reshape(n, h, w, o).transpose(0, 3, 1, 2), turned)


def train_batch(
    blocks: list[ConvBlock], parameters: Parameters, images: FloatArray, labels: IndexArray
) -> tuple[float, Parameters]:
    """Return the mean cross-entropy of one batch, and its gradient by every parameter."""
    gradients: Parameters = {}
    x = images
    for block in blocks:
        x = block.forward(x)
    features = x.mean(axis=(2, 3))
    probabilities = softmax(features @ parameters["dense.weight"].T + parameters["dense.bias"])
    targets = smoothed(labels)
    loss = float(-(targets * np.log(probabilities + np.float32(1e-12))).sum() / len(labels))

    by_logits = (probabilities - targets) / np.float32(len(labels))
    gradients["dense.weight"] = by_logits.T @ features
    gradients["dense.bias"] = by_logits.sum(axis=0)
    by_features = by_logits @ parameters["dense.weight"]
    area = x.shape[2] * x.shape[3]
    gradient: FloatArray = np.broadcast_to((by_features / np.float32(area))[:, :, None, None], x.shape)
    for block in reversed(blocks):
        gradient = block.backward(gradient, gradients)
    return loss, gradients


class NumPyStep:
    """The step on ``parameters`` and ``statistics``, which it updates in place."""

    def __init__(self, parameters: Parameters, statistics: Parameters) -> None:
        self.parameters = parameters
        self.blocks = [ConvBlock(i, parameters, statistics) for i in range(1, CONVOLUTIONS + 1)]

    def __call__(self, images: FloatArray, labels: IndexArray) -> tuple[float, Parameters]:
        """Return the loss of a batch and its gradients, by the parameters' names."""
        return train_batch(self.blocks, self.parameters, images, labels)
