"""Calls give sizes to the symbolic dimensions of a function: in types, in ``SpecializeCalls``, in built models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.interpreter import evaluate
from tilewright.graphir.specialize import with_sizes
from tilewright.passes.graph import InferType, InlineFunctions, SpecializeCalls
from tilewright.tensorir.errors import TypeInferenceError

F = (
    "def @f(%p: Tensor[(n, 8), float32]) -> Tensor[(n * 8,), float32] {"
    " %0 = reshape(%p, newshape=(dim[n * 8],)) %1 = add(%0, %0) %1 }"
)


def rows(function: gi.Function, *shapes: tuple[Any, ...]) -> tw.IRModule:
    """Return a module whose ``main`` calls ``function`` with parameters of these shapes."""
    params = [gi.var(f"x{number}", shape=shape) for number, shape in enumerate(shapes)]
    return tw.IRModule.from_expr(gi.Function(params, [function(param) for param in params]))


def flat_sum() -> gi.Function:
    p = gi.var("p", shape=("n", 8))
    return gi.Function([p], gi.reshape(p, (-1,)) + gi.reshape(p, (-1,)))


@pytest.mark.parametrize(("shape", "size"), [((3, 8), 24), (("m", 8), "m * 8"), (("n", 8), "n * 8")])
def test_the_type_of_a_call_has_the_sizes_of_its_arguments(shape: tuple[Any, ...], size: object) -> None:
    call = flat_sum()(gi.var("x", shape=shape))
    assert str(call.type) == f"Tensor[({size},), float32]"


def test_expressions_of_all_kinds_get_the_sizes_of_a_call() -> None:
    p, flag = gi.var("p", shape=("n", 8)), gi.var("flag", shape=(), dtype="bool")
    chosen = gi.If(flag, gi.Tuple([p, p]), gi.Tuple([p + p, p]))
    function = gi.Function([p, flag], gi.Tuple([gi.TupleGetItem(chosen, 0), gi.const(1.0)]))
    n = function.params[0].type.shape[0]
    special = with_sizes(function, {n: 3})
    assert special.body.type == gi.TupleType([gi.TensorType((3, 8)), gi.TensorType(())])
    values = np.arange(24, dtype=np.float32).reshape(3, 8)
    for choice, expected in ((True, values), (False, 2 * values)):
        found, one = evaluate(special, values, np.array(choice))
        np.testing.assert_array_equal(found, expected)
        assert one == 1.0


@pytest.mark.parametrize(
    ("params", "args", "message"),
    [
        ([("n", 8)], [(3, 9)], r"argument 0: expected Tensor\[\(n, 8\), float32\], found .*\(3, 9\).*, with n = 3"),
        ([("n", 8), ("n",)], [(3, 8), (4,)], r"argument 1: expected Tensor\[\(n,\), .*found Tensor\[\(4,\).*n = 3"),
        ([("n", "n")], [(3, 4)], "argument 0: .*with n = 3 from the other dimensions"),
    ],
)
def test_sizes_that_do_not_agree_are_refused(params: Any, args: Any, message: str) -> None:
    variables = [gi.var(f"p{number}", shape=shape) for number, shape in enumerate(params)]
    function = gi.Function(variables, gi.Tuple(variables))
    with pytest.raises(TypeInferenceError, match=message):
        function(*[gi.var(f"x{number}", shape=shape) for number, shape in enumerate(args)])


def test_sizes_of_a_fused_group_are_those_of_the_model() -> None:
    p = gi.var("p", shape=("n", 8))
    with pytest.raises(TypeInferenceError, match="expected Tensor"):
        gi.Function([p], gi.exp(p), attrs={"Primitive": True})(gi.var("x", shape=(3, 8)))


def test_each_set_of_sizes_has_a_function_of_its_own(rewrites: Any) -> None:
    before = (
        "def @main(%x: Tensor[(3, 8), float32], %y: Tensor[(m, 8), float32], %z: Tensor[(3, 8), float32]) {"
        " %0 = @f(%x) %1 = @f(%y) %2 = @f(%z) %3 = (%0, %1, %2) %3 }"
    )
    mod = InferType()(gi.parse(before + F))
    after = SpecializeCalls()(mod)
    assert [gv.name for gv in after] == ["main", "f", "f_3", "f_m"]
    expected = F.replace("@f(", "@f_3(").replace("(n, 8)", "(3, 8)").replace("dim[n * 8]", "24").replace("n * 8", "24")
    assert gi.structural_equal(after["f_3"], gi.parse(expected)["f_3"])
    gi.verify(after)
    assert SpecializeCalls()(after) is after


def test_functions_that_specialized_ones_call_are_specialized() -> None:
    text = (
        "def @main(%x: Tensor[(3, 8), float32]) { %0 = @g(%x) %0 }"
        "def @g(%p: Tensor[(k, 8), float32]) -> Tensor[(k * 8,), float32] { %0 = @f(%p) %0 }"
    )
    after = SpecializeCalls()(InferType()(gi.parse(text + F)))
    assert {"g_3", "f_3"} <= {gv.name for gv in after}
    gi.verify(after)


def test_a_function_that_calls_itself_with_other_sizes_is_refused() -> None:
    text = (
        "def @main(%x: Tensor[(3,), float32]) -> Tensor[(3,), float32] { %0 = @f(%x) %0 }"
        "def @f(%p: Tensor[(n,), float32]) -> Tensor[(n,), float32] { %0 = @f(%p) %0 }"
    )
    with pytest.raises(TypeInferenceError, match="@f calls itself, and is called with n = 3"):
        SpecializeCalls()(InferType()(gi.parse(text)))


def test_a_captured_variable_keeps_its_size() -> None:
    x, y, p = gi.var("x", shape=(3, 8)), gi.var("y", shape=("n", 8)), gi.var("p", shape=("n", 8))
    mod = tw.IRModule.from_expr(gi.Function([x, y], gi.Function([p], gi.add(p, y))(x)))
    with pytest.raises(TypeInferenceError, match=r"called with n = 3, but captures %y: .*make it a parameter"):
        SpecializeCalls()(mod)


def test_inlining_gives_sizes_by_itself() -> None:
    mod = rows(flat_sum(), (3, 8), ("m", 8))
    inlined = InlineFunctions()(mod)["main"]
    assert not any(isinstance(node, gi.Function) for node in gi.post_order(inlined.body))
    assert str(inlined.body.type) == "(Tensor[(24,), float32], Tensor[(m * 8,), float32])"


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("called", ["in place", "by name"])
def test_a_model_calls_a_function_with_several_sizes(level: int, called: str) -> None:
    mod = rows(flat_sum(), (3, 8), ("m", 8))
    if called == "by name":
        signature = "%x: Tensor[(3, 8), float32], %y: Tensor[(m, 8), float32]"
        mod = gi.parse(f"def @main({signature}) {{ %0 = @f(%x) %1 = @f(%y) %2 = (%0, %1) %2 }}" + F)
    x, y = np.random.default_rng(0).standard_normal((2, 5, 8)).astype("float32")
    model = tw.build(mod, opt_level=level)
    typed = InferType()(mod)
    for found in (model(x[:3], y), evaluate(typed, x[:3], y)):
        np.testing.assert_array_equal(found[0], 2 * x[:3].reshape(-1))
        np.testing.assert_array_equal(found[1], 2 * y.reshape(-1))
