"""Random ONNX models give what the onnx package's reference evaluator, and their graphs in double precision, give."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.check import LLVM_BUILDS, Build, check_onnx
from tests.fuzz.onnx_models import OnnxModel, onnx_models


# The same models each time; `make fuzz` draws others.
@settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
@given(onnx_models(most=15), st.sampled_from(LLVM_BUILDS))
def test_machine_code_of_random_onnx_models_gives_the_reference(model: OnnxModel, build: Build) -> None:
    check_onnx(model, [build])
