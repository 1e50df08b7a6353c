"""PyTorch's operators of control flow are conditionals and loops of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402
from torch.export import Dim  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tests.torch.compiling import assert_close, compile_  # noqa: E402
from tilewright import graphir as gi  # noqa: E402
from tilewright.graphir.visitor import post_order  # noqa: E402
from tilewright.passes import PassContext, Remarks  # noqa: E402
from tilewright.tensorir.errors import UnsupportedOperatorError  # noqa: E402

pytestmark = [pytest.mark.usefixtures("fresh"), pytest.mark.filterwarnings("ignore")]


class Branches(torch.nn.Module):
    """A branch on data, within one on a size."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def long(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: (x @ self.weight).sin(), lambda x: x.cos(), (x,))

        return torch.cond(x.shape[0] > 3, long, lambda x: x * 2, (x,)) + 1


class Repeats(torch.nn.Module):
    """A loop whose length is data, over a state of two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, count: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def body(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, torch.tanh(x @ self.weight)

        return while_loop(lambda i, x: i < count, body, (torch.zeros_like(count), x))  # type: ignore[no-any-return]


class Scans(torch.nn.Module):
    """A recurrent layer, whose results are stacked; from the last row to the first if so wanted."""

    def __init__(self, dim: int = 0, reverse: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.dim, self.reverse = dim, reverse

    def forward(self, state: torch.Tensor, rows: torch.Tensor) -> Any:
        def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            after = torch.tanh(state @ self.weight + row)
            return after, after * 2

        return scan(step, state, rows, dim=self.dim, reverse=self.reverse)


INPUTS = [torch.ones(5, 4), -torch.ones(5, 4), torch.ones(2, 4)]


def test_exported_branches_agree_and_stay_branches() -> None:
    module = Branches()
    mod = tw.from_exported(programs.exported(module, [torch.ones(5, 4)], ({0: Dim.DYNAMIC},)))
    assert any(isinstance(node, gi.If) for node in post_order(mod["main"]))
    model = tw.build(mod)
    for x in INPUTS[:2]:
        programs.assert_agrees(model, module, [x])


def test_compiled_branches_agree(builds: list[Any]) -> None:
    module = Branches()
    model = compile_(module, dynamic=True)
    with torch.no_grad():
        for x in INPUTS:
            assert_close(model(x), module(x))
    assert all(any(isinstance(node, gi.If) for node in post_order(mod["main"])) for mod in builds[:1])


def test_gradients_flow_through_the_branch_that_is_taken() -> None:
    weight = torch.randn(4, 4)

    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x, w: (x @ w).sin(), lambda x, w: x.cos() * w, (x, weight))

    gradients = []
    for model in compile_(function), function:
        for sign in 1, -1:
            x = (torch.ones(4, 4) * sign).requires_grad_()
            model(x, weight).sum().backward()
            gradients.append(x.grad)
    assert_close(gradients[:2], gradients[2:])


@pytest.mark.parametrize("exports", [True, False], ids=["exported", "compiled"])
def test_a_while_loop_agrees(exports: bool) -> None:
    module = Repeats()
    x = torch.randn(3, 4)
    if exports:
        model = tw.build(tw.from_exported(programs.exported(module, [torch.tensor(2), x], (None, {0: Dim.DYNAMIC}))))
        for count in 0, 3:
            programs.assert_agrees(model, module, [torch.tensor(count), x])
        return
    compiled = compile_(module)
    with torch.no_grad():
        for count in 0, 3:
            assert_close(compiled(torch.tensor(count), x), module(torch.tensor(count), x))


class Counts(torch.nn.Module):
    """A loop over Python's numbers, whose last one is the size of a result."""

    def forward(self, x: torch.Tensor, count: int) -> tuple[Any, ...]:
        def body(i: int, k: int, x: torch.Tensor) -> tuple[Any, ...]:
            return i + 1, k * 2 - i // 2, torch.tanh(x * 1.5 + i - k % 3)

        i, k, y = while_loop(lambda i, k, x: (i < count) & (k < 100), body, (0, 3, x))
        torch._check(i >= 0)
        return i * 2, k - 50, y, torch.ones(i + 1, 2)


@pytest.mark.parametrize("exports", [True, False], ids=["exported", "compiled"])
def test_the_state_of_a_loop_may_be_numbers(exports: bool) -> None:
    module, x = Counts(), torch.randn(4)
    if exports:
        for count in 0, 4, 9:
            model = tw.build(tw.from_exported(programs.exported(module, [x, count])))
            found = programs.results(model, [x])
            expected = module(x, count)
            for mine, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(mine, np.asarray(theirs), rtol=1e-5, atol=1e-6)
        return
    compiled = compile_(module, dynamic=True, options={"fallback": False})
    for count in 2, 4, 9:
        assert_close(compiled(x, count), module(x, count))


def test_an_index_that_a_loop_counts_runs_in_pytorch() -> None:
    def function(x: torch.Tensor) -> Any:
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + x[i]), (0, x[0] * 0))

    remarks = Remarks()
    x = torch.randn(5, 4)
    with PassContext(instruments=[remarks]):
        assert_close(compile_(function)(x), function(x))
    (remark,) = remarks.select(message="runs in PyTorch")
    assert "a number that is computed in a loop as index is not supported" in remark.message


def test_an_exported_scan_serves_any_length() -> None:
    module = Scans()
    program = programs.exported(module, [torch.randn(4), torch.randn(7, 4)], (None, {0: Dim.DYNAMIC}))
    model = tw.build(tw.from_exported(program))
    for length in 2, 9:
        programs.assert_agrees(model, module, [torch.randn(4), torch.randn(length, 4)])


@pytest.mark.parametrize(("dim", "reverse"), [(0, True), (1, False)])
def test_a_compiled_scan_agrees(dim: int, reverse: bool) -> None:
    module = Scans(dim, reverse)
    state, rows = torch.randn(2, 4), torch.randn(3, 2, 4).transpose(0, dim)
    with torch.no_grad():
        torch.testing.assert_close(compile_(module)(state, rows), module(state, rows))


def test_a_branch_that_is_not_supported_runs_in_pytorch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, torch.special.airy_ai, torch.cos, (x,))
        return torch.cond(y.sum() > 0, torch.sin, torch.exp, (y * 2,))

    remarks = Remarks()
    with PassContext(instruments=[remarks]):
        model = compile_(function)
        for x in torch.ones(3), -torch.ones(3):
            assert_close(model(x), function(x))
    (remark,) = remarks.select(message="runs in PyTorch")
    assert "airy_ai" in remark.message


def test_an_import_names_what_is_not_supported_in_a_branch() -> None:
    class Airy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, torch.special.airy_ai, torch.cos, (x,))

    with pytest.raises(UnsupportedOperatorError, match="special_airy_ai"):
        tw.from_exported(programs.exported(Airy(), [torch.ones(3)]))


def test_the_loop_of_an_artifact_needs_no_pytorch(tmp_path: Any) -> None:
    module = Repeats()
    built = tw.build(tw.from_exported(programs.exported(module, [torch.tensor(2), torch.ones(3, 4)])))
    built.export(tmp_path / "loop.tw")
    found = tw.load(tmp_path / "loop.tw")(np.array(3), np.ones((3, 4), "float32"))
    np.testing.assert_allclose(found[1], module(torch.tensor(3), torch.ones(3, 4))[1].detach(), rtol=1e-4)
