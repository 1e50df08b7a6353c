"""ONNX models as modules."""

from tilewright.graphir.frontend.onnx.importer import from_onnx
from tilewright.graphir.frontend.onnx.registry import converter

__all__ = ["converter", "from_onnx"]
