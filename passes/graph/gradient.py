"""``Gradient``: make a function that returns its value and the gradients by its parameters (reverse mode).

Before::

    def @main(%x: Tensor[(4,), float32]) {
      %0 = multiply(%x, %x)
      %1 = sum(%0)
      %1
    }

After::

    def @main(%x: Tensor[(4,), float32]) {
      %0 = multiply(%x, %x)
      %1 = sum(%0)
      %2 = broadcast_to(float32(1.0), shape=(4,))
      %3 = multiply(%2, %x)
      %4 = multiply(%2, %x)
      %5 = add(%3, %4)
      %6 = (%1, %5)
      %6
    }

The rules of operators are in ``graphir/gradients``. Calls of functions are inlined, and lets replaced by their values.
The pass is no part of the pipelines: :func:`grad` runs it on what a user gives, and ``build`` compiles the result, in
which forward and backward steps share their values, like any other model.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np

from tilewright.graphir.dims import symbols_of
from tilewright.graphir.expr import Constant, Expr, Function, GlobalVar, Tuple, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType, TupleType
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.graph.infer_type import InferType
from tilewright.passes.graph.inline_functions import INLINE, InlineFunctions
from tilewright.passes.graph.reverse_mode import (
    Cotangent,
    Given,
    ReverseMode,
    expand_compositions,
    field_of,
    is_smooth,
    zeros,
)
from tilewright.passes.registry import register_pass
from tilewright.tensorir.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    TypeInferenceError,
    UnsupportedOperatorError,
)

#: A parameter to differentiate by, or several: their names, or themselves.
Parameters = str | Var | Iterable[str | Var] | None


@overload
def grad(source: Function, wrt: Parameters = None, *, cotangents: bool = False) -> Function: ...
@overload
def grad(source: IRModule, wrt: Parameters = None, *, cotangents: bool = False) -> IRModule: ...
def grad(source: Function | IRModule, wrt: Parameters = None, *, cotangents: bool = False) -> Function | IRModule:
    """Return the function, or the module with the function ``main``, that computes what ``source`` computes and its
    gradients.

    The result is one flat tuple: the results of ``source``, then the gradient by each parameter of ``wrt``, in that
    order. (This is JAX's ``value_and_grad``, and Relay's ``gradient``; without the value's use, it costs nothing to
    compute, as the backward step needs it.) The parameters stay the same. A gradient has its parameter's type.

    Of a function with several results the first is differentiated, and the others are returned as they are (JAX's
    ``has_aux``). It is a scalar, unless ``cotangents`` asks for parameters by which results are weighted.

    Args:
        source: a graph function or a module. Weights to differentiate by must be parameters; ``gi.const`` is constant.
        wrt: the parameters to differentiate by, as names or variables; by default all that hold floats.
        cotangents: whether the function takes the cotangent of each of its results of floats, as further parameters of
            the types of these results, behind the others (``cotangent``, or ``cotangent_0``, ``cotangent_1`` ...). Then
            the results may have any shape, and the gradients are those of ``sum(cotangent * result)`` over all of them
            (JAX's ``vjp``).

    Raises:
        TypeError: ``source`` or ``wrt`` is of the wrong type.
        ValueError: ``wrt`` names no parameter of the function, or one twice.
        TypeInferenceError: a parameter of ``wrt`` does not hold floats, or the result is no scalar of floats.
        UnsupportedOperatorError: an operator on the way from the parameters to the result has no gradient; the message
            lists all of them. Or the size of a result that takes a cotangent is known only when the program runs.
    """
    if isinstance(source, Function):
        found = Gradient(wrt, cotangents)(IRModule({"main": source}))["main"]
        assert isinstance(found, Function)
        return found
    if not isinstance(source, IRModule):
        raise ArgumentTypeError(f"grad: expected a graph function or a module, found {type(source).__name__}")
    return Gradient(wrt, cotangents)(source)


@register_pass
@module_pass(opt_level=0, name="Gradient")
class Gradient(ModulePass):
    """Differentiate the function ``main``; :func:`grad` describes the arguments, the result and the errors."""

    def __init__(self, wrt: Parameters = None, cotangents: bool = False) -> None:
        several = wrt is not None and not isinstance(wrt, (str, Var)) and isinstance(wrt, Iterable)
        given: list[Any] = list(wrt) if several else [wrt]  # type: ignore[arg-type]  # it is one, then
        for each in given:
            if wrt is not None and not isinstance(each, (str, Var)):
                raise ArgumentTypeError(f"wrt: expected names of parameters or variables, found {each!r}")
        self.wrt: list[str | Var] | None = None if wrt is None else given
        self.cotangents = cotangents

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with ``main`` differentiated, and the functions that it called left as they are."""
        mod = InferType().transform_module(mod, ctx)
        main = mod["main"]
        if not isinstance(main, Function):
            raise ArgumentTypeError("Gradient: main: expected a graph function, found loops")
        variables = _variables(main, self.wrt)
        inlined = InlineFunctions().transform_module(_all_inline(mod), ctx)["main"]
        assert isinstance(inlined, Function)
        function = _differentiated(inlined, variables, self.cotangents)
        names = ", ".join(f"%{var.name}" for var in variables)
        ctx.remark(f"differentiated by {names}", "applied", function="main")
        function = Function(function.params, function.body, None, main.attrs, main.span)  # not marked to be inlined
        return mod.with_functions({GlobalVar("main", function.type): function})


def _all_inline(mod: IRModule) -> IRModule:
    """Return ``mod`` with every function marked to be inlined."""
    graphs = {gv: function for gv, function in mod.functions.items() if isinstance(function, Function)}
    return mod.with_functions({gv: function.with_attr(INLINE, True) for gv, function in graphs.items()})


def _variables(main: Function, wrt: Sequence[str | Var] | None) -> list[Var]:
    """Return the parameters to differentiate by.

    Raises:
        ArgumentValueError, TypeInferenceError: as :func:`grad`.
    """
    if wrt is None:
        return [param for param in main.params if isinstance(param.type, TensorType) and is_smooth(param.type)]
    named = {param.name: param for param in main.params}
    found: list[Var] = []
    for each in wrt:
        param = named.get(each) if isinstance(each, str) else each if each in main.params else None
        name = each if isinstance(each, str) else each.name
        if param is None:
            close = difflib.get_close_matches(name, named, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ArgumentValueError(f"wrt: no parameter {name!r}{hint} (the parameters: {', '.join(named) or 'none'})")
        if param in found:
            raise ArgumentValueError(f"wrt: parameter {name!r} is given twice")
        if not isinstance(param.type, TensorType) or not is_smooth(param.type):
            raise TypeInferenceError(f"wrt: parameter {name!r}: expected a tensor of floats, found {param.type}")
        found.append(param)
    return found


def _differentiated(function: Function, variables: Sequence[Var], cotangents: bool) -> Function:
    """Return the function of the results and gradients of ``function``, which calls no functions."""
    body = expand_compositions(function.body, variables)
    several = isinstance(body.type, TupleType)
    count = len(body.type.fields) if isinstance(body.type, TupleType) else 1
    results = [field_of(body, number) for number in range(count)] if several else [body]
    params: list[Var] = []
    given: Given = {}
    if cotangents:
        taken = {param.name for param in function.params}
        known = _symbols(function.params)
        for number, result in enumerate(results):
            if is_smooth(result.type):
                if _symbols([result]) - known:
                    raise UnsupportedOperatorError(
                        f"grad: result {number}: expected sizes that follow from those of the parameters, for a "
                        f"cotangent of them, found {result.type}"
                    )
                params.append(_cotangent_of(result, f"cotangent_{number}" if several else "cotangent", taken))
                given.setdefault(result, Cotangent()).terms.append(params[-1])
    else:
        first = results[0].type if results else None
        if not isinstance(first, TensorType) or first.ndim or not first.dtype.is_float:
            raise TypeInferenceError(
                f"grad: result{' 0' if several else ''}: expected a scalar of floats, found {first}; reduce it, or "
                f"take the cotangents of results as parameters with cotangents=True"
            )
        given.setdefault(results[0], Cotangent()).terms.append(Constant(np.ones((), first.dtype.numpy)))
    whole = Tuple(results)
    roots = list(given)
    ReverseMode(whole, roots, variables).run(given)
    gradients = [given[var].total(var.type) if var in given else zeros(var.type) for var in variables]
    return Function((*function.params, *params), Tuple([*results, *gradients]))


def _symbols(values: Iterable[Expr]) -> set[Any]:
    return {each for value in values if isinstance(value.type, TensorType) for each in symbols_of(value.type.shape)}


def _cotangent_of(result: Expr, name: str, taken: set[str]) -> Var:
    """Return a parameter for the cotangent of ``result``, with a name that is not among ``taken``."""
    if not isinstance(result.type, TensorType):
        raise TypeInferenceError(f"grad: expected results that are tensors, found {result.type}")
    while name in taken:
        name += "_"
    taken.add(name)
    return Var(name, result.type)
