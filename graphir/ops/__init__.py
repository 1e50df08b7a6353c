"""Define all operators, and re-export the means to define others.

Each module of this package is imported, so adding an operator touches one file. The names below serve to write further
operators; docs/extending/operators.md adds two.
"""

from __future__ import annotations

from tilewright.graphir.ops.common import (
    ANY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Binary,
    Comparison,
    Elementwise,
    Reduce,
    ReduceAttrs,
    Unary,
    axis_index,
    broadcast_shapes,
    check_dtype,
    compute_type,
    same_dtype,
    widened,
)
from tilewright.graphir.ops.native import Native
from tilewright.tensorir.lazy import import_all

__all__ = [
    "ANY",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "Binary",
    "Comparison",
    "Elementwise",
    "Native",
    "Reduce",
    "ReduceAttrs",
    "Unary",
    "axis_index",
    "broadcast_shapes",
    "check_dtype",
    "compute_type",
    "same_dtype",
    "widened",
]

import_all(__name__)
