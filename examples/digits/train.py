"""Train the digits network in NumPy alone: ``python examples/digits/train.py`` writes weights.npz (under a minute).

It learns from the 900 training images that ``data.split`` names, moved a little at each pass over them (shift,
rotation, zoom, noise), for a fixed number of epochs; nothing is chosen by looking at the held-out images. Adam
(Kingma and Ba, 2015) with a cosine learning rate; batch norm as Ioffe and Szegedy (2015) describe it.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from data import CLASSES, WEIGHTS_FILE, load_digits, split
from numpy_net import CONVOLUTIONS, EPSILON, POOL_AFTER, conv2d, forward, im2col, softmax

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.int64]
Parameters = dict[str, FloatArray]

SEED = 8
EPOCHS = 120
BATCH = 60
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-3
LABEL_SMOOTHING = 0.05
STATISTICS_MOMENTUM = 0.05  # weight of the newest batch in the running mean and variance
CHANNELS = (1, 16, 32, 64)

MAX_SHIFT = 0.8  # pixels
MAX_ROTATION = np.deg2rad(12.0)
MAX_ZOOM = 0.12
NOISE = 0.04


def initial_parameters(rng: np.random.Generator) -> tuple[Parameters, Parameters]:
    """Initialize the parameters to train (He et al. 2015), and the running statistics of the batch norms."""
    trained: Parameters = {}
    statistics: Parameters = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(CHANNELS), start=1):
        deviation = np.sqrt(2.0 / (fan_in * 9))
        trained[f"conv{i}.weight"] = (deviation * rng.standard_normal((fan_out, fan_in, 3, 3))).astype(np.float32)
        trained[f"bn{i}.gamma"] = np.ones(fan_out, np.float32)
        trained[f"bn{i}.beta"] = np.zeros(fan_out, np.float32)
        statistics[f"bn{i}.mean"] = np.zeros(fan_out, np.float32)
        statistics[f"bn{i}.variance"] = np.ones(fan_out, np.float32)
    features = CHANNELS[-1]
    trained["dense.weight"] = (rng.standard_normal((CLASSES, features)) / np.sqrt(features)).astype(np.float32)
    trained["dense.bias"] = np.zeros(CLASSES, np.float32)
    return trained, statistics


def augment(images: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Move each of ``images [n, 1, 8, 8]`` by its own small affine map (bilinear, background 0) and add noise."""
    n, _, h, w = images.shape
    angle = rng.uniform(-MAX_ROTATION, MAX_ROTATION, (n, 1, 1))
    zoom = 1.0 + rng.uniform(-MAX_ZOOM, MAX_ZOOM, (n, 1, 1))
    shift_y, shift_x = rng.uniform(-MAX_SHIFT, MAX_SHIFT, (2, n, 1, 1))
    y, x = np.meshgrid(np.arange(h) - (h - 1) / 2, np.arange(w) - (w - 1) / 2, indexing="ij")
    source_y = (np.cos(angle) * y - np.sin(angle) * x) * zoom + shift_y + (h - 1) / 2
    source_x = (np.sin(angle) * y + np.cos(angle) * x) * zoom + shift_x + (w - 1) / 2

    margin = 3  # the maps above reach at most 3 pixels beyond the border
    padded = np.pad(images[:, 0], ((0, 0), (margin, margin), (margin, margin)))
    top, left = np.floor(source_y).astype(np.int64), np.floor(source_x).astype(np.int64)
    part_y, part_x = source_y - top, source_x - left
    row, column, image = top + margin, left + margin, np.arange(n)[:, None, None]
    moved = (
        padded[image, row, column] * (1 - part_y) * (1 - part_x)
        + padded[image, row, column + 1] * (1 - part_y) * part_x
        + padded[image, row + 1, column] * part_y * (1 - part_x)
        + padded[image, row + 1, column + 1] * part_y * part_x
    )
    moved += NOISE * rng.standard_normal(moved.shape)
    result: FloatArray = moved[:, None].astype(np.float32)
    return result


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


class Adam:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019) on the matrices, not on biases and norms."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.first = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.second = {name: np.zeros_like(value) for name, value in parameters.items()}
        self.steps = 0

    def step(self, gradients: Parameters, rate: float) -> None:
        """Move every parameter, in place, by one step of size about ``rate``."""
        self.steps += 1
        for name, value in self.parameters.items():
            gradient, first, second = gradients[name], self.first[name], self.second[name]
            first += np.float32(0.1) * (gradient - first)
            second += np.float32(0.001) * (gradient * gradient - second)
            unbiased_first = first / np.float32(1 - 0.9**self.steps)
            unbiased_second = second / np.float32(1 - 0.999**self.steps)
            if value.ndim > 1:
                value *= np.float32(1 - rate * WEIGHT_DECAY)
            value -= np.float32(rate) * unbiased_first / (np.sqrt(unbiased_second) + np.float32(1e-8))


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
    targets = np.full(probabilities.shape, LABEL_SMOOTHING / CLASSES, np.float32)
    targets[np.arange(len(labels)), labels] += 1 - LABEL_SMOOTHING
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


def train(images: FloatArray, labels: IndexArray, console: Console) -> Parameters:
    """Fit the network to ``images [n, 1, 8, 8]`` and ``labels [n]``; return every parameter and statistic, by name."""
    rng = np.random.default_rng(SEED)
    parameters, statistics = initial_parameters(rng)
    blocks = [ConvBlock(i, parameters, statistics) for i in range(1, CONVOLUTIONS + 1)]
    optimizer = Adam(parameters)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}"), console=console) as progress:
        task = progress.add_task("training", total=EPOCHS, loss=float("nan"))
        for epoch in range(EPOCHS):
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
            losses = []
            for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
                loss, gradients = train_batch(blocks, parameters, augment(images[batch], rng), labels[batch])
                optimizer.step(gradients, rate)
                losses.append(loss)
            progress.update(task, advance=1, loss=float(np.mean(losses)))
    return {**parameters, **statistics}


def main() -> None:
    """Train, save weights.npz, and report the accuracy of the reference network with the saved weights."""
    console = Console()
    images, labels = load_digits()
    parts = split(labels)
    start = time.perf_counter()
    weights = train(images[parts.train], labels[parts.train], console)
    arrays: dict[str, Any] = dict(weights)  # the stub of savez reads `**` as its other keyword, a bool
    np.savez_compressed(WEIGHTS_FILE, **arrays)
    console.print(f"trained on {len(parts.train)} images in {time.perf_counter() - start:.0f} s")

    correct = forward(weights, images).argmax(axis=1) == labels
    console.print(f"accuracy on the {len(parts.held_out)} held-out images: {correct[parts.held_out].mean():.2%}")
    console.print(f"accuracy on the {len(parts.train)} training images:   {correct[parts.train].mean():.2%}")
    console.print(f"accuracy on all {len(images)} images:           {correct.mean():.2%}")
    console.print(f"saved {WEIGHTS_FILE.name} ({WEIGHTS_FILE.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
