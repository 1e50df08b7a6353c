"""List the graph operators that each kernel call of a lowered module computes."""

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
        arguments: its arguments: addresses and integers.
        formula: the kernel's name before it was merged with others (see ``MergeKernels``); None if it was not.
    """

    kernel: str
    origins: tuple[Origin, ...]
    arguments: tuple[Expr, ...] = dataclasses.field(default=(), compare=False)
    formula: str | None = None


def kernel_calls(mod: IRModule) -> list[CalledKernel]:
    """Return the kernel calls in ``main``, one for each statement that calls one, in program order (a call in a loop
    is listed once).

    The calls have no labels if a user's own pass has added or removed calls.

    Raises:
        VerifyError: ``main`` is not lowered yet (see the stage ``lowered`` of :meth:`Executable.ir`).
    """
    main = mod["main"]
    if not isinstance(main, PrimFunc):
        raise VerifyError("main is a graph function; expected a lowered module (stage 'lowered')")
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
    """Return the kernel call expressions in ``main``, in program order."""
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
