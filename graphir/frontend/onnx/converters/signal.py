"""Convert Fourier transforms."""

from __future__ import annotations

import numpy as np

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator


@converter("DFT", since=17)
def _dft_with_axis(node: Node) -> Expr:
    return _dft(node, node.attribute("axis", 1))


@converter("DFT", since=20)
def _dft_with_axis_input(node: Node) -> Expr:
    return _dft(node, -2 if node.optional(2) is None else node.integers(2)[0])


def _dft(node: Node, axis: int) -> Expr:
    return get_operator("dft")(
        node[0],
        length=None if node.optional(1) is None else node.dims(1)[0],
        axis=axis,
        inverse=bool(node.attribute("inverse", 0)),
        onesided=bool(node.attribute("onesided", 0)),
    )


@converter("STFT", since=17)
def _stft(node: Node) -> Expr:
    window = node.optional(2)
    if node.optional(3) is not None:
        length = node.dims(3)[0]
    else:
        length = node.shape(0)[1] if window is None else window.shape[0]
    if not isinstance(length, int):
        raise node.unsupported("a frame of a length that is unknown at import")
    onesided = bool(node.attribute("onesided", 1))
    step = node.integers(1)[0]
    return get_operator("stft")(node[0], window, frame_step=step, frame_length=length, onesided=onesided)


@converter("MelWeightMatrix", since=17)
def _mel_weight_matrix(node: Node) -> Expr:
    """Return the weight of each bin of a spectrum in each band of the mel scale: triangles that end at the centers of
    adjacent bands.

    The scale is that of O'Shaughnessy, "Speech Communication: Human and Machine" (1987).
    """
    bands, length, rate, *edges = (node.constant(number).reshape(-1)[0].item() for number in range(5))
    low, high = 2595 * np.log10(1 + np.array(edges, np.float64) / 700)
    mel = low + (high - low) / (bands + 2) * np.arange(bands + 2)
    points = ((length + 1) * 700 * (10 ** (mel / 2595) - 1) // rate).astype(np.int64)
    foot, top, end = points[:-2], points[1:-1], points[2:]
    bins = np.arange(length // 2 + 1)[:, None]
    rising = np.where((bins >= foot) & (bins <= top), (bins - foot) / np.maximum(top - foot, 1), 0)
    falling = np.where((bins >= top) & (bins < end), (end - bins) / np.maximum(end - top, 1), 0)
    weights = np.where(bins == top, 1.0, np.maximum(rising, falling))
    return const(weights.astype(node.dtype("output_datatype", "float32").numpy))
