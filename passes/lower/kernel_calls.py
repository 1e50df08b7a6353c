"""List the operators of the graph that each call of a kernel computes, read from a lowered module."""

from __future__ import annotations

import dataclasses

from tilewright.graphir.module import IRModule
from tilewright.graphir.origins import Origin
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Call, Expr
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.keys import CALLS, FORMULAS, OPERATORS
from tilewright.tensorir.stmt import Evaluate, PrimFunc


@dataclasses.dataclass(frozen=True)
class CalledKernel:
    """A call of a kernel in a model's ``main``.

    Attributes:
        kernel: the function's name.
        origins: the operators of the graph that this call computes, in order of evaluation. A copy computes none.
        arguments: what it passes: addresses and integers.
        formula: the kernel's name before it became one with others (see ``MergeKernels``).
    """

    kernel: str
    origins: tuple[Origin, ...]
    arguments: tuple[Expr, ...] = dataclasses.field(default=(), compare=False)
    formula: str | None = None


def kernel_calls(mod: IRModule) -> list[CalledKernel]:
    """The calls of kernels in ``main``, one for each statement that calls one, in order of the text (so a call in a
    loop is there once).

    Without labels where a pass of the user's own has added or removed calls.

    Raises:
        VerifyError: ``main`` is not lowered yet (see the stage ``lowered`` of :meth:`Executable.ir`).
    """
    main = mod["main"]
    if not isinstance(main, PrimFunc):
        raise VerifyError("the calls of kernels are known when main is lowered (stage 'lowered'), but it is a graph")
    calls = called_kernels(main)
    names = [call.name[1:] for call in calls]
    labels = [tuple(named) for kernel, named in main.attrs.get(CALLS, ())]
    if [kernel for kernel, _ in main.attrs.get(CALLS, ())] != names:
        labels = [()] * len(names)
    formulas = main.attrs.get(FORMULAS, ())
    if len(formulas) != len(names):
        formulas = (None,) * len(names)
    return [
        CalledKernel(call.name[1:], _origins(mod, call.name[1:], named), tuple(call.args), formula)
        for call, named, formula in zip(calls, labels, formulas, strict=True)
    ]


def called_kernels(main: PrimFunc) -> list[Call]:
    """The calls themselves, in order of the text."""
    return [
        stmt.value
        for stmt in walk_statements(main.body)
        if isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.name.startswith("@")
    ]


def _origins(mod: IRModule, kernel: str, labels: tuple[str | None, ...]) -> tuple[Origin, ...]:
    function = mod[kernel]
    operators = function.attrs.get(OPERATORS, ())
    if len(labels) != len(operators):
        labels = (None,) * len(operators)
    return tuple(Origin(operator, label) for operator, label in zip(operators, labels, strict=True))
