"""Check results after every pass: find the pass, operator and element that first leave the tolerance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.runtime.observe.numeric.check import NumericCheck
    from tilewright.runtime.observe.numeric.compare import Tolerance
    from tilewright.runtime.observe.numeric.evaluate import random_inputs
    from tilewright.runtime.observe.numeric.failure import Failure, NumericError
    from tilewright.runtime.observe.numeric.minimize import Minimized, MinimizeError, minimize, minimize_with_inputs
    from tilewright.runtime.observe.numeric.ulps import scaled_error, ulp_distance, ulp_error, unit

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
