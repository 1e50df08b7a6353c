"""An ONNX model that grows node by node, with the values that the onnx package's reference evaluator computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.fuzz.values import Array, Fill

OPSET = 20

#: Elements of a tensor at most.
_MOST = 4096

FLOATS = ("float32", "float64", "float16")
_INTEGERS = ("int64", "int32", "uint8", "int8")
SIZES = (2, 3, 1, 4, 5, 7, 8, 16, 17)

#: The sizes of the dimension ``n`` that models are called with.
_CALLS = ((4, 1), (3, 8), (1, 5), (5, 0), (2, 17))


class Growing:
    """A model that grows.

    Attributes:
        values: by name, the arrays at both sizes.
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feeds: tuple[dict[str, Array], ...] = ({}, {})
        self.values: dict[str, tuple[Array, ...]] = {}
        self.sizes = self.pick(_CALLS)
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def number(self, least: int, greatest: int) -> int:
        return int(self.draw(st.integers(least, greatest)))

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[self.number(0, len(choices) - 1)]

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) >= 100 - percent

    # Values.

    def constant(self, array: Any) -> str:
        found = np.asarray(array)
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(found, name))
        self.values[name] = (found,) * len(self.sizes)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def input(self, shape: Sequence[Any], dtype: str, fill: Fill | None = None) -> str:
        name = f"x{len(self.inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        fill = fill or Fill(self.pick(("whole", "normal", "ties", "positive")))
        arrays = []
        for feed, size in zip(self.feeds, self.sizes, strict=True):
            feed[name] = fill.draw(self.rng, tuple(size if dim == "n" else dim for dim in shape), dtype)
            arrays.append(feed[name])
        self.values[name] = tuple(arrays)
        return name

    def find(
        self, dtypes: Sequence[str] = (*FLOATS, *_INTEGERS, "bool"), rank: int | None = None, least: int = 0
    ) -> str:
        """Return a value of one of the types, or make one."""
        names = [
            name
            for name, (array, *_) in self.values.items()
            if array.dtype.name in dtypes and (array.ndim == rank if rank is not None else array.ndim >= least)
        ]
        if names and not self.chance(12):
            return str(self.pick(names[::-1]))
        ndim = rank if rank is not None else self.number(least, max(least, 3))
        shape: list[Any] = ["n" if self.chance(30) else self.pick(SIZES) for _ in range(ndim)]
        dtype = self.pick([dtype for dtype in ("float32", "int64", "bool", *FLOATS, *_INTEGERS) if dtype in dtypes])
        if "n" not in shape and (self.chance(40) or len(self.inputs) > 5):
            return self.constant(Fill("ties").draw(self.rng, tuple(shape), dtype))
        return self.input(shape, dtype)

    def array(self, name: str) -> Array:
        return self.values[name][0]

    def partner(self, name: str) -> str:
        """Return a value that broadcasts with another, of its type."""
        arrays = self.values[name]
        fitting = [
            other
            for other, (first, *rest) in self.values.items()
            if first.dtype == arrays[0].dtype
            and all(fits(a.shape, b.shape) for a, b in zip(arrays, (first, *rest), strict=True))
        ]
        if self.chance(60):
            return str(self.pick(fitting[::-1]))
        shape = [
            dim if dim == other and not self.chance(30) else 1
            for dim, other in zip(arrays[0].shape, arrays[1].shape, strict=True)
        ]
        return self.constant(Fill("ties").draw(self.rng, tuple(shape), arrays[0].dtype))

    def same(self, name: str, axis: int) -> int | None:
        """Return the extent of an axis, None if it differs between calls."""
        extents = {array.shape[axis] for array in self.values[name]}
        return extents.pop() if len(extents) == 1 else None

    def axis(self, name: str) -> int:
        rank = self.array(name).ndim
        axis = self.number(0, rank - 1)
        return axis - rank if self.chance(30) else axis

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """Add a node if the reference computes it; return the names of its results, none if it does not."""
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        made = []
        for number in range(len(self.sizes)):
            feed = {name: self.values[name][number] for name in inputs if name}
            found = _run_node(node, feed)
            if found is None or any(array.size > _MOST for array in found):
                return []
            made.append(found)
        self.nodes.append(node)
        for place, name in enumerate(names):
            self.values[name] = tuple(found[place] for found in made)
        return names

    def branch(self, asked: str, x: str, then: onnx.GraphProto, other: onnx.GraphProto) -> None:
        """Add a conditional whose branches are ``-x`` and ``x + x``."""
        if self.array(asked).dtype != bool:
            return
        name = f"v{len(self.nodes)}_0"
        self.nodes.append(helper.make_node("If", [asked], [name], then_branch=then, else_branch=other))
        pairs = zip(self.values[asked], self.values[x], strict=True)
        self.values[name] = tuple(np.asarray(-array if holds else array + array) for holds, array in pairs)

    def last(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result; the first input stands for it if the reference refuses."""
        return (self.add(op, *inputs, **attributes) or [inputs[0]])[0]


def fits(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether two shapes broadcast."""
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b), strict=False))


#: Operators that the package computes from rounded intermediate values: the logarithm of a probability that is zero as
#: a float16 is minus infinity there.
_ROUNDED = {"LogSoftmax"}


def _run_node(node: onnx.NodeProto, feed: dict[str, Array]) -> list[Array] | None:
    types = {array.dtype for array in feed.values()}
    if node.op_type in _ROUNDED and types != {np.dtype(np.float64)}:
        found = _run_node(node, {name: array.astype(np.float64) for name, array in feed.items()})
        return None if found is None else [array.astype(*types) for array in found]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    graph = helper.make_graph([node], "one", infos, [onnx.ValueInfoProto(name=name) for name in node.output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(model).run(None, feed)
    except Exception:  # whatever the reference has against it
        return None
    return [np.asarray(array) for array in found]
