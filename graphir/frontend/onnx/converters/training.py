"""Convert one step of gradient descent: optimizers, each as operators on single elements.

Inputs are the learning rate, the number of steps so far, and then the tensors, their gradients and the optimizer's
state; results are the new tensors and the new state.
"""

from __future__ import annotations

import numpy as np

from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.onnx.node import Node
from tilewright.graphir.frontend.onnx.registry import converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import cast, sqrt, where
from tilewright.tensorir.errors import InputError

TRAINING = "ai.onnx.preview.training"


def _groups(node: Node, count: int) -> list[tuple[Expr, ...]]:
    """Return, for each tensor, itself, its gradient, and its state; ``count`` in all."""
    tensors = [node[number] for number in range(2, len(node.inputs))]
    each, rest = divmod(len(tensors), count)
    if rest or not each:
        raise InputError(f"{node.label}: expected {count} inputs for each tensor, found {len(tensors)}")
    return [tuple(tensors[number::each]) for number in range(each)]


def _by_result(groups: list[tuple[Expr, ...]]) -> list[Expr]:
    """Return the first results of all tensors, then the second ones, and so on."""
    return [value for values in zip(*groups, strict=True) for value in values]


def _number(value: float, like: Expr) -> Expr:
    return const(np.array(value, like.type.dtype.numpy))  # type: ignore[union-attr]


def _regularized(node: Node, x: Expr, gradient: Expr) -> Expr:
    return gradient + x * _number(node.attribute("norm_coefficient", 0.0), x)


@converter("Adagrad", domain=TRAINING)
def adagrad(node: Node) -> list[Expr]:
    """Convert a step of Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", JMLR 2011)."""
    results: list[tuple[Expr, ...]] = []
    for x, gradient, squares in _groups(node, 3):
        steps = cast(node[1], dtype=x.dtype)
        rate = cast(node[0], dtype=x.dtype) / (steps * _number(node.attribute("decay_factor", 0.0), x) + 1.0)
        gradient = _regularized(node, x, gradient)
        squares = squares + gradient * gradient
        scale = sqrt(squares) + _number(node.attribute("epsilon", 1e-6), x)
        results.append((x - rate * gradient / scale, squares))
    return _by_result(results)


@converter("Adam", domain=TRAINING)
def adam(node: Node) -> list[Expr]:
    """Convert a step of Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015)."""
    results: list[tuple[Expr, ...]] = []
    alpha, beta = node.attribute("alpha", 0.9), node.attribute("beta", 0.999)
    for x, gradient, mean, squares in _groups(node, 4):
        gradient = _regularized(node, x, gradient)
        mean = mean * _number(alpha, x) + gradient * _number(1 - alpha, x)
        squares = squares * _number(beta, x) + gradient * gradient * _number(1 - beta, x)
        rate = cast(node[0], dtype=x.dtype)
        first, second = (1.0 - _power(factor, node[1], x) for factor in (alpha, beta))
        corrected = where(node[1] > 0, rate * sqrt(second) / where(node[1] > 0, first, _number(1.0, x)), rate)
        moved = x - corrected * (mean / (sqrt(squares) + _number(node.attribute("epsilon", 1e-6), x)))
        results.append((moved * _number(1 - node.attribute("norm_coefficient_post", 0.0), x), mean, squares))
    return _by_result(results)


def _power(factor: float, steps: Expr, like: Expr) -> Expr:
    return get_operator("power")(_number(factor, like), cast(steps, dtype=like.dtype))


@converter("Momentum", domain=TRAINING)
def momentum(node: Node) -> list[Expr]:
    """Convert a step with momentum (Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013)."""
    results: list[tuple[Expr, ...]] = []
    alpha, beta, mode = node.required("alpha"), node.required("beta"), node.required("mode")
    if mode not in ("standard", "nesterov"):
        raise node.unsupported(f"mode {mode!r}")
    for x, gradient, velocity in _groups(node, 3):
        gradient = _regularized(node, x, gradient)
        weight = where(node[1] > 0, _number(beta, x), _number(1.0, x))  # 1 in the first step
        velocity = velocity * _number(alpha, x) + gradient * weight
        step = gradient + velocity * _number(alpha, x) if mode == "nesterov" else velocity
        results.append((x - cast(node[0], dtype=x.dtype) * step, velocity))
    return _by_result(results)
