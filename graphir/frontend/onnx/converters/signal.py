"""Fourier transforms."""

from __future__ import annotations

from tilewright.graphir.expr import Expr
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
        raise node.unsupported("a frame of a length that is not known when the model is imported")
    onesided = bool(node.attribute("onesided", 1))
    step = node.integers(1)[0]
    return get_operator("stft")(node[0], window, frame_step=step, frame_length=length, onesided=onesided)
