"""Import PyTorch programs as modules."""

from tilewright.graphir.frontend.torch.exported import from_exported
from tilewright.graphir.frontend.torch.node import Node
from tilewright.graphir.frontend.torch.registry import converter

__all__ = ["Node", "converter", "from_exported"]
