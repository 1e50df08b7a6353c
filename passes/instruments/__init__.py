"""Provide Tilewright's instruments: they measure passes, show their changes to the IR, and verify it.

The interface of instruments, with the order in which its methods are called, is in ``passes/instrument.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

__all__: list[str] = []

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
