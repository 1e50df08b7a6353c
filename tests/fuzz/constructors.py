"""Draw bad arguments for functions and classes that make expressions, types and loops."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import tilewright as tw
from tests.fuzz.entry import Entry
from tests.fuzz.spoiled import NAMES, changed_data, changed_text
from tilewright import graphir as gi
from tilewright import tensorir as ti


class Words(Entry):
    """Makes operators from texts and attributes: equations, layouts, modes, types, shapes and axes."""

    name = "graph construction"

    def draw(self, rng: random.Random) -> tuple[str, Any]:
        name, arguments = rng.choice(list(_CALLS.items()))
        return name, changed_data(rng, _spoiled_texts(rng, arguments))

    def run(self, value: tuple[str, Any]) -> None:
        name, arguments = value
        if not isinstance(arguments, dict):
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                made = _MAKERS[name](**{key: item for key, item in arguments.items() if isinstance(key, str)})
            except TypeError as error:
                frames = traceback.extract_tb(error.__traceback__)
                if frames[-1].filename == __file__:  # an argument that is missing, or that there is none of
                    return
                raise
        if isinstance(made, gi.Expr):
            gi.to_text(tw.IRModule.from_expr(made))


def _spoiled_texts(rng: random.Random, arguments: Mapping[str, Any]) -> dict[str, Any]:
    def spoiled(value: Any) -> Any:
        if isinstance(value, str) and rng.random() < 0.5:
            return changed_text(rng, value, (value,)) if rng.random() < 0.6 else rng.choice(NAMES)
        return value

    return {name: spoiled(value) for name, value in arguments.items()}


def _value(shape: Any = (2, 8, 4, 4), dtype: Any = "float32") -> gi.Expr:
    return gi.var("x", shape=shape, dtype=dtype)


_MAKERS: dict[str, Callable[..., Any]] = {
    "var": gi.var,
    "const": gi.const,
    "einsum": lambda equation, **rest: gi.einsum([_value((2, 3)), _value((3, 4))], equation, **rest),
    "layout_transform": lambda **rest: gi.layout_transform(_value(), **rest),
    "conv2d": lambda **rest: gi.nn.conv2d(_value(), _value((8, 8, 3, 3)), **rest),
    "reshape": lambda shape, **rest: gi.reshape(_value(), shape, **rest),
    "transpose": lambda axes, **rest: gi.transpose(_value(), axes, **rest),
    "sum": lambda **rest: gi.sum(_value(), **rest),
    "cast": lambda dtype, **rest: gi.cast(_value(), dtype, **rest),
    "pad": lambda **rest: gi.pad(_value(), **rest),
    "full": lambda **rest: gi.full(**rest),
    "index": lambda item: _value()[item],
    "concatenate": lambda axis: gi.concatenate([_value(), _value()], axis=axis),
    "TensorType": lambda **rest: gi.TensorType(**rest),
    "Buffer": lambda **rest: ti.Buffer(**rest),
    "Var": lambda **rest: ti.Var(**rest),
    "call": lambda name, args: ti.call(name, *(args if isinstance(args, (list, tuple)) else [args])),
    "placeholder": lambda **rest: ti.placeholder(**rest),
    "For": lambda **rest: ti.For(ti.Var("i", "int64"), body=ti.Evaluate(ti.IntImm(0)), **rest),
    "PrimFunc": lambda **rest: str(ti.PrimFunc(body=ti.Evaluate(ti.IntImm(0)), **rest)),
}

_CALLS: dict[str, dict[str, Any]] = {
    "var": {"name": "x", "shape": ["n", 3], "dtype": "float32"},
    "const": {"value": [[1, 2], [3, 4]], "dtype": "int8"},
    "einsum": {"equation": "ij,jk->ik"},
    "layout_transform": {"src_layout": "NCHW", "dst_layout": "NCHW4c"},
    "conv2d": {"strides": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1},
    "reshape": {"shape": [2, -1, 16]},
    "transpose": {"axes": [0, 2, 3, 1]},
    "sum": {"axis": [0, -1], "keepdims": True},
    "cast": {"dtype": "bfloat16"},
    "pad": {"pad_width": [[0, 0], [0, 0], [1, 1], [1, 1]], "mode": "constant"},
    "full": {"shape": [2, "n"], "fill_value": 3.5, "dtype": "float16"},
    "index": {"item": (0, slice(None), None, 1)},
    "concatenate": {"axis": 1},
    "TensorType": {"shape": ["n", 3], "dtype": "float32"},
    "Buffer": {"name": "a", "shape": [4, 4], "dtype": "float32", "scope": "stack", "strides": [4, 1], "alignment": 64},
    "Var": {"name": "n", "dtype": "int64"},
    "call": {"name": "exp", "args": [1.5]},
    "placeholder": {"shape": [4, 4], "dtype": "float32", "name": "a"},
    "For": {"min": 0, "extent": 4, "kind": "serial", "annotations": {"unroll": True}},
    "PrimFunc": {"name": "f", "params": [], "attrs": {"num_outputs": 1}},
}
