"""Expansions of transcendental functions of float32 into arithmetic, one file for each family."""

from __future__ import annotations

from collections.abc import Callable

# Each family registers its intrinsics by ``expands``.
from tilewright.passes.tensor.intrin import erf_tanh as erf_tanh
from tilewright.passes.tensor.intrin import exp_log as exp_log
from tilewright.passes.tensor.intrin import power as power
from tilewright.passes.tensor.intrin import trig as trig
from tilewright.passes.tensor.intrin.emitter import EXPANDER, Emitter
from tilewright.tensorir.expr import Expr
from tilewright.tensorir.intrinsics import lowered_by

#: The expansion of each intrinsic for float32 arguments (scalars or vectors).
EXPANSIONS: dict[str, Callable[..., Expr]] = lowered_by(EXPANDER)

__all__ = ["EXPANSIONS", "Emitter"]
