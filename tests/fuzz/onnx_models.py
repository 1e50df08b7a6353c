"""Draw random ONNX models of 5 to 40 nodes, with Hypothesis.

While a model grows, the onnx package's reference evaluator computes each node at two sizes of its inputs. So attributes
fit the sizes that there are, nodes that the reference refuses are left out, and the results of the whole model, by
another implementation than this project's, come with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import onnx
from hypothesis import strategies as st
from onnx import helper

import tilewright as tw
from tests.fuzz.onnx_growing import OPSET, Growing
from tests.fuzz.onnx_nodes import MAKERS
from tests.fuzz.values import Array
from tilewright.graphir.module import IRModule


@dataclasses.dataclass(frozen=True)
class OnnxModel:
    """A model, the inputs of its calls, and the results of the reference evaluator."""

    model: onnx.ModelProto
    feeds: tuple[dict[str, Array], ...]
    results: tuple[list[Array], ...]

    @property
    def module(self) -> IRModule:
        """The imported graph."""
        return tw.from_onnx(self.model)

    def __repr__(self) -> str:
        return onnx.printer.to_text(self.model)


@st.composite
def onnx_models(draw: Callable[[st.SearchStrategy[Any]], Any], least: int = 5, most: int = 40) -> OnnxModel:
    """Draw a model of about ``least`` to ``most`` nodes."""
    g = Growing(draw)
    wanted = g.number(least, most)
    for _ in range(2 * wanted):
        if len(g.nodes) >= wanted:
            break
        g.pick(MAKERS)(g)
    made = [name for node in g.nodes for name in node.output]
    if not made:
        made = [g.last("Identity", g.find())]
    used = {name for node in g.nodes for name in node.input}
    ends = [name for name in made if name not in used] or made[-1:]
    outputs = []
    for name in ends:
        array = g.values[name][0]
        shape = [f"{name}_{axis}" for axis in range(array.ndim)]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        outputs.append(helper.make_tensor_value_info(name, kind, shape))
    graph = helper.make_graph(g.nodes, "random", g.inputs, outputs, g.tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    results = tuple([g.values[name][call] for name in ends] for call in range(len(g.sizes)))
    return OnnxModel(model, g.feeds, results)
