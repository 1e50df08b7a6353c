"""Importing ONNX models: what a module is made of, symbolic sizes, shapes computed by the graph, and bad models."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.frontend.onnx import registry
from tilewright.graphir.visitor import call_nodes, post_order
from tilewright.tensorir.errors import InputError, TypeInferenceError, UnsupportedOperatorError

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, int, Any]],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """A model from its nodes; inputs are name, element type and shape."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def flattened(batch: str = "batch") -> onnx.ModelProto:
    """``x.reshape(x.shape[0], -1)`` as exporters write it: with tensors of sizes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "zero"], ["first"], axis=0),
        helper.make_node("Unsqueeze", ["first", "axes"], ["first_1"]),
        helper.make_node("Concat", ["first_1", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"], name="flatten"),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    return model(nodes, [("x", FLOAT, [batch, 3, 4])], ["y"], constants)


def test_shape_computations_become_types() -> None:
    mod = tw.from_onnx(flattened())
    main = mod["main"]
    assert str(main.body.type) == "Tensor[(batch, 12), float32]"
    assert [call.op.name for call in call_nodes(main.body)] == ["reshape"]


def test_one_build_serves_every_size() -> None:
    built = tw.build(tw.from_onnx(flattened()))
    for batch in (1, 5, 0):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 4)).astype("f4")
        np.testing.assert_array_equal(built(x), x.reshape(batch, 12))


def test_dimensions_of_one_name_are_one_variable() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    mod = tw.from_onnx(model([node], [("x", FLOAT, ["n", "n", None, 2])], ["y"]))
    first, second, unknown, last = mod["main"].params[0].type.shape
    assert first is second
    assert str(unknown) == "x_2"
    assert last == 2


def test_a_question_mark_is_no_name() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    first, second = tw.from_onnx(model([node], [("x", FLOAT, ["?", "?"])], ["y"]))["main"].params[0].type.shape
    assert first is not second


def test_shapes_narrow_a_model() -> None:
    mod = tw.from_onnx(flattened(), shapes={"x": (7, None, 4)})
    assert str(mod["main"].params[0].type) == "Tensor[(7, 3, 4), float32]"
    assert str(tw.from_onnx(flattened(), shapes={"x": ("rows", 3, 4)})["main"].body.type).startswith(
        "Tensor[(rows, 12)"
    )


@pytest.mark.parametrize("shapes", [{"x": (7, None)}, {"n": 7}, {"y": (7,)}])
def test_a_dimension_is_narrowed_in_every_input(shapes: Any) -> None:
    source = model([helper.make_node("Add", ["x", "y"], ["z"])], [("x", FLOAT, ["n", "m"]), ("y", FLOAT, ["n"])], ["z"])
    source.graph.input[1].type.tensor_type.shape.dim.add().dim_value = 1
    if "y" in shapes:
        shapes = {"y": (7, 1)}
    params = tw.from_onnx(source, shapes=shapes)["main"].params
    assert [str(param.type) for param in params] == ["Tensor[(7, m), float32]", "Tensor[(7, 1), float32]"]


def test_a_dimension_cannot_be_narrowed_to_two_sizes() -> None:
    source = model([helper.make_node("Add", ["x", "y"], ["z"])], [("x", FLOAT, ["n"]), ("y", FLOAT, ["n"])], ["z"])
    with pytest.raises(InputError, match="shapes: input 'y': dimension 'n' is 8 here, but 7 elsewhere"):
        tw.from_onnx(source, shapes={"x": (7,), "y": (8,)})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"rows": 3}, r"shapes: the model has no dimension 'rows' \(it has: batch; its inputs"),
        ({"z": (1,)}, r"shapes: the model has no input 'z' \(it has: x\)"),
        ({"x": (1, 3)}, r"shapes: input 'x' has 3 dimensions, found 2"),
        ({"x": (1, 5, 4)}, r"shapes: input 'x': dimension 1 is 3 in the model, found 5"),
    ],
)
def test_shapes_that_do_not_fit(shapes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tw.from_onnx(flattened(), shapes=shapes)


def test_known_values_become_constants() -> None:
    node = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    source = model([node], [("x", FLOAT, ["n"]), ("axes", INT64, [1])], ["y"])
    with pytest.raises(
        UnsupportedOperatorError, match="Unsqueeze 'y': input 1 must be known when the model is imported"
    ):
        tw.from_onnx(source)
    mod = tw.from_onnx(source, values={"axes": np.array([1])})
    assert [param.name for param in mod["main"].params] == ["x"]
    assert str(mod["main"].body.type) == "Tensor[(n, 1), float32]"
    with pytest.raises(
        InputError, match=r"values: input 'axes': expected Tensor\[\(1,\), int64\], found int64 of shape \(2,\)"
    ):
        tw.from_onnx(source, values={"axes": np.array([1, 2])})


def test_constants_share_the_memory_of_the_model() -> None:
    weights = np.arange(4096, dtype="f4").reshape(64, 64)
    source = model(
        [helper.make_node("Concat", ["x", "w"], ["y"], axis=0)], [("x", FLOAT, [1, 64])], ["y"], {"w": weights}
    )
    mod = tw.from_onnx(source)
    (constant,) = [node for node in post_order(mod["main"]) if isinstance(node, gi.Constant)]
    assert not constant.data.flags.owndata
    np.testing.assert_array_equal(constant.data, weights)


def external(folder: Path, location: str = "weights.bin", **entries: int) -> Path:
    """A model in ``folder`` with its weights in a file beside it, from byte 8 on."""
    (folder / "weights.bin").write_bytes(b"\0" * 8 + np.arange(6, dtype="f4").tobytes())
    source = model([helper.make_node("Concat", ["x", "w"], ["y"], axis=0)], [("x", FLOAT, [1, 3])], ["y"])
    tensor = source.graph.initializer.add(name="w", data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": 8, "length": 24, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(source.SerializeToString())
    return path


def test_external_data_are_mapped(tmp_path: Path) -> None:
    mod = tw.from_onnx(external(tmp_path))
    (constant,) = [node for node in post_order(mod["main"]) if isinstance(node, gi.Constant)]
    assert isinstance(constant.data.base, np.memmap) or isinstance(constant.data, np.memmap)
    found = tw.build(mod)(np.full((1, 3), 9, "f4"))
    np.testing.assert_array_equal(found, [[9, 9, 9], [0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize(
    ("location", "entries", "message"),
    [
        ("../weights.bin", {}, "outside of the model's folder"),
        ("/etc/hostname", {}, "outside of the model's folder"),
        ("missing.bin", {}, "there is no file 'missing.bin' beside the model"),
        ("weights.bin", {"length": 20}, "expected 24 bytes"),
        ("weights.bin", {"offset": 12}, "weights.bin' has 32 bytes"),
        ("weights.bin", {"offset": -4}, "expected 24 bytes"),
    ],
)
def test_external_data_that_are_wrong(tmp_path: Path, location: str, entries: dict[str, int], message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)
    path = external(folder, location, **entries)
    with pytest.raises(InputError, match=message):
        tw.from_onnx(path)


def test_external_data_of_bytes_cannot_be_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="load the model from a path"):
        tw.from_onnx(external(tmp_path).read_bytes())


def test_all_missing_operators_are_named_at_once() -> None:
    inner = helper.make_graph([helper.make_node("StringSplit", ["x"], ["b", "c"], name="s1")], "then", [], [])
    nodes = [
        helper.make_node("TfIdfVectorizer", ["x"], ["a"], name="t1", mode="TF"),
        helper.make_node("If", ["flag"], ["b"], then_branch=inner, else_branch=inner),
        helper.make_node("Gelu", ["x"], ["y"], name="g", domain="com.example"),
    ]
    inputs = [("x", FLOAT, [2]), ("flag", TensorProto.BOOL, [])]
    with pytest.raises(UnsupportedOperatorError) as caught:
        tw.from_onnx(model(nodes, inputs, ["y"]))
    for part in ("TfIdfVectorizer (nodes: 't1')", "StringSplit (nodes: 's1', 's1')", "com.example.Gelu (nodes: 'g')"):
        assert part in str(caught.value)


def test_nodes_are_the_places_of_operators_and_of_errors() -> None:
    turn = helper.make_node("Transpose", ["x"], ["t"], name="turn")
    nodes = [turn, helper.make_node("Concat", ["x", "t"], ["y"], axis=1)]
    mod = tw.from_onnx(model(nodes[:1], [("x", FLOAT, [2, 3])], ["t"]))
    assert mod["main"].body.span == "Transpose 'turn'"
    with pytest.raises(TypeInferenceError) as caught:
        tw.from_onnx(model(nodes, [("x", FLOAT, [2, 3])], ["y"]))
    assert "in node Concat 'y'" in "".join(getattr(caught.value, "__notes__", ()))


def test_functions_of_a_model_are_expanded() -> None:
    body = [
        helper.make_node("Transpose", ["a"], ["t"]),
        helper.make_node("Concat", ["t", "t"], ["b"]),
    ]
    body[1].attribute.add(name="axis", ref_attr_name="along", type=onnx.AttributeProto.INT)
    function = helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["along"])
    call = helper.make_node("Twice", ["x"], ["y"], domain="mine", along=1)
    source = model([call], [("x", FLOAT, [2, 3])], ["y"])
    source.functions.append(function)
    source.opset_import.append(helper.make_opsetid("mine", 1))
    x = np.arange(6, dtype="f4").reshape(2, 3)
    np.testing.assert_array_equal(tw.build(tw.from_onnx(source))(x), np.concatenate([x.T, x.T], axis=1))


def test_function_that_calls_itself_is_refused() -> None:
    body = [helper.make_node("Mine", ["a"], ["b"], domain="mine")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    source = model([helper.make_node("Mine", ["x"], ["y"], domain="mine")], [("x", FLOAT, [2])], ["y"])
    source.functions.append(helper.make_function("mine", "Mine", ["a"], ["b"], body, imports))
    source.opset_import.append(imports[1])
    with pytest.raises(InputError, match="function Mine calls itself"):
        tw.from_onnx(source)


def branches(kind: int) -> onnx.ModelProto:
    then = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["a"])], "then", [], [helper.make_tensor_value_info("a", kind, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])], "else", [], [helper.make_tensor_value_info("b", kind, None)]
    )
    node = helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    return model([node], [("flag", TensorProto.BOOL, []), ("x", FLOAT, [2, 2])], ["y"])


def test_branches_see_the_values_around_them() -> None:
    built = tw.build(tw.from_onnx(branches(FLOAT)))
    x = np.arange(4, dtype="f4").reshape(2, 2)
    np.testing.assert_array_equal(built(np.array(True), x), x.T)
    np.testing.assert_array_equal(built(np.array(False), x), x)


def test_a_branch_that_is_known_is_taken_at_import() -> None:
    mod = tw.from_onnx(branches(FLOAT), values={"flag": np.array(False)})
    assert isinstance(mod["main"].body, gi.Var)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "contain no ONNX model"),
        (b"no model at all", "contain no ONNX model"),
        (Path("no such file.onnx"), "there is no file"),
        (3, "expected a path, bytes or a ModelProto, found a int"),
    ],
)
def test_what_is_no_model(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tw.from_onnx(source)


def test_value_that_nothing_defines() -> None:
    nodes = [helper.make_node("Identity", ["later"], ["y"]), helper.make_node("Identity", ["y"], ["later"])]
    with pytest.raises(InputError, match="Identity 'y': value 'later' is not defined before it"):
        tw.from_onnx(model(nodes, [("x", FLOAT, [2])], ["y"]))


def test_opset_of_the_future() -> None:
    newest = onnx.defs.onnx_opset_version()
    source = model([helper.make_node("Identity", ["x"], ["y"])], [("x", FLOAT, [2])], ["y"], opset=newest + 1)
    with pytest.raises(InputError, match=f"needs opset {newest + 1}; the installed onnx package knows up to {newest}"):
        tw.from_onnx(source)


def test_constant_with_too_few_bytes() -> None:
    source = model([helper.make_node("Identity", ["w"], ["y"])], [], ["y"], {"w": np.zeros((2, 3), "f4")})
    source.graph.initializer[0].raw_data = b"\0" * 20
    with pytest.raises(InputError, match=r"tensor 'w': expected 24 bytes for shape \(2, 3\), found 20"):
        tw.from_onnx(source)


def test_type_that_is_not_supported() -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    with pytest.raises(InputError, match="input 'x': element type STRING is not supported"):
        tw.from_onnx(model([node], [("x", TensorProto.STRING, [2])], ["y"]))


def test_input_of_unknown_rank() -> None:
    source = model([helper.make_node("Identity", ["x"], ["y"])], [("x", FLOAT, None)], ["y"])
    with pytest.raises(InputError, match="input 'x': its rank is unknown; state its shape"):
        tw.from_onnx(source)
    assert str(tw.from_onnx(source, shapes={"x": (2, "n")})["main"].body.type) == "Tensor[(2, n), float32]"


def test_a_converter_defined_anew_replaces_the_old_one_and_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CONVERTERS", {})

    def define(value: float) -> Any:
        @registry.converter("Shift", domain="com.example")
        def shift(node: Any) -> gi.Expr:
            return gi.add(node[0], value)

        return shift

    define(1.0)
    latest = define(2.0)
    assert registry.find_converter("com.example", "Shift", 1) is latest
    with pytest.raises(ValueError, match="Shift: two converters from opset 1 on"):
        registry.converter("Shift", domain="com.example")(lambda node: node[0])


def test_converters_are_found_while_others_are_registered() -> None:
    """Opsets are added before those that are there, and Python lets the other thread run as often as it can."""
    domain, latest = "com.example.threads", 2000

    def convert(node: Any) -> gi.Expr:
        raise NotImplementedError

    registry.converter("Shift", latest, domain)(convert)
    over = threading.Event()
    found: list[object] = []

    def look() -> None:
        while not over.is_set():
            try:
                found.append(registry.find_converter(domain, "Shift", latest) is convert)
            except IndexError as error:
                found.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=look)
    reader.start()
    try:
        for since in range(latest - 1, latest - 1000, -1):
            registry.converter("Shift", since, domain)(lambda node: node[0])
    finally:
        sys.setswitchinterval(before)
        over.set()
        reader.join()
        registry._CONVERTERS.pop((domain, "Shift"))
    assert set(found) == {True}
