"""The Python examples of Apache TVM's documents on its pass infrastructure, with names changed to this project's.

They are the promise that somebody who knows those documents finds the same names (``tw.transform`` for
``tvm.transform`` and ``relay.transform``) and behaviour here: the pass infrastructure
document, its older version (with the ``Sequential`` and the debugging examples) and the pass instrument proposal.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import passes
from tilewright.graphir.visitor import call_nodes
from tilewright.transform import (
    FunctionPass,
    ModulePass,
    PassContext,
    PassInfo,
    PassInstrument,
    PrintIR,
    Sequential,
    function_pass,
    module_pass,
    pass_instrument,
)

SHAPE = (1, 2, 3)


def operators(mod: tw.IRModule, name: str = "main") -> list[str]:
    """Names of the operators that function ``name`` calls."""
    return [call.op.name for call in call_nodes(mod[name].body)]


@pytest.fixture
def example() -> tw.IRModule:
    """The module of the documents' ``Sequential`` example."""
    c_data = np.array(SHAPE).astype("float32")
    tp = gi.TensorType(SHAPE, "float32")
    c = gi.const(c_data)
    x = gi.var("x", tp)
    y = gi.add(c, c)
    y = gi.multiply(y, gi.const(2, "float32"))
    y = gi.add(x, y)
    z = gi.add(y, c)
    z1 = gi.add(y, c)
    z2 = gi.add(z, z1)
    func = gi.Function([x], z2)
    return tw.IRModule({"main": func})


def expected_of_example(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Compute the example in float64."""
    c = np.array(SHAPE, dtype=np.float64)
    y = x.astype(np.float64) + (c + c) * 2
    return (y + c) + (y + c)


def pipeline(*extra: Any) -> Sequential:
    """The documents' pipeline; ``extra`` passes stand after FoldConstant."""
    return Sequential(
        [
            passes.graph.InferType(),
            passes.graph.FoldConstant(),
            *extra,
            passes.graph.EliminateCommonSubexpr(),
            passes.graph.AlterOpLayout(),
        ]
    )


@module_pass(opt_level=2)
def transform(mod: Any, ctx: Any) -> Any:
    tp = gi.TensorType((10,), "float32")
    x = gi.var("x", tp)
    gv = gi.GlobalVar("abs")
    func = gi.Function([x], gi.abs(x))
    new_mod = tw.IRModule({gv: func})
    new_mod.update(mod)
    return new_mod


def test_a_module_pass_made_by_decoration() -> None:
    assert isinstance(transform, ModulePass)
    assert transform.info.opt_level == 2


def test_the_module_pass_adds_a_function_to_an_empty_module() -> None:
    mod = tw.IRModule()
    mod = transform(mod)
    assert [gv.name for gv in mod.functions] == ["abs"]
    assert operators(mod, "abs") == ["abs"]


def test_the_module_pass_keeps_the_functions_that_are_there(example: tw.IRModule) -> None:
    mod = transform(example)
    assert sorted(gv.name for gv in mod.functions) == ["abs", "main"]
    assert mod["main"] is example["main"]
    assert [gv.name for gv in example.functions] == ["main"]


def test_a_function_pass_made_of_a_class_that_replaces_every_function() -> None:
    @function_pass(opt_level=1)
    class TestReplaceFunc:
        def __init__(self, new_func: Any) -> None:
            self.new_func = new_func

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            # Just for demo purposes
            # Transform func to new_func
            return self.new_func

    x = gi.var("x", shape=(10, 20))
    f1 = gi.Function([x], x)
    f2 = gi.Function([x], gi.log(x))
    input_mod = tw.IRModule({"main": f2, "other": f2})
    # fpass is now a special pass that replaces every function to f1
    fpass = TestReplaceFunc(f1)
    assert isinstance(fpass, FunctionPass)
    # Now every function in input_mod is replaced by f1
    res_mod: Any = fpass(input_mod)
    assert [res_mod[name] for name in ("main", "other")] == [f1, f1]
    assert input_mod["main"] is f2


def test_const_folding_applied_directly(example: tw.IRModule) -> None:
    mod = passes.graph.FoldConstant()(passes.graph.InferType()(example))
    assert operators(mod).count("add") == 4
    assert "multiply" not in operators(mod)


def test_the_sequential_example(example: tw.IRModule) -> None:
    with PassContext(opt_level=3), tw.Target("llvm"):
        mod = pipeline()(example)
    # c + c and its double are folded, and the two equal sums are one: x + const, + c, and the sum of it with itself.
    assert operators(mod) == ["add", "add", "add"]
    assert len(operators(example)) == 6


def test_the_sequential_example_computes_what_it_did(example: tw.IRModule) -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE).astype("float32")
    with PassContext(opt_level=3), tw.Target("llvm"):
        mod = pipeline()(example)
        result = tw.build(mod)(x)
    np.testing.assert_allclose(result, expected_of_example(x), rtol=1e-6)


def test_the_sequential_example_with_a_disabled_pass(example: tw.IRModule) -> None:
    with PassContext(opt_level=3, disabled_pass=["EliminateCommonSubexpr"]), tw.Target("llvm"):
        mod = pipeline()(example)
    assert operators(mod) == ["add"] * 4


