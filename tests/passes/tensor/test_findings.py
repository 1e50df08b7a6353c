"""Passes share the findings of analyzers about a function, for as long as it is in the pipeline."""

from __future__ import annotations

import gc

import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.expr import GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.passes.context import RUNNING, PassContext
from tilewright.passes.info import PassInfo
from tilewright.passes.instrument import pass_instrument
from tilewright.passes.tensor import tensor_pipeline
from tilewright.passes.tensor.findings import findings, sharing
from tilewright.passes.tensor.part_by_part import PartByPart
from tilewright.runtime import worker
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.encoding import encode

TARGET = tw.Target("llvm", num_threads=2)


@pytest.fixture(scope="module")
def kernels() -> dict[GlobalVar, PrimFunc]:
    """Scheduled kernels with loops over symbolic sizes."""
    x = gi.var("x", shape=("rows", "columns"))
    value = gi.nn.softmax(gi.exp(x) * 2.0, axis=1)
    value = gi.nn.softmax(gi.nn.relu(value) + x, axis=0)
    module = tw.IRModule.from_expr(gi.Function([x], value))
    found: dict[GlobalVar, PrimFunc] = {}
    lower = PartByPart._transform

    def record(self: PartByPart, mod: IRModule, ctx: PassContext) -> IRModule:
        found.update({key: f for key, f in mod.functions.items() if isinstance(f, PrimFunc)})
        return lower(self, mod, ctx)

    with pytest.MonkeyPatch.context() as patch, PassContext(opt_level=3):
        patch.setattr(PartByPart, "_transform", record)
        tw.build(module, target=TARGET)
    assert len(found) >= 2
    return found


def _lowered(kernels: dict[GlobalVar, PrimFunc]) -> dict[str, str]:
    with PassContext(opt_level=3) as context, TARGET:
        after = tensor_pipeline(TARGET)(IRModule(dict(kernels)), context)
    return {key.name: str(function) for key, function in after.functions.items()}


def test_a_kernel_is_lowered_the_same_alone_and_among_others(kernels: dict[GlobalVar, PrimFunc]) -> None:
    together = _lowered(kernels)
    for key, kernel in kernels.items():
        assert _lowered({key: kernel}) == {key.name: together[key.name]}
    assert _lowered(dict(reversed(kernels.items()))) == together


def test_a_kernel_is_lowered_the_same_part_by_part(kernels: dict[GlobalVar, PrimFunc]) -> None:
    with PassContext(opt_level=3) as context, TARGET:
        after = PartByPart(tensor_pipeline(TARGET), lambda through: None)(IRModule(dict(kernels)), context)
    assert {key.name: str(function) for key, function in after.functions.items()} == _lowered(kernels)


def test_a_kernel_is_lowered_the_same_from_a_request(kernels: dict[GlobalVar, PrimFunc]) -> None:
    together = _lowered(kernels)
    for key, kernel in kernels.items():
        request = worker.encode_request(encode(kernel), TARGET, PassContext(opt_level=3))
        assert request is not None
        made = worker.decode_answer(worker.answer_request(request))
        assert str(made.lowered.decode()) == together[key.name]


@pass_instrument
class _Seen:
    """Counts the functions with findings after each pass."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.counts.append(len(RUNNING.findings or ()))


def test_what_is_known_is_dropped_behind_the_pipeline(kernels: dict[GlobalVar, PrimFunc]) -> None:
    def alive() -> int:
        return sum(type(thing) is Findings for thing in gc.get_objects())

    seen = _Seen()
    gc.collect()
    gc.disable()  # nothing is left to the collector of cycles
    try:
        before = alive()
        with PassContext(opt_level=3, instruments=[seen]) as context, TARGET:
            tensor_pipeline(TARGET)(IRModule(dict(kernels)), context)
        assert max(seen.counts) == len(kernels)
        assert alive() == before
    finally:
        gc.enable()
    assert RUNNING.findings is None


def test_a_pass_that_runs_alone_shares_nothing(kernels: dict[GlobalVar, PrimFunc]) -> None:
    kernel, other, *_ = kernels.values()
    assert findings(kernel) is not findings(kernel)
    with sharing():
        assert findings(kernel) is findings(kernel)
        assert findings(kernel) is not findings(other)
    assert findings(kernel) is not findings(kernel)
