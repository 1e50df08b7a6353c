"""Gradients of random graphs agree with central differences, where the graph is smooth."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import given, reject

import tilewright as tw
from tests.fuzz.graphs import Model, models
from tests.fuzz.loop_programs import fuzzing
from tests.fuzz.oracle import flatten
from tests.fuzz.values import Array
from tilewright import graphir as gi
from tilewright.tensorir.errors import TilewrightError, UnsupportedOperatorError

#: Steps of central differences: where those by the first two differ, or those to both sides by the third, the graph has
#: a kink or a pole nearby, and there is no gradient to compare with.
STEPS = (1e-4, 1e-5, 1e-6)

#: Operators with gradients that differences do not show: none, by their meaning; all of several equal choices; or those
#: of other roundings, where sines that are 0 but for their rounding are normalized.
LEFT_OUT = ("stop_gradient", "scatter_nd", "scatter_elements", "tensor_scatter", "nn.max_unpool", "dft", "stft")


def _is_float(value: gi.Expr) -> bool:
    return isinstance(value.type, gi.TensorType) and value.type.dtype.is_float


def _fields(value: gi.Expr) -> list[Any]:
    return list(value.type.fields) if isinstance(value.type, gi.TupleType) else [value.type]


def _inputs(model: Model, main: gi.Function, rng: np.random.Generator) -> list[Array]:
    """Draw inputs: floats in double precision, away from 0 and of about its size."""
    found = []
    for param, array in zip(main.params, model.inputs(0), strict=True):
        away = rng.uniform(0.3, 1.7, array.shape) * rng.choice([-1.0, 1.0], array.shape)
        found.append(away if _is_float(param) else array)
    return found


class _Weighted:
    """The sum of the results of floats, weighted by cotangents, on the way from the inputs in a direction."""

    def __init__(self, model: Model, inputs: list[Array], way: list[Array | None], rng: np.random.Generator) -> None:
        self.module, self.inputs, self.way = model.module, inputs, way
        kinds = _fields(model.module["main"].body)  # type: ignore[union-attr]
        self.places = [n for n, kind in enumerate(kinds) if isinstance(kind, gi.TensorType) and kind.dtype.is_float]
        results = self._results(0.0)
        self.cotangents = [rng.standard_normal(np.shape(results[place])) for place in self.places]

    def _results(self, step: float) -> list[Any]:
        moved = [
            array if move is None else array + step * move for array, move in zip(self.inputs, self.way, strict=True)
        ]
        return flatten(gi.evaluate(self.module, *moved, dtype="float64"))

    def __call__(self, step: float) -> float:
        results = self._results(step)
        pairs = zip(self.cotangents, (results[place] for place in self.places), strict=True)
        return float(sum((cotangent * result).sum() for cotangent, result in pairs))

    def slope(self) -> tuple[float, float]:
        """Return the slope by central differences and its error; skip the example where there is none."""
        here = self(0.0)
        sides = np.array([[self(step) - here, here - self(-step)] for step in STEPS]) / np.array(STEPS)[:, None]
        central = sides.mean(axis=1)
        size = max(float(np.abs(sides).max()), 1e-3)
        noise = abs(here) * 1e-9
        bent = abs(central[0] - central[1]) > 1e-3 * size or np.ptp(sides[1]) > 1e-3 * size + noise
        steep = size > 1e8  # such as a staircase of great numbers, whose steps are too short to be seen
        if not np.isfinite(sides).all() or steep or bent or np.ptp(sides[2]) > 1e-3 * size + 10 * noise:
            reject()
        return float(central[1]), size + noise


@fuzzing(120, 600)
@given(models(most=6, flow=5))
def test_gradients_of_random_graphs_agree_with_differences(model: Model) -> None:
    main = model.module["main"]
    assert isinstance(main, gi.Function)
    text = str(model.module)
    by = [param for param in main.params if _is_float(param)]
    if not by or "float16" in text or any(f"{name}(" in text for name in LEFT_OUT):
        reject()  # of half types the graph's own conversions round
    rng = np.random.default_rng(model.seed)
    inputs = _inputs(model, main, rng)
    way = [
        rng.standard_normal(a.shape) * 0.3 if _is_float(p) else None for p, a in zip(main.params, inputs, strict=True)
    ]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            weighted = _Weighted(model, inputs, way, rng)
            slope, size = weighted.slope()
        except (TilewrightError, ValueError, IndexError):  # a size depends on floats, or there is no result
            reject()
        try:
            differentiated = tw.grad(model.module, [param.name for param in by], cotangents=True)
        except UnsupportedOperatorError:
            reject()
        gi.verify(differentiated)
        found = flatten(gi.evaluate(differentiated, *inputs, *weighted.cotangents, dtype="float64"))
    gradients = found[len(_fields(main.body)) :]
    assert [np.shape(gradient) for gradient in gradients] == [move.shape for move in way if move is not None]
    moves = [move for move in way if move is not None]
    mine = float(sum((gradient * move).sum() for gradient, move in zip(gradients, moves, strict=True)))
    # NaN is 0 * inf: of an element that no result depends on, at a place where the operator has no derivative.
    assert np.isnan(mine) or abs(mine - slope) <= 2e-3 * size, f"{mine} by the gradient, {slope} by differences"
