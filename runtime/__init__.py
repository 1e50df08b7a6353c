"""Building and running models."""

from __future__ import annotations

from tilewright.runtime.build import bind_params, build
from tilewright.runtime.executable import Executable
from tilewright.runtime.signature import Signature

__all__ = ["Executable", "Signature", "bind_params", "build"]
