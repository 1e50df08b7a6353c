"""Provide the instruments that come with Tilewright: they measure passes, show what passes change, and check it.

The interface of instruments, with the order of its calls, is in ``passes/instrument.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

__all__: list[str] = []

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
