"""Look at a model without changing it: profile its calls, check its numbers, compare levels, write a report.

``build`` and a call need nothing of this package; it is loaded when somebody asks for what it shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

__all__: list[str] = []

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
