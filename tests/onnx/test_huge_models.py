"""Small files of huge models (of absurd sizes, recursive, nested, multiplied with themselves) are refused, or run, in
little memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import AttributeProto, helper

import tilewright as tw
from tests.onnx.bad_models import little_memory, parsed, refused
from tilewright.graphir.frontend.onnx import importer
from tilewright.tensorir.errors import ExecutionError, InputError, ShapeError

# Absurd sizes: nothing is allocated before a model runs.


@pytest.mark.parametrize(
    "graph",
    [
        "(float[1] x) => (float y) <int64[2] s = {1048576, 1048576}> { y = ConstantOfShape (s) }",
        "(float[1] x) => (float y) <int64[2] s = {1048576, 1048576}> { y = Expand (x, s) }",
        "(float[1] x) => (float y) <int64[1] s = {1099511627776}> { y = Tile (x, s) }",
        "(float[1] x) => (float y) <int64 a = {0}, int64 b = {1099511627776}, int64 s = {1}> { y = Range (a, b, s) }",
        "(float[1] x) => (float y) <int64[2] s = {0, 1099511627776}> { y = Pad (x, s) }",
        "(float[1] x) => (float y) <int64[2] s = {1, 1099511627776}> { e = Expand (x, s) y = GlobalLpPool (e) }",
        "(int64[1] x) => (float y) <int64 d = {1099511627776}, float[2] v = {0,1}> { y = OneHot (x, d, v) }",
        "(float[1,1,1,1] x) => (float y) <int64[4] s = {1,1,1048576,1048576}> { y = Resize (x, , , s) }",
    ],
)
@pytest.mark.parametrize("level", [0, 3])
def test_results_too_large_for_any_memory(graph: str, level: int) -> None:
    with little_memory(), tw.PassContext(opt_level=level):
        built = tw.build(tw.from_onnx(parsed(graph)), target=tw.Target("llvm", num_threads=1))
        (size,) = (math.prod(output.shape) for output in built.signature.outputs)
        assert size >= 1 << 40
        inputs = [np.ones(value.type.shape, value.type.dtype.numpy) for value in built.signature.inputs]
        with pytest.raises(ExecutionError, match="no memory for the results"):
            built(*inputs)


@pytest.mark.parametrize(
    "graph",
    [
        "(float[1] x) => (float y) <int64[2] s = {4294967296, 4294967296}> { y = ConstantOfShape (s) }",
        "(float[1] x) => (float y) <int64[3] s = {4294967296, 4294967296, 0}> { y = Expand (x, s) }",
        "(float[4294967296] x) => (float y) <int64[1] s = {4294967296}> { y = Tile (x, s) }",
        "(float[4294967296, 4294967296] x) => (float y) { y = Neg (x) }",
        "(float[4294967296, 1] x, float[1, 4294967296] z) => (float y) { y = Add (x, z) }",
    ],
)
def test_shapes_whose_product_overflows(graph: str) -> None:
    with little_memory():
        refused(parsed(graph), ShapeError, "has more bytes than memory has addresses")


def test_constants_whose_convolution_needs_a_huge_border() -> None:
    source = parsed("""(float[1] z) => (float y)
        <float[1,1,1,1] x = {2}, float[1,1,1,1] w = {3}, int64[1] one = {1}> {
        c = Conv <pads = [50000,50000,50000,50000], strides = [100001,100001]> (x, w)
        s = Reshape (c, one)
        i = Cast <to = 7> (s)
        y = ConstantOfShape (i) }""")
    for level in (0, 3):
        with little_memory(), tw.PassContext(opt_level=level):
            built = tw.build(tw.from_onnx(source), target=tw.Target("llvm", num_threads=1))
            try:
                assert built(np.ones(1, "f4")).shape == (0,)
            except ExecutionError as error:
                assert "bytes of intermediate values" in str(error)


# Recursion and blow-up.


def nested(depth: int) -> bytes:
    """``If`` in ``If``. The file is written from the inside out: the package's objects stop at a depth of their own."""

    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size >= 128:
            size, length = size >> 7, length + bytes([size & 127 | 128])
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    source = parsed("(bool c, float[2] x) => (float[2] y) { y = Neg (x) }")
    other = helper.make_node("Identity", ["x"], ["y"]).SerializeToString()
    output = source.graph.output[0].SerializeToString()
    node = source.graph.node[0].SerializeToString()
    for _ in range(depth):
        graphs = [field(1, inner) + field(2, b"inner") + field(12, output) for inner in (node, other)]
        attributes = [
            field(1, name) + field(6, graph) + bytes([20 << 3 & 127 | 128, 1, AttributeProto.GRAPH])
            for name, graph in zip((b"then_branch", b"else_branch"), graphs, strict=True)
        ]
        node = field(1, b"c") + field(2, b"y") + field(4, b"If") + b"".join(field(5, a) for a in attributes)
    graph = field(1, node) + b"".join(field(11, i.SerializeToString()) for i in source.graph.input) + field(12, output)
    return field(7, graph) + bytes([8, 8]) + field(8, source.opset_import[0].SerializeToString())


