"""Spell the names, operators and constants in the text of the loop-level IR, with keywords, symbols and precedences,
for both its printer and its parser.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from tilewright.tensorir.dtype import DataType

#: Words that cannot be a name without backquotes.
KEYWORDS = frozenset(
    (
        "primfunc",
        "attrs",
        "allocate",
        "let",
        "for",
        "in",
        "if",
        "else",
        "block",
        "where",
        "needed",
        "reads",
        "writes",
        "init",
        "annotations",
        "evaluate",
        "seq",
        "and",
        "or",
        "not",
        "True",
        "False",
        "None",
        "inf",
        "nan",
        "Buffer",
    )
)

#: Infix operators of BinaryOp and Compare: spelling and precedence (higher binds tighter).
INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", 1),
    "and": ("and", 2),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "floormod": ("%", 10),
}
PREFIX: dict[str, tuple[str, int]] = {"not": ("not ", 3), "neg": ("-", 11), "bitnot": ("~", 11)}

_IDENTIFIER = re.compile(r"[^\W\d][\w.]*")


def quote_name(name: str) -> str:
    """Return ``name`` as the text writes it: itself, or in backquotes where it is no identifier or is a keyword."""
    if _IDENTIFIER.fullmatch(name) and name not in KEYWORDS:
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def float_text(value: float, dtype: DataType) -> str:
    """Return the shortest text that gives ``value`` again once rounded to ``dtype``."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    text = repr(value)
    short = str(dtype.numpy.type(value))
    if len(short) < len(text) and _same_float(float(dtype.numpy.type(float(short))), value):
        text = short
    return text if any(mark in text for mark in ".en") else text + ".0"


def _same_float(a: float, b: float) -> bool:
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def peer_hint(operands: Iterable[tuple[bool, DataType]]) -> DataType | None:
    """Return the type that bare constants among operands of one type take: that of the first which is no bare constant.

    Args:
        operands: for each whether it is a bare constant, and its type. The parser asks by the same rule.
    """
    return next((dtype for bare, dtype in operands if not bare), None)
