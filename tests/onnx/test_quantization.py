"""Quantization of imported models over data of any size, beside NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import graphir as gi

FLOAT = TensorProto.FLOAT

#: The element type of the result, the shape of the scale, the attributes, and the sizes that one build is run for.
BLOCKS = {"axis": 1, "block_size": 3}
CASES: list[tuple[str, Any, dict[str, Any], Any]] = [
    ("INT4", ["n", 3], BLOCKS, [(2, 7), (5, 7)]),
    ("UINT2", [4], {"axis": -1}, [(3, 4), (1, 4)]),
    ("FLOAT8E4M3FN", ["n", 3], BLOCKS, [(2, 7), (5, 7)]),
    ("FLOAT8E5M2", [4], {"saturate": 0}, [(3, 4), (5, 4)]),
    ("FLOAT4E2M1", [], {}, [(3, 5), (1, 0)]),
]
KINDS = {
    "INT4": ml_dtypes.int4,
    "UINT2": ml_dtypes.uint2,
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}


def model(name: str, scale: Any, attrs: dict[str, Any]) -> Any:
    """There and back; the zero point of a float type is zero, and names the type."""
    kind = getattr(TensorProto, name)
    size = {0: "k", 1: 4, 2: 7}[len(scale)]
    inputs = {"x": (FLOAT, ["n", size]), "scale": (FLOAT, scale), "zero": (kind, scale)}
    back = {name: value for name, value in attrs.items() if name != "saturate"}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attrs),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **back),
    ]
    infos = [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()]
    outputs = [helper.make_tensor_value_info("q", kind, None), helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph(nodes, "test", infos, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)


@pytest.mark.parametrize(("name", "scale", "attrs", "sizes"), CASES, ids=str)
def test_there_and_back(name: str, scale: Any, attrs: dict[str, Any], sizes: Any) -> None:
    kind = np.dtype(KINDS[name])
    built = tw.build(tw.from_onnx(model(name, scale, attrs)))
    rng = np.random.default_rng(11)
    for shape in sizes:
        x = (rng.integers(-60, 60, shape) * 0.25).astype(np.float32)
        if "FLOAT8" in name:
            x *= 4096  # above what the type holds
        of = {0: (), 1: (4,), 2: (shape[0], 3)}[len(scale)]
        factors = (2.0 ** rng.integers(-1, 3, of)).astype(np.float32)
        zeros = rng.integers(0, 2, of).astype(kind) if "INT" in name else np.zeros(of, kind)
        spread = np.arange(shape[1]) // 3
        wide, zero = (a[:, spread] if a.ndim == 2 else a for a in (factors.astype(float), zeros.astype(float)))
        quotient = x / wide
        if "INT" in name:
            info = ml_dtypes.iinfo(kind)
            stored = np.clip(np.rint(quotient) + zero, info.min, info.max)
        else:
            most = float(ml_dtypes.finfo(kind).max)
            with np.errstate(all="ignore"):
                stored = (np.clip(quotient, -most, most) if attrs.get("saturate", 1) else quotient).astype(kind)
        q, y = built(x, factors, zeros)
        assert q.dtype == kind
        np.testing.assert_array_equal(q.astype(float), stored.astype(float))
        np.testing.assert_array_equal(y, (stored.astype(float) - zero) * wide)


def product(operator: str, weight: np.ndarray, weight_zero: np.ndarray, rank: int) -> Any:
    """``operator`` on uint8 and a constant weight with a scale for each output."""
    rng = np.random.default_rng(3)
    outputs = weight_zero.size
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(117),
        "w": weight,
        "w_scale": rng.uniform(0.001, 0.01, outputs).astype("f4"),
        "w_zero": weight_zero,
        "scale": np.float32(0.4),
        "zero": np.uint8(100),
    }
    names = ["x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "scale", "zero"]
    attrs = {"pads": [1, 1, 1, 1]} if operator == "QLinearConv" else {}
    node = helper.make_node(operator, names, ["y"], **attrs)
    shape = ["n", *([16, 7, 8] if rank == 4 else [32])]
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("operator", ["QLinearMatMul", "QLinearConv"])
def test_quantized_products_of_constant_weights_multiply_bytes(operator: str) -> None:
    rng = np.random.default_rng(4)
    shape = (32, 24) if operator == "QLinearMatMul" else (24, 16, 3, 3)
    weight = rng.integers(-128, 128, shape).astype("i1")
    mod = tw.from_onnx(product(operator, weight, np.zeros(24, "i1"), len(shape)))
    target = tw.Target("llvm", num_threads=1)
    built = tw.build(mod, target=target)
    assert ("vpdpbusd" in built.ir("assembly")) is bool(target.features & {"avx512vnni", "avxvnni"})
    with tw.PassContext(disabled_pass=["NarrowProducts"]):
        wide = tw.build(mod, target=target)
    for count in (1, 3, 40):
        x = rng.integers(0, 256, (count, *([16, 7, 8] if len(shape) == 4 else [32]))).astype("u1")
        np.testing.assert_array_equal(built(x), wide(x))
        np.testing.assert_array_equal(built(x), gi.evaluate(mod["main"], x))
