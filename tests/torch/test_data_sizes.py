"""Sizes and places that depend on data, or on sizes by formulas, under torch.compile as one graph."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tests.torch.compiling import assert_close, compile_  # noqa: E402

capturing = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True)


@capturing
def test_the_strides_of_a_result_whose_size_depends_on_data_are_pytorchs() -> None:
    places = compile_(lambda x: torch.nonzero(x), options={"fallback": False})
    for x in (torch.eye(4), torch.ones(3, 5) - torch.eye(3, 5)):
        assert_close(places(x), torch.nonzero(x))


@capturing
def test_a_slice_begins_where_data_say_also_counted_from_the_end() -> None:
    x = torch.arange(20.0).reshape(4, 5)
    slices = compile_(lambda x, start: torch.narrow(x * 1, 1, start, 2), options={"fallback": False})
    for start in (1, 3, -2, -5):
        assert_close(slices(x, torch.tensor(start)), torch.narrow(x, 1, torch.tensor(start), 2))


def test_a_place_by_a_formula_of_sizes_counts_from_the_end_where_it_is_negative() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[0]
        return x.sin()[n - 10 :] * 2, x.cos()[: n - 7] * 2, x.exp()[n - 20 : n - 7] * 2

    model = compile_(function, dynamic=True, options={"fallback": False})
    for size in (16, 6, 24):
        x = torch.randn(size)
        assert_close(model(x), function(x))


def test_the_side_of_a_square_is_a_size() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        side = int(x.shape[0] ** 0.5)
        return x.reshape(side, side).t() @ x.reshape(side, side)

    model = compile_(function, dynamic=True, options={"fallback": False})
    for size in (9, 25):
        x = torch.randn(size, requires_grad=True)
        found, expected = model(x), function(x)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found.sin().sum(), x), torch.autograd.grad(expected.sin().sum(), x))
