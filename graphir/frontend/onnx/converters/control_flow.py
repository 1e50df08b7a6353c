"""Convert branches and loops. Conditions known at import are decided then; a short counted loop is unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto

from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Expr, Function, If, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.frontend.runtime_sizes import as_number, as_size
from tilewright.graphir.known_values import known_values
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, reshape, subtract, take, transpose, where
from tilewright.graphir.types import TensorType, TupleType

#: Loops of more iterations are not unrolled.
MOST_UNROLLED = 256


@converter("If")
def branch(node: Node) -> list[Expr]:
    """Convert a branch; only the graph that is taken, if that is known."""
    condition = _known(node, 0)
    if condition is not None:
        return node.subgraph("then_branch" if condition else "else_branch")
    taken, other = Tuple(node.subgraph("then_branch")), Tuple(node.subgraph("else_branch"))
    if taken.type != other.type:
        raise node.unsupported(f"branches of different types, {taken.type} and {other.type},", node.asks_for(0))
    chosen = If(_scalar(node[0]), taken, other)
    return [TupleGetItem(chosen, number) for number in range(len(taken.fields))]


@converter("Loop")
def loop(node: Node) -> list[Expr]:
    """Convert a loop: it carries state from iteration to iteration, and stacks further results of each."""
    state = [value for value in node.inputs[2:] if value is not None]
    body: GraphProto = node.required("body")
    limit, start = _known(node, 0), _known(node, 1)
    if start is not None and not start:
        limit = 0
    starts = node.optional(1) is None or start is not None
    if starts and limit is not None and limit <= MOST_UNROLLED:
        unrolled = _unrolled(node, body, int(limit), state)
        if unrolled is not None:
            return unrolled
    return _counted(node, state)


def _unrolled(node: Node, body: GraphProto, count: int, state: list[Expr]) -> list[Expr] | None:
    """Unroll the loop; return None if its condition depends on data."""
    collected: list[list[Expr]] = [[] for _ in body.output[1 + len(state) :]]
    for number in range(count):
        inputs = [const(np.array(number, np.int64)), const(np.array(True)), *state]
        goes_on, *results = _body(node, inputs, 1 + len(state))
        state = results[: len(state)]
        for values, value in zip(collected, results[len(state) :], strict=True):
            values.append(value)
        known = known_values(goes_on)
        if known is None or known.dtype == object:
            return None
        if not _only(node, known):
            break
    if any(not values for values in collected):
        raise node.unsupported("a loop of no iterations that collects results")
    return [*state, *(get_operator("stack")(values, axis=0) for values in collected)]


def _counted(node: Node, state: Sequence[Expr]) -> list[Expr]:
    """Convert to a loop of the graph, whose state includes the condition."""
    first = node.optional(1)
    initial = [const(np.array(True)) if first is None else _scalar(first), *state]
    for value in initial:
        if not isinstance(value.type, TensorType):
            raise node.unsupported("a loop whose state is not all tensors")
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
    """Return the parameters and the results of the body: the iteration number (only a parameter), the condition, the
    state, and the collected values."""
    params = [Var("i", TensorType((), "int64")), *(Var(f"state{n}", value.type) for n, value in enumerate(initial))]
    goes_on, *results = _body(node, params, len(initial))
    results = [_scalar(goes_on), *results]
    for old, new in zip(params[1:], results, strict=False):
        if old.type != new.type:
            raise node.unsupported(f"a state that changes its type from {old.type} to {new.type}")
    return params, results


def _count_steps(node: Node, count: Expr, initial: Sequence[Expr]) -> Expr:
    """Count the iterations of a loop that its state ends, by running it without the collected values."""
    params, results = _iteration(node, initial)
    done = Var("done", TensorType((), "int64"))
    body = Function([*params, done], Tuple([*results[: len(initial)], add(done, 1)]))
    start = [*initial, const(np.array(0, np.int64))]
    return _fields(Loop(count, _goes_on(start), body, start))[-1]


def _goes_on(state: Sequence[Expr]) -> Function:
    """Return the condition of a loop: the first value of its state."""
    asked = [Var("i", TensorType((), "int64")), *(Var(f"state{n}", value.type) for n, value in enumerate(state))]
    return Function(asked, asked[1])


def _fields(made: Expr) -> list[Expr]:
    assert isinstance(made.type, TupleType)
    return [TupleGetItem(made, number) for number in range(len(made.type.fields))]


def _is_true(value: Expr) -> bool:
    known = known_values(value)
    return known is not None and known.dtype != object and known.size == 1 and bool(known.item())


@converter("Scan", since=9)
def scan(node: Node) -> list[Expr]:
    """Convert a loop over slices of its inputs, along an axis of known size."""
    count = int(node.required("num_scan_inputs"))
    values = [node[number] for number in range(len(node.inputs))]
    if not 0 < count <= len(values):
        raise node.wrong(f"attribute 'num_scan_inputs': expected 1 to {len(values)}, found {count}")
    state, scanned = values[: len(values) - count], values[len(values) - count :]
    shapes = [node.shape(number) for number in range(len(state), len(values))]
    axes = [
        node.checked_axis(axis, len(shape), "scan_input_axes")
        for axis, shape in zip(_listed(node, "scan_input_axes", count), shapes, strict=True)
    ]
    backwards = _listed(node, "scan_input_directions", count)
    extents = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    body: GraphProto = node.required("body")
    count = max(len(body.output) - len(state), 0)
    out_axes = _listed(node, "scan_output_axes", count)
    reverse = _listed(node, "scan_output_directions", count)
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
        order.insert(node.checked_axis(axis, value.type.ndim, "scan_output_axes"), 0)
        stacked.append(transpose(value, axes=tuple(order)) if axis else value)
    return [*state, *stacked]


def _unrolled_scan(
    node: Node, steps: int, state: list[Expr], scanned: list[Expr], axes: Sequence[int], backwards: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """Unroll the steps; stack their results besides the state along the first axis."""
    collected: list[list[Expr]] = []
    for number in range(steps):
        places = [const(np.array(steps - 1 - number if direction else number)) for direction in backwards]
        slices = [take(value, place, axis=axis) for value, place, axis in zip(scanned, places, axes, strict=True)]
        results = _body(node, [*state, *slices], len(state))
        state = results[: len(state)]
        collected.append(results[len(state) :])
    return state, [get_operator("stack")(list(values), axis=0) for values in zip(*collected, strict=True)]


def _scan_loop(
    node: Node, steps: Dim, state: list[Expr], scanned: list[Expr], axes: Sequence[int], backwards: Sequence[int]
) -> tuple[list[Expr], list[Expr]]:
    """Convert as :func:`_unrolled_scan`, to a loop, for any number of steps."""
    count = as_number(steps)
    i = Var("i", TensorType((), "int64"))
    params = [Var(f"state{number}", value.type) for number, value in enumerate(state)]
    slices = [
        take(value, subtract(subtract(count, 1), i) if direction else i, axis=axis)
        for value, axis, direction in zip(scanned, axes, backwards, strict=True)
    ]
    results = _body(node, [*params, *slices], len(state))
    for old, new in zip(state, results, strict=False):
        if old.type != new.type:
            raise node.unsupported(f"a state that changes its type from {old.type} to {new.type}")
    rows = []
    for value in results[len(state) :]:
        assert isinstance(value.type, TensorType)
        rows.append(get_operator("zeros")(shape=(steps, *value.type.shape), dtype=value.type.dtype))
    made = _fields(Loop(count, None, Function([i, *params], Tuple(results)), state, collect=rows))
    return made[: len(state)], made[len(state) :]


def _body(node: Node, inputs: Sequence[Expr], state: int) -> list[Expr]:
    """Return the outputs of a loop's body, of which the first ``state`` are the next state."""
    results = node.subgraph("body", inputs)
    if len(results) < state:
        raise node.wrong(f"the body returns {len(results)} values, of which {state} are the state")
    return results


def _listed(node: Node, name: str, count: int) -> tuple[int, ...]:
    """Return an attribute with a number for each of some tensors; zeros without it."""
    found: tuple[int, ...] = node.attribute(name, (0,) * count)
    if len(found) != count:
        raise node.wrong(f"attribute {name!r}: expected {count} numbers, found {len(found)}")
    return found


def _known(node: Node, number: int) -> int | bool | None:
    """Return the single element of an input; None if the input is omitted or unknown."""
    value = node.optional(number)
    found = None if value is None else known_values(value)
    return None if found is None or found.dtype == object else _only(node, found)


def _only(node: Node, values: np.ndarray[Any, Any]) -> int | bool:
    if values.size != 1:
        raise node.wrong(f"expected a count or a condition of one element, found {values.size}")
    result: int | bool = values.item()
    return result


def _scalar(value: Expr) -> Expr:
    """Reshape a tensor of one element to no dimensions."""
    return value if isinstance(value.type, TensorType) and not value.type.shape else reshape(value, newshape=())
