"""Compute the expected results of a model, and their tolerances."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import bind_dims
from tilewright.graphir.expr import Call, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.lower.primitive import flat_types
from tilewright.runtime.observe.numeric.compare import (
    Mismatch,
    Tolerance,
    ToleranceLike,
    as_tolerance,
    default_tolerance,
    first_mismatch,
)
from tilewright.runtime.observe.numeric.evaluate import GRAPH, Array, Evaluator, Inputs, bound_sizes, flatten, kind_of
from tilewright.runtime.observe.numeric.ulps import scaled_error, ulp_error
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import Expr as ScalarExpr

#: References as users give them: the model in double precision, the model in its own types, the user's own results, or
#: a function that computes them from the inputs (by name).
ReferenceLike = str | Callable[..., Any] | Sequence[Any] | np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class ErrorSize:
    """The distance of results from the reference, in units in the last place of their types.

    Attributes:
        greatest: maximum over all elements.
        mean: mean over all elements.
        scaled: maximum, in the unit of the greatest number of the same result: where numbers cancel to almost zero, the
            error is many units of the difference, but few of the operands.
    """

    greatest: float
    mean: float
    scaled: float


@dataclasses.dataclass
class Reference:
    """The expected results of a model.

    Attributes:
        exact: the results, tuples flattened; floats in float64 if that is the reference.
        expected: the results to compare with: ``exact``, until a failure that changed the results is recorded.
        tolerances: the tolerance of each result.
        own: the results of the model in its own types.
    """

    exact: list[Array]
    expected: list[Array]
    tolerances: list[Tolerance]
    own: list[Array]

    def mismatch(self, found: Sequence[Array]) -> Mismatch | None:
        """Find the worst element of the first result that exceeds its tolerance."""
        pairs = zip(found, self.own, strict=False)
        wrong_type = next((number for number, (a, b) in enumerate(pairs) if a.dtype != b.dtype), None)
        if wrong_type is not None:
            pair = str(self.own[wrong_type].dtype), str(found[wrong_type].dtype)
            return Mismatch(wrong_type, (), *pair, np.inf, np.inf)
        return first_mismatch(found, self.expected, self.tolerances)

    def error(self, found: Sequence[Array]) -> ErrorSize:
        """Measure the error of ``found``."""
        if [array.shape for array in found] != [array.shape for array in self.exact]:
            return ErrorSize(math.inf, math.inf, math.inf)
        pairs = [(a, b) for a, b in zip(found, self.exact, strict=True) if has_ulps(a) and a.size]
        if not pairs:
            return ErrorSize(0.0, 0.0, 0.0)
        every = np.concatenate([ulp_error(a, b).reshape(-1) for a, b in pairs])
        scaled = max(float(scaled_error(a, b).max()) for a, b in pairs)
        return ErrorSize(float(every.max()), float(every.mean()), scaled)


def has_ulps(array: Array) -> bool:
    """Return whether the array's type supports arithmetic."""
    kind = as_dtype(array.dtype)
    return kind.is_float or kind.is_integer or kind.is_bool


def make_reference(
    mod: IRModule,
    inputs: Inputs,
    evaluator: Evaluator,
    reference: ReferenceLike = "float64",
    tolerance: ToleranceLike | None = None,
) -> Reference:
    """Compute the reference of ``mod``, whose ``main`` is a graph function.

    Raises:
        InputError: the user's reference has other shapes than the results.
        TilewrightError, NotImplementedError: ``mod`` cannot be run.
    """
    own = evaluator.run(mod, inputs)
    if isinstance(reference, str):
        if reference == "float64" and kind_of(mod) == GRAPH:
            exact = flatten(evaluator.graph_values(mod, inputs, "float64")[1])
        else:
            exact = own
    else:
        exact = _given(mod, inputs, reference, own)
    main = mod["main"]
    assert isinstance(main, Function)
    terms = longest_sum(mod, bound_sizes([p.type for p in main.params if p.type is not None], inputs))
    tolerances = []
    for a, b in zip(exact, own, strict=True):
        given = None if tolerance is None else as_tolerance(tolerance, as_dtype(b.dtype))
        # Where a size depends on floats, it may differ in double precision.
        comparable = a if a.shape == b.shape else b
        tolerances.append(given or default_tolerance(comparable, b, terms))
    exact = [a if a.shape == b.shape else b for a, b in zip(exact, own, strict=True)]
    expected = [_same_decisions(a, b) for a, b in zip(exact, own, strict=True)]
    return Reference(exact, expected, tolerances, own)


def _same_decisions(exact: Array, own: Array) -> Array:
    """Return the values to compare with: the exact ones for floats, the model's own for integers and bools, which may
    depend on the comparison of two floats."""
    return exact if as_dtype(own.dtype).is_float else own


def _given(mod: IRModule, inputs: Inputs, reference: Any, own: Sequence[Array]) -> list[Array]:
    if callable(reference):
        main = mod["main"]
        assert isinstance(main, Function)
        reference = reference(**{p.name: v for p, v in zip(main.params, inputs.values, strict=True)})
    found = flatten(reference)
    shapes = [array.shape for array in own]
    if [array.shape for array in found] != shapes:
        raise InputError(f"reference: expected results of shapes {shapes}, found {[array.shape for array in found]}")
    return found


def longest_sum(mod: IRModule, sizes: Mapping[ScalarExpr, int]) -> float:
    """Estimate the number of terms of the longest sum in a graph: of a reduction, the elements that one element of its
    result needs; of a product of two tensors, the geometric mean of those that it needs of each."""
    most = 1.0
    for function in mod.functions.values():
        for call in call_nodes(function) if isinstance(function, Function) else ():
            if isinstance(call.op, Operator) and call.op.kind in ("reduction", "contraction"):
                most = max(most, _terms(call, sizes))
    return most


def _terms(call: Call, sizes: Mapping[ScalarExpr, int]) -> float:
    if any(not isinstance(arg.type, TensorType) for arg in call.args) or call.type is None:
        return 1.0
    given = [_elements(arg.tensor_type, sizes) for arg in call.args[:2]]
    made = max(1.0, max(_elements(found, sizes) for found in flat_types(call.type)))
    assert isinstance(call.op, Operator)
    if call.op.kind == "contraction" and len(given) == 2:
        return math.sqrt(given[0] * given[1] / made)
    return given[0] / made if given else 1.0


def _elements(found: TensorType, sizes: Mapping[ScalarExpr, int]) -> float:
    dims = [bind_dims(dim, sizes) for dim in found.shape]
    return float(math.prod(dim for dim in dims if isinstance(dim, int)))