def test_print_ir_after_fold_constant_dumps_the_folded_module(example: tw.IRModule) -> None:
    stream = io.StringIO()
    with PassContext(opt_level=3), tw.Target("llvm"):
        folded = Sequential([passes.graph.InferType(), passes.graph.FoldConstant()])(example)
        pipeline(PrintIR(stream=stream))(example)
    assert str(folded) in stream.getvalue()


def test_a_trace_function_prints_the_ir_before_each_pass(example: tw.IRModule, capsys: Any) -> None:
    def print_ir(mod: Any, info: Any, is_before: bool) -> None:
        """Print the name of the pass, the IR, only before passes execute."""
        if is_before:
            print(f"Running pass: {info}")
            print(mod)

    with PassContext(opt_level=3, trace=print_ir), tw.Target("llvm"):
        pipeline()(example)
    out = capsys.readouterr().out
    names = ["sequential", "InferType", "FoldConstant", "EliminateCommonSubexpr", "AlterOpLayout"]
    places = [out.index(f"Running pass: PassInfo(name='{name}'") for name in names]
    assert places == sorted(places)
    assert out.count("Running pass: ") >= len(names)  # passes that others require run, and are traced, as well
    assert str(example) in out


def test_the_call_sequence_of_an_instrument(example: tw.IRModule) -> None:
    calls: list[str] = []

    @pass_instrument
    class PI:
        def enter_pass_ctx(self) -> None:
            calls.append("enter")

        def exit_pass_ctx(self) -> None:
            calls.append("exit")

        def should_run(self, mod: Any, info: Any) -> bool:
            calls.append(f"should_run {info.name}")
            return bool(info.name != "Pass2")

        def run_before_pass(self, mod: Any, info: Any) -> None:
            calls.append(f"before {info.name}")

        def run_after_pass(self, mod: Any, info: Any) -> None:
            calls.append(f"after {info.name}")

    def named(name: str) -> Any:
        def run(mod: Any, ctx: Any) -> Any:
            calls.append(name)
            return mod

        return module_pass(run, opt_level=0, name=name)

    with PassContext(instruments=[PI()]):  # type: ignore[list-item]
        mod = named("Pass1")(example)
        named("Pass2")(mod)
    assert calls == [
        *["enter", "should_run Pass1", "before Pass1", "Pass1", "after Pass1"],
        *["should_run Pass2", "exit"],
    ]


def test_where_b_fails_to_enter_a_exits_and_c_is_never_executed() -> None:
    calls: list[str] = []

    class Named(PassInstrument):
        def __init__(self, name: str) -> None:
            self.name = name

        def enter_pass_ctx(self) -> None:
            calls.append(f"{self.name} enter")
            if self.name == "B":
                raise RuntimeError("B throws an exception")

        def exit_pass_ctx(self) -> None:
            calls.append(f"{self.name} exit")

    ctx = PassContext(instruments=[Named("A"), Named("B"), Named("C")])
    with pytest.raises(RuntimeError, match="B throws an exception"), ctx:
        pass
    assert calls == ["A enter", "B enter", "A exit"]
    assert ctx.instruments == []


def test_instruments_of_the_global_context_are_overridden(example: tw.IRModule) -> None:
    @pass_instrument
    class PassesCounter:
        def __init__(self) -> None:
            self.count = 0

        def run_before_pass(self, mod: Any, info: PassInfo) -> None:
            self.count += 1

        def get_result(self) -> int:
            return self.count

    pass_inst = PassesCounter()
    cur_pass_ctx = PassContext.current()
    # override PassInstrument instances
    cur_pass_ctx.override_instruments([pass_inst])  # type: ignore[list-item]
    try:
        Sequential([passes.graph.InferType()])(example)
        result = pass_inst.get_result()
    finally:
        cur_pass_ctx.override_instruments([])
    assert result == 2  # the pipeline, and the pass in it


def test_options_that_a_pass_fetches_from_the_context() -> None:
    key = "tensorir.UnrollLoop"
    with PassContext(config={key: {"auto_max_step": 16}}) as ctx:
        assert PassContext.current() is ctx
        assert ctx.get_config(key).auto_max_step == 16
    assert key in PassContext.list_configs()


def test_an_unknown_option_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"tensorir\.UnrollLoop"):
        PassContext(config={"tensorir.UnrolLoop": {"auto_max_step": 16}})


def test_each_name_of_transform_is_what_passes_call_so() -> None:
    renamed = {"prim_func_pass": "primfunc_pass"}
    for name in tw.transform.__all__:
        rooms = [room for room in (passes, passes.graph) if hasattr(room, renamed.get(name, name))]
        assert getattr(tw.transform, name) is getattr(rooms[0], renamed.get(name, name)), name


def test_the_sequential_example_under_the_names_of_transform(example: tw.IRModule) -> None:
    seq = tw.transform.Sequential(
        [
            tw.transform.InferType(),
            tw.transform.FoldConstant(),
            tw.transform.EliminateCommonSubexpr(),
            tw.transform.AlterOpLayout(),
        ]
    )
    with tw.transform.PassContext(opt_level=3, disabled_pass=["EliminateCommonSubexpr"]):
        without = seq(example)
    with tw.transform.PassContext(opt_level=3):
        assert len(operators(seq(example))) < len(operators(without)) < len(operators(example))
