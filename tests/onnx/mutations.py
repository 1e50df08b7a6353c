"""Change models at random: what they are made of, by the schema of the file, and the bytes of the file."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, TensorProto, helper

from tests.onnx.seed_models import seed_models

_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 10, 11, 16, -1, -2, -3, 100, 255, 1000, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-9, 1e30, math.inf, -math.inf, math.nan)
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}

# Mutations of what a model is made of. They know the schema of the file, not what it means.


def _messages(message: Message) -> Iterator[Message]:
    """A message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if _repeated(field) else [value]:
                yield from _messages(inner)


def _repeated(field: Any) -> bool:
    return bool(getattr(field, "is_repeated", False)) or getattr(field, "label", None) == FieldDescriptor.LABEL_REPEATED


def _words(model: ModelProto) -> list[str]:
    """The names in a model."""
    return [
        word
        for message in _messages(model)
        for field, value in message.ListFields()
        if field.type == FieldDescriptor.TYPE_STRING
        for word in (value if _repeated(field) else [value])
    ]


def _scalar(rng: random.Random, field: Any, old: Any, words: Sequence[str]) -> Any:
    """Another value for a field."""
    kind = field.cpp_type
    if kind in _RANGES:
        low, high = _RANGES[kind]
        near = old + rng.choice((-1, 1)) if isinstance(old, int) else 0
        return min(max(rng.choice((*_INTEGERS, near, near, near)), low), high)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice(_FLOATS)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not old
    if field.type == FieldDescriptor.TYPE_BYTES:
        return changed_bytes(rng, old or b"text")
    return rng.choice([*words, "", "no such name", "é\0", "-1", "9" * 30])


def _change_field(rng: random.Random, model: ModelProto) -> None:
    """Give a field another value, or an element of a list; or clear it."""
    message = rng.choice(list(_messages(model)))
    fields = [field for field, _ in message.ListFields()]
    if rng.random() < 0.2 or not fields:
        fields = list(message.DESCRIPTOR.fields)
    field = rng.choice(fields)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        _change_messages(rng, model, message, field)
    elif rng.random() < 0.1:
        message.ClearField(field.name)
    elif not _repeated(field):
        setattr(message, field.name, _scalar(rng, field, getattr(message, field.name), _words(model)))
    else:
        values = list(getattr(message, field.name))
        _change_list(rng, values, lambda old: _scalar(rng, field, old, _words(model)))
        message.ClearField(field.name)
        getattr(message, field.name).extend(values)


def _change_list(rng: random.Random, values: list[Any], another: Callable[[Any], Any]) -> None:
    """Delete, repeat, exchange, insert or replace an element."""
    what = rng.choice(("delete", "repeat", "swap", "insert", "replace", "replace")) if values else "insert"
    place = rng.randrange(len(values)) if values else 0
    if what == "delete":
        del values[place]
    elif what == "repeat":
        values[place:place] = [values[place]] * rng.choice((1, 1, 2, 9))
    elif what == "swap":
        other = rng.randrange(len(values))
        values[place], values[other] = values[other], values[place]
    elif what == "insert":
        values.insert(place, another(None))
    else:
        values[place] = another(values[place])


def _change_messages(rng: random.Random, model: ModelProto, message: Message, field: Any) -> None:
    """Delete, repeat, exchange, insert or replace a message; inserted ones come from elsewhere in the model."""
    alike = [m for m in _messages(model) if m.DESCRIPTOR is field.message_type]
    alike = [type(m).FromString(m.SerializeToString()) for m in alike]  # not what is about to change
    if not _repeated(field):
        if rng.random() < 0.4 or not alike:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).CopyFrom(rng.choice(alike))
        return
    values = [type(m).FromString(m.SerializeToString()) for m in getattr(message, field.name)]
    if not values and not alike:
        getattr(message, field.name).add()
        return
    _change_list(rng, values, lambda old: rng.choice(alike))
    message.ClearField(field.name)
    getattr(message, field.name).extend(values)


def _nodes(model: ModelProto) -> list[onnx.NodeProto]:
    return [message for message in _messages(model) if isinstance(message, onnx.NodeProto)]


def _change_operator(rng: random.Random, model: ModelProto) -> None:
    """Another operator for a node."""
    if nodes := _nodes(model):
        rng.choice(nodes).op_type = rng.choice(_operators())


