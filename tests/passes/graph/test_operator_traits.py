"""An operator of a user's takes part in the graph passes by the traits that it states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.known_values import known_values
from tilewright.graphir.meaning import Choice, MatrixProduct, Product, Quotient, Softmax, Sum
from tilewright.graphir.op import OPERATORS
from tilewright.graphir.ops.narrow import MatrixSums
from tilewright.graphir.ops.sums import sum_dtype
from tilewright.passes import PassContext
from tilewright.passes.graph import FoldScaleAxis, FuseAttention, NarrowProducts, SimplifyExpr
from tilewright.tensorir.target import Target


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    before = dict(OPERATORS)
    yield
    OPERATORS.clear()
    OPERATORS.update(before)


def like(name: str, **members: Any) -> gi.Operator:
    """An operator of another name that works like operator ``name``, and states only ``members`` as traits."""
    base = type(gi.get_operator(name))
    hidden = {trait: getattr(gi.Operator, trait) for trait in TRAITS}
    return gi.register_operator(type("Own", (base,), {**hidden, "name": f"test.{base.__name__}", **members}))


TRAITS = (
    "meaning",
    "keeps_order",
    "involution",
    "idempotent",
    "associative",
    "neutral",
    "is_identity",
    "symbolic_value",
    "moves_elements",
    "uniform_value",
)


def after(a_pass: Any, function: gi.Function) -> gi.Function:
    with Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu"), PassContext(opt_level=3):
        found = a_pass(gi.IRModule.from_expr(function))["main"]
    assert isinstance(found, gi.Function)
    return found


def names(function: gi.Function) -> list[str]:
    return [call.op.name for call in gi.call_nodes(function) if isinstance(call.op, gi.Operator)]


X = gi.var("x", shape=("n", 4))


@pytest.mark.parametrize(
    ("name", "traits", "build", "left"),
    [
        ("negative", {"involution": True}, lambda op: op(op(X)), 0),
        ("transpose", {"moves_elements": True}, lambda op: X * op(gi.const(np.ones((1, 1), "f4"))), 0),
        ("nn.relu", {"idempotent": True}, lambda op: op(op(X)), 1),
        ("maximum", {"idempotent": True}, lambda op: op(X, X), 0),
        ("multiply", {"neutral": lambda self, argument, dtype: 1}, lambda op: op(gi.const(np.float32(1)), X), 0),
        ("add", {"associative": True}, lambda op: op(op(X, gi.const(np.float32(2))), gi.const(np.float32(3))), 1),
        ("reshape", {"keeps_order": True}, lambda op: op(gi.expand_dims(X, axis=0), newshape=X.shape), 0),
        ("broadcast_to", {"is_identity": lambda self, args, attrs: True}, lambda op: op(X, shape=X.shape), 0),
    ],
)
def test_simplify_expr_reads_algebra(name: str, traits: dict[str, Any], build: Any, left: int) -> None:
    silent = gi.Function([X], build(like(name)))
    assert after(SimplifyExpr(), silent).body is silent.body
    stated = gi.Function([X], build(like(name, **traits)))
    assert len(names(after(SimplifyExpr(), stated))) == left


def test_known_values_follow_a_symbolic_value() -> None:
    shape = gi.get_operator("sizes")(values=X.shape)
    assert known_values(like("square")(shape)) is None

    def symbolic_value(self: Any, args: Any, attrs: Any, out: Any) -> Any:
        return args[0] * args[0]

    found = known_values(like("square", symbolic_value=symbolic_value)(shape))
    assert found is not None
    assert [str(value) for value in found] == ["n * n", "16"]


def attention(product: Any, scaled: Any, softmax: Any) -> gi.Function:
    query, key, value = (gi.var(name, shape=(2, 8, 16)) for name in ("query", "key", "value"))
    scores = scaled(product(query, gi.transpose(key, (0, 2, 1))))
    return gi.Function([query, key, value], product(softmax(scores), value))


def test_fuse_attention_reads_meanings(keeps_values: Any) -> None:
    product = like("matmul", meaning=lambda self, args, attrs: MatrixProduct(*args))
    shrink = like("divide", meaning=lambda self, args, attrs: Quotient(*args))
    softmax = like("nn.softmax", meaning=lambda self, args, attrs: Softmax(args[0], attrs.axis))
    function = attention(product, lambda x: shrink(x, gi.const(np.float32(4))), softmax)
    found = after(FuseAttention(), function)
    assert names(found).count("nn.attention") == 1
    (call,) = [call for call in gi.call_nodes(found) if call.op is gi.nn.attention]
    assert call.attrs.scale == 0.25
    arrays = [np.random.default_rng(n).standard_normal((2, 8, 16), "f4") for n in range(3)]
    keeps_values(FuseAttention(), gi.IRModule.from_expr(function), *arrays)


def test_fuse_attention_finds_products_of_batches(keeps_values: Any) -> None:
    query, key, value = (gi.var(name, shape=(2, 8, 16)) for name in ("query", "key", "value"))
    masked = gi.nn.batch_matmul(query, key, transpose_b=True) * gi.const(np.float32(0.25))
    masked = gi.where(gi.const(np.tri(8, dtype=bool)), masked, gi.const(np.float32(-np.inf)))
    function = gi.Function([query, key, value], gi.nn.batch_matmul(gi.nn.softmax(masked), value))
    assert names(after(FuseAttention(), function)).count("nn.attention") == 1
    arrays = [np.random.default_rng(n).standard_normal((2, 8, 16), "f4") for n in range(3)]
    keeps_values(FuseAttention(), gi.IRModule.from_expr(function), *arrays)


def test_fold_scale_axis_reads_meanings(keeps_values: Any) -> None:
    scale = like("multiply", meaning=lambda self, args, attrs: Product(*args))
    shift = like("add", meaning=lambda self, args, attrs: Sum(*args))
    weight, factors, bias = gi.const(np.ones((3, 4), "f4")), gi.const(np.float32([1, 2, 3])), gi.const(np.ones(3, "f4"))
    function = gi.Function([X], scale(shift(gi.nn.dense(X, weight), bias), factors))
    assert names(after(FoldScaleAxis(), function)) == ["reshape", "multiply", "nn.dense", "add"]  # of the weight
    keeps_values(FoldScaleAxis(), gi.IRModule.from_expr(function), np.ones((2, 4), "f4"))


def test_narrow_products_ask_for_the_sums() -> None:
    a, b = gi.var("a", shape=(64, 64), dtype="uint8"), gi.var("b", shape=(64, 16), dtype="int8")
    product = like("matmul", sum_of_products=lambda self, args, attrs: MatrixSums(self, args, attrs))
    function = gi.Function([a, b], product(gi.cast(a, "int32") - gi.const(np.int32(3)), gi.cast(b, "int32")))
    found = after(NarrowProducts(), function)
    (call,) = [call for call in gi.call_nodes(found) if call.op is product]
    assert call.attrs.out_dtype is sum_dtype("int32")
    silent = like("nn.dense", sum_of_products=lambda self, args, attrs: None)
    left = gi.Function([a, b], silent(gi.cast(a, "int32"), gi.transpose(gi.cast(b, "int32"))))
    assert after(NarrowProducts(), left).body is left.body


def test_a_choice_of_the_lowest_number_is_a_mask() -> None:
    seen = like("where", meaning=lambda self, args, attrs: Choice(*args))
    mask = gi.const(np.tri(8, dtype=bool))
    function = attention(gi.matmul, lambda x: seen(mask, x, gi.const(np.float32(-np.inf))), gi.nn.softmax)
    (call,) = [call for call in gi.call_nodes(after(FuseAttention(), function)) if call.op is gi.nn.attention]
    assert call.attrs.causal
