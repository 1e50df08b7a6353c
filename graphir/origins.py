"""Where computations come from: the operators of a graph that were fused, as their calls name them (``span``).

A graph's own expressions carry their span. Once a group of operators is a kernel, the call of the kernel has it in its
attributes, which do not count when graphs are compared.
"""

from __future__ import annotations

import dataclasses

from tilewright.graphir.expr import Call, Expr
from tilewright.graphir.op import Operator
from tilewright.graphir.visitor import post_order


@dataclasses.dataclass(frozen=True)
class Origin:
    """An operator of a graph.

    Attributes:
        operator: its name, such as ``"nn.conv2d"``.
        label: what the graph calls it: the node's name in an imported model; None if nothing was said.
    """

    operator: str
    label: str | None = None

    def __str__(self) -> str:
        return self.operator if self.label is None else f"{self.operator} {self.label}"


@dataclasses.dataclass(frozen=True)
class KernelOrigins:
    """The attributes of a call of a kernel.

    Attributes:
        origins: what of the graph it computes, in order of evaluation.
        formula: the name that the kernel had before it became one with others; None: the name that it has.
    """

    origins: tuple[Origin, ...] = ()
    formula: str | None = None


def operator_origins(root: Expr) -> tuple[Origin, ...]:
    """The operators that are called in ``root``, in order of evaluation."""
    return tuple(
        Origin(node.op.name, node.span)
        for node in post_order(root)
        if isinstance(node, Call) and isinstance(node.op, Operator)
    )


def call_origins(call: Call) -> tuple[Origin, ...]:
    """What of the graph the call of a kernel computes; nothing if that is not known."""
    return call.attrs.origins if isinstance(call.attrs, KernelOrigins) else ()


def call_formula(call: Call) -> str | None:
    """The name that the kernel of a call had before it became one with others; None if it is the same, or not known."""
    return call.attrs.formula if isinstance(call.attrs, KernelOrigins) else None
