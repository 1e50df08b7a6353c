"""Recurrent layers, against their equations in double precision, one item and one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.ops.common import FLOATS
from tilewright.graphir.ops.nn.recurrent_activations import activation
from tilewright.graphir.visitor import post_order
from tilewright.tensorir.errors import TypeInferenceError

HIDDEN, SIZE = 3, 2
GATES = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}
STATES = {"nn.rnn": 1, "nn.gru": 1, "nn.lstm": 2}
DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("nn.rnn", {}),
    ("nn.rnn", {"direction": "bidirectional", "activations": ("Relu", "Sigmoid"), "clip": 0.5}),
    ("nn.gru", {"direction": "reverse"}),
    ("nn.gru", {"linear_before_reset": True}),
    ("nn.lstm", {}),
    ("nn.lstm", {"clip": 0.25}),  # of what gates take: the state itself is not limited
    ("nn.lstm", {"direction": "bidirectional", "input_forget": True}),
]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FUNCTIONS = {"Relu": lambda x: np.maximum(x, 0), "Tanh": np.tanh, "Sigmoid": sigmoid}


def one_step(name: str, x: Any, state: list[Any], w: Any, r: Any, b: Any, p: Any, attrs: dict[str, Any]) -> list[Any]:
    """The equations of the ONNX standard for the vectors of one item."""
    limit = attrs.get("clip") or np.inf
    bw, br = np.split(b, 2)
    rows = [slice(n * HIDDEN, (n + 1) * HIDDEN) for n in range(4)]
    h = state[0]

    def gate(n: int, seen: Any = h, extra: Any = 0.0) -> Any:
        return np.clip(w[rows[n]] @ x + r[rows[n]] @ seen + bw[rows[n]] + br[rows[n]] + extra, -limit, limit)

    if name == "nn.rnn":
        return [FUNCTIONS[attrs["function"]](gate(0))]
    if name == "nn.gru":
        z, reset = sigmoid(gate(0)), sigmoid(gate(1))
        candidate = np.tanh(gate(2, reset * h))
        if attrs.get("linear_before_reset"):
            last = rows[2]
            candidate = np.tanh(w[last] @ x + reset * (r[last] @ h + br[last]) + bw[last])
        return [(1 - z) * candidate + z * h]
    c = state[1]
    pi, po, pf = np.split(p, 3)
    i = sigmoid(gate(0, extra=pi * c))
    f = 1 - i if attrs.get("input_forget") else sigmoid(gate(2, extra=pf * c))
    new = f * c + i * np.tanh(gate(3))
    return [sigmoid(gate(1, extra=po * new)) * np.tanh(new), new]


def oracle(name: str, attrs: dict[str, Any], arrays: list[Any]) -> tuple[Any, ...]:
    x, w, r, b, *rest = [np.asarray(a, np.float64) for a in arrays]
    states = [initial.copy() for initial in rest[: STATES[name]]]
    rest = rest[STATES[name] :]
    lengths = rest[0].astype(int) if rest else np.full(x.shape[1], x.shape[0])
    directions = DIRECTIONS[attrs.get("direction", "forward")]
    results = np.zeros((x.shape[0], len(directions), x.shape[1], HIDDEN))
    for d, backwards in enumerate(directions):
        p = rest[1][d] if len(rest) > 1 else np.zeros(3 * HIDDEN)
        given = {**attrs, "function": (attrs.get("activations") or ("Tanh", "Tanh"))[d]}
        for item in range(x.shape[1]):
            steps = list(range(lengths[item]))
            for t in reversed(steps) if backwards else steps:
                made = one_step(name, x[t, item], [s[d, item] for s in states], w[d], r[d], b[d], p, given)
                for s, value in zip(states, made, strict=True):
                    s[d, item] = value
                results[t, d, item] = made[0]
    return (results, *states)


def shapes(name: str, steps: Any, batch: Any, attrs: dict[str, Any], peepholes: bool = False) -> list[Any]:
    d, rows = len(DIRECTIONS[attrs.get("direction", "forward")]), GATES[name] * HIDDEN
    found = [(steps, batch, SIZE), (d, rows, SIZE), (d, rows, HIDDEN), (d, 2 * rows)]
    found += [(d, batch, HIDDEN)] * STATES[name]
    return [*found, (batch,), (d, 3 * HIDDEN)] if peepholes else found


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("name", "attrs"), CASES, ids=str)
def test_a_few_steps_agree_with_the_equations(name: str, attrs: dict[str, Any], known: bool) -> None:
    agree(name, attrs, 3, 2, known)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_half_types_are_rounded_once(dtype: str, known: bool) -> None:
    params = [gi.var(f"a{n}", shape=shape, dtype=dtype) for n, shape in enumerate(shapes("nn.gru", 3, 2, {}))]
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal(param.shape).astype(param.dtype.numpy) for param in params]
    constants, inputs = split(arrays, known)
    model = tw.build(gi.Function(params, gi.get_operator("nn.gru")(*params)), params=constants)
    for found, expected in zip(model(**inputs), oracle("nn.gru", {}, arrays), strict=True):
        step = np.abs(np.spacing(expected.astype(param_type(dtype)))).astype(float)
        assert (np.abs(found.astype(float) - expected) <= 0.51 * step + 1e-6).all()


def param_type(dtype: str) -> Any:
    return gi.var("x", shape=(), dtype=dtype).dtype.numpy


@pytest.mark.parametrize("known", [True, False])
def test_no_step_leaves_the_state(known: bool) -> None:
    agree("nn.lstm", {}, 0, 2, known)


def split(arrays: list[Any], known: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constants and the inputs among the arguments of a layer, by name: its weights are ``known`` or not. With
    known ones, a few steps are written out instead of being a loop."""
    constants = {f"a{n}": arrays[n] for n in (1, 2, 3)} if known else {}
    return constants, {f"a{n}": array for n, array in enumerate(arrays) if f"a{n}" not in constants}


