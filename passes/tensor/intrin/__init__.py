"""Transcendental functions of float32 in terms of arithmetic, one file for each family."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.passes.tensor.intrin import erf_tanh, exp_log, power, trig
from tilewright.passes.tensor.intrin.emitter import Emitter
from tilewright.tensorir.expr import Expr

#: How each intrinsic is computed for float32 arguments (scalars or vectors).
EXPANSIONS: dict[str, Callable[..., Expr]] = {
    **exp_log.EXPANSIONS,
    **erf_tanh.EXPANSIONS,
    **trig.EXPANSIONS,
    **power.EXPANSIONS,
}

__all__ = ["EXPANSIONS", "Emitter"]
