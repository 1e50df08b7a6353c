"""Write ONNX models, one call for each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]


class Writer:
    """Collects the nodes and constants of a graph: ``o("Add", a, b)`` appends a node and returns the name of its
    result.

    Attributes:
        weights: arrays that :meth:`weight`, :meth:`linear` and :meth:`norm` take by name.
    """

    def __init__(self, weights: Mapping[str, Array] | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}
        self.weights = {} if weights is None else weights

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value: Any, name: str = "") -> str:
        array = np.asarray(value)
        name = name or f"c{len(self.tensors)}"
        if name not in self.tensors:
            self.tensors[name] = numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        """Add a vector of int64, the form of shapes and axes."""
        return self.constant(np.array(values, np.int64))

    def weight(self, name: str) -> str:
        return self.constant(self.weights[name], name)

    def linear(self, x: str, name: str) -> str:
        matrix = self.constant(np.ascontiguousarray(self.weights[f"{name}.weight"].T), f"{name}.weight")
        return self("Add", self("MatMul", x, matrix), self.weight(f"{name}.bias"))

    def norm(self, x: str, name: str, epsilon: float) -> str:
        gamma, beta = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon)

    def named(self, value: str, name: str) -> str:
        """Rename a value, as results need names of their own."""
        for node in reversed(self.nodes):
            if value in node.output:
                node.output[list(node.output).index(value)] = name
                return name
        raise KeyError(value)

    def model(
        self,
        inputs: Mapping[str, Array | tuple[int, Sequence[int | str]]],
        outputs: Mapping[str, Sequence[int | str]],
        title: str = "model",
    ) -> onnx.ModelProto:
        """Return the model.

        Args:
            inputs: an array of the type of each input, or its element type (of ONNX) and shape.
            outputs: the shape of each result, which are float32.
        """
        infos = []
        for name, given in inputs.items():
            if isinstance(given, np.ndarray):
                given = (helper.np_dtype_to_tensor_dtype(given.dtype), given.shape)
            infos.append(helper.make_tensor_value_info(name, *given))
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self.nodes, title, infos, results, list(self.tensors.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
