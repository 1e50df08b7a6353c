"""Read text from pictures with the three networks of the package ``rapidocr-onnxruntime``, compiled by Tilewright.

Finding lines of text, turning those that are upside down, and reading them takes a network each (*PP-OCRv4*, the
PaddleOCR project, 2023). The steps between them (scaling pictures, outlines of regions, characters from scores) are the
package's own code on NumPy arrays; ONNX Runtime computes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import rapidocr_onnxruntime

import tilewright as tw

FloatArray = npt.NDArray[np.float32]
Image = npt.NDArray[np.uint8]
Network = Callable[[FloatArray], FloatArray]

MODELS = Path(rapidocr_onnxruntime.__file__).parent / "models"

#: The networks' files, and the shapes that they are compiled for: names are sizes that change from call to call. The
#: files themselves leave the height of a line open, which is always 48.
NETWORKS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "detection": ("ch_PP-OCRv4_det_infer.onnx", ("pages", 3, "height", "width")),
    "direction": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", ("lines", 3, 48, 192)),
    "recognition": ("ch_PP-OCRv4_rec_infer.onnx", ("lines", 3, 48, "width")),
}


class Line(NamedTuple):
    """A line of text.

    Attributes:
        text: the characters.
        score: the confidence of the network, from 0 to 1.
        corners: the line's corners in the picture, ``[4, 2]``: x and y from the top left.
    """

    text: str
    score: float
    corners: npt.NDArray[np.float64]


def compile_network(name: str, target: tw.Target | str = "llvm") -> tw.Executable:
    """Compile the network of that name in ``NETWORKS``, for all sizes."""
    file, shape = NETWORKS[name]
    with tw.PassContext(opt_level=3):
        return tw.build(tw.from_onnx(MODELS / file, shapes={"x": shape}), target=target)


class _Session:
    """Wraps a network as the session that the package's code expects: called with an array, it returns a list of
    results."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __call__(self, x: Any) -> list[FloatArray]:
        return [self.network(np.ascontiguousarray(x, np.float32))]


class Reader:
    """Reads pictures.

    Args:
        networks: the callable of each of ``NETWORKS``, by name.
    """

    def __init__(self, networks: dict[str, Network]) -> None:
        self._engine = rapidocr_onnxruntime.RapidOCR(intra_op_num_threads=1)
        self._engine.text_det.infer = _Session(networks["detection"])
        self._engine.text_cls.infer = _Session(networks["direction"])
        self._engine.text_rec.session = _Session(networks["recognition"])

    def read(self, image: Image) -> list[Line]:
        """Return the lines in ``image`` (``[height, width, 3]``, blue, green, red), from top to bottom."""
        found, _ = self._engine(image)
        return [Line(text, float(score), np.asarray(corners)) for corners, text, score in found or []]
