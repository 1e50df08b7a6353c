"""Import ONNX models as modules."""

from tilewright.graphir.frontend.onnx.importer import from_onnx
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter

__all__ = ["Node", "converter", "from_onnx"]
