"""Outputs of compiled functions that look at the memory of inputs or of other outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tests.torch.compiling import assert_close, compile_  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")

Function = Callable[[torch.Tensor], Any]

FUNCTIONS: dict[str, Function] = {
    "the last element": lambda x: x[x.shape[0] - 1],
    "a half from a size": lambda x: x[x.shape[0] // 2 :],
    "transposed": lambda x: (x.t(), x * 2),
    "parts": lambda x: x.split(2),
    "a part of a part": lambda x: x.unbind(1)[1][2:],
    "a diagonal": lambda x: x[:, 1:].diagonal(),
    "as complex": lambda x: torch.view_as_complex(x[:, :2]),
    "other elements": lambda x: x.view(torch.int32),
    "repeated": lambda x: x[:1].expand(x.shape[0], 4),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_views_of_an_input_look_at_its_memory(function: Function, dynamic: bool) -> None:
    model = compile_(function, dynamic=dynamic)
    x = torch.randn(6, 4)
    found, expected = model(x), function(x)
    assert_close(found, expected)
    x.add_(1)
    assert_close(found if torch.is_tensor(found) else found[0], expected if torch.is_tensor(expected) else expected[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_a_result_look_at_its_memory(dynamic: bool) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x * 2
        return y, y[x.shape[0] - 2 :], y.t()[1:]

    x = torch.randn(6, 4)
    whole, part, turned = compile_(function, dynamic=dynamic)(x)
    whole.add_(1)
    assert_close((whole, part, turned), (x * 2 + 1, (x * 2 + 1)[4:], (x * 2 + 1).t()[1:]))


def test_views_of_a_value_that_is_no_output_share_its_memory() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        return y[x.shape[0] - 2 :], y[:, 1:3]

    x = torch.randn(6, 4)
    found, expected = compile_(function, dynamic=True)(x), function(x)
    for last, _ in found, expected:
        last.zero_()
    assert_close(found, expected)


def test_a_view_from_a_place_that_data_decides_agrees() -> None:
    def function(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        start = place.item()
        torch._check(start >= 0)
        torch._check(start < x.shape[0])
        return x.narrow(0, start, 1)

    x = torch.randn(6, 4)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        model = compile_(function)
        for place in 0, 4:
            assert_close(model(x, torch.tensor(place)), function(x, torch.tensor(place)))


def test_a_view_of_an_input_that_is_changed_sees_the_change() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        view = x[x.shape[0] - 2 :]
        x.mul_(3)
        return view

    x = torch.ones(5)
    assert_close(compile_(function, dynamic=True)(x), torch.full((2,), 3.0))
    assert_close(x, torch.full((5,), 3.0))


def test_a_gradient_flows_through_a_view() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[x.shape[0] - 2 :], x.sin()

    found, expected = torch.randn(5), None
    for model in compile_(function, dynamic=True), function:
        x = found.clone().requires_grad_()
        view, sine = model(x)
        (view.sum() * 2 + sine.sum()).backward()
        expected = x.grad if expected is None else expected
        assert_close(x.grad, expected)


def test_parameters_are_returned_as_they_are() -> None:
    module = torch.nn.Linear(3, 4)
    with torch.no_grad():
        weight, _ = compile_(lambda x: (module.weight.t(), module(x)))(torch.randn(2, 3))
    assert weight.data_ptr() == module.weight.data_ptr()


def test_a_number_that_follows_from_sizes_by_any_function_is_returned() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, int, float]:
        return x + 1, x.shape[0] & 6, x.shape[0] / 3

    model = compile_(function, dynamic=True, options={"fallback": False})
    for size in (9, 17):
        assert_close(model(torch.ones(size)), function(torch.ones(size)))
