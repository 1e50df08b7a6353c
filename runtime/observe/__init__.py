"""Observe a model without changing it: profile its calls, check its numbers, compare levels, write a report.

``build`` and calls do not need this package; it is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

__all__: list[str] = []

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
