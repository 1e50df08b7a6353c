"""Import PyTorch programs as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.graphir.frontend.torch.exported import from_exported
    from tilewright.graphir.frontend.torch.node import Node
    from tilewright.graphir.frontend.torch.registry import converter

__all__ = ["Node", "converter", "from_exported"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
