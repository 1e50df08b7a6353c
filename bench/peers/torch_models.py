"""Write models of the suite as PyTorch functions over the weights of their ONNX models, equivalent to ``torch.nn``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.peers.kernels import EPSILON
from bench.peers.transformers import BERT_EPSILON, GPT_EPSILON, HEAD, HEADS, LAYERS, WIDTH

Weights = dict[str, Any]
Function = Callable[..., Any]


def matmul(weights: Weights) -> Function:
    return (lambda a: a @ weights["b"]) if "b" in weights else (lambda a, b: a @ b)


def gelu(weights: Weights) -> Function:
    from torch.nn import functional

    a, b = float(weights["a"]), float(weights["b"])
    return lambda x, y: functional.gelu(x * a + b) + y


def softmax(weights: Weights) -> Function:
    return lambda x: x.softmax(-1)


def _norm(weights: Weights, name: str, epsilon: float) -> Function:
    from torch.nn import functional

    gamma, beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return lambda x: functional.layer_norm(x, gamma.shape, gamma, beta, epsilon)


def layer_norm(weights: Weights) -> Function:
    return _norm(weights, "norm", EPSILON)


def mlp(weights: Weights) -> Function:
    from torch.nn import functional

    count = sum(name.startswith("weight") for name in weights)
    layers = [(weights[f"weight{number}"].T.contiguous(), weights[f"bias{number}"]) for number in range(count)]

    def run(x: Any) -> Any:
        for weight, bias in layers[:-1]:
            x = functional.linear(x, weight, bias).relu()
        return functional.linear(x, *layers[-1])

    return run


def lstm(weights: Weights) -> Function:
    """Reorder the gates: input, output, forget, cell in ONNX; input, forget, cell, output in PyTorch."""
    import torch

    count = sum(name.startswith("input") for name in weights)
    width = weights["hidden0"].shape[-1]
    network = torch.nn.LSTM(width, width, count)

    def gates(value: Any) -> Any:
        first, out, forget, cell = value.chunk(4)
        return torch.cat([first, forget, cell, out])

    with torch.no_grad():
        for number in range(count):
            input_bias, hidden_bias = weights[f"bias{number}"][0].chunk(2)
            for name, value in (
                ("weight_ih", weights[f"input{number}"][0]),
                ("weight_hh", weights[f"hidden{number}"][0]),
                ("bias_ih", input_bias),
                ("bias_hh", hidden_bias),
            ):
                getattr(network, f"{name}_l{number}").copy_(gates(value))
    return lambda x: network(x)[0]


def tiny(weights: Weights) -> Function:
    return lambda x: x + 1.0


def _dense(weights: Weights, name: str) -> Function:
    from torch.nn import functional

    matrix, bias = weights[f"{name}.matrix"].T.contiguous(), weights[f"{name}.bias"]
    return lambda x: functional.linear(x, matrix, bias)


def _layers(weights: Weights, epsilon: float) -> list[dict[str, Function]]:
    dense, norms = ("query", "key", "value", "mixed", "wide", "narrow"), ("norm1", "norm2")
    return [
        {name: _dense(weights, f"{layer}.{name}") for name in dense}
        | {name: _norm(weights, f"{layer}.{name}", epsilon) for name in norms}
        for layer in range(LAYERS)
    ]


def _heads(x: Any) -> Any:
    return x.view(*x.shape[:-1], HEADS, HEAD).transpose(1, 2)


def bert(weights: Weights) -> Function:
    from torch.nn import functional

    layers = _layers(weights, BERT_EPSILON)

    def run(x: Any) -> Any:
        for layer in layers:
            parts = [_heads(layer[name](x)) for name in ("query", "key", "value")]
            mixed = functional.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(x.shape)
            x = layer["norm1"](layer["mixed"](mixed) + x)
            x = layer["norm2"](layer["narrow"](functional.gelu(layer["wide"](x))) + x)
        return x

    return run


def gpt(weights: Weights) -> Function:
    import torch
    from torch.nn import functional

    layers, last = _layers(weights, GPT_EPSILON), _norm(weights, "last", GPT_EPSILON)
    words, place = weights["words"], weights["place"]

    def run(word: Any, *cache: Any) -> Any:
        x, new = functional.embedding(word, words) + place, []
        for number, layer in enumerate(layers):
            inner = layer["norm1"](x)
            query, key, value = (_heads(layer[name](inner)) for name in ("query", "key", "value"))
            new += [key, value]
            keys, values = (torch.cat(pair, 2) for pair in zip(cache[2 * number :], (key, value), strict=False))
            mixed = functional.scaled_dot_product_attention(query, keys, values).transpose(1, 2).reshape(x.shape)
            x = x + layer["mixed"](mixed)
            x = x + layer["narrow"](functional.gelu(layer["wide"](layer["norm2"](x)), approximate="tanh"))
        return functional.linear(last(x).view(1, WIDTH), words), *new

    return run


MODELS: dict[str, Callable[[Weights], Function]] = {
    one.__name__: one for one in (matmul, gelu, softmax, layer_norm, mlp, lstm, tiny, bert, gpt)
}
