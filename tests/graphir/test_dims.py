"""Sizes: formulas of one structure are simplified once, whichever nodes they are made of."""

from __future__ import annotations

import pytest

from tilewright.graphir import dims
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import Expr


def test_a_formula_is_simplified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Analyzer] = []

    class Counted(Analyzer):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(dims, "Analyzer", Counted)
    n = dims.symbol("size_of_this_test")

    def formula(step: int) -> Expr:
        return (n * step + 3) // step

    first = dims.simplify(formula(4))
    assert str(first) == str(dims.simplify(formula(4))) == "size_of_this_test"
    assert len(made) == 1
    assert dims.dim_equal(formula(5), n) and dims.dim_equal(formula(5), n)
    assert len(made) == 2
    assert dims.estimate(formula(6) + 1) == dims.estimate(formula(6) + 1) == dims.TYPICAL + 1
    assert dims.estimate(formula(6) + 1, 10) == 11
    assert str(dims.simplify(formula(2) * 1)) == "size_of_this_test + 1"
