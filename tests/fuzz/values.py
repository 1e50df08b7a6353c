"""Draw the elements of inputs and constants: plain numbers, ties, special values, indices."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.tensorir.dtype import DataType, as_dtype

Array = np.ndarray[Any, Any]

#: The kinds of numbers, the simplest first: small whole numbers; standard normal ones; multiples of a half, between
#: which roundings have ties; all zero; with NaN, infinities, signed zeros and the least normal number; and with the
#: greatest numbers, whose sums overflow.
KINDS = ("whole", "normal", "ties", "zero", "special", "huge")


@dataclasses.dataclass(frozen=True)
class Fill:
    """The distribution of a tensor's elements.

    Attributes:
        kind: one of :data:`KINDS`, ``index``, or ``positive`` (numbers between .25 and 2).
        least, greatest: the bounds of an ``index``, both included.
    """

    kind: str = "whole"
    least: int = 0
    greatest: int = 0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
        """Draw an array."""
        kind = as_dtype(dtype)
        if self.kind == "index":
            return np.asarray(rng.integers(self.least, self.greatest + 1, shape)).astype(kind.numpy)
        if kind.is_bool:
            return np.asarray(np.zeros(shape, bool) if self.kind == "zero" else rng.integers(0, 2, shape).astype(bool))
        if kind.is_integer:
            return self._integers(rng, shape, kind)
        return self._floats(rng, shape, kind)

    def _integers(self, rng: np.random.Generator, shape: tuple[int, ...], kind: DataType) -> Array:
        limits = np.iinfo(kind.numpy)
        if self.kind == "zero":
            return np.zeros(shape, kind.numpy)
        if self.kind == "positive":
            return np.asarray(rng.integers(1, 5, shape)).astype(kind.numpy)
        found = np.asarray(rng.integers(max(limits.min, -4), 6, shape)).astype(kind.numpy)
        if self.kind in ("special", "huge"):
            rare = np.array([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], kind.numpy)
            found = np.where(rng.random(shape) < 0.3, rng.choice(rare, shape), found)
        return found

    def _floats(self, rng: np.random.Generator, shape: tuple[int, ...], kind: DataType) -> Array:
        if self.kind == "zero":
            return np.zeros(shape, kind.numpy)
        if self.kind == "positive":
            return np.asarray(rng.uniform(0.25, 2, shape)).astype(kind.numpy)
        if self.kind == "normal":
            return np.asarray(rng.standard_normal(shape)).astype(kind.numpy)
        halves = np.asarray(rng.integers(-5, 6, shape)).astype(np.float64)
        if self.kind == "whole":
            return halves.astype(kind.numpy)
        found = (halves / 2).astype(kind.numpy)
        if self.kind in ("special", "huge"):
            limits: Any = ml_dtypes.finfo(kind.numpy)
            rare = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, float(limits.tiny), 1e4])
            if self.kind == "huge":
                rare = np.array([float(limits.max), -float(limits.max), float(limits.max) / 4, 1e4])
            found = np.where(rng.random(shape) < 0.2, rng.choice(rare, shape), found.astype(np.float64))
        with np.errstate(over="ignore"):
            return np.asarray(found).astype(kind.numpy)
