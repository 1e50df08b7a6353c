"""Type inference: symbolic dimensions, and errors that name operator, argument, expected and found."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.op import FUSION_KINDS
from tilewright.tensorir.errors import TypeInferenceError, UnsupportedOperatorError
from tilewright.tensorir.expr import maximum


def t(*shape: Any, dtype: str = "float32") -> gi.Var:
    return gi.var("t", shape=shape, dtype=dtype)


@pytest.mark.parametrize("name", gi.list_operators())
def test_every_operator_states_all_facts(name: str) -> None:
    op = gi.get_operator(name)
    assert op.kind in FUSION_KINDS
    assert op.compute is not None or op.decompose is not None
    assert type(op).reference is not gi.Operator.reference or op.decompose is not None
    assert op.__doc__ and len(op.__doc__) > 5
    assert list(inspect.signature(op).parameters) == [a.strip("*?") for a in op.arguments] + list(op.attr_names)
    namespace = gi.nn if name.startswith("nn.") else gi
    assert getattr(namespace, name.removeprefix("nn.")) is op
    assert name.removeprefix("nn.") in dir(namespace)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gi.add(t(2, 3), t(2, 4)), "add: rhs: expected a shape that broadcasts with (2, 3), found (2, 4)"),
        (lambda: gi.add(t("n"), t("m")), "add: rhs: expected a shape that broadcasts with (n,), found (m,)"),
        (lambda: gi.add(t(2), t(2, dtype="int8")), "add: rhs: expected element type float32 as lhs, found"),
        (lambda: gi.add(t(2)), "add: missing argument rhs"),
        (lambda: gi.add(t(2), t(2), t(2)), "add: expected 2 arguments (lhs, rhs), found 3"),
        (lambda: gi.add(t(2), t(2), axis=1), "add: unknown attribute 'axis' (its attributes: none)"),
        (lambda: gi.sum(t(2), axes=1), "sum: unknown attribute 'axes'; did you mean 'axis'?"),
        (lambda: gi.add(t(2, dtype="int32"), 1.5), "add: expected a number of type int32, found 1.5"),
        (lambda: gi.add(gi.Tuple([t(2)]), t(2)), "add: lhs: expected a tensor, found (Tensor[(2,), float32],)"),
        (lambda: gi.divide(t(2, dtype="int8"), t(2, dtype="int8")), "divide: lhs: expected a floating-point tensor"),
        (lambda: gi.logical_and(t(2), t(2)), "logical_and: lhs: expected an element type among bool, found Tensor"),
        (lambda: gi.tanh(t(2, dtype="int8")), "tanh: x: expected an element type among float16"),
        (lambda: gi.left_shift(t(2), t(2)), "left_shift: lhs: expected an element type among int8"),
        (lambda: gi.clip(t(2, dtype="int8"), 0.5, 2), "clip: a_min: expected an integer, as x is int8, found 0.5"),
        (lambda: gi.clip(t(2)), "clip: "),
        (lambda: gi.cast(t(2), "float8"), "cast: unknown data type 'float8'"),
        (lambda: gi.sum(t(2), axis=1), "sum: axis: expected an axis of a tensor with 1 dimensions, found 1"),
        (lambda: gi.sum(t(2), axis="x"), "sum: axis: expected an integer, found 'x'"),
        (lambda: gi.max(t(2, 3), axis=(0, -2)), "max: axis: expected different axes, found (0, -2)"),
        (lambda: gi.argmax(t(2, 0)), "argmax: x: expected elements along axis 1, found Tensor[(2, 0), float32]"),
        (lambda: gi.matmul(t(2, 3), t(2, 3)), "matmul: b: expected 3 rows to match the columns of a"),
        (lambda: gi.matmul(t(), t(2)), "matmul: a: expected at least one dimension, found Tensor[(), float32]"),
        (lambda: gi.nn.dense(t(2, 3), t(5, 4)), "nn.dense: weight: expected a shape (units, 3) to match data"),
        (lambda: gi.nn.dense(t(2, 3), t(5, 3), units=4), "nn.dense: units: expected 5, the rows of weight, found 4"),
        (lambda: gi.nn.bias_add(t(2, 3), t(2)), "nn.bias_add: bias: expected a shape (3,) to match axis 1 of data"),
        (
            lambda: gi.nn.batch_norm(t(2, 3), t(3), t(3), t(2), t(3)),
            "nn.batch_norm: moving_mean: expected a shape (3,)",
        ),
        (lambda: gi.nn.layer_norm(t(2, 3), t(3), t(2)), "nn.layer_norm: beta: expected a shape (3,)"),
        (lambda: gi.nn.softmax(t(2), axis=3), "nn.softmax: axis: expected an axis of a tensor with 1 dimensions"),
        (lambda: gi.nn.dropout(t(2), rate=2), "nn.dropout: rate: expected a share between 0 and 1, found 2"),
        (lambda: gi.nn.conv2d(t(1, 3, 8), t(4, 3, 1, 1)), "nn.conv2d: data: expected a tensor in layout NCHW (4 dim"),
        (
            lambda: gi.nn.conv2d(t(1, 3, 8, 8), t(4, 2, 1, 1)),
            "nn.conv2d: weight: expected 3 input channels (of 3 in data",
        ),
        (
            lambda: gi.nn.conv2d(t(1, 4, 8, 8), t(3, 2, 1, 1), groups=2),
            "nn.conv2d: weight: expected a number of output",
        ),
        (lambda: gi.nn.conv2d(t(1, 3, 2, 2), t(4, 3, 3, 3)), "nn.conv2d: data: expected an image of at least 3 pixels"),
        (
            lambda: gi.nn.conv2d(t(1, 1, 2, 2), t(1, 1, 1, 1), strides=0),
            "nn.conv2d: strides: expected at least 1, found 0",
        ),
        (lambda: gi.nn.conv2d(t(1, 1, 2, 2), t(1, 1, 1, 1), padding=(1, 2, 3)), "nn.conv2d: padding: expected 1, 2"),
        (
            lambda: gi.nn.conv2d(t(1), t(1), data_layout="NCWH8w"),
            "nn.conv2d: data_layout: expected a layout of the axes NCHW",
        ),
        (
            lambda: gi.nn.conv2d(t(1, 2, 3, 3, 8), t(1, 2, 1, 1, 4, 4), data_layout="NCHW4c", kernel_layout="OIHW4i4o"),
            "nn.conv2d: data: expected a tensor in layout NCHW4c",
        ),
        (
            lambda: gi.nn.conv2d(
                t(1, 2, 3, 3, 4),
                t(1, 2, 1, 1, 4, 4),
                data_layout="NCHW4c",
                kernel_layout="OIHW4i4o",
                channels=4,
            ),
            "nn.conv2d: channels: expected 5 to 8, which is in the last block, found 4",
        ),
        (
            lambda: gi.nn.max_pool2d(t(1, 1, 4, 4), 2, padding=2),
            "nn.max_pool2d: padding: expected less than the window's",
        ),
        (lambda: gi.nn.max_pool2d(t(1, 1, 1, 4), 2), "nn.max_pool2d: data: expected an image of at least 2 pixels"),
        (
            lambda: gi.nn.avg_pool2d(t(1, 1, 4, 4, dtype="int8"), 2),
            "nn.avg_pool2d: data: expected an element type among",
        ),
        (lambda: gi.nn.global_max_pool2d(t(1, 1, 0, 4)), "nn.global_max_pool2d: data: expected an image with pixels"),
        (lambda: gi.nn.prelu(t(1, 2), t(3)), "nn.prelu: alpha: expected a shape (2,) to match axis 1 of data"),
        (
            lambda: gi.nn.group_norm(t(1, 3), t(3), t(3), num_groups=2),
            "nn.group_norm: num_groups: expected a divisor of 3",
        ),
        (lambda: gi.nn.batch_matmul(t(1, 2), t(1, 2, 3)), "nn.batch_matmul: a: expected 3 dimensions"),
        (
            lambda: gi.reshape(t(2, 3), (4, 2)),
            "reshape: newshape: expected a shape with 6 elements as in (2, 3), found",
        ),
        (lambda: gi.reshape(t(2, 3), (4, -1)), "reshape: newshape: expected dimensions that divide the 6 elements"),
        (
            lambda: gi.reshape(t("n", 3), (2, -1)),
            "reshape: newshape: expected dimensions that divide the n * 3 elements",
        ),
        (lambda: gi.reshape(t("n", 3), ("m", 3)), "reshape: newshape: expected a shape with n * 3 elements"),
        (lambda: gi.reshape(t(2), (-1, -1)), "reshape: newshape: expected one -1 at most"),
        (lambda: gi.reshape(t(2), (-2, -1)), "reshape: a dimension cannot be negative, found -2"),
        (lambda: gi.transpose(t(2, 3), axes=(0, 0)), "transpose: axes: expected a permutation of 2 axes, found (0, 0)"),
        (lambda: gi.squeeze(t(2, 1), axis=0), "squeeze: axis: expected axes of extent 1, found axis 0 of Tensor"),
        (lambda: gi.squeeze(t("n", 1), axis=0), "squeeze: axis: expected axes of extent 1, found axis 0 of Tensor"),
        (lambda: gi.expand_dims(t(2), axis=5), "expand_dims: axis: expected an axis of a tensor with 2 dimensions"),
        (
            lambda: gi.broadcast_to(t(2), (3, 4)),
            "broadcast_to: shape: expected a shape that (2,) broadcasts to, found (3, 4)",
        ),
        (lambda: gi.concatenate(t(2, 3), t(2, 4)), "concatenate: data[1]: expected the shape of data[0]"),
        (lambda: gi.concatenate([]), "concatenate: data: expected at least one tensor, found none"),
        (lambda: gi.stack([t(2), t(3)]), "stack: data[1]: expected the type of data[0], Tensor[(2,), float32], found"),
        (lambda: gi.slice(t(2), (0, 0), (1, 1)), "slice: begin: expected bounds for 1 axes at most, found (0, 0)"),
        (lambda: gi.slice(t(2), (0,), (1,), (0,)), "slice: strides: expected no zero, found (0,)"),
        (lambda: gi.split(t(5), 2), "split: indices_or_sections: expected a number that divides axis 0 of extent 5"),
        (lambda: gi.pad(t(2), ((1, 1), (1, 1))), "pad: pad_width: expected a pair for each of 1 axes"),
        (lambda: gi.pad(t(2), (1, 1)), "pad: pad_width: expected a pair (before, behind) for each axis, found (1, 1)"),
        (
            lambda: gi.pad(t(2), ((1, 1),), mode="around"),
            "pad: mode: expected one of constant, edge, reflect, wrap, found 'around'",
        ),
        (lambda: gi.pad(t(2), ((2, 0),), mode="reflect"), "pad: x: expected an extent of at least 3 along axis 0"),
        (lambda: gi.take(t(2), t(2)), "take: indices: expected an integer tensor, found Tensor[(2,), float32]"),
        (lambda: gi.where(t(2), t(2), t(2)), "where: condition: expected a bool tensor, found Tensor[(2,), float32]"),
        (
            lambda: gi.layout_transform(t(1, 2, 3, 4), "NCHW", "NHW"),
            "layout_transform: dst_layout: expected a layout of the",
        ),
        (lambda: gi.layout_transform(t(1, 2), "NCHW", "NHWC"), "layout_transform: x: expected a tensor in layout NCHW"),
        (lambda: gi.layout_transform(t(1, 2, 3, 4), "NC4xHW", "NHWC"), "layout_transform: layout NC4xHW: the block 4x"),
        (
            lambda: gi.layout_transform(t(1, 2, 3, 3, 4), "NCHW4c", "NCHW", {"C": 3}),
            "layout_transform: extents: expected 5 to 8 for axis C",
        ),
        (lambda: gi.full((2,), 0.5, "int8"), "full: fill: expected a value of type int8, found 0.5"),
        (lambda: gi.arange(0, 4, 0), "arange: step: expected a number other than 0, found 0"),
    ],
)
def test_an_error_names_operator_argument_expected_and_found(call: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_an_unknown_operator_suggests_the_closest() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"unknown operator 'tahn'; did you mean .*tanh"):
        gi.Call("tahn", [t(2)])
    with pytest.raises(AttributeError, match=r"has no operator '(nn\.)?conv4d'"):
        gi.nn.conv4d(t(2))


def test_the_place_in_the_model_stands_in_the_error() -> None:
    with pytest.raises(TypeInferenceError, match=r"add: rhs: .* \(at layer1/add\)"):
        gi.Call("add", [t(2), t(3)], span="layer1/add")


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (lambda: t("n", 1, 3) + t("m", 1), "Tensor[(n, m, 3), float32]"),
        (lambda: gi.concatenate(t("n", 2), t("m", 2)), "Tensor[(n + m, 2), float32]"),
        (lambda: gi.reshape(t("n", "m", 4), ("n", -1)), "Tensor[(n, m * 4), float32]"),
        (lambda: gi.nn.conv2d(t("n", 3, "h", 8), t(4, 3, 3, 3), padding=1), "Tensor[(n, 4, h, 8), float32]"),
        (lambda: gi.nn.max_pool2d(t("n", 3, "h", 8), 2), "Tensor[(n, 3, h // 2, 4), float32]"),
        (lambda: t("n", 4).argmax(axis=1), "Tensor[(n,), int64]"),
        (lambda: t("n")[1:], "Tensor[(max(n - 1, 0),), float32]"),
        (lambda: gi.pad(t("n"), ((1, 2),)), "Tensor[(n + 3,), float32]"),
        (lambda: t("n", 2) @ t(2, "m"), "Tensor[(n, m), float32]"),
        (lambda: gi.nn.batch_flatten(t("n", 2, "k")), "Tensor[(n, 2 * k), float32]"),
    ],
)
def test_types_follow_symbolic_dimensions(expr: Any, expected: str) -> None:
    found = expr().type
    assert found == eval_type(expected) and str(found.dtype) in expected


def eval_type(text: str) -> gi.TensorType:
    """The type that is written so, with every name a symbolic dimension."""
    names: dict[str, Any] = {name: gi.symbol(name) for name in "nmhk"}
    from_text = text.removeprefix("Tensor[").removesuffix("]")
    shape, _, dtype = from_text.rpartition(", ")
    return gi.TensorType(eval(shape, {"max": maximum, **names}), dtype)


def test_a_number_takes_the_type_of_the_tensor_beside_it() -> None:
    assert (t(2, dtype="float64") * 2).dtype == "float64"
    assert (1 - t(2, dtype="bfloat16")).dtype == "bfloat16"
    assert gi.where(t(2, dtype="bool"), t(2, dtype="float16"), 0.0).dtype == "float16"
    assert (np.float64(0.5) * t(2)).dtype == "float32"


def test_keywords_name_arguments_and_attributes_may_be_positional() -> None:
    x, w = t(2, 3), t(4, 3)
    assert gi.nn.dense(data=x, weight=w).shape == (2, 4)
    assert gi.sum(x, 1, True).shape == (2, 1)
    assert gi.concatenate([x, x], 1).shape == gi.concatenate(x, x, axis=1).shape == (2, 6)
    with pytest.raises(TypeInferenceError, match="argument 'data' is given twice"):
        gi.nn.dense(x, w, data=x)
