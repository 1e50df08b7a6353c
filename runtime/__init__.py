"""Building and running models."""

from __future__ import annotations

from tilewright.runtime.assemble import bind_params
from tilewright.runtime.build import build
from tilewright.runtime.executable import Executable
from tilewright.runtime.report.write import report
from tilewright.runtime.signature import Signature

__all__ = ["Executable", "Signature", "bind_params", "build", "report"]
