"""Borders of all modes, and negative ones, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graphir.together import together
from tilewright import graphir as gi
from tilewright.graphir.ops.common import ANY
from tilewright.tensorir.errors import TypeInferenceError

MODES = ("constant", "edge", "reflect", "wrap")


@together("dtype", ANY)
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_agrees_with_numpy_on_all_types(check: Any, dtype: str, mode: Any) -> None:
    width = ((1, 2), (0, 0), (3, 1))
    check("pad", [((3, 2, 5), dtype)], {"pad_width": width, "mode": mode}, lambda x: np.pad(x, width, mode=mode))


@pytest.mark.parametrize("mode", MODES)
def test_sizes_may_be_symbolic(check: Any, mode: Any) -> None:
    width = ((2, 0), (1, 3))
    sizes = [{"n": 4, "m": 7}, {"n": 5, "m": 4}]
    check("pad", [(("n", "m"), "float32")], {"pad_width": width, "mode": mode},
          lambda x: np.pad(x, width, mode=mode), None, sizes)  # fmt: skip


def test_wrapping_goes_around_more_than_once(check: Any) -> None:
    attrs = {"pad_width": ((5, 8),), "mode": "wrap"}
    check("pad", [((3,), "int32")], attrs, lambda x: np.pad(x, (5, 8), mode="wrap"))
    check("pad", [(("n",), "int32")], attrs, lambda x: np.pad(x, (5, 8), mode="wrap"), None, [{"n": 1}, {"n": 6}])


@pytest.mark.parametrize("mode", MODES)
def test_negative_widths_take_elements_away_first(check: Any, mode: Any) -> None:
    attrs = {"pad_width": ((-1, 2), (1, -2), (-1, -1)), "mode": mode}

    def oracle(x: Any) -> Any:
        return np.pad(x[1:, :-2, 1:-1], ((0, 2), (1, 0), (0, 0)), mode=mode)

    check("pad", [((4, 5, 3), "float32")], attrs, oracle)
    check("pad", [(("n", 5, "n"), "float32")], attrs, oracle, None, [{"n": 4}, {"n": 6}])


@pytest.mark.parametrize("mode", MODES)
def test_widths_may_be_symbolic(check: Any, mode: Any) -> None:
    n = gi.symbol("n")
    attrs = {"pad_width": ((n - 1, 3 - n),), "mode": mode}

    def oracle(x: Any) -> Any:
        before, behind = len(x) - 1, 3 - len(x)
        return np.pad(x[: len(x) + min(behind, 0)], (before, max(behind, 0)), mode=mode)

    check("pad", [(("n",), "float32")], attrs, oracle, None, [{"n": 2}, {"n": 3}])


def test_a_constant_border_surrounds_nothing(check: Any) -> None:
    attrs = {"pad_width": ((1, 1), (0, 2)), "pad_value": 3}
    check("pad", [(("n", 0), "int8")], attrs, lambda x: np.full((len(x) + 2, 2), 3), None, [{"n": 0}, {"n": 2}])


def test_what_is_taken_away_must_be_there() -> None:
    x = gi.var("x", shape=(2, 3))
    with pytest.raises(
        TypeInferenceError, match="pad: pad_width: expected at most 3 elements to take away along axis 1"
    ):
        gi.get_operator("pad")(x, ((0, 0), (-2, -2)))
    assert gi.get_operator("pad")(x, ((0, 0), (-2, -1))).shape == (2, 0)
    with pytest.raises(TypeInferenceError, match="pad: x: expected an extent of at least 1 along axis 0 for mode wrap"):
        gi.get_operator("pad")(x, ((-2, 1), (0, 0)), mode="wrap")
