"""Follow models through the passes, for ``NumericCheck``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import Pass
from tilewright.passes.graph.walk import is_primitive
from tilewright.runtime.observe.numeric.evaluate import Array, GraphFacts, Inputs
from tilewright.runtime.observe.numeric.reference import ErrorSize, Reference
from tilewright.runtime.signature import nested
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.stmt import PrimFunc


@dataclasses.dataclass
class Checked:
    """A pass that has run and is not checked yet."""

    step: Pass | None
    name: str
    before: IRModule
    after: IRModule
    facts: GraphFacts | None
    flat: IRModule | None
    since: tuple[Pass, ...]


@dataclasses.dataclass
class Chain:
    """The state of a model that is followed through the passes.

    Attributes:
        mod: the module after the last pass.
        inputs, reference: its inputs and expected results; no reference if it cannot be run.
        error: error of its most recently computed results; None if it is not known.
        known: the module that computed them.
        facts: facts about its last graph.
        flat, since: its last graph without fused groups, and the passes that changed it since.
        pending: the passes since ``known``.
        reason: why it is not checked.
    """

    mod: IRModule
    inputs: Inputs = dataclasses.field(default_factory=lambda: Inputs(()))
    reference: Reference | None = None
    error: ErrorSize | None = None
    known: IRModule | None = None
    facts: GraphFacts | None = None
    flat: IRModule | None = None
    since: tuple[Pass, ...] = ()
    pending: list[Checked] = dataclasses.field(default_factory=list)
    reason: str = ""


class SegmentValues:
    """The values of a model that is cut into segments, by their numbers."""

    def __init__(self, inputs: Inputs) -> None:
        self._known: dict[int, Array] = dict(enumerate(inputs.flat()))
        self._read: dict[str, int] = {}

    def inputs(self, main: Function, segment: Mapping[str, Any]) -> Inputs:
        """Return the inputs of a segment.

        Raises:
            InputError: a segment before it was not run.
        """
        numbers = [*segment["args"], *segment["sizes"].values()]
        missing = [number for number in numbers if number not in self._known]
        if missing:
            raise InputError(f"the values {missing} of the model are not known: the segments before were not run")
        arrays = iter([self._known[number] for number in segment["args"]])
        values = tuple(nested(param.type, arrays) for param in main.params if param.type is not None)
        return Inputs(values, self.sizes(segment))

    def sizes(self, segment: Mapping[str, Any]) -> dict[str, int]:
        """Return the sizes that a segment reads, and those read before it."""
        self._read |= segment["sizes"]
        return {name: int(self._known[number]) for name, number in self._read.items()}

    def add(self, segment: Mapping[str, Any], results: Sequence[Array]) -> None:
        """Record the results of a segment."""
        self._known.update(zip(segment["results"], results, strict=True))


def has_groups(mod: IRModule) -> bool:
    """Return whether operators of a graph are fused."""
    graphs = [function for function in mod.functions.values() if isinstance(function, Function)]
    return any(is_primitive(node) for node in post_order(*graphs))


def loop_functions(mod: IRModule) -> list[PrimFunc]:
    """List the functions of loop nests."""
    return [function for function in mod.functions.values() if isinstance(function, PrimFunc)]
