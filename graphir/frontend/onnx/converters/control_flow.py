"""Branches and loops. What can be decided at import is decided then; a counted loop becomes its iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, Function, If, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.frontend.onnx.runtime_sizes import as_number, as_size
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, reshape, subtract, take, transpose, where
from tilewright.graphir.types import TensorType, TupleType
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
    count = const(np.array(np.iinfo(np.int64).max)) if trips is None else as_size(trips)
    params, results = _iteration(node, initial)
    if len(results) == len(initial):
        return _fields(Loop(count, _goes_on(initial), Function(params, Tuple(results)), initial))[1:]
    if results[0] is params[1] or _is_true(results[0]):
        steps = where(_scalar(initial[0]), get_operator("maximum")(count, 0), 0)
    else:
        steps = _count_steps(node, count, initial)
    rows = []
    for value in results[len(initial) :]:
        assert isinstance(value.type, TensorType)
        shape = (node.size(steps), *value.type.shape)
        rows.append(get_operator("zeros")(shape=shape, dtype=value.type.dtype))
    made = Loop(count, _goes_on(initial), Function(params, Tuple(results)), initial, collect=rows)
    return _fields(made)[1:]


def _iteration(node: Node, initial: Sequence[Expr]) -> tuple[list[Var], list[Expr]]:
    """The parameters and the results of the body: the number of the iteration (only a parameter), whether it goes on,
    the state, and what is collected."""
    params = [Var("i", TensorType((), "int64")), *(Var(f"state{n}", value.type) for n, value in enumerate(initial))]
    goes_on, *results = node.subgraph("body", params)
    results = [_scalar(goes_on), *results]
    for old, new in zip(params[1:], results, strict=False):
        if old.type != new.type:
            raise node.unsupported(f"a state that changes its type from {old.type} to {new.type}")
    return params, results


def _count_steps(node: Node, count: Expr, initial: Sequence[Expr]) -> Expr:
    """How many iterations a loop has that ends by its state: found by running it without what it collects."""
    params, results = _iteration(node, initial)
    done = Var("done", TensorType((), "int64"))
    body = Function([*params, done], Tuple([*results[: len(initial)], add(done, 1)]))
    start = [*initial, const(np.array(0, np.int64))]
    return _fields(Loop(count, _goes_on(start), body, start))[-1]


def _goes_on(state: Sequence[Expr]) -> Function:
    """The condition of a loop: the first value of its state."""
    asked = [Var("i", TensorType((), "int64")), *(Var(f"state{n}", value.type) for n, value in enumerate(state))]
    return Function(asked, asked[1])


def _fields(made: Expr) -> list[Expr]:
    assert isinstance(made.type, TupleType)
    return [TupleGetItem(made, number) for number in range(len(made.type.fields))]


def _is_true(value: Expr) -> bool:
    known = known_values(value)
    return known is not None and known.dtype != object and bool(known.reshape(-1)[0])


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
    body: GraphProto = node.required("body")
    count = len(body.output) - len(state)
    out_axes = node.attribute("scan_output_axes", (0,) * count)
    reverse = node.attribute("scan_output_directions", (0,) * count)
    (steps,) = extents if len(extents) == 1 else (None,)
    if isinstance(steps, int) and 0 < steps <= MOST_UNROLLED:
        state, collected = _unrolled_scan(node, steps, state, scanned, axes, backwards)
    elif steps is not None:
        state, collected = _scan_loop(node, steps, state, scanned, axes, backwards)
    else:
        raise node.unsupported(f"a scan of {', '.join(map(str, extents))} steps")
    stacked = []
    for value, axis, direction in zip(collected, out_axes, reverse, strict=True):
        value = get_operator("flip")(value, axis=0) if direction else value
        assert isinstance(value.type, TensorType)
        order = list(range(1, value.type.ndim))
        order.insert(axis % value.type.ndim, 0)
        stacked.append(transpose(value, axes=tuple(order)) if axis else value)
    return [*state, *stacked]


def _unrolled_scan(
    node: Node, steps: int, state: list[Expr], scanned: list[Expr], axes: Sequence[int], backwards: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """The steps one after the other; what they give besides the state is stacked along the first axis."""
    collected: list[list[Expr]] = []
    for number in range(steps):
        places = [const(np.array(steps - 1 - number if direction else number)) for direction in backwards]
        slices = [take(value, place, axis=axis) for value, place, axis in zip(scanned, places, axes, strict=True)]
        results = node.subgraph("body", [*state, *slices])
        state = results[: len(state)]
        collected.append(results[len(state) :])
    return state, [get_operator("stack")(list(values), axis=0) for values in zip(*collected, strict=True)]


def _scan_loop(
    node: Node, steps: Dim, state: list[Expr], scanned: list[Expr], axes: Sequence[int], backwards: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """As :func:`_unrolled_scan` for any number of steps."""
    count = as_number(steps)
    i = Var("i", TensorType((), "int64"))
    params = [Var(f"state{number}", value.type) for number, value in enumerate(state)]
    slices = [
        take(value, subtract(subtract(count, 1), i) if direction else i, axis=axis)
        for value, axis, direction in zip(scanned, axes, backwards, strict=True)
    ]
    results = node.subgraph("body", [*params, *slices])
    for old, new in zip(state, results, strict=False):
        if old.type != new.type:
            raise node.unsupported(f"a state that changes its type from {old.type} to {new.type}")
    rows = []
    for value in results[len(state) :]:
        assert isinstance(value.type, TensorType)
        rows.append(get_operator("zeros")(shape=(steps, *value.type.shape), dtype=value.type.dtype))
    made = _fields(Loop(count, None, Function([i, *params], Tuple(results)), state, collect=rows))
    return made[: len(state)], made[len(state) :]


def _extent(node: Node, value: Expr, axis: int) -> Dim:
    if not isinstance(value.type, TensorType):
        raise node.unsupported("a scan over what is no tensor")
    return value.type.shape[axis]


def _scalar(value: Expr) -> Expr:
    """A tensor of one element without dimensions."""
    return value if isinstance(value.type, TensorType) and not value.type.shape else reshape(value, newshape=())
