"""Random graphs have calls of every operator."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.graphs import Model, models
from tests.fuzz.makers import PARTS, complete
from tilewright import graphir as gi


def test_every_operator_is_drawn() -> None:
    assert {*complete(), *PARTS} == set(gi.list_operators())


@pytest.mark.parametrize("name", sorted(complete()))
def test_calls_of_each_operator_are_well_typed(name: str) -> None:
    wanted = {"decode": "encode", "dequantize": "quantize"}.get(name, name)
    found: list[str] = []

    @settings(max_examples=8, database=None, deadline=None, derandomize=True, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(models(most=3, only=name))
    def draw(model: Model) -> None:
        gi.verify(model.module)
        found.append(str(model.module))

    draw()
    assert any(f"{wanted}(" in text for text in found)