@pytest.mark.parametrize("depth", [40, 300, 2000])
def test_branches_nested_deeply(depth: int) -> None:
    refused(nested(depth), InputError, "contain no ONNX model")


def test_branches_nested_as_deeply_as_a_file_may_have_them() -> None:
    built = tw.build(tw.from_onnx(nested(30)), target=tw.Target("llvm", num_threads=1))
    np.testing.assert_array_equal(built(np.array(True), np.ones(2, "f4")), [-1, -1])


def test_functions_that_call_the_next_twice() -> None:
    """2 ** 30 nodes from 30 functions of two lines."""
    source = parsed("(float[2] x) => (float[2] y) { y = mine.F0 (x) }", more=', "mine" : 1')
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    for number in range(30):
        name = f"F{number + 1}"
        body = [helper.make_node(name, [a], [b], domain="mine") for a, b in (("a", "t"), ("t", "b"))]
        if number == 29:
            body = [helper.make_node("Neg", ["a"], ["b"])]
        source.functions.append(helper.make_function("mine", f"F{number}", ["a"], ["b"], body, imports))
    with little_memory():
        refused(source, InputError, f"functions and loops come to more than {importer.MOST_EXPANDED} nodes")


def test_functions_that_call_each_other() -> None:
    source = parsed("(float[2] x) => (float[2] y) { y = mine.F (x) }", more=', "mine" : 1')
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    for name, other in (("F", "G"), ("G", "F")):
        body = [helper.make_node(other, ["a"], ["b"], domain="mine")]
        source.functions.append(helper.make_function("mine", name, ["a"], ["b"], body, imports))
    refused(source, InputError, "function [FG] calls itself")


def test_loops_in_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 ** 3 iterations that would be written out."""
    monkeypatch.setattr(importer, "MOST_EXPANDED", 4096)
    body = "{ d = Identity (c) t = Neg (s) }"
    for level in range(3):
        names = [f"{name}{level}" for name in "icsdt"]
        text = body if level == 0 else f"{{ d = Identity (c) t = Loop (trips, , s) <body = {body}> }}"
        for old, new in zip("icsdt", names, strict=True):
            text = (
                text.replace(f"{old} =", f"{new} =").replace(f"({old})", f"({new})").replace(f", {old})", f", {new})")
            )
        i, c, s, d, t = names
        body = f"g{level} (int64 {i}, bool {c}, float[2] {s}) => (bool {d}, float[2] {t}) {text}"
    source = parsed(f"(float[2] x) => (float[2] y) <int64 trips = {{256}}> {{ y = Loop (trips, , x) <body = {body}> }}")
    with little_memory():
        refused(source, InputError, f"functions and loops come to more than {importer.MOST_EXPANDED} nodes")


def test_sizes_that_are_multiplied_with_themselves() -> None:
    """A formula for a size that is twice as long with each of 200 nodes: computed when the model runs."""
    nodes = " ".join(f"s{n + 1} = Mul (s{n}, s{n})" for n in range(200))
    source = parsed(f"(float[n] x) => (float y) {{ s0 = Shape (x) {nodes} y = ConstantOfShape (s200) }}")
    with little_memory():
        built = tw.build(tw.from_onnx(source), target=tw.Target("llvm", num_threads=1))
        for n in range(4):
            assert built(np.ones(n, "f4")).shape == (pow(n, 2**200, 2**64),)


def test_tensors_that_are_multiplied_with_themselves() -> None:
    nodes = " ".join(
        f"a{n} = Reshape (x{n}, row) b{n} = Reshape (x{n}, column)"
        f" c{n} = Mul (a{n}, b{n}) x{n + 1} = Reshape (c{n}, flat)"
        for n in range(40)
    )
    constants = "int64[2] row = {1, -1}, int64[2] column = {-1, 1}, int64[1] flat = {-1}"
    source = parsed(f"(float[n] x0) => (float x40) <{constants}> {{ {nodes} }}")
    with little_memory():
        assert "in node" in refused(source, ShapeError, "a size is a formula of more than 256 terms")
