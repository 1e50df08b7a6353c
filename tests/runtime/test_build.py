"""Test builds: stages, sources, parameters, control flow, and code that is generated once."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.graph import InferType
from tilewright.runtime import lower_model
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.errors import (
    ArgumentTypeError,
    CodegenError,
    ExecutionError,
    InputError,
    PassError,
    TypeInferenceError,
)

RNG = np.random.default_rng(11)


def network(seed: int, width: int = 12) -> gi.IRModule:
    rng = np.random.default_rng(seed)
    x = gi.var("x", shape=("n", width))
    hidden = gi.nn.relu(gi.nn.dense(x, gi.const(rng.standard_normal((9, width)).astype("f4"))))
    return tw.IRModule.from_expr(gi.Function([x], gi.nn.softmax(hidden)))


def test_numba_source_is_python_that_runs() -> None:
    model = tw.build(network(0), target="numba")
    assert "@numba.njit" in model.source
    compile(model.source, "model", "exec")
    values = RNG.standard_normal((5, 12)).astype("f4")
    np.testing.assert_allclose(model(values), tw.build(network(0), target="llvm")(values), rtol=1e-5)


def test_signature_names_inputs_and_result() -> None:
    assert str(tw.build(network(0)).signature) == "(x: Tensor[(n, 12), float32]) -> Tensor[(n, 9), float32]"


def test_models_that_share_code_have_their_own_weights(kind: str) -> None:
    values = RNG.standard_normal((3, 12)).astype("f4")
    for seed in (1, 2):
        expected = gi.evaluate(network(seed)["main"], values, dtype="float64")
        np.testing.assert_allclose(tw.build(network(seed), target=kind)(values), expected, rtol=1e-5)


def test_target_of_the_context_is_the_default() -> None:
    with tw.Target("numba"):
        assert tw.build(network(0)).target.kind == "numba"
    assert tw.build(network(0)).target.kind == "llvm"


def test_call_of_code_that_cannot_run_here_is_refused() -> None:
    model = tw.build(network(0), target=tw.Target("llvm", mtriple="aarch64-unknown-linux-gnu"))
    with pytest.raises(ExecutionError, match=r"aarch64.*cannot run on this machine"):
        model(RNG.standard_normal((13, 12)).astype("f4"))


def test_avx2_code_computes_the_same() -> None:
    values = RNG.standard_normal((13, 12)).astype("f4")
    with tw.PassContext(opt_level=3):
        model = tw.build(network(0), target=tw.Target("llvm", mcpu="x86-64-v3"))
    assert "zmm" not in model.ir("assembly")
    np.testing.assert_allclose(model(values), tw.build(network(0))(values), rtol=1e-5)


def test_params_become_constants(target: tw.Target) -> None:
    x, w = gi.var("x", shape=("n", 4)), gi.var("w", shape=(3, 4))
    weight = RNG.standard_normal((3, 4)).astype("f4")
    model = tw.build(gi.Function([x, w], gi.nn.dense(x, w)), target=target, params={"w": weight})
    assert [argument.name for argument in model.signature.inputs] == ["x"]
    values = RNG.standard_normal((2, 4)).astype("f4")
    np.testing.assert_allclose(model(values), values @ weight.T, rtol=1e-5)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"v": np.ones((3, 4), "f4")}, "no parameter 'v'"), ({"w": np.ones((3, 5), "f4")}, "w: expected")],
)
def test_params_that_do_not_fit_are_refused(params: dict[str, np.ndarray], message: str) -> None:
    x, w = gi.var("x", shape=("n", 4)), gi.var("w", shape=(3, 4))
    with pytest.raises(InputError, match=message):
        tw.build(gi.Function([x, w], gi.nn.dense(x, w)), params=params)


def test_parameter_without_type_is_named() -> None:
    x = gi.var("x")
    with pytest.raises(TypeInferenceError, match="x"):
        tw.build(gi.Function([x], gi.tanh(x)))


def test_result_that_is_a_function_is_refused() -> None:
    x, y = gi.var("x", shape=(2,)), gi.var("y", shape=(2,))
    with pytest.raises(
        TypeInferenceError, match=r"result of main: expected tensors, found .*Tensor\[\(2,\), float32\]"
    ):
        tw.build(gi.Function([x], gi.Tuple([x, gi.Function([y], gi.add(x, y))])))


def test_size_that_no_input_tells_is_an_error() -> None:
    x = gi.var("x", shape=(gi.symbol("n") * 2,))
    with pytest.raises(CodegenError, match="'n'"):
        tw.build(gi.Function([x], gi.tanh(x)))


def test_control_flow_runs(kind: str) -> None:
    x, flag, trips = (
        gi.var("x", shape=(3,)),
        gi.var("flag", shape=(), dtype="bool"),
        gi.var("t", shape=(), dtype="int64"),
    )
    i, a = gi.var("i", shape=(), dtype="int64"), gi.var("a", shape=(3,))
    step = gi.Function([i, a], gi.Tuple([gi.add(gi.multiply(a, 2.0), gi.cast(i, dtype="float32"))]))
    looped = gi.Loop(trips, None, step, [x])[0]
    model = tw.build(gi.Function([x, flag, trips], gi.If(flag, looped, gi.negative(x))), target=kind)
    values = np.array([1, 2, 3], "f4")
    expected = values
    for number in range(4):
        expected = expected * 2 + number
    np.testing.assert_array_equal(model(values, np.array(True), np.array(4)), expected)
    np.testing.assert_array_equal(model(values, np.array(False), np.array(4)), -values)


def test_functions_of_the_module_call_each_other(target: tw.Target) -> None:
    p = gi.var("p", shape=("n",))
    helper = gi.GlobalVar("helper", gi.FuncType([p.type], p.type))
    x = gi.var("x", shape=("n",))
    mod = tw.IRModule(
        {
            gi.GlobalVar("main"): gi.Function([x], gi.add(gi.Call(helper, [gi.tanh(x)]), x)),
            helper: gi.Function([p], gi.multiply(p, p)),
        }
    )
    values = RNG.standard_normal(9).astype("f4")
    for opt_level in (0, 2):
        with tw.PassContext(opt_level=opt_level):
            found = tw.build(mod, target=target)(values)
        np.testing.assert_allclose(found, np.tanh(values) ** 2 + values, rtol=1e-5, atol=1e-6)


UNARY = ["tanh", "exp", "nn.relu", "negative", "sigmoid", "square", "nn.gelu"]
KINDS = ["unary", "binary", "scalar", "mean", "softmax", "dense", "transpose", "concat", "row"]
BINARY = ["add", "multiply", "subtract", "maximum"]


@st.composite
def graphs(draw: st.DrawFn) -> gi.Function:
    """Draw functions of a few operators of every fusion kind, over a symbolic and a static dimension."""
    width = draw(st.sampled_from([1, 3, 16, 17, 40]))
    x = gi.var("x", shape=("n", width))
    values: list[gi.Expr] = [x]
    for _ in range(draw(st.integers(1, 9))):
        source = draw(st.sampled_from(values))
        kind = draw(st.sampled_from(KINDS))
        if kind == "unary":
            made = gi.get_operator(draw(st.sampled_from(UNARY)))(gi.tanh(source))
        elif kind == "binary":
            made = gi.get_operator(draw(st.sampled_from(BINARY)))(source, draw(st.sampled_from(values)))
        elif kind == "scalar":
            made = gi.multiply(source, draw(st.sampled_from([0.5, -1.5, 1.0])))
        elif kind == "mean":
            made = gi.subtract(source, gi.mean(source, axis=1, keepdims=True))
        elif kind == "softmax":
            made = gi.nn.softmax(source)
        elif kind == "dense":
            weight = np.random.default_rng(draw(st.integers(0, 9))).standard_normal((width, width)) / width
            made = gi.nn.dense(source, gi.const(weight.astype("f4")))
        elif kind == "transpose":
            made = gi.transpose(gi.tanh(gi.transpose(source)))
        elif kind == "concat":
            made = gi.slice(gi.concatenate([source, x], axis=1), begin=(0, 0), end=(None, width))
        else:
            made = gi.add(source, gi.const(np.linspace(-1, 1, width, dtype="f4")))
        values.append(made)
    outputs = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=3))
    return gi.Function([x], gi.Tuple(outputs))


def check_against_references(function: gi.Function, target: tw.Target, opt_level: int) -> None:
    with tw.PassContext(opt_level=opt_level):
        model = tw.build(function, target=target)
    for rows in (1, 6, 35):
        values = np.random.default_rng(rows).standard_normal((rows, function.params[0].shape[1])).astype("f4")
        for found, expected in zip(model(values), gi.evaluate(function, values, dtype="float64"), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.integers(0, 3))
def test_random_graphs_agree_with_the_references(function: gi.Function, opt_level: int) -> None:
    check_against_references(function, tw.Target("llvm"), opt_level)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # numba takes seconds for one
@given(graphs(), st.integers(0, 3))
def test_random_graphs_agree_with_the_references_through_numba(function: gi.Function, opt_level: int) -> None:
    check_against_references(function, tw.Target("numba", num_threads=1), opt_level)


@pytest.mark.parametrize(
    ("stage", "kind"), [("graph", gi.Function), ("optimized", gi.Function), ("tensor", PrimFunc), ("lowered", PrimFunc)]
)
def test_a_pass_of_the_users_sees_the_module_after_a_stage(stage: str, kind: type) -> None:
    seen = []

    @tw.passes.module_pass(opt_level=1, name="Look")
    def look(mod: gi.IRModule, ctx: tw.PassContext) -> gi.IRModule:
        seen.append(mod)
        return mod

    model = tw.build(network(0), passes={stage: look})
    assert str(seen[0]) == model.ir(stage)
    assert any(isinstance(function, kind) for function in seen[0].functions.values())
    with tw.PassContext(opt_level=0):
        tw.build(network(0), passes={stage: look})
    assert len(seen) == 1  # the context had disabled it


def test_what_a_pass_of_the_users_makes_is_built() -> None:
    @tw.passes.function_pass(opt_level=0, name="Negate")
    def negate(func: gi.Function, mod: gi.IRModule, ctx: tw.PassContext) -> gi.Function:
        return func.with_body(gi.negative(func.body))

    values = RNG.standard_normal((5, 12)).astype("f4")
    np.testing.assert_array_equal(tw.build(network(0), passes={"graph": negate})(values), -tw.build(network(0))(values))


def test_passes_for_an_unknown_stage_are_refused() -> None:
    with pytest.raises(PassError, match="unknown stage 'tensr'; expected one of graph, optimized, tensor"):
        tw.build(network(0), passes={"tensr": tw.passes.get_pass("FuseOps")})


def test_no_garbage_is_searched_for_between_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[bool] = []
    compile_functions = lower_model.compile_functions

    def noting(*args: Any) -> Any:
        searched.append(gc.isenabled())
        return compile_functions(*args)

    monkeypatch.setattr(lower_model, "compile_functions", noting)
    tw.build(network(0))
    assert searched == [False] and gc.isenabled()
    with pytest.raises(PassError):
        tw.build(network(0), passes={"nowhere": InferType()})
    assert gc.isenabled()
    gc.disable()
    try:
        tw.build(network(0))
        assert not gc.isenabled(), "switched on for whoever had switched it off"
    finally:
        gc.enable()


@pytest.mark.parametrize("given", [None, 7, "model.onnx", [1], {"main": 7}])
def test_what_is_no_model_is_refused(given: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=r"expected a Function or PrimFunc|build takes an IRModule"):
        tw.build(given)
