"""Load the digits of this example: 1,797 real 8x8 images, and their split into training and held-out ones.

Source and licence of ``digits.npz``: see README.md beside this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).resolve().parent
DIGITS_FILE = HERE / "digits.npz"
WEIGHTS_FILE = HERE / "weights.npz"

CLASSES = 10
GREY_LEVELS = 16  # a pixel counts the ink in a 4x4 block of the original scan: 0 to 16
TRAIN_PER_CLASS = 90
SPLIT_SEED = 1998

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.int64]


class Split(NamedTuple):
    """Indices into the 1,797 images; the two parts are disjoint and cover all of them."""

    train: IndexArray
    held_out: IndexArray


def load_digits() -> tuple[FloatArray, IndexArray]:
    """Load the images as float32 ``[1797, 1, 8, 8]`` with ink from 0 to 1, and their classes as int64 ``[1797]``."""
    with np.load(DIGITS_FILE) as archive:
        images = archive["images"].astype(np.float32)[:, None] / np.float32(GREY_LEVELS)
        labels = archive["labels"].astype(np.int64)
    return images, labels


def split(labels: IndexArray) -> Split:
    """Return the one split of the images: 90 of each class to train on, the other 897 held out.

    Training never sees a held-out image, neither to fit weights nor to choose when to stop.
    """
    rng = np.random.default_rng(SPLIT_SEED)
    chosen = [rng.permutation(np.flatnonzero(labels == digit))[:TRAIN_PER_CLASS] for digit in range(CLASSES)]
    train = np.sort(np.concatenate(chosen))
    held_out = np.setdiff1d(np.arange(len(labels)), train)
    return Split(train=train, held_out=held_out)


def load_weights() -> dict[str, FloatArray]:
    """Load the trained parameters and running statistics that train.py saved, by name."""
    with np.load(WEIGHTS_FILE) as archive:
        return {name: archive[name] for name in archive.files}
