"""Make random example inputs for a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graphir.dims import bind_dims, symbols_of
from tilewright.graphir.types import TensorType
from tilewright.runtime.signature import Signature
from tilewright.tensorir.expr import Expr

Array = np.ndarray[Any, Any]


def example_array(found: TensorType, sizes: Mapping[Expr, int], generator: np.random.Generator) -> Array:
    """Draw an array of a type: standard normal numbers; integers from 0 to 9; booleans. Dimensions that ``sizes`` lacks
    are 1."""
    known: dict[Expr, int] = {dim: sizes.get(dim, 1) for dim in symbols_of(found.shape)}
    shape = tuple(int(bind_dims(dim, known)) for dim in found.shape)
    if found.dtype.is_float:
        return generator.standard_normal(shape).astype(found.dtype.numpy)
    return generator.integers(0, 2 if found.dtype.is_bool else 10, shape).astype(found.dtype.numpy)


def example_inputs(signature: Signature, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Array]:
    """Draw an array for each input of a model.

    Args:
        signature: signature of the model.
        sizes: sizes of symbolic dimensions by name; 1 for those that are missing.
        seed: seed of the random numbers.
    """
    generator = np.random.default_rng(seed)
    named = sizes or {}
    known: dict[Expr, int] = {symbol: named[symbol.name] for symbol in signature.symbols if symbol.name in named}
    return {argument.name: example_array(argument.type, known, generator) for argument in signature.inputs}
