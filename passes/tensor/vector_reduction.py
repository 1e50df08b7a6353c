"""Reductions over the lanes of a vector: ``b[i] = b[i] + f(v)`` for the variable ``v`` of a vectorized loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Call, Expr, binary, call
from tilewright.tensorir.folding import Number
from tilewright.tensorir.functor import leaves
from tilewright.tensorir.intrinsics import REDUCERS
from tilewright.tensorir.reduction import identity_of
from tilewright.tensorir.stmt import BufferStore


@dataclasses.dataclass(frozen=True)
class LaneReduction:
    """A store that combines an element with a value by a reduction operator.

    Attributes:
        op: ``add``, ``mul``, ``min`` or ``max``.
        terms: the value, or its two factors if they are multiplied and added in one step (``fma``).
        target: the element.
        buffer: the vector that collects the lanes until the loop ends; None to combine at once.
    """

    op: str
    terms: tuple[Expr, ...]
    target: BufferLoad
    buffer: Buffer | None = None

    @property
    def is_exact(self) -> bool:
        """Whether reordering gives the same bits."""
        return self.op in ("min", "max") or not self.target.buffer.dtype.is_float

    @property
    def identity(self) -> Number:
        """The neutral element of the operator."""
        dtype = self.target.buffer.dtype
        if self.op == "add" and dtype.is_float:
            return -0.0  # -0.0 + x is x for all x, also for -0.0
        found = identity_of(self.op, dtype)
        assert found is not None
        return found

    def combine(self, old: Expr, terms: Sequence[Expr]) -> Expr:
        """Combine ``old`` with the terms."""
        if len(terms) == 2:
            return call("fma", terms[0], terms[1], old)
        return binary(self.op, old, terms[0])

    def across_lanes(self, vector: Expr) -> Expr:
        """Combine all lanes of ``vector``."""
        return call(REDUCERS[self.op], vector)


def _is_target(load: BufferLoad, store: BufferStore) -> bool:
    return load.buffer is store.buffer and load.predicate is None and load.indices == store.indices


def match_reduction(store: BufferStore) -> LaneReduction | None:
    """Match ``store`` as a reduction into the element that it writes; None if it has another form."""
    value = store.value
    found: LaneReduction | None = None
    if isinstance(value, BinaryOp) and value.op in REDUCERS:
        for old, term in ((value.a, value.b), (value.b, value.a)):
            if isinstance(old, BufferLoad) and _is_target(old, store):
                found = LaneReduction(value.op, (term,), old)
                break
    elif isinstance(value, Call) and value.name == "fma":
        old = value.args[2]
        if isinstance(old, BufferLoad) and _is_target(old, store):
            found = LaneReduction("add", value.args[:2], old)
    if found is None or store.buffer.dtype.is_bool:
        return None
    for term in found.terms:
        if store.buffer in leaves(term):
            return None
    return found
