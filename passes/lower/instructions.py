"""The instructions of a linearized model: kernel calls, copies, branches and loops on values.

A list of instructions is in order of execution; branches and loops hold lists of their own.
"""

from __future__ import annotations

import dataclasses

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Constant
from tilewright.graphir.origins import Origin
from tilewright.graphir.types import TensorType
from tilewright.passes.lower.storage import Place


@dataclasses.dataclass(eq=False)
class Value:
    """A tensor while the model runs.

    Attributes:
        role: ``input``, ``constant``, ``output`` (parameter number ``index`` of that role) or ``temporary`` (in the
            arena, at ``place``).
        whole: the value in whose memory it lies, if it has no memory of its own.
        begin: its offset there: an index for each dimension.
        is_view: whether it is all of ``whole`` under another shape, and has no offset.
        row_padding: unused elements of memory after each of its rows.
    """

    type: TensorType
    role: str = "temporary"
    index: int = 0
    place: Place | None = None
    whole: Value | None = None
    begin: tuple[int, ...] = ()
    row_padding: int = 0
    is_view: bool = False

    @property
    def viewed(self) -> Value:
        """Return the value that this one is a view of, through views of views; itself if it is none."""
        value = self
        while value.is_view and value.whole is not None:
            value = value.whole
        return value

    @property
    def owner(self) -> Value:
        """Return the value that owns the memory: this one, unless it is a part of another."""
        value = self
        while value.whole is not None:
            value = value.whole
        return value


@dataclasses.dataclass(eq=False)
class KernelCall:
    """A call of a PrimFunc.

    Attributes:
        variables: the values of its symbolic dimensions.
        overwrites: the positions of arguments whose memory the result may take if it is their last use.
        origins: the operators of the graph that it computes.
        formula: the kernel's name before it was merged with others; None if it was not.
    """

    kernel: str
    args: list[Value]
    results: list[Value]
    workspaces: list[Value]
    variables: list[Dim]
    overwrites: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    formula: str | None = None


@dataclasses.dataclass(eq=False)
class Copy:
    """Copy ``source`` to ``target``, or to row ``row`` of it if ``row`` is given and below the number of rows."""

    source: Value
    target: Value
    row: Value | None = None


@dataclasses.dataclass(eq=False)
class Branch:
    """Run ``then_body`` if the bool ``condition`` holds, else ``else_body``."""

    condition: Value
    then_body: list[Instruction]
    else_body: list[Instruction]


@dataclasses.dataclass(eq=False)
class CountedLoop:
    """Run ``body`` for ``counter`` = 0, 1, ... below ``trip_count``, while ``alive`` holds.

    ``check`` runs before each iteration and sets ``alive``.
    """

    trip_count: Value
    counter: Value
    alive: Value | None
    check: list[Instruction]
    body: list[Instruction]


Instruction = KernelCall | Copy | Branch | CountedLoop


@dataclasses.dataclass
class Program:
    """A linearized function: the values of its parameters and results, and its instructions."""

    inputs: list[Value]
    constants: list[Constant]
    outputs: list[Value]
    body: list[Instruction]
