"""Buffers that an exported program changes are the state of the executable."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tilewright import graphir as gi  # noqa: E402


class Cache(torch.nn.Module):
    """A cache of rows, the number of rows that are in it, and a table that stays."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 4))
        self.register_buffer("table", torch.arange(4.0))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = self.count.remainder(8)
        self.rows.index_copy_(0, place.reshape(1), x[None] + self.table)
        self.count.add_(1)
        return self.rows.sum(0)


@pytest.fixture(scope="module")
def mod() -> Any:
    return tw.from_exported(programs.exported(Cache(), [torch.ones(4)]))


def test_calls_change_the_state_as_those_of_pytorch_do(mod: Any) -> None:
    model, module = tw.build(mod), Cache()
    for _ in range(3):
        x = torch.randn(4)
        np.testing.assert_allclose(model(x.numpy()), module(x).numpy(), rtol=1e-5)
    assert sorted(model.state) == ["count", "rows"]
    np.testing.assert_allclose(model.state["rows"], module.rows.numpy(), rtol=1e-6)
    assert model.state["count"] == 3


def test_the_state_is_changed_in_place_and_may_be_set(mod: Any) -> None:
    model = tw.build(mod)
    rows = model.state["rows"]
    model(np.ones(4, "float32"))
    np.testing.assert_array_equal(rows[0], 1 + np.arange(4))
    for value in model.state.values():
        value[...] = 0
    np.testing.assert_array_equal(model(np.ones(4, "float32")), 1 + np.arange(4))
    assert rows is model.state["rows"]


def test_a_call_that_gives_the_state_gets_the_new_one_and_keeps_its_own(mod: Any) -> None:
    model = tw.build(mod)
    rows, count = np.zeros((8, 4), "float32"), np.array(5)
    y, new_rows, new_count = model(np.ones(4, "float32"), rows=rows, count=count)
    np.testing.assert_array_equal(new_rows[5], 1 + np.arange(4))
    np.testing.assert_array_equal(y, new_rows.sum(0))
    assert new_count == 6
    assert not rows.any()
    assert model.state["count"] == 0


def test_models_of_one_module_have_their_own_state_and_the_program_keeps_its(mod: Any) -> None:
    module = Cache()
    program = programs.exported(module, [torch.ones(4)])
    one, other = (tw.build(tw.from_exported(program)) for _ in range(2))
    one(np.ones(4, "float32"))
    assert other.state["count"] == 0
    assert program.state_dict["count"] == module.count == 0


def test_an_artifact_begins_with_the_first_state(mod: Any, tmp_path: Any) -> None:
    model = tw.build(mod)
    model(np.ones(4, "float32"))
    model.export(tmp_path / "cache.tw")
    loaded = tw.load(tmp_path / "cache.tw")
    assert loaded.state["count"] == 0
    loaded(np.ones(4, "float32"))
    assert loaded.state["count"] == 1


def test_a_state_that_becomes_a_parameter_of_the_build_is_none(mod: Any) -> None:
    model = tw.build(mod, params={"count": np.array(2)})
    assert model.state == {}
    assert [argument.name for argument in model.signature.inputs] == ["x", "rows"]


def test_calls_of_threads_take_turns(mod: Any) -> None:
    model = tw.build(mod)

    def call() -> None:
        for _ in range(25):
            model(np.ones(4, "float32"))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.state["count"] == 100


def test_a_model_with_state_is_profiled(mod: Any) -> None:
    model = tw.build(mod)
    assert model.profile(np.ones(4, "float32"), repeat=1).calls
    assert model.state["count"] == 0


def test_a_module_with_state_is_read_back_from_its_text(mod: Any) -> None:
    model = tw.build(gi.parse(gi.to_text(mod, "inline")))
    model(np.ones(4, "float32"))
    assert model.state["count"] == 1