def agree(name: str, attrs: dict[str, Any], steps: Any, batch: Any, known: bool) -> None:
    """Check a layer of static sizes, as machine code and in its reference, against the oracle."""
    params = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes(name, steps, batch, attrs))]
    function = gi.Function(params, gi.get_operator(name)(*params, **attrs))
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape).astype("f4") for shape in shapes(name, steps, batch, attrs)]
    expected = oracle(name, attrs, arrays)
    constants, inputs = split(arrays, known)
    built = tw.build(function, params=constants)
    assert ("loop(" in built.ir("optimized")) is not known
    for results in (built(**inputs), gi.evaluate(function, *arrays)):
        for found, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "attrs", "target"),
    [(*CASES[1], "llvm"), (*CASES[2], "llvm"), (*CASES[4], "llvm"), (*CASES[0], "numba")],
    ids=str,
)
def test_any_number_of_steps_is_a_loop(name: str, attrs: dict[str, Any], target: str) -> None:
    params = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes(name, "t", "n", attrs))]
    model = tw.build(gi.Function(params, gi.get_operator(name)(*params, **attrs)), tw.Target(target, num_threads=1))
    rng = np.random.default_rng(3)
    for steps, batch in ((1, 2), (21, 3)):
        arrays = [rng.standard_normal(shape).astype("f4") for shape in shapes(name, steps, batch, attrs)]
        for found, expected in zip(model(*arrays), oracle(name, attrs, arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [4, "t"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_items_end_at_their_lengths(direction: str, steps: Any) -> None:
    attrs = {"direction": direction}
    params = [
        gi.var(f"a{n}", shape=shape, dtype="int32" if n == 6 else "float32")
        for n, shape in enumerate(shapes("nn.lstm", steps, 3, attrs, peepholes=True))
    ]
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(shape).astype("f4") for shape in shapes("nn.lstm", 4, 3, attrs, peepholes=True)]
    arrays[6] = np.array([4, 0, 2], "i4")
    constants, inputs = split(arrays, known=steps == 4)
    model = tw.build(gi.Function(params, gi.get_operator("nn.lstm")(*params, **attrs)), params=constants)
    for found, expected in zip(model(**inputs), oracle("nn.lstm", attrs, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


FORMULAS = {
    "Affine": lambda x: 0.5 * x + 0.25,
    "LeakyRelu": lambda x: np.where(x < 0, 0.5 * x, x),
    "ThresholdedRelu": lambda x: np.where(x < 0.5, 0, x),
    "ScaledTanh": lambda x: 0.5 * np.tanh(0.25 * x),
    "HardSigmoid": lambda x: np.maximum(0, np.minimum(1, 0.5 * x + 0.25)),
    "Elu": lambda x: np.where(x < 0, 0.5 * (np.exp(x) - 1), x),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Softplus": lambda x: np.log(1 + np.exp(x)),
}


@pytest.mark.parametrize("function", FORMULAS)
def test_every_activation_has_its_formula(function: str) -> None:
    attrs = {"activations": (activation(function, 0.5, 0.25),)}
    params = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes("nn.rnn", 1, 4, {}))]
    layer = gi.Function(params, gi.get_operator("nn.rnn")(*params, **attrs))
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape).astype("f4") for shape in shapes("nn.rnn", 1, 4, {})]
    x, w, r, b, h = [array.astype(float) for array in arrays]
    expected = FORMULAS[function](x[0] @ w[0].T + h[0] @ r[0].T + b[0, :HIDDEN] + b[0, HIDDEN:])
    for results in (tw.build(layer)(*arrays), gi.evaluate(layer, *arrays)):
        np.testing.assert_allclose(results[1][0], expected, rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_named() -> None:
    params = [gi.var(f"a{n}", shape=shape) for n, shape in enumerate(shapes("nn.gru", 2, 2, {}))]
    params[3] = gi.var("b", shape=(1, 7))
    with pytest.raises(TypeInferenceError, match=r"nn.gru: bias: expected shape \(1, 18\)"):
        gi.get_operator("nn.gru")(*params)
    with pytest.raises(TypeInferenceError, match="direction: expected one of"):
        gi.get_operator("nn.gru")(*params, direction="up")
    with pytest.raises(TypeInferenceError, match="activations: expected one of"):
        gi.get_operator("nn.gru")(*params, activations=("Cosine", "Tanh"))


@pytest.mark.parametrize("name", GATES)
def test_steps_that_are_written_out_share_their_packed_weights(name: str) -> None:
    steps, hidden = 5, 48
    rows = GATES[name] * hidden
    random = np.random.default_rng(2)
    shapes = [(1, rows, hidden), (1, rows, hidden), (1, 2 * rows), *[(1, 1, hidden)] * STATES[name]]
    args = [gi.const(random.standard_normal(shape).astype("f4")) for shape in shapes]
    x = gi.var("x", shape=(steps, 1, hidden))
    with tw.PassContext(opt_level=2):
        built = tw.build(gi.Function([x], getattr(gi.nn, name.removeprefix("nn."))(x, *args)))
    optimized = gi.parse(built.ir("optimized", constants="inline"))["main"]
    constants = {node for node in post_order(optimized) if isinstance(node, gi.Constant)}
    # Where the initial state is known as well, one product of the first step has another layout.
    assert sum(node.data.size for node in constants) < 3 * rows * hidden
