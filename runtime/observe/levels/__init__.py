"""Measure the effect of optimization levels and single passes on a model's code, build time and calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

__all__: list[str] = []

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
