"""Derive static facts about each kernel call: the operators of the graph that it computes, and their cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.codegen.analysis import has_parallel_loop
from tilewright.graphir.origins import Origin
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.tensorir.costs import Cost, function_cost
from tilewright.tensorir.dtype import FLOAT32, DataType
from tilewright.tensorir.expr import Var
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import PrimFunc


@dataclasses.dataclass(frozen=True)
class CallFacts:
    """Static facts about one call of a kernel in ``main``.

    Attributes:
        kernel: name of the kernel.
        origins: the operators of the graph that this call computes.
        operations: arithmetic operations of the formulas, independent of the schedule.
        dtype: the type of most of the operations.
        bytes: the bytes that it must read and write.
        vector_bits: width of the vectors that do most of the work; 0 if it has none.
        tells_threads: whether the records of the call show which threads worked.
        arguments: the values of the kernel's integer parameters.
    """

    kernel: str
    origins: tuple[Origin, ...]
    operations: int
    dtype: DataType
    bytes: int
    vector_bits: int
    tells_threads: bool
    arguments: Mapping[Var, int]


def call_facts(lowered: LoweredFunction, sizes: Sequence[int]) -> list[CallFacts]:
    """List the kernel calls of a function in the order of its text.

    Args:
        lowered: the function.
        sizes: sizes of its symbolic dimensions.
    """
    module = lowered.modules["lowered"]
    known = dict(zip(lowered.main.variables, sizes, strict=True))
    costs: dict[tuple[str, tuple[tuple[Var, int], ...]], tuple[Cost, Cost]] = {}
    found = []
    for called in kernel_calls(module):
        func = module[called.kernel]
        assert isinstance(func, PrimFunc)
        pairs = zip(func.params, called.arguments, strict=True)
        numbers = {param: integer_value(arg, known) for param, arg in pairs if isinstance(param, Var)}
        values = {param: number for param, number in numbers.items() if number is not None}
        key = (called.formula or called.kernel, tuple(values.items()))
        if key not in costs:
            unscheduled = _formula(lowered, key[0], func)
            costs[key] = function_cost(unscheduled, _by_name(unscheduled, values)), function_cost(func, values)
        formula, scheduled = costs[key]
        most = max(scheduled.operations or formula.operations or {FLOAT32: 0}, key=lambda dtype: _of(scheduled, dtype))
        found.append(
            CallFacts(
                kernel=called.kernel,
                origins=called.origins,
                operations=formula.total_operations,
                dtype=most,
                bytes=formula.bytes,
                vector_bits=lowered.code.vector_bits(called.kernel, scheduled.vector_bits),
                tells_threads=lowered.code.records_threads or not has_parallel_loop(func.body),
                arguments=values,
            )
        )
    return found


def _of(cost: Cost, dtype: DataType) -> int:
    return cost.operations.get(dtype, 0)


def _formula(lowered: LoweredFunction, name: str, func: PrimFunc) -> PrimFunc:
    """Return the kernel before scheduling; one without such a form (copying bytes) unchanged."""
    module = lowered.modules["tensor"]
    if name not in module:
        return func
    found = module[name]
    assert isinstance(found, PrimFunc)
    return found


def _by_name(unscheduled: PrimFunc, values: Mapping[Var, int]) -> dict[Var, int]:
    """Map the values to the integer parameters that the kernel had before scheduling."""
    by_name = {var.name: value for var, value in values.items()}
    return {var: by_name[var.name] for var in unscheduled.variables if var.name in by_name}
