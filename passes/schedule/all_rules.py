"""Import every module of the schedule layer: all rules of this project are registered then."""

from __future__ import annotations

from tilewright.tensorir.lazy import import_all

import_all("tilewright.passes.schedule")
