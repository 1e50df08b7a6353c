"""Redirect accesses to buffers whose dimensions change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.passes.schedule.facts import Access
from tilewright.tensorir.expr import Buffer, BufferLoad, Expr
from tilewright.tensorir.functor import Mutator, leaves
from tilewright.tensorir.stmt import BufferStore, Stmt


class AccessRedirector(Mutator):
    """Redirect accesses to changed buffers.

    Attributes:
        buffers: the buffers that change, with their new form.
    """

    def __init__(self, buffers: Mapping[Buffer, Buffer]) -> None:
        self.buffers = buffers

    def indices_of(self, access: Access, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Return the indices of ``access`` into the changed buffer.

        Args:
            indices: those into the buffer as it was, with the accesses in them redirected.
        """
        raise NotImplementedError(f"{type(self).__name__}.indices_of")

    def mutate(self, node: Any) -> Any:
        if isinstance(node, Expr) and self.buffers.keys().isdisjoint(leaves(node)):
            return node
        return super().mutate(node)

    def mutate_BufferLoad(self, op: BufferLoad) -> Expr:
        if op.buffer not in self.buffers:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        indices = self._inner(op.indices)
        predicate = None if op.predicate is None else self.mutate(op.predicate)
        return BufferLoad(self.mutate_buffer(op.buffer), self.indices_of(op, indices), predicate)

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        if op.buffer not in self.buffers:
            return self.generic_mutate(op)  # type: ignore[no-any-return]
        indices, value = self._inner(op.indices), self.mutate(op.value)
        predicate = None if op.predicate is None else self.mutate(op.predicate)
        return BufferStore(self.mutate_buffer(op.buffer), value, self.indices_of(op, indices), predicate)

    def _inner(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Redirect the accesses in indices; hardly any index has one."""
        for index in indices:
            if not self.buffers.keys().isdisjoint(leaves(index)):
                return self.mutate_all(indices)
        return indices

    def mutate_buffer(self, buffer: Buffer) -> Buffer:
        return self.buffers.get(buffer, buffer)
