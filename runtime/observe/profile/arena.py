"""List the values in a model's arena, each with its place and lifetime, as ``PlanMemory`` noted them in ``main``."""

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
        kernel: what is called first while the value has its memory: what writes it, but for a value that is carried
            from one iteration of a loop to the next.
        offset: of its first byte.
        size: in bytes.
        first: the number of the first call during which it has its memory, in the order of ``main``'s text.
        last: the number of the last such call.
        workspace: whether it is scratch memory of the one kernel.
    """

    kernel: str
    offset: int
    size: int
    first: int
    last: int
    workspace: bool = False

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.offset + self.size


def allocations(main: PrimFunc, sizes: Sequence[int]) -> list[Allocation]:
    """List the values in the arena of a function, in the order in which they get their memory.

    None where a pass of the user's own has added or removed calls, or has made ``main``: nobody knows them then.

    Args:
        main: the function, lowered.
        sizes: of its symbolic dimensions.
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
