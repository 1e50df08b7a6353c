"""Train the digits network: ``python examples/digits/train.py`` writes weights.npz.

``tw.grad`` makes the backward pass of the model graph, and forward and backward pass are compiled as one model. It
learns from the 900 training images that ``data.split`` names, moved a little at each pass over them (shift, rotation,
zoom, noise), for a fixed number of epochs; nothing is chosen by looking at the held-out images. Adam (Kingma and Ba,
2015) with a cosine learning rate; batch norm as Ioffe and Szegedy (2015) describe it.

``--numpy`` trains with the step that numpy_step.py derives by hand; ``--compare`` measures both steps in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import tilewright as tw
from data import CLASSES, WEIGHTS_FILE, load_digits, split
from model import build_training_step
from numpy_net import forward
from numpy_step import STATISTICS_MOMENTUM, FloatArray, IndexArray, NumPyStep, Parameters, smoothed

SEED = 8
EPOCHS = 120
BATCH = 60
LEARNING_RATE = 4e-3
WEIGHT_DECAY = 1e-3
CHANNELS = (1, 16, 32, 64)

MAX_SHIFT = 0.8  # pixels
MAX_ROTATION = np.deg2rad(12.0)
MAX_ZOOM = 0.12
NOISE = 0.04

#: Computes the loss of a batch of images and labels, and its gradients, and moves the running statistics.
Step = Callable[[FloatArray, IndexArray], tuple[float, Parameters]]


def initial_parameters(rng: np.random.Generator) -> tuple[Parameters, Parameters]:
    """Initialize the parameters to train (He et al. 2015), and the running statistics of the batch norms."""
    trained: Parameters = {}
    running: Parameters = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(CHANNELS), start=1):
        deviation = np.sqrt(2.0 / (fan_in * 9))
        trained[f"conv{i}.weight"] = (deviation * rng.standard_normal((fan_out, fan_in, 3, 3))).astype(np.float32)
        trained[f"bn{i}.gamma"] = np.ones(fan_out, np.float32)
        trained[f"bn{i}.beta"] = np.zeros(fan_out, np.float32)
        running[f"bn{i}.mean"] = np.zeros(fan_out, np.float32)
        running[f"bn{i}.variance"] = np.ones(fan_out, np.float32)
    features = CHANNELS[-1]
    trained["dense.weight"] = (rng.standard_normal((CLASSES, features)) / np.sqrt(features)).astype(np.float32)
    trained["dense.bias"] = np.zeros(CLASSES, np.float32)
    return trained, running


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


class CompiledStep:
    """The step as a compiled model, on ``parameters`` and ``statistics``; the statistics are updated in place."""

    def __init__(self, parameters: Parameters, statistics: Parameters) -> None:
        self.parameters, self.statistics = parameters, statistics
        module = build_training_step(parameters, statistics, momentum=1 - STATISTICS_MOMENTUM)
        self.model = tw.build(module, opt_level=3)

    def __call__(self, images: FloatArray, labels: IndexArray) -> tuple[float, Parameters]:
        """Return the loss of a batch and its gradients, by the parameters' names."""
        loss, *rest = self.model(images, smoothed(labels), *self.parameters.values(), *self.statistics.values())
        for running, new in zip(self.statistics.values(), rest, strict=False):
            running[...] = new
        return float(loss), dict(zip(self.parameters, rest[len(self.statistics) :], strict=True))


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


def train(
    images: FloatArray,
    labels: IndexArray,
    console: Console,
    make_step: Callable[[Parameters, Parameters], Step] = CompiledStep,
) -> Parameters:
    """Fit the network to ``images [n, 1, 8, 8]`` and ``labels [n]``; return every parameter and statistic, by name."""
    rng = np.random.default_rng(SEED)
    parameters, running = initial_parameters(rng)
    step = make_step(parameters, running)
    optimizer = Adam(parameters)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3f}"), console=console) as progress:
        task = progress.add_task("training", total=EPOCHS, loss=float("nan"))
        for epoch in range(EPOCHS):
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
            losses = []
            for batch in np.array_split(rng.permutation(len(images)), len(images) // BATCH):
                loss, gradients = step(augment(images[batch], rng), labels[batch])
                optimizer.step(gradients, rate)
                losses.append(loss)
            progress.update(task, advance=1, loss=float(np.mean(losses)))
    return {**parameters, **running}


def compare_steps(images: FloatArray, labels: IndexArray, console: Console, rounds: int = 15, calls: int = 10) -> None:
    """Print how long both steps take on one batch: medians of calls, some of one and some of the other in turns."""
    parameters, running = initial_parameters(np.random.default_rng(SEED))
    steps = [make(parameters, running) for make in (CompiledStep, NumPyStep)]
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for step, taken in zip(steps, times, strict=True):
            step(images, labels)  # the other step's threads and data are gone by the next call
            seconds = []
            for _ in range(calls):
                start = time.perf_counter()
                step(images, labels)
                seconds.append(time.perf_counter() - start)
            taken.append(statistics.median(seconds))
    ratio = statistics.median(plain / compiled for compiled, plain in zip(*times, strict=True))
    compiled, plain = (1000 * statistics.median(taken) for taken in times)
    console.print(
        f"a step on {len(images)} images takes {compiled:.2f} ms compiled, {plain:.2f} ms in NumPy: {ratio:.1f} times "
        f"as long"
    )


def main() -> None:
    """Train, save the weights, and report the accuracy of the reference network with the saved weights."""
    parser = argparse.ArgumentParser(description="Train the digits network.")
    parser.add_argument("--numpy", action="store_true", help="train with the step in NumPy instead of the compiled one")
    parser.add_argument("--compare", action="store_true", help="measure both steps, and train nothing")
    parser.add_argument("--output", type=Path, default=WEIGHTS_FILE, help="the file to write")
    options = parser.parse_args()
    console = Console()
    images, labels = load_digits()
    parts = split(labels)
    if options.compare:
        compare_steps(images[parts.train[:BATCH]], labels[parts.train[:BATCH]], console)
        return
    start = time.perf_counter()
    make_step = NumPyStep if options.numpy else CompiledStep
    weights = train(images[parts.train], labels[parts.train], console, make_step)
    arrays: dict[str, Any] = dict(weights)  # the stub of savez reads `**` as its other keyword, a bool
    np.savez_compressed(options.output, **arrays)
    console.print(f"trained on {len(parts.train)} images in {time.perf_counter() - start:.0f} s")

    correct = forward(weights, images).argmax(axis=1) == labels
    console.print(f"accuracy on the {len(parts.held_out)} held-out images: {correct[parts.held_out].mean():.2%}")
    console.print(f"accuracy on the {len(parts.train)} training images:   {correct[parts.train].mean():.2%}")
    console.print(f"accuracy on all {len(images)} images:           {correct.mean():.2%}")
    console.print(f"saved {options.output.name} ({options.output.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
