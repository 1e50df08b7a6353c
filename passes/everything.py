"""Imports every module of the passes: all that this project registers, passes and their options, is known then."""

from __future__ import annotations

from tilewright.tensorir.lazy import import_all

import_all("tilewright.passes")
