"""Spell the names, constants and attributes in the text of the graph-level IR."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import weakref
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np

from tilewright.graphir.expr import Constant
from tilewright.graphir.types import Type
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.spelling import float_text

#: A constant of up to so many elements is written where it is used; a larger one is described below.
INLINE_ELEMENTS = 8

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DIGESTS: weakref.WeakKeyDictionary[Constant, str] = weakref.WeakKeyDictionary()


def digest(constant: Constant) -> str:
    """Return the digest of a constant's value: SHA-256 of its element type, shape and data, in hex."""
    found = _DIGESTS.get(constant)
    if found is None:
        data = np.ascontiguousarray(constant.data)
        state = hashlib.sha256(f"{as_dtype(data.dtype)!s}{data.shape}".encode())
        state.update(data.reshape(-1).view(np.uint8).data)  # its memory, not a copy
        found = _DIGESTS[constant] = state.hexdigest()
    return found


def inline_text(constant: Constant) -> str | None:
    """Return :func:`constant_text` of a constant; a large constant's value is not computed for it."""
    return None if constant.size > INLINE_ELEMENTS else constant_text(constant.data)


def constant_text(data: np.ndarray[Any, Any]) -> str | None:
    """Return the text of a small constant where it is used; None for one that is described below."""
    dtype = as_dtype(data.dtype)
    if data.size > INLINE_ELEMENTS or (data.size == 0 and data.ndim != 1):
        return None
    values = data.reshape(-1).tolist() if dtype.is_integer or dtype.is_bool else [float(v) for v in data.reshape(-1)]
    if any(isinstance(value, float) and math.isnan(value) for value in values):
        return None  # only the bytes distinguish NaNs

    def nested(values: list[Any], shape: tuple[int, ...]) -> str:
        if not shape:
            value = values[0]
            return float_text(value, dtype) if isinstance(value, float) else str(value)
        step = len(values) // shape[0] if shape[0] else 0
        parts = [nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]
        return f"[{', '.join(parts)}]"

    inner = nested(values, data.shape)
    return f"const({dtype!s}, {inner})" if data.ndim else f"{dtype!s}({inner})"


def quote_name(name: str) -> str:
    """Return ``name`` as the text writes it: itself, or in backquotes where it is no identifier."""
    if _IDENTIFIER.fullmatch(name):
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def variable_name(name: str) -> str:
    """Return the text of a variable of that name."""
    return "%" + quote_name(name)


def attribute_text(value: Any) -> str:
    """Return the text of plain data: an attribute's value."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)  # as json.dumps
    if value is None or isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, np.generic):
        return attribute_text(value.item())
    if isinstance(value, ScalarExpr):
        return f"dim[{value}]"
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{attribute_text(k)}: {attribute_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(attribute_text, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return f"opaque[{json.dumps(repr(value))}]"


def attribute_texts(attrs: Any) -> list[str]:
    """Return ``name=value`` for each attribute that differs from its default."""
    shown = []
    for field in dataclasses.fields(attrs):
        value = getattr(attrs, field.name)
        if field.default is not dataclasses.MISSING and type(field.default) is type(value) and field.default == value:
            continue
        shown.append(f"{field.name}={attribute_text(value)}")
    return shown
