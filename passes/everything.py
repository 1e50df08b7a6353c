"""Import every module of the passes, so that all passes and options of this project are registered."""

from __future__ import annotations

from tilewright.tensorir.lazy import import_all

import_all("tilewright.passes")
