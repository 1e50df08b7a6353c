"""``as_strided`` and its kin read the memory of a tensor, wherever PyTorch has put its elements."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

import tilewright as tw  # noqa: E402
from tests.torch import programs  # noqa: E402
from tests.torch.compiling import compile_  # noqa: E402
from tilewright.tensorir.errors import UnsupportedOperatorError  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def values(*shape: int) -> torch.Tensor:
    return torch.arange(float(np.prod(shape))).reshape(shape)


INSIDE = {
    "its own strides": (lambda x: x.as_strided(x.shape, x.stride()) * 1, values(3, 2, 4).permute(2, 0, 1)),
    "others": (lambda x: x.as_strided((3, 5), (5, 1)) * 1, values(3, 2, 4).permute(2, 0, 1)),
    "a result": (lambda x: (x * 2).permute(2, 0, 1).as_strided((3, 5), (5, 1)), values(3, 2, 4)),
    "repeated elements": (lambda x: (x * 2).expand(5, 3, 2).as_strided((5, 3), (0, 2)), values(3, 2)),
    "gaps that nothing is read from": (lambda x: x.as_strided((3, 2), (8, 2)) * 1, values(3, 8)[:, ::2]),
    "a place in memory": (lambda x: x.as_strided((3, 2), (4, 1), 17) * 1, values(6, 8)[2:]),
    "scattered": (lambda x: torch.as_strided_scatter(x * 2, x[0, 0, :2], (2,), (5,)), values(3, 2, 4).mT),
    "resized": (lambda x: x.clone(memory_format=torch.preserve_format).resize_(3, 5) * 1, values(3, 8).T),
}
OUTSIDE = {
    "gaps": (lambda x: x.as_strided((3, 2), (4, 1)) * 2, values(3, 8)[:, ::2]),
    "before": (lambda x: x.as_strided((3, 2), (4, 1), 1) * 2, values(6, 8)[2:]),
    "behind": (lambda x: x.as_strided((3, 2), (8, 1)) * 2, values(3, 8)[:2]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_elements_are_read_where_they_lie_in_memory(name: str) -> None:
    function, x = INSIDE[name]
    compiled = compile_(function, fullgraph=name != "resized", options={"fallback": False})  # Dynamo knows no resize_
    assert torch.equal(compiled(x), function(x))
    found = tw.build(tw.from_exported(programs.exported(programs.Program(function), [x])))(x)
    np.testing.assert_array_equal(found, function(x).numpy())


def test_the_memory_of_any_size_is_read() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((x.shape[1], x.shape[0]), (x.shape[0], 1)) * 1

    compiled = compile_(function, dynamic=True, options={"fallback": False})
    for rows, columns in ((3, 5), (7, 2)):
        x = values(columns, rows).T
        assert torch.equal(compiled(x), function(x))


def test_memory_behind_a_tensor_of_any_size_is_left_to_pytorch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.as_strided((x.shape[0] + 1, x.shape[1]), (x.shape[1], 1)) * 1

    compiled = torch.compile(function, backend="tilewright", dynamic=True)
    for rows, columns in ((3, 5), (7, 2)):
        x = values(rows + 1, columns)[:rows]
        assert torch.equal(compiled(x), function(x))


@pytest.mark.parametrize("name", OUTSIDE)
def test_memory_outside_the_tensor_is_left_to_pytorch(name: str) -> None:
    function, x = OUTSIDE[name]
    assert torch.equal(torch.compile(function, backend="tilewright")(x), function(x))
    with pytest.raises(UnsupportedOperatorError, match="memory outside the tensor"):
        tw.from_exported(programs.exported(programs.Program(function), [x]))
