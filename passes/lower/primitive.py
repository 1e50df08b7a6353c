"""Lower a fused group of operators to one loop-level function.

Each operator of the group adds its tensor expressions, and the function computes them one after the other; inlining
and tiling are left to schedules. An operator without loop-level definition is decomposed into operators that have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import as_dim, format_shape, shape_equal
from tilewright.graphir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.graphir.keys import KIND, SIZES
from tilewright.graphir.op import Operator
from tilewright.graphir.origins import operator_calls
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import TypeInferenceError, UnsupportedOperatorError
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.expr import IntImm, const
from tilewright.tensorir.expr import Var as ScalarVar
from tilewright.tensorir.keys import NUM_INPUTS, SIZES_FROM
from tilewright.tensorir.sources import TRACING
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.tensor import Tensor

Value = Tensor | list["Value"]


def decompose(root: Expr, owners: dict[Expr, Expr] | None = None) -> Expr:
    """Replace every operator in ``root`` that has no loop-level definition by its decomposition.

    Args:
        owners: gets, for each call in the result, the call in ``root`` that it is, or is a part of.

    Raises:
        UnsupportedOperatorError: operators have neither; the message names all of them.
        TypeInferenceError: a decomposition has another type than the call.
    """
    missing: dict[str, None] = {}

    def expand(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, Operator) or new.op.compute is not None:
            return new
        if new.op.decompose is None:
            missing[new.op.name] = None
            return new
        made = new.op.decompose(list(new.args), new.attrs)
        if not isinstance(made, Expr) or made.type != new.type:
            found = made.type if isinstance(made, Expr) else repr(made)
            raise TypeInferenceError(f"{new.op.name}: decompose: expected an expression of {new.type}, found {found}")
        return rewrite(made, expand, {arg: arg for arg in new.args})

    def expand_whole(old: Expr, new: Expr) -> Expr:
        made = expand(old, new)
        if owners is not None and isinstance(new, Call):
            waiting = [made]
            while waiting:
                part = waiting.pop()
                if part not in owners and part not in new.args:
                    owners[part] = old
                    waiting += part.children
        return made

    result = rewrite(root, expand_whole)
    if missing:
        raise UnsupportedOperatorError(f"operators without a loop-level definition: {', '.join(missing)}")
    return result


def lower_primitive(function: Function, name: str) -> PrimFunc:
    """Return the loop-level function of a graph function whose body holds only calls of operators.

    Parameters are the tensors of ``function.params`` (tuples flattened), then its results. Scalar constants in the body
    become part of the formulas. Where sources are wanted (:func:`tilewright.tensorir.sources.tracing`), those of
    the loops are the numbers of the operators that they compute, in the order of
    :func:`~tilewright.graphir.origins.operator_origins`.

    Raises:
        TypeInferenceError: a type is not known.
        UnsupportedOperatorError: an operator has no loop-level definition.
    """
    owners: dict[Expr, Expr] = {}
    body, calls = function.body, operator_calls(function)
    for call in calls:
        if call.op.compute is None:  # type: ignore[union-attr]  # it is an operator
            body = decompose(body, owners)
            break
    numbers: dict[Expr, int] = {}
    if TRACING.callers:
        numbers.update({call: number for number, call in enumerate(calls)})
    values: dict[Expr, Value] = {}
    sources: dict[Tensor, int] = {}
    inputs: list[Tensor] = []
    for param in function.params:
        values[param] = _placeholder(param.name, param.type, inputs)
    order = post_order(function)[:-1] if body is function.body else post_order(body)
    for node in order:
        if node not in values:
            values[node] = _lower_node(node, values)
            number = numbers.get(owners.get(node, node))
            if number is not None:
                _set_source(_flatten(values[node]), number, inputs, sources)
    outputs = _flatten(values[body])
    distinct: list[Tensor] = []
    for output in outputs:
        if output in distinct or output.body is None:
            output = _copy(output)
        distinct.append(output)
    for copied in distinct if numbers else ():
        _set_source([copied], len(numbers) - 1, inputs, sources)
    kind = function.attrs.get(KIND, "opaque")
    made = te.create_prim_func(name, inputs, distinct, {KIND: kind, NUM_INPUTS: len(inputs)}, sources)
    return with_sizes(made, function, [*inputs, *distinct])


def _set_source(computed: Sequence[Tensor], number: int, inputs: Sequence[Tensor], sources: dict[Tensor, int]) -> None:
    """Set the source of tensors, and of those between them and the tensors that others have computed."""
    waiting = list(computed)
    while waiting:
        tensor = waiting.pop()
        if tensor not in sources and tensor not in inputs:
            sources[tensor] = number
            waiting += tensor.inputs


def with_sizes(made: PrimFunc, function: Function, tensors: Sequence[Tensor]) -> PrimFunc:
    """Return ``made`` with the attribute that gives the sources of its plain sizes, if its group ``function`` has such
    sizes (see :mod:`.generalize`).

    Args:
        tensors: its arguments, followed by its results.
    """
    sizes = function.attrs.get(SIZES, ())
    if not sizes:
        return made
    return made.with_attr(SIZES_FROM, tuple(_source(var, tensors) if var in sizes else None for var in made.variables))


def _source(var: ScalarVar, tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Return the number of a tensor and its axis whose dimension is ``var``."""
    return next(
        (number, axis) for number, tensor in enumerate(tensors) for axis, dim in enumerate(tensor.shape) if dim is var
    )


