"""Check a node against its definition in the standard.

Converters rely on this: attributes are of the standard's kinds, required attributes and inputs are present, and inputs
have allowed element types.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import AttributeProto, NodeProto, TensorProto

from tilewright.graphir.expr import Expr
from tilewright.graphir.frontend.onnx.tensors import onnx_type
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import InputError, TypeInferenceError

#: Domains whose operators the onnx package describes completely.
STANDARD_DOMAINS = frozenset(("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"))

#: The prefix of attributes that are private notes of programs, without a meaning.
_INTERNAL = "__"


def schema_of(op_type: str, opset: int, domain: str) -> Any:
    """Return the onnx package's description of an operator as of ``opset``; None if there is none."""
    # Any: the package's type information lacks the attributes of a schema.
    if not 0 < opset < 1 << 31:
        return None
    try:
        return onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None


@dataclasses.dataclass(frozen=True)
class _Input:
    """The constraints on an input.

    Attributes:
        name: its name in the standard.
        required: whether it must be present.
        types: the element types it may have, as ``tensor(float)``; None if anything but a tensor is allowed.
        variable: its type variable, which inputs of one type share; None for an input with a type of its own.
    """

    name: str
    required: bool
    types: frozenset[str] | None
    variable: str | None


@dataclasses.dataclass(frozen=True)
class _Signature:
    """The constraints on a node of an operator: the kinds of attributes, the required ones, and the inputs in order.

    ``variadic``: whether the last input may repeat. ``fewest``: the least number of inputs. ``outputs``: the greatest
    number of results.
    """

    attributes: Mapping[str, int]
    required: tuple[str, ...]
    inputs: tuple[_Input, ...]
    variadic: bool
    fewest: int
    outputs: int


@functools.cache
def _signature(op_type: str, opset: int, domain: str) -> _Signature | None:
    schema = schema_of(op_type, opset, domain)
    if schema is None:
        return None
    constraints = {each.type_param_str: frozenset(each.allowed_type_strs) for each in schema.type_constraints}
    option = onnx.defs.OpSchema.FormalParameterOption
    inputs = tuple(
        _Input(
            each.name,
            each.option == option.Single,
            constraints.get(each.type_str, frozenset([each.type_str])),
            each.type_str if each.type_str in constraints and each.is_homogeneous else None,
        )
        for each in schema.inputs
    )
    return _Signature(
        {name: int(each.type.value) for name, each in schema.attributes.items()},
        tuple(name for name, each in schema.attributes.items() if each.required),
        inputs,
        bool(schema.inputs) and schema.inputs[-1].option == option.Variadic,
        int(schema.min_input),
        int(schema.max_output),
    )


def check_node(node: NodeProto, opset: int, domain: str, inputs: Sequence[Expr | None], label: str) -> None:
    """Check a node against the standard; nodes of other domains are not checked.

    Raises:
        InputError: an attribute is unknown, of another kind, or missing; too few or too many inputs.
        TypeInferenceError: the operator does not allow the element type of an input, or it differs from its peers'.
    """
    signature = _signature(node.op_type, opset, domain)
    if signature is None:
        return
    _check_attributes(node, signature, label)
    if len(node.output) > signature.outputs:
        raise InputError(f"{label}: expected at most {signature.outputs} results, found {len(node.output)}")
    if len(inputs) < signature.fewest or (len(inputs) > len(signature.inputs) and not signature.variadic):
        expected = ", ".join(each.name if each.required else f"{each.name}?" for each in signature.inputs)
        raise InputError(f"{label}: expected inputs ({expected}{'...' * signature.variadic}), found {len(inputs)}")
    variables: dict[str, tuple[int, DataType]] = {}
    for number, value in enumerate(inputs):
        formal = signature.inputs[min(number, len(signature.inputs) - 1)]
        if value is None:
            if formal.required:
                raise InputError(f"{label}: input {number} ({formal.name}) is missing")
        elif isinstance(value.type, TensorType):
            dtype = value.type.dtype
            if formal.types is not None and type_text(dtype) not in formal.types:
                allowed = " or ".join(sorted(formal.types))
                where = f"{label}: input {number} ({formal.name})"
                raise TypeInferenceError(f"{where}: expected {allowed}, found {type_text(dtype)}")
            if formal.variable is not None:
                first, known = variables.setdefault(formal.variable, (number, dtype))
                if known is not dtype:
                    raise TypeInferenceError(
                        f"{label}: input {number} ({formal.name}): expected {known!s} as input {first}, found {dtype!s}"
                    )


def _check_attributes(node: NodeProto, signature: _Signature, label: str) -> None:
    seen = set()
    for attribute in node.attribute:
        name = attribute.name
        expected = signature.attributes.get(name)
        if expected is None:
            if name.startswith(_INTERNAL):
                continue
            known = ", ".join(sorted(signature.attributes)) or "none"
            raise InputError(f"{label}: unknown attribute {name!r} (the operator's: {known})")
        if attribute.type != expected:
            raise InputError(f"{label}: attribute {name!r}: expected {_kind(expected)}, found {_kind(attribute.type)}")
        if name in seen:
            raise InputError(f"{label}: attribute {name!r} is given twice")
        seen.add(name)
    for name in signature.required:
        if name not in seen:
            raise InputError(f"{label}: attribute {name!r} is missing")


def _kind(number: int) -> str:
    kinds = AttributeProto.AttributeType
    return kinds.Name(number) if number in kinds.values() else f"kind {number}"


@functools.cache
def type_text(dtype: DataType) -> str:
    """Return an element type in the standard's notation."""
    return f"tensor({TensorProto.DataType.Name(onnx_type(dtype.numpy)).lower()})"
