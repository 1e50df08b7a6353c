"""Compile PyTorch programs with ``torch.compile(backend="tilewright")``."""

from tilewright.runtime.torch.backend import backend

__all__ = ["backend"]
