"""Every node of the graph-level IR prints as text that reads back to an equal one; wrong text gets a clear error."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ParseError, TypeInferenceError, UnsupportedOperatorError


def main(*params: gi.Var, body: object, **attrs: object) -> gi.IRModule:
    return gi.IRModule({"main": gi.Function(params, body, attrs=attrs)})  # type: ignore[arg-type]


def returns(module: gi.IRModule) -> gi.IRModule:
    """Parse the text of ``module``; it must be equal and of the same text, with both kinds of data."""
    again = gi.parse(gi.to_text(module, constants="inline"))
    gi.assert_structural_equal(module, again)
    other = gi.parse(str(module), gi.large_constants(module))
    gi.assert_structural_equal(module, other)
    assert str(other) == str(module)
    return again


X = gi.var("x", shape=("n", 4))
C = gi.var("c", shape=(), dtype="bool")


def closure() -> gi.Expr:
    p = gi.var("p", shape=("n", 4))
    return gi.Call(gi.Function([p], p * X, attrs={"Primitive": False, "kind": "broadcast"}), [gi.tanh(X)])


def let_inside() -> gi.Expr:
    w, unused = gi.var("w", shape=("n", 4)), gi.var("q", shape=("n", 4))
    return gi.add(gi.Let(w, gi.tanh(X), w * w), gi.Let(unused, gi.exp(X), X)) + X


def loop(with_condition: bool) -> gi.Expr:
    i, s = gi.var("i", shape=(), dtype="int64"), gi.var("s", shape=("n", 4))
    body = gi.Function([i, s], gi.Tuple([gi.tanh(s)]))
    j, t = gi.var("i", shape=(), dtype="int64"), gi.var("t", shape=("n", 4))
    condition = gi.Function([j, t], gi.less(j, 2)) if with_condition else None
    return gi.Loop(gi.const(3), condition, body, [X])


@pytest.mark.parametrize(
    "module",
    [
        main(X, body=X),
        main(body=gi.const(1.5)),
        main(X, body=gi.Tuple([])),
        main(X, body=gi.Tuple([X])),
        main(X, body=gi.TupleGetItem(gi.Tuple([X, gi.tanh(X)]), 1)),
        main(X, C, body=gi.If(C, gi.exp(X), gi.If(C, X, gi.sin(X)))),
        main(X, body=closure()),
        main(X, body=let_inside()),
        main(X, body=loop(False)),
        main(X, body=loop(True)),
        main(X, body=gi.sum(X, axis=(0, -1), keepdims=True)),
        main(X, body=gi.reshape(X, ("n", 2, 2))),
        main(X, body=gi.cast(X, "bfloat16")),
        main(X, body=X, text='a "quoted" `name`\n', numbers=(1, -2, 0.5, -1e-30), nested={"a": [None, True]}),
        main(X, body=X, special=(float("inf"), -float("inf"))),
        main(gi.var("conv/1 weight", shape=(2,)), gi.var("1", shape=(2,)), body=gi.const(0)),
    ],
    ids=lambda module: str(module["main"].body)[:40].replace("\n", " "),
)
def test_each_kind_of_expression_reads_back(module: gi.IRModule):
    returns(module)


def test_types_of_all_kinds_read_back():
    n = gi.symbol("n")
    types = gi.TupleType([gi.TensorType((2 * n + 1, "m"), "int8"), gi.TupleType([gi.TensorType((), "bool")])])
    function = gi.var("f", gi.FuncType([types], gi.TensorType(("n", 0))))
    argument = gi.var("t", types)
    again = returns(main(function, argument, body=gi.Call(function, [argument])))
    assert again["main"].params[0].type == function.type


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.1),
        np.float32(-0.0),
        np.float64(1 / 3),
        np.float32(1e-45),
        np.float32(np.inf),
        np.float32(np.nan),
        np.array([True, False]),
        np.arange(-3, 3, dtype=np.int8).reshape(2, 3),
        np.array([2**64 - 1], np.uint64),
        np.array([0.1, -2.5], ml_dtypes.bfloat16),
        np.array([0.1, 6e-8], np.float16),
        np.zeros((0,), np.float32),
        np.zeros((2, 0, 3), np.int32),
        np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32),
        np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)[::2, ::-1],
        np.random.default_rng(0).standard_normal((5, 7)).astype(ml_dtypes.bfloat16),
    ],
    ids=str,
)
def test_constants_read_back_to_the_last_bit(value: np.ndarray):
    again = returns(main(body=gi.const(np.asarray(value))))
    found = again["main"].body.data
    assert found.dtype == value.dtype
    assert found.tobytes() == np.asarray(value).tobytes()


def test_functions_that_call_each_other_read_back():
    f, g = gi.GlobalVar("f"), gi.GlobalVar("g")
    x, y = gi.var("x", shape=(3,)), gi.var("x", shape=(3,))
    declared = gi.TensorType((3,))
    module = gi.IRModule(
        {f: gi.Function([x], gi.Call(g, [x]), declared), g: gi.Function([y], gi.Call(f, [y]), declared)}
    )
    again = gi.parse(str(module))
    gi.assert_structural_equal(module, again)
    # The declared types of the functions are those of the calls, which the module did not know.
    assert again["f"].body.type == declared


def test_functions_of_the_loop_level_ir_stand_in_the_same_text():
    a = te.placeholder((8,), "float32", "a")
    kernel = te.create_prim_func("double", [a], [te.compute((8,), lambda i: a[i] + a[i], name="b")])
    x = gi.var("x", shape=(8,))
    call = gi.Call(gi.GlobalVar("double"), [x], type=x.type)
    returns(gi.IRModule({"main": gi.Function([x], call), "double": kernel}))


def test_what_is_shared_is_shared_again():
    y = gi.tanh(X)
    body = returns(main(X, body=y * y))["main"].body
    assert body.args[0] is body.args[1]


@pytest.mark.parametrize(
    ("body", "error", "message", "underlined"),
    [
        ("%0 = ad(%x, %x) %0", UnsupportedOperatorError, "unknown operator 'ad'; did you mean", "ad"),
        ("%0 = add(%x, %y) %0", ParseError, "undefined variable %y", "%y"),
        ("%0 = add(%x %x) %0", ParseError, "expected one of", "%x"),
        ("%0 = add(%x) %0", TypeInferenceError, "expected 2 arguments", "add(%x"),
        ("%0 = sum(%x, axs=1) %0", TypeInferenceError, "did you mean 'axis'", "sum(%x, axs=1"),
        ("%0 = tanh(%x) : Tensor[(3,), float32] %0", TypeInferenceError, "but the type is", "Tensor[(3,), float32]"),
        ("%0 = tanh(const#7) %0", ParseError, "const#7 is not described", "const#7"),
        ("%0 = (%x, %x) %1 = %0.2 %1", TypeInferenceError, "the tuple has 2 fields", "%0.2"),
        ("%0 = float33(1.5) %0", ParseError, "unknown data type 'float33'; expected one of", "float33(1.5"),
        ("%0 = tanh(const(float33, [1.5])) %0", ParseError, "unknown data type float33; expected one of", "float33"),
        ("%0 = sum(%x, axis=0, axis=1) %0", ParseError, "attribute axis is given twice", "axis=1"),
        ("%0 = @main(%x, axis=1) %0", ParseError, "a call of a function takes no attributes", "@main(%x, axis=1"),
        ('%0 = reshape(%x, newshape=opaque["a"]) %0', ParseError, "an object that text does not", 'opaque["a"]'),
        ("%0 = tanh(%x) : Tensor[3] %0", ParseError, "expected Tensor[(dimensions), element type]", "Tensor[3]"),
        ("%0 = tanh(%x) : Tensor[(3 +,), float32] %0", ParseError, "'3 +' is no dimension", "Tensor[(3 +,), float32]"),
        ("%0 = int32(1.5) %0", ParseError, "expected a value of type int32", "int32(1.5"),
        ("%0 = if %x { %x } else { %x } %0", TypeInferenceError, "condition", "%x { %x } else { %x"),
    ],
)
def test_an_error_shows_the_line_with_the_place_underlined(body: str, error: type, message: str, underlined: str):
    text = f"def @main(%x: Tensor[(2,), float32]) {{\n  {body}\n}}"
    with pytest.raises(error, match="line 2") as found:
        gi.parse(text)
    said, line, carets = str(found.value).split("\n")
    assert message in said
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == underlined


def test_text_that_ends_too_early_says_what_is_expected():
    with pytest.raises(ParseError, match="found the end of the text"):
        gi.parse("def @main(%x: Tensor[(2,), float32]) { %0 = tanh(%x)")


def test_a_missing_array_is_asked_for():
    module = main(body=gi.const(np.ones(50, np.float32)))
    with pytest.raises(ParseError, match="constants="):
        gi.parse(str(module))
    digest = next(iter(gi.large_constants(module)))
    with pytest.raises(ParseError, match="digest"):
        gi.parse(str(module), {digest: np.zeros(50, np.float32)})


def test_deep_graphs_read_back():
    x = y = gi.var("x", shape=(4,))
    for _ in range(5000):
        y = gi.tanh(y)
    returns(main(x, body=y))
