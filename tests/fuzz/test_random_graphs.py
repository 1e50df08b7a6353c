"""Random graphs, as machine code and through numba, give what their operators' references give in double precision."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.check import LLVM_BUILDS, NUMBA_BUILDS, Build, check
from tests.fuzz.graphs import Model, models

#: The same graphs each time; `make fuzz` draws others.
_FIXED = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


@settings(max_examples=300, **_FIXED)
@given(models(), st.sampled_from(LLVM_BUILDS))
def test_machine_code_of_random_graphs_gives_the_reference(model: Model, build: Build) -> None:
    check(model.module, [lambda call=call: model.inputs(call) for call in range(len(model.sizes))], [build])


@settings(max_examples=12, **_FIXED)
@given(models(most=4), st.sampled_from(NUMBA_BUILDS))
def test_numba_code_of_random_graphs_gives_the_reference(model: Model, build: Build) -> None:
    check(model.module, [lambda call=call: model.inputs(call) for call in range(len(model.sizes))], [build])
