"""Import every module of the schedule layer, which registers all schedule rules of the project."""

from __future__ import annotations

from tilewright.tensorir.lazy import import_all

import_all("tilewright.passes.schedule")
