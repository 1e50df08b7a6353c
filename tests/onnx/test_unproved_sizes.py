"""Sizes that must agree and cannot be proved to at import are checked by a call, and never refused at import."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.tensorir.errors import InputError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RANDOM = np.random.default_rng(0)


def model(
    op_type: str, shapes: list[list[str]], constants: dict[str, Any], opset: int, results: int, **attributes: Any
) -> Any:
    """A node on inputs ``a``, ``b`` and so on, and constants, whose names order them."""
    names = [chr(ord("a") + number) for number in range(len(shapes))]
    node = helper.make_node(op_type, [*names, *constants], [f"y{n}" for n in range(results)], **attributes)
    inputs = [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in zip(names, shapes, strict=True)]
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in node.output]
    data = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([node], "test", inputs, outputs, data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


CASES = {
    "squeeze": (("Squeeze", [["n", "m"]], {"axes": ints(1)}, 17, 1), [(4, 1)], [(4, 2)]),
    "parts": (("Split", [["n", "m"]], {}, 17, 3, ("axis", 1)), [(2, 6)], [(2, 7)]),
    "uneven parts": (("Split", [["m"]], {}, 18, 3, ("num_outputs", 3)), [(8,)], None),
    "heads": (("Reshape", [["n", "m", "w"]], {"shape": ints(0, 0, 4, -1)}, 17, 1), [(2, 3, 8)], [(2, 3, 6)]),
    "products": (
        ("MatMul", [["i", "j", "k"], ["l", "k", "m"]], {}, 17, 1),
        [(2, 3, 4), (2, 4, 5)],
        [(2, 3, 4), (3, 4, 5)],
    ),
    "addend": (
        ("Gemm", [["i", "j"], ["j", "k"], ["p", "q"]], {}, 17, 1),
        [(2, 3), (3, 4), (2, 4)],
        [(2, 3), (3, 4), (2, 5)],
    ),
    "channels": (
        ("InstanceNormalization", [["n", "c", "h"]], {"s": np.ones(3, "f4"), "t": np.ones(3, "f4")}, 17, 1),
        [(2, 3, 5)],
        [(2, 4, 5)],
    ),
    "features": (
        ("LayerNormalization", [["n", "m"]], {"s": np.ones(6, "f4"), "t": np.ones(6, "f4")}, 17, 1),
        [(2, 6)],
        [(2, 7)],
    ),
    "grid": (
        ("GridSample", [["n", "c", "h", "w"], ["m", "p", "q", "r"]], {}, 16, 1),
        [(1, 2, 4, 4), (1, 3, 3, 2)],
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_serves_the_sizes_that_agree(name: str) -> None:
    (op_type, shapes, constants, opset, results, *attributes), fits, misfits = CASES[name]  # type: ignore[misc]
    proto = model(op_type, shapes, constants, opset, results, **dict(attributes))
    built = tw.build(tw.from_onnx(proto))
    feeds = {chr(ord("a") + n): RANDOM.standard_normal(shape).astype("f4") for n, shape in enumerate(fits)}
    found = built(**feeds)
    expected = ReferenceEvaluator(proto).run(None, feeds)
    for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    if misfits is not None:
        with pytest.raises(InputError, match="must be"):
            built(*(np.ones(shape, "f4") for shape in misfits))
