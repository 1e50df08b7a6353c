"""Fourier transforms, against their sums in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.tensorir.errors import TypeInferenceError

N = ({"n": 4}, {"n": 5})


def slow(x: Any, length: int, inverse: bool, onesided: bool) -> Any:
    """The transform along the last axis but one, one frequency after the other."""
    signal = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    taken = length // 2 + 1 if inverse and onesided else length
    filled = np.zeros((*signal.shape[:-1], taken), complex)
    count = min(taken, signal.shape[-1])
    filled[..., :count] = signal[..., :count]
    if inverse and onesided:
        whole = np.zeros((*signal.shape[:-1], length), complex)
        for k in range(length):
            whole[..., k] = filled[..., k] if k < taken else np.conj(filled[..., length - k])
        filled = whole
    turn = 2j * np.pi / length * (1 if inverse else -1)
    out = [sum(filled[..., n] * np.exp(turn * k * n) for n in range(length)) for k in range(length)]
    result = np.stack(out, -1) / (length if inverse else 1)
    if inverse and onesided:
        # A real signal: the imaginary parts of the first and of the middle frequency do not count.
        return result.real[..., None]
    result = result[..., : length // 2 + 1] if onesided else result
    return np.stack([result.real, result.imag], -1)


@pytest.mark.parametrize("length", [None, 3, 7, 8])
@pytest.mark.parametrize(
    ("parts", "attrs"),
    [(1, {}), (2, {}), (1, {"onesided": True}), (2, {"inverse": True}), (2, {"inverse": True, "onesided": True})],
    ids=str,
)
@pytest.mark.parametrize("extent", [5, "n"])
def test_transforms_are_their_sums(check: Any, extent: Any, parts: int, attrs: dict[str, Any], length: Any) -> None:
    inverse, onesided = attrs.get("inverse", False), attrs.get("onesided", False)

    def expected(x: Any) -> Any:
        size = length or (2 * (x.shape[1] - 1) if inverse and onesided else x.shape[1])
        return slow(x, size, inverse, onesided)

    def draw(rng: Any, shape: Any, dtype: Any) -> Any:
        found = rng.standard_normal(shape)
        if inverse and onesided:  # the spectrum of a real signal is real at the ends
            size = length or 2 * (shape[1] - 1)
            found[:, 0, 1] = 0
            if size % 2 == 0 and size // 2 < shape[1]:
                found[:, size // 2, 1] = 0
        return found.astype(dtype)

    check("dft", [((2, extent, parts), "float64")], {**attrs, "length": length}, expected, draw, N, 10)


@together("dtype", ["float16", "bfloat16", "float32"])
def test_transforms_along_another_axis(check: Any, dtype: str) -> None:
    def expected(x: Any) -> Any:
        return np.moveaxis(slow(np.moveaxis(x, 0, -2), 6, False, True), -2, 0)

    check("dft", [((6, "n", 1), dtype)], {"axis": 0, "onesided": True}, expected, None, N, 20)


@pytest.mark.parametrize("onesided", [True, False])
def test_frames_are_cut_weighed_and_transformed(check: Any, onesided: bool) -> None:
    attrs = {"frame_step": 2, "frame_length": 4, "onesided": onesided}

    def expected(x: Any, window: Any) -> Any:
        frames = [x[:, t : t + 4] * window[:, None] for t in range(0, x.shape[1] - 3, 2)]
        return slow(np.stack(frames, 1), 4, False, onesided)

    check("stft", [((2, "n", 1), "float32"), ((4,), "float32")], attrs, expected, None, ({"n": 4}, {"n": 9}), 10)


def test_what_does_not_fit_is_named() -> None:
    dft = gi.get_operator("dft")
    with pytest.raises(TypeInferenceError, match="x: expected a last axis of one"):
        dft(gi.var("x", shape=(2, 3)))
    with pytest.raises(TypeInferenceError, match="axis: expected another axis than the last"):
        dft(gi.var("x", shape=(2, 2)), axis=-1)
