"""Describe an ONNX model without converting it."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from typing import Any

from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from tilewright.graphir.frontend.onnx.importer import unsupported_operators
from tilewright.graphir.frontend.onnx.model import read_model, subgraphs_of
from tilewright.graphir.frontend.onnx.registry import normalized_domain


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the inputs and outputs of a model, its operators with their numbers, those without a converter, with their
    nodes, and the files of external data, as plain data.

    Raises:
        InputError: the file is no model.
    """
    read = read_model(os.fspath(path))
    model, graph = read.proto, read.proto.graph
    weights = {tensor.name for tensor in graph.initializer}
    counts: collections.Counter[str] = collections.Counter()
    _count(graph.node, counts)
    for function in model.functions:
        _count(function.node, counts)
    external = {
        entry.value for tensor in graph.initializer for entry in tensor.external_data if entry.key == "location"
    }
    return {
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "opsets": {opset.domain or "ai.onnx": opset.version for opset in model.opset_import},
        "inputs": [_value(info) for info in graph.input if info.name not in weights],
        "outputs": [_value(info) for info in graph.output],
        "weights": len(graph.initializer),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "unsupported": unsupported_operators(read),
        "external_data": [
            {"file": name, "found": read.folder is not None and os.path.exists(os.path.join(read.folder, name))}
            for name in sorted(external)
        ],
    }


def _count(nodes: Sequence[NodeProto], counts: collections.Counter[str]) -> None:
    for node in nodes:
        domain = normalized_domain(node.domain)
        counts[f"{domain}.{node.op_type}" if domain else node.op_type] += 1
        for graph in subgraphs_of(node):
            _count(graph.node, counts)


def _value(info: ValueInfoProto) -> dict[str, Any]:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": info.name, "dtype": str(kind).removesuffix("_type"), "shape": None}
    tensor = info.type.tensor_type
    name = TensorProto.DataType.Name(tensor.elem_type).lower()
    if tensor.elem_type != TensorProto.STRING:
        name = str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    dims = [dim.dim_param or (dim.dim_value if dim.HasField("dim_value") else "?") for dim in tensor.shape.dim]
    return {"name": info.name, "dtype": name, "shape": dims if tensor.HasField("shape") else None}
