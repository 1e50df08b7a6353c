"""Pooling windows that reach beyond the image."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch import nn  # noqa: E402

from tests.torch.compiling import assert_close, compile_  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize(
    "pool",
    [
        nn.AvgPool2d(9, ceil_mode=True),
        nn.AvgPool2d(9, padding=2, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d((9, 2), padding=(4, 1), ceil_mode=True),
        nn.MaxPool2d(9, ceil_mode=True),
        nn.AvgPool1d(11, ceil_mode=True),
        nn.LPPool2d(2, 9, ceil_mode=True),
    ],
    ids=repr,
)
def test_the_only_window_may_be_greater_than_the_image(pool: Any) -> None:
    x = torch.randn((2, 3, 5, 6)[: 3 if isinstance(pool, nn.AvgPool1d) else 4])
    assert_close(compile_(pool, options={"fallback": False})(x), pool(x))
