"""List the values in a model's arena with their offsets and lifetimes, as ``PlanMemory`` recorded them in ``main``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.passes.lower.kernel_calls import called_kernels
from tilewright.tensorir.expr import Var, as_expr
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.keys import CALLS, VALUES
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import LetStmt, PrimFunc


@dataclasses.dataclass(frozen=True)
class Allocation:
    """A value in the arena.

    Attributes:
        kernel: the first kernel called in its lifetime: the one that writes it, except for a value that is carried from
            one iteration of a loop to the next.
        offset: offset of its first byte.
        size: size in bytes.
        first: number of the first call of its lifetime, in the order of ``main``'s text.
        last: number of the last call of its lifetime.
        workspace: whether it is scratch memory of one kernel.
    """

    kernel: str
    offset: int
    size: int
    first: int
    last: int
    workspace: bool = False

    @property
    def end(self) -> int:
        """The offset of the byte after its last one."""
        return self.offset + self.size


def allocations(main: PrimFunc, sizes: Sequence[int]) -> list[Allocation]:
    """List the values in the arena of a function, in the order of their allocation.

    The list is empty where a pass of the user's own has added or removed calls, or has made ``main``, as the lifetimes
    are not known then.

    Args:
        main: the function, lowered.
        sizes: sizes of its symbolic dimensions.
    """
    names = [call.name[1:] for call in called_kernels(main)]
    if VALUES not in main.attrs or [kernel for kernel, _ in main.attrs.get(CALLS, ())] != names:
        return []
    known: dict[Var, int] = dict(zip(main.variables, sizes, strict=True))
    slots = [0]
    for stmt in walk_statements(main.body):
        if isinstance(stmt, LetStmt):  # where the slots of values of unknown size begin
            value = integer_value(stmt.value, known)
            assert value is not None, f"{stmt.var} does not follow from the sizes of the model"
            known[stmt.var] = value
            slots.append(value)
    found = []
    for slot, offset, size, first, last, workspace in main.attrs.get(VALUES, ()):
        number = integer_value(as_expr(size), known)
        assert number is not None, f"{size} bytes do not follow from the sizes of the model"
        found.append(Allocation(names[first], slots[slot] + offset, number, first, last, workspace))
    return found


def live_bytes(values: Sequence[Allocation], calls: int) -> list[int]:
    """Count the bytes of the arena that are live during each of ``calls`` kernel calls."""
    changes = [0] * (calls + 1)
    for value in values:
        changes[value.first] += value.size
        changes[value.last + 1] -= value.size
    used, total = [], 0
    for change in changes[:calls]:
        total += change
        used.append(total)
    return used
