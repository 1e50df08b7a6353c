"""Define the functions of gates and states in recurrent layers, by their ONNX names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.ops import calls
from tilewright.tensorir.errors import TypeInferenceError


@dataclasses.dataclass(frozen=True)
class Activation:
    """A function of a gate: its name, and its parameters (others are ignored)."""

    name: str
    alpha: float
    beta: float


def _call(name: str) -> Callable[[GraphExpr, Activation], GraphExpr]:
    return lambda x, _: call_operator(name, x)


def _affine(x: GraphExpr, a: Activation) -> GraphExpr:
    return x * a.alpha + a.beta


def _elu(x: GraphExpr, a: Activation) -> GraphExpr:
    return calls.where(
        call_operator("greater", x, 0.0), x, (calls.exp(call_operator("minimum", x, 0.0)) - 1.0) * a.alpha
    )


def _softplus(x: GraphExpr, _: Activation) -> GraphExpr:
    """Return ``log(1 + exp(x))`` in a form that does not overflow."""
    return call_operator("maximum", x, 0.0) + call_operator("log1p", calls.exp(-call_operator("abs", x)))


#: The functions by name, and their default parameters.
ACTIVATIONS: dict[str, tuple[Callable[[GraphExpr, Activation], GraphExpr], tuple[float, float]]] = {
    "Relu": (_call("nn.relu"), (0.0, 0.0)),
    "Tanh": (_call("tanh"), (0.0, 0.0)),
    "Sigmoid": (_call("sigmoid"), (0.0, 0.0)),
    "Affine": (_affine, (1.0, 0.0)),
    "LeakyRelu": (lambda x, a: call_operator("nn.leaky_relu", x, alpha=a.alpha), (0.01, 0.0)),
    "ThresholdedRelu": (lambda x, a: calls.where(call_operator("greater_equal", x, a.alpha), x, 0.0 * x), (1.0, 0.0)),
    "ScaledTanh": (lambda x, a: call_operator("tanh", x * a.beta) * a.alpha, (1.0, 1.0)),
    "HardSigmoid": (lambda x, a: call_operator("clip", _affine(x, a), a_min=0.0, a_max=1.0), (0.2, 0.5)),
    "Elu": (_elu, (1.0, 0.0)),
    "Softsign": (lambda x, a: x / (call_operator("abs", x) + 1.0), (0.0, 0.0)),
    "Softplus": (_softplus, (0.0, 0.0)),
}


def activation(name: str, alpha: float | None = None, beta: float | None = None) -> Activation:
    """Return the function ``name``, whatever its case.

    Raises:
        TypeInferenceError: there is none.
    """
    for known, (_, defaults) in ACTIVATIONS.items():
        if known.lower() == name.lower():
            return Activation(known, *[d if v is None else v for d, v in zip(defaults, (alpha, beta), strict=True)])
    raise TypeInferenceError(f"activations: expected one of {', '.join(ACTIVATIONS)}, found {name!r}")
