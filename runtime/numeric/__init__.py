"""Numbers through the passes: which pass, operator and element first leaves the tolerance, and by how much."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.runtime.numeric.check import NumericCheck
    from tilewright.runtime.numeric.compare import Tolerance
    from tilewright.runtime.numeric.evaluate import random_inputs
    from tilewright.runtime.numeric.failure import Failure, NumericError
    from tilewright.runtime.numeric.minimize import Minimized, MinimizeError, minimize, minimize_with_inputs
    from tilewright.runtime.numeric.ulps import scaled_error, ulp_distance, ulp_error, unit

__all__ = [
    "Failure",
    "MinimizeError",
    "Minimized",
    "NumericCheck",
    "NumericError",
    "Tolerance",
    "minimize",
    "minimize_with_inputs",
    "random_inputs",
    "scaled_error",
    "ulp_distance",
    "ulp_error",
    "unit",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
