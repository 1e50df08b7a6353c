"""Build the digits network as a Tilewright model graph; layer by layer the same as numpy_net.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

import tilewright as tw
from tilewright import graphir as gi

EPSILON = 1e-5

FloatArray = npt.NDArray[np.float32]


def _features(images: gi.Expr, layer: Callable[[gi.Expr, int], gi.Expr]) -> gi.Expr:
    """Return the features ``[batch, 64]`` of images; ``layer(x, index)`` is a convolution with its batch norm."""
    x = gi.nn.relu(layer(images, 1))
    x = gi.nn.relu(layer(x, 2))
    x = gi.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = gi.nn.relu(layer(x, 3))
    return gi.nn.batch_flatten(gi.nn.global_avg_pool2d(x))


def _logits(features: gi.Expr, parameter: Mapping[str, gi.Expr]) -> gi.Expr:
    return gi.nn.bias_add(gi.nn.dense(features, parameter["dense.weight"]), parameter["dense.bias"])


def build_module(weights: Mapping[str, FloatArray]) -> tw.IRModule:
    """Build a module whose ``main`` takes ``images [batch, 1, 8, 8]`` (float32, ink from 0 to 1) to ``[batch, 10]``.

    ``batch`` is symbolic: one compilation serves every number of images. ``weights`` are the arrays that
    ``train.py`` saves, by name.
    """
    parameter = {name: gi.const(value) for name, value in weights.items()}

    def layer(x: gi.Expr, index: int) -> gi.Expr:
        convolved = gi.nn.conv2d(x, parameter[f"conv{index}.weight"], padding=(1, 1))
        statistics = (parameter[f"bn{index}.{name}"] for name in ("gamma", "beta", "mean", "variance"))
        return gi.nn.batch_norm(convolved, *statistics, epsilon=EPSILON)

    images = gi.var("images", shape=("batch", 1, 8, 8), dtype="float32")
    return tw.IRModule.from_expr(gi.Function([images], gi.nn.softmax(_logits(_features(images, layer), parameter))))


def build_training_step(
    trained: Mapping[str, FloatArray], running: Mapping[str, FloatArray], momentum: float
) -> tw.IRModule:
    """Build a module whose ``main`` computes the loss of a batch, and its gradients.

    It takes ``images [batch, 1, 8, 8]``, ``targets [batch, 10]`` (the probabilities to learn), the parameters of
    ``trained`` and the running statistics of ``running``, in their order. It returns the mean cross-entropy, the new
    running statistics, and the gradient by each parameter.

    Args:
        trained, running: arrays, by name; only their shapes matter.
        momentum: the weight of the running statistics beside those of the batch.
    """
    variables = {name: gi.var(name, shape=value.shape) for name, value in {**trained, **running}.items()}
    moved: dict[str, gi.Expr] = {}

    def layer(x: gi.Expr, index: int) -> gi.Expr:
        convolved = gi.nn.conv2d(x, variables[f"conv{index}.weight"], padding=(1, 1))
        names = [f"bn{index}.{name}" for name in ("gamma", "beta", "mean", "variance")]
        arguments = [variables[name] for name in names]
        normalized = gi.nn.batch_norm_training(convolved, *arguments, epsilon=EPSILON, momentum=momentum)
        moved[names[2]], moved[names[3]] = normalized[1], normalized[2]
        return normalized[0]

    images, targets = gi.var("images", shape=("batch", 1, 8, 8)), gi.var("targets", shape=("batch", 10))
    logits = _logits(_features(images, layer), variables)
    loss = gi.mean(gi.sum(targets * -gi.nn.log_softmax(logits), axis=1))
    step = gi.Function([images, targets, *variables.values()], [loss, *[moved[name] for name in running]])
    return tw.IRModule.from_expr(tw.grad(step, wrt=list(trained)))
