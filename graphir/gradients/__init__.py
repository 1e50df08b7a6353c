"""State the gradients of all operators, one function for each; every module of this package is imported.

``graphir/gradient.py`` says what a rule is. The names below serve to write rules for further operators.
"""

from __future__ import annotations

from tilewright.graphir.gradients.common import collapse, count_of, spread
from tilewright.tensorir.lazy import import_all

__all__ = ["collapse", "count_of", "spread"]

import_all(__name__)
