"""Run PyTorch modules by import, and compare them with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tilewright as tw
from tilewright.graphir.frontend.torch.tensors import as_array


class Program(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def exported(module: nn.Module, args: Sequence[Any], dynamic: Any = None) -> torch.export.ExportedProgram:
    """Export a module for inference."""
    return torch.export.export(module.eval(), tuple(args), dynamic_shapes=dynamic)


def arrays(values: Any) -> list[np.ndarray[Any, Any]]:
    """Return the tensors in nested values as arrays."""
    return [as_array(leaf) for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def results(model: tw.Executable, args: Sequence[Any], state: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the results of a model for nested tensors."""
    found = model(*(np.ascontiguousarray(each) if each.ndim else each for each in arrays(args)), **(state or {}))
    return list(found) if isinstance(found, tuple) else [found]


def assert_agrees(
    model: tw.Executable, module: nn.Module, args: Sequence[Any], rtol: float = 1e-4, atol: float = 1e-5
) -> None:
    """Assert that a model computes what a module does in double precision, within tolerances of single precision.

    The tolerances are relative to the greatest element of each result.
    """
    with torch.no_grad():
        exact = wide_results(module, args)
    found = results(model, args)
    assert len(found) == len(exact)
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        if other.dtype.kind == "f":
            greatest = max(float(np.abs(other).max(initial=0)), 1.0)
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol * greatest)
        else:
            np.testing.assert_array_equal(one, other)


def wide_results(module: nn.Module, args: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Return what a module computes in double precision."""
    kept = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    buffers = {name: tensor.clone() for name, tensor in module.named_buffers()}
    try:
        wide = pytree.tree_map_only(torch.Tensor, lambda x: x.double() if x.is_floating_point() else x, tuple(args))
        return arrays(module.double()(*wide))
    finally:
        module.float()
        module.load_state_dict(kept)
        for name, tensor in module.named_buffers():
            tensor.copy_(buffers[name])