def _lower_node(node: Expr, values: dict[Expr, Value]) -> Value:
    if isinstance(node, Constant):
        return _constant(node.data)
    if isinstance(node, Tuple):
        return [values[field] for field in node.fields]
    if isinstance(node, TupleGetItem):
        fields = values[node.value]
        assert isinstance(fields, list)
        return fields[node.index]
    if isinstance(node, Call) and isinstance(node.op, Operator):
        if node.type is None:
            raise TypeInferenceError(f"{node.op.name}: the type of a call is not known; run the pass InferType first")
        assert node.op.compute is not None
        result: Any = node.op.compute([values[arg] for arg in node.args], node.attrs, node.type)
        if isinstance(result, tuple):
            result = list(result)
        if not (isinstance(result, Tensor) and isinstance(node.type, TensorType) and _fits(result, node.type)):
            _check_result(node.op, result, flat_types(node.type))
        return result  # type: ignore[no-any-return]  # it was checked
    found = f"variable {node.name}" if isinstance(node, Var) else type(node).__name__
    raise TypeInferenceError(f"a fused group holds calls of operators only, found {found}")


def _check_result(op: Operator, result: Value, expected: Sequence[TensorType]) -> None:
    """Check the result of an operator's ``compute``: with another shape or type the kernel would write out of bounds.

    Raises:
        TypeInferenceError: it does not have the type that ``infer_type`` returned.
    """
    for part in result if isinstance(result, list) else [result]:
        if not isinstance(part, (Tensor, list)):
            hint = " (does it lack a return statement?)" if part is None else ""
            raise TypeInferenceError(f"{op.name}: compute: expected a tensor, or several, found {part!r}{hint}")
    found = _flatten(result)
    if len(found) != len(expected):
        raise TypeInferenceError(
            f"{op.name}: compute: expected as many tensors as infer_type says, {len(expected)}, found {len(found)}"
        )
    for tensor, wanted in zip(found, expected, strict=True):
        if not _fits(tensor, wanted):
            made = f"Tensor[{format_shape(map(as_dim, tensor.shape))}, {tensor.dtype!s}]"
            raise TypeInferenceError(f"{op.name}: compute: expected {wanted} as infer_type says, found {made}")


def _fits(tensor: Tensor, wanted: TensorType) -> bool:
    """Return whether a tensor has the wanted type."""
    if tensor.dtype is not wanted.dtype or len(tensor.shape) != len(wanted.shape):
        return False
    for extent, dim in zip(tensor.shape, wanted.shape, strict=True):
        # Most are as they were in the type from which the tensor was made.
        if extent is not dim and not (type(extent) is IntImm and extent.value == dim):
            return shape_equal(map(as_dim, tensor.shape), wanted.shape)
    return True


def _placeholder(name: str, found: Type | None, inputs: list[Tensor]) -> Value:
    if isinstance(found, TupleType):
        return [_placeholder(f"{name}_{number}", field, inputs) for number, field in enumerate(found.fields)]
    if not isinstance(found, TensorType):
        raise TypeInferenceError(f"parameter {name} of a fused group: expected a tensor, found {found}")
    tensor = te.placeholder(found.shape, found.dtype, name)
    inputs.append(tensor)
    return tensor


class _Scalar(Tensor):
    """A constant of one element inside a group: its value is an immediate in the formulas that read it."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        found = TensorType(data.shape, data.dtype)
        super().__init__(te.placeholder(found.shape, found.dtype, "constant").buffer)
        scalar = data.reshape(())
        self.value = const(scalar.item() if data.dtype.kind in "biu" else float(scalar.astype(np.float64)), found.dtype)

    def __getitem__(self, indices: Any) -> ScalarExpr:
        return self.value


def _constant(data: np.ndarray[Any, Any]) -> Tensor:
    """Return the tensor of a constant inside a group, of one element only; larger ones are arguments of the group."""
    if data.size != 1:
        raise TypeInferenceError(f"a fused group holds scalar constants only, found one of shape {data.shape}")
    return _Scalar(data)


def _copy(source: Tensor) -> Tensor:
    return te.compute(source.shape, lambda *place: source[place], name=f"{source.name}_copy")


def _flatten(value: Value) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for field in value for tensor in _flatten(field)]


def flat_types(found: Type | None) -> list[TensorType]:
    """Return the tensor types of a type, tuples flattened.

    Raises:
        TypeInferenceError: the type is unknown or a function.
    """
    if isinstance(found, TensorType):
        return [found]
    if isinstance(found, TupleType):
        return [tensor for field in found.fields for tensor in flat_types(field)]
    raise TypeInferenceError(f"expected tensors, found {found}")
