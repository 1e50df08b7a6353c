"""Define recurrent layers: each step of a sequence updates a state.

All input projections of a layer are one matrix product; only operations that depend on the state run step by step. A
few steps of known number, with known weights, are unrolled, so that the passes optimize across them; otherwise a loop
carries the state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import Dim, dim_equal, format_shape, simplify
from tilewright.graphir.expr import Function, Loop, Tuple, TupleGetItem, Var, const
from tilewright.graphir.op import Operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import FLOATS, check_dtype, compute_type, normalize, sequence_of
from tilewright.graphir.ops.nn.recurrent_activations import ACTIVATIONS, Activation, activation
from tilewright.graphir.types import TensorType, TupleType
from tilewright.graphir.visitor import free_vars
from tilewright.tensorir.errors import ArgumentValueError

#: Sequences of up to so many steps are unrolled, if the weights are known.
MOST_UNROLLED = 16

#: The first arguments of every layer.
ARGUMENTS = ("x", "weight", "recurrent_weight", "bias", "initial_h")

DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclasses.dataclass(frozen=True)
class RecurrentAttrs:
    """The order of steps, and the functions of gates.

    Attributes:
        direction: ``forward``, ``reverse`` (from the last step to the first) or ``bidirectional`` (both).
        activations: names, or :class:`Activation` objects, of the layer's functions for each direction in turn; empty:
            the usual ones.
        clip: the limit of the magnitude of arguments of gates' functions; None: none.
    """

    direction: str = "forward"
    activations: Any = ()
    clip: float | None = None

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise ArgumentValueError(f"direction: expected one of {', '.join(DIRECTIONS)}, found {self.direction!r}")
        given = [activation(a) if isinstance(a, str) else a for a in sequence_of(self.activations, "activations")]
        normalize(self, activations=tuple(given))

    @property
    def reversed(self) -> tuple[bool, ...]:
        """For each direction, whether it begins at the last step."""
        return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[self.direction]


class Kit:
    """The means to write a step's formula, besides the operators ``+ - *`` of expressions.

    Attributes:
        limit: the limit of the magnitude of arguments of gates' functions; None: none.
        hidden: the size of the state.
    """

    def __init__(self, clip: float | None, hidden: Dim) -> None:
        self.limit, self.hidden = clip, hidden

    def gate(self, x: GraphExpr, number: int) -> GraphExpr:
        """Return part ``number`` of ``x``, ``[batch, gates * hidden]``."""
        begin, end = simplify(self.hidden * number), simplify(self.hidden * (number + 1))
        return calls.slice(x, begin=(begin,), end=(end,), axes=(len(x.shape) - 1,))

    def activate(self, function: Activation, x: GraphExpr, clipped: bool = True) -> GraphExpr:
        """Apply ``function`` to ``x``, clipped before if there is a limit."""
        if clipped and self.limit is not None:
            x = call_operator("clip", x, a_min=-self.limit, a_max=self.limit)
        return ACTIVATIONS[function.name][0](x, function)

    def recur(self, h: GraphExpr, weight: GraphExpr) -> GraphExpr:
        """Return ``h @ weight.T``."""
        return call_operator("nn.dense", h, weight)


class Recurrent(Operator):
    """Base of recurrent layers.

    Arguments: ``x`` ``[steps, batch, in]``; for each direction ``weight`` ``[directions, gates * hidden, in]``,
    ``recurrent_weight`` ``[directions, gates * hidden, hidden]``, ``bias`` ``[directions, 2 * gates * hidden]`` (of the
    inputs' and of the state's product), the initial states ``[directions, batch, hidden]``, and optionally ``lengths``
    ``[batch]``: the number of steps of each item; results behind them are 0, and the state stays. The result is a
    tuple: the first state after each step, ``[steps, directions, batch, hidden]``, and the final states.

    A subclass states ``gates``, ``states``, ``usual`` (activations) and ``step``.
    """

    Attrs = RecurrentAttrs
    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    usual: ClassVar[tuple[str, ...]] = ("Tanh",)

    @property
    def lengths_at(self) -> int:
        """The position of the argument ``lengths``."""
        return 4 + self.states

    def step(
        self, kit: Kit, x: GraphExpr, state: Sequence[GraphExpr], weights: dict[str, Any], attrs: Any
    ) -> Sequence[GraphExpr]:
        """Return the next state. ``x`` is the input's projection with its bias, ``weights`` are those of the direction:
        ``recurrent``, ``bias`` (of the state's product), ``peepholes`` if there are any, ``functions``."""
        raise NotImplementedError(f"operator {self.name} states no step")

    def functions(self, attrs: RecurrentAttrs, direction: int) -> tuple[Activation, ...]:
        """Return the activations of a direction."""
        count = len(self.usual)
        given = attrs.activations[direction * count : (direction + 1) * count]
        return tuple(given) if given else tuple(activation(name) for name in self.usual)

    def infer_type(self, args: Sequence[TensorType], attrs: RecurrentAttrs) -> TupleType:
        x, recurrent = args[0], args[2]
        directions = len(attrs.reversed)
        if len(attrs.activations) not in (0, len(self.usual) * directions):
            raise self.error("activations", f"{len(self.usual)} for each direction", len(attrs.activations))
        check_dtype(self, 0, x, FLOATS)
        for number, arg in enumerate(args):
            ndim = {3: 2, self.lengths_at: 1}.get(number, 3 if number < self.lengths_at else 2)
            if arg.ndim != ndim:
                raise self.error(number, f"{ndim} dimensions", arg)
            if number != self.lengths_at and arg.dtype is not x.dtype:
                raise self.error(number, f"element type {x.dtype!s} as x", arg)
        steps, batch, size = x.shape
        hidden = recurrent.shape[2]
        rows = simplify(hidden * self.gates)
        expected: list[tuple[Dim, ...]] = [
            x.shape,
            (directions, rows, size),
            (directions, rows, hidden),
            (directions, simplify(rows * 2)),
            *[(directions, batch, hidden)] * self.states,
            (batch,),
            (directions, simplify(hidden * 3)),
        ]
        for number, arg in enumerate(args):
            if not all(map(dim_equal, arg.shape, expected[number])):
                raise self.error(number, f"shape {format_shape(expected[number])}", arg)
        if len(args) > self.lengths_at and not args[self.lengths_at].dtype.is_integer:
            raise self.error(self.lengths_at, "integers", args[self.lengths_at])
        final = TensorType((directions, batch, hidden), x.dtype)
        return TupleType([TensorType((steps, directions, batch, hidden), x.dtype), *[final] * self.states])

    def _weights(self, kit: Kit, args: Sequence[GraphExpr], direction: int, attrs: RecurrentAttrs) -> dict[str, Any]:
        """Return the weights that :meth:`step` takes for one direction."""

        def own(value: GraphExpr) -> GraphExpr:
            part = calls.slice(value, begin=(direction,), end=(direction + 1,), axes=(0,))
            return calls.squeeze(part, axis=0)

        rows = simplify(kit.hidden * self.gates)
        behind = calls.slice(own(args[3]), begin=(rows,), end=(simplify(rows * 2),))
        result = {"recurrent": own(args[2]), "bias": behind, "functions": self.functions(attrs, direction)}
        if len(args) > self.lengths_at + 1:
            result["peepholes"] = own(args[self.lengths_at + 1])
        return result

    def decompose(self, args: Sequence[GraphExpr], attrs: RecurrentAttrs) -> GraphExpr:
        dtype = args[0].dtype
        wide = compute_type(dtype)
        values = [arg if not arg.dtype.is_float or arg.dtype is wide else calls.cast(arg, dtype=wide) for arg in args]
        parts = [self._direction(values, number, attrs) for number in range(len(attrs.reversed))]
        joined = []
        for position in range(1 + self.states):
            axis = 1 if position == 0 else 0
            grown = [calls.expand_dims(part[position], axis=axis) for part in parts]
            whole = grown[0] if len(grown) == 1 else calls.concatenate(grown, axis=axis)
            joined.append(whole if dtype is wide else calls.cast(whole, dtype=dtype))
        return Tuple(joined)

    def simplify_inference(self, args: Sequence[GraphExpr], attrs: RecurrentAttrs) -> GraphExpr:
        return self.decompose(args, attrs)

    def _direction(self, args: Sequence[GraphExpr], number: int, attrs: RecurrentAttrs) -> list[GraphExpr]:
        """Return the results of one direction: ``[steps, batch, hidden]`` and the final states ``[batch, hidden]``."""
        x = args[0]
        hidden = args[2].shape[2]
        kit = Kit(attrs.clip, hidden)
        own = self._weights(kit, args, number, attrs)
        weight, bias, *initial = [
            calls.squeeze(calls.slice(arg, begin=(number,), end=(number + 1,), axes=(0,)), axis=0)
            for arg in (args[1], args[3], *args[4 : 4 + self.states])
        ]
        front = calls.slice(bias, begin=(0,), end=(simplify(hidden * self.gates),))
        inputs = call_operator("nn.dense", x, weight) + front
        lengths = args[self.lengths_at] if len(args) > self.lengths_at else None
        # Weights known when the model is built are packed then, others once before the loop, not in each step.
        unroll = isinstance(x.shape[0], int) and x.shape[0] <= MOST_UNROLLED and not free_vars(args[2])
        run = self._unrolled if unroll else self._looped
        return run(kit, inputs, initial, lengths, own, attrs, attrs.reversed[number])

    def _unrolled(
        self,
        kit: Kit,
        inputs: GraphExpr,
        state: list[GraphExpr],
        lengths: GraphExpr | None,
        own: dict[str, Any],
        attrs: RecurrentAttrs,
        backwards: bool,
    ) -> list[GraphExpr]:
        steps = inputs.shape[0]
        assert isinstance(steps, int)
        results: dict[int, GraphExpr] = {}
        for t in range(steps)[:: -1 if backwards else 1]:
            x = calls.squeeze(calls.slice(inputs, begin=(t,), end=(t + 1,), axes=(0,)), axis=0)
            state, shown = self._masked(kit, x, state, const(t, "int64"), lengths, own, attrs)
            results[t] = calls.expand_dims(shown, axis=0)
        if not results:
            batch, hidden = state[0].shape
            return [call_operator("zeros", shape=(0, batch, hidden), dtype=inputs.dtype), *state]
        return [calls.concatenate([results[t] for t in range(steps)], axis=0), *state]

    def _looped(
        self,
        kit: Kit,
        inputs: GraphExpr,
        state: list[GraphExpr],
        lengths: GraphExpr | None,
        own: dict[str, Any],
        attrs: RecurrentAttrs,
        backwards: bool,
    ) -> list[GraphExpr]:
        steps = inputs.shape[0]
        batch, hidden = state[0].shape
        count = calls.squeeze(call_operator("sizes", values=(steps,)), axis=0)
        results = call_operator("zeros", shape=(steps, batch, hidden), dtype=inputs.dtype)
        i = Var("i", TensorType((), "int64"))
        params = [Var(f"state{n}", value.type) for n, value in enumerate(state)]
        t = calls.expand_dims(count - 1 - i if backwards else i, axis=0)
        x = calls.squeeze(calls.take(inputs, t, axis=0), axis=0)
        made, shown = self._masked(kit, x, list(params), t, lengths, own, attrs)
        body = Function([i, *params], Tuple([*made, shown]))
        loop = Loop(count, None, body, state, collect=[results])
        *last, every = [TupleGetItem(loop, number) for number in range(self.states + 1)]
        return [call_operator("flip", every, axis=0) if backwards else every, *last]

    def _masked(
        self,
        kit: Kit,
        x: GraphExpr,
        state: list[GraphExpr],
        t: GraphExpr,
        lengths: GraphExpr | None,
        own: dict[str, Any],
        attrs: RecurrentAttrs,
    ) -> tuple[list[GraphExpr], GraphExpr]:
        """Return the next state, and its contribution to the results, where some items may have ended."""
        made = list(self.step(kit, x, state, own, attrs))
        if lengths is None:
            return made, made[0]
        alive = calls.expand_dims(call_operator("greater", calls.cast(lengths, dtype="int64"), t), axis=1)
        kept = [calls.where(alive, new, old) for new, old in zip(made, state, strict=True)]
        return kept, calls.where(alive, made[0], call_operator("zeros_like", made[0]))
