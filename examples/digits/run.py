"""Run the main job of ``make run``: compile the digits network, classify 1,797 real images, compare with plain NumPy.

Prints the accuracy, the agreement with the NumPy reference on every image, latency and throughput against the same
network in plain NumPy, and the cost of each compiler pass. Exits with status 1 if the accuracy on the held-out images
or on all of them is under 97 %, or if the compiled model disagrees with the reference on any image.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import tilewright as tw
from data import FloatArray, IndexArray, Split, load_digits, load_weights, split
from model import build_module
from numpy_net import forward

REQUIRED_ACCURACY = 0.97
# Probabilities lie between 0 and 1; opt_level 3 may round differently from NumPy, by this much and no more.
PROBABILITY_TOLERANCE = 1e-4
SECONDS_PER_BATCH_SIZE = 1.5
MAX_ROUNDS = 2000

Predict = Callable[[FloatArray], FloatArray]


class Speed(NamedTuple):
    """The median seconds of one call at one batch size, and the median of the ratios of neighbouring calls."""

    batch: int
    compiled: float
    numpy: float
    ratio: float


def seconds(predict: Predict, images: FloatArray) -> float:
    """Return the wall time of one call."""
    start = time.perf_counter()
    predict(images)
    return time.perf_counter() - start


def measure(compiled: Predict, plain: Predict, images: FloatArray, advance: Callable[[float], None]) -> Speed:
    """Time both interleaved, so that a slow moment of the machine affects both; the ratio is taken pair by pair.

    ``advance`` is called with the share of the work that is done, from 0 to 1.
    """
    for _ in range(3):
        compiled(images)
        plain(images)
    pairs: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(pairs) < MAX_ROUNDS and (elapsed := time.perf_counter() - start) < SECONDS_PER_BATCH_SIZE:
        pairs.append((seconds(compiled, images), seconds(plain, images)))
        advance(max(elapsed / SECONDS_PER_BATCH_SIZE, len(pairs) / MAX_ROUNDS))
    advance(1.0)
    return Speed(
        batch=len(images),
        compiled=statistics.median(pair[0] for pair in pairs),
        numpy=statistics.median(pair[1] for pair in pairs),
        ratio=statistics.median(pair[1] / pair[0] for pair in pairs),
    )


def measure_all(compiled: Predict, plain: Predict, images: FloatArray, console: Console) -> list[Speed]:
    """Measure latency at batch 1, throughput at batch 256 and with all images at once."""
    batches = [images[:1], images[:256], images]
    speeds = []
    with Progress(console=console, transient=True) as progress:
        for batch in batches:
            task = progress.add_task(f"measuring, batch {len(batch)}", total=1.0)
            speeds.append(measure(compiled, plain, batch, lambda done, t=task: progress.update(t, completed=done)))
    return speeds


def speed_table(speeds: list[Speed]) -> Table:
    """Build a table with one row for each batch size."""
    table = Table(title="Speed: medians of calls taken in turns", title_justify="left")
    for heading in ("batch", "Tilewright", "NumPy", "images/s, Tilewright", "images/s, NumPy", "times faster"):
        table.add_column(heading, justify="right")
    for speed in speeds:
        table.add_row(
            f"{speed.batch}",
            f"{speed.compiled * 1e6:,.0f} us",
            f"{speed.numpy * 1e6:,.0f} us",
            f"{speed.batch / speed.compiled:,.0f}",
            f"{speed.batch / speed.numpy:,.0f}",
            f"{speed.ratio:.2f}",
        )
    return table


def check_accuracy(predicted: IndexArray, labels: IndexArray, parts: Split, console: Console) -> bool:
    """Print the accuracy on the held-out images and on all of them; return whether both are high enough."""
    correct = predicted == labels
    held_out, everything = float(correct[parts.held_out].mean()), float(correct.mean())
    console.print(f"Accuracy on {len(parts.held_out):,} held-out images, never seen in training: {held_out:.2%}")
    console.print(f"Accuracy on all {len(labels):,} images, {len(parts.train):,} of them trained on:  {everything:.2%}")
    if min(held_out, everything) >= REQUIRED_ACCURACY:
        return True
    console.print(f"FAILED: the accuracy is under {REQUIRED_ACCURACY:.0%}")
    return False


def check_agreement(compiled: FloatArray, reference: FloatArray, console: Console) -> bool:
    """Print the number of images with the same class, and the largest difference; return whether both agree on all."""
    same = compiled.argmax(axis=1) == reference.argmax(axis=1)
    difference = float(np.abs(compiled - reference).max())
    console.print(f"Same class as the NumPy reference: {int(same.sum()):,} of {len(same):,} images")
    console.print(f"Largest difference of a probability: {difference:.1e}")
    # "not <=" and not ">", so that NaN fails.
    if same.all() and difference <= PROBABILITY_TOLERANCE:
        return True
    console.print(
        f"FAILED: images {np.flatnonzero(~same)[:10].tolist()} differ, or a probability by more than "
        f"{PROBABILITY_TOLERANCE:.0e}"
    )
    return False


def main() -> int:
    """Do the job; return the exit status."""
    console = Console()
    images, labels = load_digits()
    weights = load_weights()

    module = build_module(weights)
    timing = tw.PassTimingInstrument()
    start = time.perf_counter()
    with console.status("compiling"), tw.PassContext(opt_level=3, instruments=[timing]):
        model = tw.build(module, target="llvm")
    console.print(f"Compiled the network in {time.perf_counter() - start:.2f} s")

    def reference(batch: FloatArray) -> FloatArray:
        return forward(weights, batch)

    probabilities = model(images)
    good = check_accuracy(probabilities.argmax(axis=1), labels, split(labels), console)
    good &= check_agreement(probabilities, reference(images), console)
    console.print()
    console.print(speed_table(measure_all(model, reference, images, console)))
    console.print("\nWhat each pass cost:")
    print(timing)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
