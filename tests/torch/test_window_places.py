"""Places of the greatest elements of small windows are those that PyTorch chooses."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch.nn import functional as F  # noqa: E402, N812 - everybody calls it so

pytestmark = pytest.mark.usefixtures("fresh")

INFINITY, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (2, 3), "stride": (2, 1), "padding": (1, 0), "ceil_mode": True},
        {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": 2},
    ],
)
@pytest.mark.parametrize("shape", [(2, 3, 9, 11), (3, 9, 10)])
def test_of_equal_elements_nan_and_infinities_the_same_is_chosen(options: dict[str, Any], shape: Any) -> None:
    x = torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(0)).float()
    x[x == -2] = -INFINITY
    spread = x.clone()
    spread.view(-1)[::7] = NAN
    spread.view(-1)[::5] = INFINITY

    def function(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, **options, return_indices=True)

    model = torch.compile(function, backend="tilewright", fullgraph=True, options={"fallback": False}, dynamic=False)
    for each in (x, spread, torch.full(shape, -INFINITY)):
        torch.testing.assert_close(model(each), function(each), equal_nan=True)


@pytest.mark.parametrize(
    ("pool", "rank", "dynamic"), [(F.fractional_max_pool2d, 2, True), (F.fractional_max_pool3d, 3, False)]
)
def test_windows_that_begin_at_random_places_are_those_of_pytorch(pool: Any, rank: int, dynamic: bool) -> None:
    def function(x: torch.Tensor, samples: torch.Tensor) -> Any:
        return pool(x, (3, 2, 2)[:rank], output_size=(4, 3, 1)[:rank], return_indices=True, _random_samples=samples)

    generator = torch.Generator().manual_seed(0)
    model = torch.compile(function, backend="tilewright", fullgraph=True, options={"fallback": False}, dynamic=dynamic)
    for batch in (2, 3) if dynamic else (2,):
        x = torch.randint(-3, 3, (batch, 3, 9, 7, 5)[: 2 + rank], generator=generator).float()
        x[x == -3] = -INFINITY
        x.view(-1)[::5] = NAN
        samples = torch.rand(batch, 3, rank, generator=generator)
        torch.testing.assert_close(model(x, samples), function(x, samples), equal_nan=True)
