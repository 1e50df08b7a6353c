"""Make random example inputs for a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graphir.dims import bind_dims, symbols_of
from tilewright.graphir.types import TensorType
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.observe.example_sizes import conditions_of_model, find_sizes
from tilewright.tensorir.expr import Expr

Array = np.ndarray[Any, Any]


def example_array(found: TensorType, sizes: Mapping[Any, int], generator: np.random.Generator) -> Array:
    """Draw an array of a type: standard normal numbers; integers from 0 to 9; booleans. Dimensions that ``sizes`` lacks
    are 1."""
    known: dict[Expr, int] = {dim: sizes.get(dim, 1) for dim in symbols_of(found.shape)}
    shape = tuple(int(bind_dims(dim, known)) for dim in found.shape)
    if found.dtype.is_float:
        return generator.standard_normal(shape).astype(found.dtype.numpy)
    return generator.integers(0, 2 if found.dtype.is_bool else 10, shape).astype(found.dtype.numpy)


def example_inputs(model: BuiltModel, sizes: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Array]:
    """Draw an array for each input of a model.

    Args:
        model: the model.
        sizes: symbolic dimensions by name; the others have sizes that the model accepts.
        seed: of the random numbers.

    Raises:
        InputError: the model does not accept the sizes, or none are found that it accepts.
    """
    generator = np.random.default_rng(seed)
    signature, named = model.signature, sizes or {}
    given = {symbol: named[symbol.name] for symbol in signature.symbols if symbol.name in named}
    known = find_sizes(signature, conditions_of_model(model), given)
    return {argument.name: example_array(argument.type, known, generator) for argument in signature.inputs}
