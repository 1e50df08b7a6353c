"""Branches and loops. What can be decided at import is decided then; a counted loop becomes its iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from tilewright.graphir.expr import Expr, Function, If, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import reshape, take
from tilewright.graphir.types import TensorType
from tilewright.tensorir.errors import InputError

#: Loops of more iterations are no longer written out.
MOST_UNROLLED = 256


@converter("If")
def branch(node: Node) -> list[Expr]:
    """One of two graphs; the one that is taken, if that is known."""
    condition = known_values(node[0])
    if condition is not None and condition.dtype != object:
        return node.subgraph("then_branch" if bool(condition.reshape(-1)[0]) else "else_branch")
    taken, other = Tuple(node.subgraph("then_branch")), Tuple(node.subgraph("else_branch"))
    if taken.type != other.type:
        raise node.unsupported(f"branches of different types, {taken.type} and {other.type},")
    chosen = If(_scalar(node[0]), taken, other)
    return [TupleGetItem(chosen, number) for number in range(len(taken.fields))]


@converter("Loop")
def loop(node: Node) -> list[Expr]:
    """Iterations that pass values on; what each of them gives besides is stacked."""
    state = [value for value in node.inputs[2:] if value is not None]
    body: GraphProto = node.required("body")
    limit = None if node.optional(0) is None else known_values(node[0])
    start = None if node.optional(1) is None else known_values(node[1])
    if start is not None and start.dtype != object and not bool(start.reshape(-1)[0]):
        limit = np.zeros((), np.int64)
    starts = node.optional(1) is None or start is not None
    if starts and limit is not None and limit.dtype != object and int(limit.reshape(-1)[0]) <= MOST_UNROLLED:
        unrolled = _unrolled(node, body, int(limit.reshape(-1)[0]), state)
        if unrolled is not None:
            return unrolled
    if len(body.output) > 1 + len(state):
        raise node.unsupported("a loop of an unknown number of iterations that collects results")
    return _counted(node, state)


def _unrolled(node: Node, body: GraphProto, count: int, state: list[Expr]) -> list[Expr] | None:
    """The loop's iterations one after the other; None if whether it goes on depends on data."""
    collected: list[list[Expr]] = [[] for _ in body.output[1 + len(state) :]]
    for number in range(count):
        inputs = [const(np.array(number, np.int64)), const(np.array(True)), *state]
        goes_on, *results = node.subgraph("body", inputs)
        state = results[: len(state)]
        for values, value in zip(collected, results[len(state) :], strict=True):
            values.append(value)
        known = known_values(goes_on)
        if known is None or known.dtype == object:
            return None
        if not bool(known.reshape(-1)[0]):
            break
    if any(not values for values in collected):
        raise node.unsupported("a loop of no iterations that collects results")
    return [*state, *(get_operator("stack")(values, axis=0) for values in collected)]


def _counted(node: Node, state: Sequence[Expr]) -> list[Expr]:
    """A loop of the graph, whose state holds whether it goes on."""
    first = node.optional(1)
    initial = [const(np.array(True)) if first is None else _scalar(first), *state]
    for value in initial:
        if not isinstance(value.type, TensorType):
            raise node.unsupported("a loop that passes on what is no tensor")
    trips = node.optional(0)
    count = const(np.array(np.iinfo(np.int64).max)) if trips is None else _scalar(trips)
    counter = Var("i", TensorType((), "int64"))
    variables = [Var(f"state{number}", value.type) for number, value in enumerate(initial)]
    results = node.subgraph("body", [counter, *variables])
    next_state = Tuple([_scalar(results[0]), *results[1:]])
    expected = Tuple(variables).type
    if next_state.type != expected:
        raise node.unsupported(f"a state that changes its type from {expected} to {next_state.type}")
    asked = [Var("i", TensorType((), "int64")), *(Var(variable.name, variable.type) for variable in variables)]
    made = Loop(count, Function(asked, asked[1]), Function([counter, *variables], next_state), initial)
    return [TupleGetItem(made, number) for number in range(1, len(initial))]


@converter("Scan", since=9)
def scan(node: Node) -> list[Expr]:
    """A loop over slices of its inputs, along an axis of known size."""
    count = int(node.required("num_scan_inputs"))
    values = [value for value in node.inputs if value is not None]
    state, scanned = values[: len(values) - count], values[len(values) - count :]
    if not scanned:
        raise InputError(f"{node.label}: num_scan_inputs must be positive")
    axes = node.attribute("scan_input_axes", (0,) * count)
    backwards = node.attribute("scan_input_directions", (0,) * count)
    extents = {_extent(node, value, axis) for value, axis in zip(scanned, axes, strict=True)}
    (steps,) = extents if len(extents) == 1 else (None,)
    if not isinstance(steps, int) or not 0 < steps <= MOST_UNROLLED:
        raise node.unsupported(f"a scan of {', '.join(map(str, extents))} steps")
    body: GraphProto = node.required("body")
    collected: list[list[Expr]] = [[] for _ in body.output[len(state) :]]
    for number in range(steps):
        places = [steps - 1 - number if direction else number for direction in backwards]
        slices = [
            take(value, const(np.array(place)), axis=axis)
            for value, place, axis in zip(scanned, places, axes, strict=True)
        ]
        results = node.subgraph("body", [*state, *slices])
        state = results[: len(state)]
        for gathered, value in zip(collected, results[len(state) :], strict=True):
            gathered.append(value)
    out_axes = node.attribute("scan_output_axes", (0,) * len(collected))
    reverse = node.attribute("scan_output_directions", (0,) * len(collected))
    stacked = [
        get_operator("stack")(gathered[::-1] if direction else gathered, axis=axis)
        for gathered, axis, direction in zip(collected, out_axes, reverse, strict=True)
    ]
    return [*state, *stacked]


def _extent(node: Node, value: Expr, axis: int) -> object:
    if not isinstance(value.type, TensorType):
        raise node.unsupported("a scan over what is no tensor")
    return value.type.shape[axis]


def _scalar(value: Expr) -> Expr:
    """A tensor of one element without dimensions."""
    return value if isinstance(value.type, TensorType) and not value.type.shape else reshape(value, newshape=())
