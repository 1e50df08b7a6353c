"""Compile PyTorch programs with ``torch.compile(backend="tilewright")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.runtime.torch.backend import backend

__all__ = ["backend"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
