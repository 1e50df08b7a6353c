"""The values of constants are computed while kernels are compiled."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.constant import Constant
from tilewright.graphir.ops.layout_transform import layout_transform
from tilewright.graphir.types import TensorType
from tilewright.runtime import background_constants
from tilewright.runtime.background_constants import BackgroundConstants

LARGE = TensorType((1 << 19,), "float32")


def waiting(makers: list[str], count: int = 3) -> list[Constant]:
    """Make large constants that record the names of the threads that compute them."""

    def compute(arrays):
        makers.append(threading.current_thread().name)
        return np.zeros(LARGE.shape, "f4")

    return [Constant.later(LARGE, compute, []) for _ in range(count)]


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_there_are_threads_where_there_are_cores(monkeypatch, cores):
    monkeypatch.setattr(background_constants, "available_cores", lambda: cores)
    makers: list[str] = []
    constants = waiting(makers)
    before = threading.active_count()
    with BackgroundConstants() as ahead:
        ahead.start(constants)
        if cores > 1:
            ahead._wait()  # its threads finish without help
            assert len(makers) == 3
        ahead.finish()
    assert set(makers) == {"MainThread" if cores == 1 else "tilewright-values"}
    assert all(constant.is_computed for constant in constants) and threading.active_count() == before


def test_the_largest_come_first(monkeypatch):
    monkeypatch.setattr(background_constants, "available_cores", lambda: 1)
    sizes: list[int] = []

    def later(size: int) -> Constant:
        def compute(arrays):
            sizes.append(size)
            return np.zeros(size, "f4")

        return Constant.later(TensorType((size,), "float32"), compute, [])

    with BackgroundConstants() as ahead:
        ahead.start([later(size) for size in (2, 3, 1)])
        ahead.finish()
    assert sizes == [3, 2, 1]


def test_a_failed_build_does_not_wait_for_what_is_left(monkeypatch):
    monkeypatch.setattr(background_constants, "available_cores", lambda: 1)
    makers: list[str] = []
    with pytest.raises(RuntimeError, match="failed"), BackgroundConstants() as ahead:
        ahead.start(waiting(makers))
        raise RuntimeError("failed")
    assert not makers


def conv() -> gi.Function:
    """Build a convolution whose weight is multiplied by a scale and packed."""
    rng = np.random.default_rng(3)
    x = gi.var("x", shape=(1, 32, 6, 6))
    weight = gi.const(rng.standard_normal((64, 32, 3, 3)).astype("f4"))
    scale = gi.const(rng.uniform(1, 2, (64, 1, 1)).astype("f4"))
    return gi.Function([x], gi.get_operator("nn.conv2d")(x, weight, padding=(1, 1)) * scale)


def test_a_build_says_what_fails_while_a_value_is_computed(monkeypatch):
    def fail(*_):
        raise MemoryError("no memory")

    monkeypatch.setattr(type(layout_transform), "reference", fail)
    for cores in (1, 2):
        monkeypatch.setattr(background_constants, "available_cores", lambda cores=cores: cores)
        with tw.PassContext(opt_level=3), pytest.raises(MemoryError, match="no memory") as caught:
            tw.build(conv())
        assert any("while computing layout_transform(" in note for note in caught.value.__notes__)


def test_a_build_has_computed_all_values():
    with tw.PassContext(opt_level=3):
        model = tw.build(conv())
    constants = [constant for segment in model._built.segments for constant in segment.lowered().constants]
    assert any(constant.ndim > 4 for constant in constants), "no weight was packed"
    assert all(constant.is_computed for constant in constants)
