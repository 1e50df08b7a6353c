"""Derive the interface of a model from its graph: arguments, results, and sizes that must be equal."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tilewright.graphir.dims import Dim, never_negative, simplify
from tilewright.graphir.expr import Call, Function, GlobalVar
from tilewright.graphir.keys import CHECKS, ORDERED, RESULTS
from tilewright.graphir.loop_calls import loop_call
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.context import PassContext
from tilewright.passes.graph import InferType
from tilewright.runtime.result_orders import inverse, reordered_type
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import Claim
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Expr, maximum
from tilewright.tensorir.stmt import PrimFunc


def signature_of(function: Function) -> Signature:
    """Return the signature of ``function``. Its attribute ``results``, set by the importers, names the results;
    ``Checks`` tells which of them are checks, and ``Ordered`` of which a call returns views.

    Raises:
        TypeInferenceError: as :func:`arguments_of` and :func:`result_of`; or a check is no result.
    """
    result, checks = result_of(function), function.attrs.get(CHECKS, ())
    views = [(number, inverse(order)) for number, order in function.attrs.get(ORDERED, ())]
    result = reordered_type(result, views)
    if checks:
        result = _without(result, {number for number, _ in checks})
    return Signature(arguments_of(function), result, function.attrs.get(RESULTS, ()), checks, views)


def _without(result: Type, numbers: Set[int]) -> Type:
    """Return the type of a tuple of tensors without the fields of these numbers; of one that is left, its own type."""
    fields = result.fields if isinstance(result, TupleType) else ()
    if not all(isinstance(field, TensorType) for field in fields) or not numbers <= set(range(len(fields))):
        shown = ", ".join(map(str, sorted(numbers)))
        raise TypeInferenceError(f"result of main: expected a tuple of tensors with the checks {shown}, found {result}")
    left = [field for number, field in enumerate(fields) if number not in numbers]
    return left[0] if len(left) == 1 else TupleType(left)


def arguments_of(function: Function, partial: bool = False) -> list[Argument]:
    """List the tensors that a call takes: one for each parameter, and for each field of a parameter that is a tuple.

    Args:
        partial: whether types may still be unknown.

    Raises:
        TypeInferenceError: a parameter is not a tensor, or two have the same name.
    """
    arguments: list[Argument] = []

    def add(name: str, found: Type | None) -> None:
        if isinstance(found, TupleType):
            for number, field in enumerate(found.fields):
                add(f"{name}_{number}", field)
        elif isinstance(found, TensorType):
            arguments.append(Argument(name, found))
        elif not (found is None and partial):
            raise TypeInferenceError(f"parameter {name!r} of main: expected a tensor, found {found}")

    for param in function.params:
        add(param.name, param.type)
    names = [argument.name for argument in arguments]
    if len(set(names)) != len(names):
        raise TypeInferenceError(f"main has two parameters of one name: {', '.join(names)}")
    return arguments


def result_of(function: Function) -> Type:
    """Return the type of the result of ``function``.

    Raises:
        TypeInferenceError: the type is not known, or is not a tensor or a tuple of tensors.
    """
    if not isinstance(function.type, FuncType):
        raise TypeInferenceError("the type of main is not known; a parameter lacks its type")
    check_result(function.type.result)
    return function.type.result


def check_result(found: Type | None) -> None:
    """Raise a TypeInferenceError if a result, or a part of it, is known not to be a tensor."""
    if isinstance(found, TupleType):
        for field in found.fields:
            check_result(field)
    elif not (found is None or isinstance(found, TensorType)):
        raise TypeInferenceError(f"result of main: expected tensors, found {found}")


def claims_of(mod: IRModule) -> list[Claim]:
    """List the sizes that calls in ``mod`` assume to be equal without proof, each once: those of
    ``Operator.claimed_sizes``, those of buffers of loop-level functions, and sizes that must not be negative.

    Raises:
        TypeInferenceError: a call of a loop-level function does not fit.
    """
    found: dict[tuple[str, str], Claim] = {}
    if any(isinstance(function, PrimFunc) for function in mod.functions.values()):
        mod = InferType()(mod, PassContext())  # unwatched: the pipeline infers types again
    for function in mod.functions.values():
        if not isinstance(function, Function):
            continue
        for call in call_nodes(function):
            for dim, expected, where in _unproved(call, mod):
                found.setdefault((str(dim), str(expected)), Claim(dim, expected, where))
            for number, dim in _perhaps_negative(call.type):
                where = f"dimension {number} of the result of {call.span or summary(call)}"
                found.setdefault((str(dim), ""), Claim(dim, simplify(maximum(dim, 0)), where))
            types = [arg.type for arg in call.args]
            tensors = [found for found in types if isinstance(found, TensorType)]
            if not isinstance(call.op, Operator) or len(tensors) != len(types):
                continue
            for what, dim, expected in call.op.claimed_sizes(tensors, call.attrs):
                label = f"{what} of {call.span or summary(call)}"
                found.setdefault((str(dim), str(expected)), Claim(dim, expected, label))
    return list(found.values())


def _perhaps_negative(found: Type | None) -> list[tuple[int, Expr]]:
    """List the axes and dimensions of a tensor for which it is not proved that they are not negative, such as the
    number of windows in an image of any size."""
    dims = found.shape if isinstance(found, TensorType) else ()
    return [(axis, dim) for axis, dim in enumerate(dims) if isinstance(dim, Expr) and not never_negative(dim)]


def _unproved(call: Call, mod: IRModule) -> Sequence[tuple[Dim, Dim, str]]:
    """List the sizes that the call of a loop-level function takes for equal; none for other calls."""
    called = mod[call.op] if isinstance(call.op, GlobalVar) else None
    fits = loop_call(called, call, memory=True) if isinstance(called, PrimFunc) else None
    return () if fits is None else fits.unproved
