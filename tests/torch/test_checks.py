"""Checks of matrices, such as whether one that is inverted is singular: errors of calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tests.torch.compiling import compile_  # noqa: E402
from tilewright.tensorir.errors import LinearAlgebraError  # noqa: E402

#: Twice the identity and a little more: positive definite.
REGULAR = torch.eye(3) * 2 + 0.1
#: Two matrices, of which the second has two rows that are equal.
SINGULAR = torch.stack([REGULAR, REGULAR[[0, 1, 1]]])


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def built(function: Callable[..., Any], *tensors: torch.Tensor) -> tw.Executable:
    return tw.build(tw.from_exported(programs.exported(Applied(function), tensors)))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (torch.linalg.inv, r"linalg.inv: expected invertible matrices, found one whose pivot 3 is 0 \(matrix 1\)"),
        (lambda x: torch.linalg.inv_ex(x, check_errors=True)[0], r"linalg.inv_ex: .*invertible.* \(matrix 1\)"),
        (
            lambda x: torch.linalg.cholesky(x - torch.eye(3)),
            r"linalg.cholesky: .*positive definite.* leading minor of order 3 .* \(matrix 1\)",
        ),
    ],
)
def test_an_exported_program_checks_its_matrices(function: Callable[..., Any], message: str) -> None:
    regular = REGULAR.expand(2, 3, 3).contiguous()
    model = built(function, regular)
    np.testing.assert_allclose(model(regular.numpy()), function(regular), rtol=1e-5, atol=1e-6)
    with pytest.raises(LinearAlgebraError, match=message):
        model(SINGULAR.numpy())


def test_an_artifact_checks_its_matrices(tmp_path: Path) -> None:
    built(lambda x: (torch.linalg.inv(x), x + 1), REGULAR).export(tmp_path / "inverse.tw")
    loaded = tw.load(tmp_path / "inverse.tw")
    inverse, sum_ = loaded(REGULAR.numpy())
    np.testing.assert_allclose(inverse @ REGULAR.numpy(), np.eye(3), atol=1e-6)
    np.testing.assert_array_equal(sum_, REGULAR + 1)
    with pytest.raises(ValueError, match=r"pivot 2 is 0$"):
        loaded(np.ones((3, 3), "float32"))


def test_a_failed_check_leaves_the_state_as_it_was() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1)
            return torch.linalg.inv(x)

    model = tw.build(tw.from_exported(programs.exported(Counting(), [REGULAR])))
    model(REGULAR.numpy())
    with pytest.raises(LinearAlgebraError):
        model(np.zeros((3, 3), "float32"))
    np.testing.assert_array_equal(model.state["calls"], [1.0])


def test_the_gradient_of_a_program_with_checks_returns_none_of_them() -> None:
    x = REGULAR.clone().requires_grad_()
    value = torch.linalg.inv(x).square().sum()
    (expected,) = torch.autograd.grad(value, x)
    mod = tw.from_exported(programs.exported(Applied(lambda x: torch.linalg.inv(x).square().sum()), [REGULAR]))
    found, gradient = tw.build(tw.grad(mod))(REGULAR.numpy())
    np.testing.assert_allclose(found, value.detach(), rtol=1e-5)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


def test_an_operator_that_is_asked_to_check_its_result_does_so_in_torch_compile() -> None:
    inverse = compile_(lambda x: torch.linalg.inv_ex(x, check_errors=True)[0], options={"fallback": False})
    torch.testing.assert_close(inverse(REGULAR), torch.linalg.inv(REGULAR))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        inverse(torch.zeros(3, 3))