@functools.cache
def _operators() -> list[str]:
    return sorted({node.op_type for model in seed_models().values() for node in _nodes(model)})


def _change_inputs(rng: random.Random, model: ModelProto) -> None:
    """Other inputs for a node: among them those that come later, and none."""
    if nodes := _nodes(model):
        node = rng.choice(nodes)
        names = ["", *(name for other in nodes for name in (*other.input, *other.output))]
        values = list(node.input)
        _change_list(rng, values, lambda old: rng.choice(names))
        del node.input[:]
        node.input.extend(values)


def _change_attribute(rng: random.Random, model: ModelProto) -> None:
    """A value for an attribute that the operator has, not always of its kind."""
    nodes = [node for node in _nodes(model) if onnx.defs.has(node.op_type)]
    if not nodes:
        return
    node = rng.choice(nodes)
    known = onnx.defs.get_schema(node.op_type).attributes
    if not known:
        return
    name = rng.choice(sorted(known))
    for attribute in [each for each in node.attribute if each.name == name]:
        node.attribute.remove(attribute)
    count = rng.randrange(5)
    values: dict[str, Callable[[], Any]] = {
        "INT": lambda: rng.choice(_INTEGERS),
        "FLOAT": lambda: rng.choice(_FLOATS),
        "STRING": lambda: rng.choice(("", "linear", "cubic", "SAME_UPPER", "VALID", "reflect", "max", "Relu", "ij,jk")),
        "INTS": lambda: [rng.choice(_INTEGERS) for _ in range(count)],
        "FLOATS": lambda: [rng.choice(_FLOATS) for _ in range(count)],
        "STRINGS": lambda: [rng.choice(("Relu", "Tanh", "Affine", "")) for _ in range(count)],
    }
    kind = known[name].type.name if rng.random() < 0.8 else rng.choice(sorted(values))
    if kind in values:
        node.attribute.append(helper.make_attribute(name, values[kind](), attr_type=getattr(AttributeProto, kind)))


def _change_size(rng: random.Random, model: ModelProto) -> None:
    """Another size for a dimension of an input or of a constant; constants of integers get other values."""
    found = [m for m in _messages(model) if isinstance(m, (TensorProto, onnx.TensorShapeProto))]
    if not found:
        return
    message = rng.choice(found)
    if isinstance(message, onnx.TensorShapeProto):
        if message.dim:
            rng.choice(message.dim).dim_value = rng.choice(_INTEGERS)
    elif message.int64_data:
        message.int64_data[rng.randrange(len(message.int64_data))] = rng.choice(_INTEGERS)
    elif message.data_type == TensorProto.INT64 and len(message.raw_data) >= 8:
        array = np.frombuffer(message.raw_data[: len(message.raw_data) & -8], "<i8").copy()
        array[rng.randrange(array.size)] = rng.choice(_INTEGERS)
        message.raw_data = array.tobytes()
    elif message.dims:
        message.dims[rng.randrange(len(message.dims))] = rng.choice(_INTEGERS)


def _change_version(rng: random.Random, model: ModelProto) -> None:
    """Another version of the operators."""
    for opset in model.opset_import:
        opset.version = rng.choice((*range(1, 30), 0, -1, 1 << 40))


#: Changes to a model, each as often as it is drawn.
STRUCTURAL = (
    *(_change_field,) * 6,
    *(_change_attribute,) * 4,
    *(_change_size,) * 3,
    *(_change_inputs,) * 2,
    _change_operator,
    _change_version,
)


# Mutations of a file's bytes.


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bits turned over, an end that is missing, a piece that comes twice, lacks, or lies elsewhere."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        place = rng.randrange(len(changed)) if changed else 0
        length = rng.choice((1, 2, 8, 40))
        what = rng.choice(("flip", "flip", "flip", "byte", "truncate", "delete", "repeat", "move"))
        if what == "flip" and changed:
            changed[place] ^= 1 << rng.randrange(8)
        elif what == "byte" and changed:
            changed[place] = rng.choice((0, 1, 127, 128, 255))
        elif what == "truncate":
            del changed[place:]
        elif what == "delete":
            del changed[place : place + length]
        elif what == "repeat":
            changed[place:place] = changed[place : place + length]
        else:
            piece = changed[place : place + length]
            del changed[place : place + length]
            other = rng.randrange(len(changed) + 1)
            changed[other:other] = piece
    return bytes(changed)
