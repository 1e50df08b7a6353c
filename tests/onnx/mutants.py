"""Bad models by the thousand: valid ones with random changes, each imported in a guarded process, some built and run.

A mutant is known by the seed and its number. It must import or raise a ``TilewrightError``; what imports must build and
run or raise one. A crash, a hang, memory beyond a limit or any other exception is a bug.

    python -m tests.onnx.mutants --count 50000 --seed 7     counts, and what went wrong
    python -m tests.onnx.mutants --show 1234 --seed 7       one mutant in this process, with its traceback
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import json
import math
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, ModelProto, TensorProto, helper

import tilewright as tw
from tests.onnx.cases import all_cases
from tests.onnx.process import LineProcess, ProcessError
from tests.onnx.seed_models import seed_models
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import TilewrightError

#: Of one mutant: seconds, and bytes of address space.
TIME_LIMIT, MEMORY_LIMIT = 60.0, 6 << 30

#: One mutant in so many is built and run, if it imports.
BUILD_EVERY = 20

#: Only models whose largest tensor has at most so many elements are run: that takes no longer than they do.
MOST_ELEMENTS = 1 << 20

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
        return _changed_bytes(rng, old or b"text")
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
    """The same with messages: what is put in comes from elsewhere in the model."""
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


_STRUCTURAL = (
    *(_change_field,) * 6,
    *(_change_attribute,) * 4,
    *(_change_size,) * 3,
    *(_change_inputs,) * 2,
    _change_operator,
    _change_version,
)


# Mutations of a file's bytes.


def _changed_bytes(rng: random.Random, data: bytes) -> bytes:
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


@functools.cache
def suite_models() -> dict[str, ModelProto]:
    """The node cases of the onnx package, with inputs that are integers, or few numbers, as constants."""
    found = {}
    for name, case in all_cases().items():
        if case.kind == "node" and case.data_sets is not None:
            model = ModelProto()
            model.CopyFrom(case.model)
            for info, value in zip(model.graph.input, case.data_sets[0][0], strict=False):
                known = isinstance(value, np.ndarray) and value.size <= 64 and value.dtype.kind in "ifb"
                if known and (value.dtype.kind != "f" or value.ndim < 2):
                    model.graph.initializer.append(onnx.numpy_helper.from_array(value, info.name))
            found[name] = model
    return found


def mutant(seed: int, number: int, suite: bool = False) -> tuple[str, ModelProto | bytes]:
    """Mutant ``number``: the name of the valid model, and the bad one, as bytes or as an object.

    Args:
        suite: make it from the cases of the onnx package, not from the seed models.
    """
    rng = random.Random(f"{seed}:{number}")
    models = suite_models() if suite else seed_models()
    name = rng.choice(sorted(models))
    model = ModelProto()
    model.CopyFrom(models[name])
    if rng.random() < 0.25:
        return name, _changed_bytes(rng, model.SerializeToString())
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        rng.choice(_STRUCTURAL)(rng, model)
    return name, model


# What is done with a mutant.


def examine(source: ModelProto | bytes, build: bool, level: int = 0) -> tuple[str, str]:
    """How a model ends, and why: ``imported``, ``built``, ``ran``, ``refused`` (a ``TilewrightError``), ``bug``."""
    stage = "imported"
    try:
        module = tw.from_onnx(source)
        if build:
            with tw.PassContext(opt_level=level):
                executable = tw.build(module, target=tw.Target("llvm", num_threads=1))
            stage = "built"
            arrays = _arrays(module)
            if arrays is not None:
                executable(*arrays)
                stage = "ran"
    except TilewrightError as error:
        return "refused", f"{type(error).__name__} ({stage}): {error}"
    except Exception as error:  # anything else is what this module is to find
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "site-packages" not in frame.filename] or list(frames)
        place = f"{ours[-1].filename.rpartition('/')[2]}:{ours[-1].lineno} {ours[-1].name}"
        return "bug", f"{type(error).__name__} in {place} ({stage}): {str(error)[:200]}"
    return stage, ""


def _arrays(module: Any) -> list[np.ndarray] | None:
    """Inputs for a module, whose symbolic sizes are 3; None if some tensor of it is too large to be run in a test."""
    main = module["main"]
    arrays = []
    for expr in tw.graphir.visitor.post_order(main.body):
        shape = expr.type.shape if isinstance(expr.type, TensorType) else ()
        if math.prod(dim for dim in shape if isinstance(dim, int)) > MOST_ELEMENTS:
            return None
    for param in main.params:
        shape = [dim if isinstance(dim, int) else 3 for dim in param.type.shape]
        if math.prod(shape) > MOST_ELEMENTS:
            return None
        arrays.append(np.ones(shape, param.type.dtype.numpy))
    return arrays


def peak_memory() -> int:
    """The most bytes that this process had in memory since its program began; ``getrusage`` counts those of the process
    that started it, too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def serve(seed: int, level: int, suite: bool, build_every: int) -> None:
    """What a worker's process does: a mutant's number in, its end out."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that is printed on the way is taken for a result
    for line in sys.stdin:
        number = int(line)
        name, source = mutant(seed, number, suite)
        started = time.process_time()
        status, reason = examine(source, number % build_every == 0, level)
        seconds = time.process_time() - started
        results.write(json.dumps([name, status, reason, seconds, peak_memory()]) + "\n")


@dataclasses.dataclass
class End:
    """How a mutant ended.

    Attributes:
        number: which mutant of its seed.
        name: the valid model that it was made from.
        status: as :func:`examine` says, or ``crashed``, ``hung``.
        reason: the error.
        seconds: of processor time.
        peak: the most bytes that its process ever had in memory.
    """

    number: int
    name: str
    status: str
    reason: str
    seconds: float = 0.0
    peak: int = 0

    @property
    def is_bug(self) -> bool:
        """Whether this is none of the ends that a bad model may have."""
        return self.status in ("bug", "crashed", "hung")


def examine_all(
    seed: int, numbers: Iterable[int], level: int = 0, suite: bool = False, build_every: int = BUILD_EVERY
) -> Iterator[End]:
    """The end of each mutant."""
    arguments = ["tests.onnx.mutants", "--worker", "--seed", str(seed), "--level", str(level), *["--suite"] * suite]
    arguments += ["--build-every", str(build_every)]
    worker = LineProcess(arguments, TIME_LIMIT)
    try:
        for number in numbers:
            try:
                yield End(number, *json.loads(worker.ask(str(number))))
            except ProcessError as error:
                yield End(number, mutant(seed, number, suite)[0], error.status, error.reason)
    finally:
        worker.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--level", type=int, default=0, help="the opt_level of those that are built")
    parser.add_argument("--build-every", type=int, default=BUILD_EVERY, help="one mutant in so many is built and run")
    parser.add_argument("--suite", action="store_true", help="from the onnx package's cases, not the seed models")
    parser.add_argument("--show", type=int, metavar="NUMBER")
    options = parser.parse_args(arguments)
    if options.worker:
        serve(options.seed, options.level, options.suite, options.build_every)
        return
    if options.show is not None:
        name, source = mutant(options.seed, options.show, options.suite)
        print(name, source if isinstance(source, bytes) else onnx.printer.to_text(source))
        with tw.PassContext(opt_level=options.level):
            tw.build(tw.from_onnx(source), target=tw.Target("llvm", num_threads=1))
        return
    ends = []
    bugs: dict[str, list[int]] = collections.defaultdict(list)
    numbers = range(options.count)
    for end in examine_all(options.seed, numbers, options.level, options.suite, options.build_every):
        ends.append(end)
        if end.is_bug:
            bugs[f"{end.status} {end.reason}"].append(end.number)
    print(dict(collections.Counter(end.status for end in ends)))
    print(f"{sum(end.seconds for end in ends):.1f} s, at most {max(end.seconds for end in ends):.2f} s for one and")
    print(f"{max(end.peak for end in ends) >> 20} MiB in memory")
    for reason, numbers in sorted(bugs.items(), key=lambda item: -len(item[1])):
        print(f"{len(numbers):5} {numbers[:3]} {reason}")


if __name__ == "__main__":
    main()
