"""Record the origins of kernels: the operators of a graph that were fused, by the labels of their calls (``span``).

The expressions of a graph carry their span. Once a group of operators is a kernel, the call of the kernel has the
origins in its attributes, which do not count when graphs are compared.
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
        label: its label in the graph: the name of the node in an imported model; None if it has none.
    """

    operator: str
    label: str | None = None

    def __str__(self) -> str:
        return self.operator if self.label is None else f"{self.operator} {self.label}"


@dataclasses.dataclass(frozen=True)
class KernelOrigins:
    """The attributes of a call of a kernel.

    Attributes:
        origins: the operators of the graph that it computes, in order of evaluation.
        formula: the kernel's name before it was merged with others; None: unchanged.
    """

    origins: tuple[Origin, ...] = ()
    formula: str | None = None


def operator_origins(root: Expr) -> tuple[Origin, ...]:
    """Return the operators that are called in ``root``, in order of evaluation."""
    return tuple([Origin(call.op.name, call.span) for call in operator_calls(root)])  # type: ignore[union-attr]


def operator_calls(root: Expr) -> list[Call]:
    """Return the calls of operators in ``root``, in order of evaluation."""
    return [node for node in post_order(root) if type(node) is Call and isinstance(node.op, Operator)]


def call_origins(call: Call) -> tuple[Origin, ...]:
    """Return the operators of the graph that the call of a kernel computes; nothing if they are not known."""
    return call.attrs.origins if isinstance(call.attrs, KernelOrigins) else ()


def call_formula(call: Call) -> str | None:
    """Return the name of the called kernel before it was merged with others; None if it is unchanged, or not known."""
    return call.attrs.formula if isinstance(call.attrs, KernelOrigins) else None
