"""Variables that stand for the number of a lane: a fact that holds for all its values holds for the whole vector."""

from __future__ import annotations

from tilewright.tensorir.expr import Expr, Var

#: Number of lanes, by the variable.
LANES: dict[Expr, int] = {}

_variables: dict[int, Var] = {}


def lane_number(lanes: int) -> Var:
    """The variable that stands for the number of a lane, from 0 to ``lanes - 1``."""
    var = _variables.get(lanes)
    if var is None:
        made = Var("lane")
        LANES[made] = lanes  # before another thread can find the variable
        var = _variables.setdefault(lanes, made)  # whichever thread came first
    return var
