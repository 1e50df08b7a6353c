"""Broadcasting of sizes that are symbolic: whether one of them is 1 is known when the model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from tilewright.graphir.broadcasting import joined, ones_coincide
from tilewright.graphir.dims import dim_equal, symbol
from tilewright.graphir.visitor import call_nodes
from tilewright.tensorir.errors import InputError
from tilewright.tensorir.expr import minimum

N, M = symbol("n"), symbol("m")


def model(nodes: list[Any], constants: dict[str, Any], **inputs: list[Any]) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    data = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    made = helper.make_graph([helper.make_node(*node) for node in nodes], "test", infos, [result], data)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def agrees(proto: onnx.ModelProto, *calls: list[np.ndarray], target: str = "llvm", level: int = 2) -> tw.Executable:
    with tw.PassContext(opt_level=level):
        built = tw.build(tw.from_onnx(proto), target=target)
    reference = ReferenceEvaluator(proto)
    for arrays in calls:
        (wanted,) = reference.run(None, dict(zip([info.name for info in proto.graph.input], arrays, strict=True)))
        found = built(*arrays)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return built


SLICE = ("Slice", ["x", "start", "end"], ["y"])
BOUNDS = {"start": np.array([0]), "end": np.array([3])}


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("target", ["llvm", "numba"])
def test_expand_repeats_a_slice_of_one_row(level: int, target: str) -> None:
    proto = model([SLICE, ("Expand", ["y", "shape"], ["z"])], {**BOUNDS, "shape": np.array([3, 1])}, x=["n", 5])
    built = agrees(proto, [numbers(1, 5)], [numbers(4, 5)], target=target, level=level)
    with pytest.raises(InputError, match=r"dimension 0, unless it is 1, of Expand .* is 2, but it must be 3"):
        built(numbers(2, 5))


def test_expand_to_a_size_that_is_one() -> None:
    nodes = [("Shape", ["s"], ["shape"]), ("Expand", ["x", "shape"], ["z"])]
    proto = model(nodes, {}, x=[3, "m"], s=["n", 4])
    built = agrees(proto, [numbers(3, 4), numbers(1, 4)], [numbers(3, 1), numbers(3, 4)])
    for rows in (2, 5, 0):
        with pytest.raises(InputError):
            built(numbers(3, 4), numbers(rows, 4))


def test_expanding_one_row_writes_no_formula() -> None:
    """A choice between 1 and the size, for each such operator, made sizes too long in a detector."""
    nodes = [("Shape", ["s"], ["shape"]), ("Expand", ["x", "shape"], ["z"])]
    proto = model(nodes, {}, x=[1, 4], s=["n", 4])
    main = tw.from_onnx(proto)["main"]
    assert dim_equal(main.body.type.shape[0], main.params[1].type.shape[0])
    agrees(proto, [numbers(1, 4), numbers(3, 4)], [numbers(1, 4), numbers(1, 4)])


def test_operands_of_a_sum_may_be_one_row() -> None:
    proto = model([("Sum", ["x", "y", "x"], ["s"]), ("Add", ["s", "y"], ["z"])], {}, x=["n", 5], y=["m", 5])
    built = agrees(proto, *[[numbers(n, 5), numbers(m, 5)] for n, m in ((1, 3), (3, 1), (3, 3), (0, 1), (1, 1))])
    with pytest.raises(InputError):
        built(numbers(2, 5), numbers(3, 5))


def test_one_column_is_repeated_along_vectors() -> None:
    agrees(
        model([("Mul", ["x", "y"], ["z"])], {}, x=[2, "n"], y=[2, "m"]),
        *[[numbers(2, n), numbers(2, m)] for n, m in ((1, 37), (37, 1), (37, 37))],
    )


def test_batches_of_a_product_may_be_one() -> None:
    proto = model([("MatMul", ["x", "y"], ["z"])], {}, x=["n", 2, 3], y=["m", 3, 4])
    agrees(proto, *[[numbers(n, 2, 3), numbers(m, 3, 4)] for n, m in ((1, 3), (3, 1), (3, 3))])


def test_summand_of_a_product_may_be_one_row() -> None:
    proto = model([("Gemm", ["x", "y", "c"], ["z"])], {}, x=["n", 3], y=[3, "k"], c=["m", "j"])
    sizes = ((2, 4, 1, 4), (2, 4, 2, 1), (2, 4, 2, 4))
    agrees(proto, *[[numbers(n, 3), numbers(3, k), numbers(m, j)] for n, k, m, j in sizes])


def test_the_first_row_is_repeated() -> None:
    proto = model([SLICE, ("Add", ["x", "y"], ["z"])], {**BOUNDS, "end": np.array([1])}, x=["n", 5])
    agrees(proto, [numbers(4, 5)], [numbers(1, 5)], [numbers(0, 5)])


def test_sizes_that_are_one_together_stay_an_assumption() -> None:
    assert ones_coincide(N // 16 * 2, N // 8)
    assert ones_coincide(N, minimum(N, 512))
    assert not ones_coincide(N, minimum(N, 1))
    assert not ones_coincide(N, M)
    proto = model([SLICE, ("Add", ["x", "y"], ["z"])], BOUNDS, x=["n", 5])
    names = {call.op.name for call in call_nodes(tw.from_onnx(proto)["main"])}
    assert "match_shape" in names
    assert "broadcast_to" not in names


def test_joined_sizes_do_not_grow() -> None:
    both = joined(N, M)
    assert both is not None
    for part in (N, M, both):
        assert dim_equal(joined(both, part), both)
        assert dim_equal(joined(part, both), both)
