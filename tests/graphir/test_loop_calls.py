"""Calls of loop-level functions are typed against their parameters: by ``verify``, by ``InferType``, and in calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import passes
from tilewright import tensorir as ti
from tilewright.graphir.loop_calls import loop_call
from tilewright.tensorir.errors import CodegenError, InputError, TypeInferenceError, VerifyError

DOUBLE = ti.parse("""primfunc @k(a: Buffer[(n,), float32], b: Buffer[(n,), float32], n: int64) {
  for i in range(n) { b[i] = a[i] * 2.0 }
}""")
ADD = ti.parse("""primfunc @k(a: Buffer[(n,), float32], b: Buffer[(n,), float32], c: Buffer[(n,), float32], n: int64) {
  for i in range(n) { c[i] = a[i] + b[i] }
}""")
PAIRS = ti.parse("""primfunc @k(
  a: Buffer[(n * 2,), float32], b: Buffer[(n,), float32], c: Buffer[(n,), float32], n: int64
) {
  for i in range(n) { b[i] = a[i * 2] c[i] = a[i * 2 + 1] }
}""")
POWER = ti.parse("""primfunc @k(a: Buffer[(n,), float32], b: Buffer[(n,), float32], n: int64, times: int64) {
  for i in range(n) { b[i] = 1.0 for k in range(times) { b[i] = b[i] * a[i] } }
}""")


def tensor(*shape: Any, dtype: str = "float32") -> gi.TensorType:
    return gi.TensorType(shape, dtype)


def module(func: ti.PrimFunc, *args: gi.Expr, result: Any = None, signature: gi.FuncType | None = None) -> tw.IRModule:
    inputs = [arg for arg in args if isinstance(arg, gi.Var)]
    return tw.IRModule(
        {"main": gi.Function(inputs, gi.Call(gi.GlobalVar("k", signature), args, None, result)), "k": func}
    )


def variables(*types: gi.TensorType) -> list[gi.Expr]:
    return [gi.var(name, found) for name, found in zip("xyz", types, strict=False)]


N = gi.symbol("n")
#: A function, types of arguments, and what is said of the call, with the type that it declares.
WRONG = [
    (DOUBLE, [tensor(4)], tensor(3), r"@k: result b: expected Tensor\[\(n,\), float32\], declared as Tensor\[\(3,\)"),
    (DOUBLE, [tensor(4)], tensor(4, dtype="float64"), r"result b: .*, declared as Tensor\[\(4,\), float64\]"),
    (DOUBLE, [tensor(4)], tensor(4, 1), r"result b: .*, declared as Tensor\[\(4, 1\)"),
    (DOUBLE, [tensor(4)], gi.TupleType([tensor(4)] * 2), r"expected 1 result \(b: .*\), declared as \(Tensor"),
    (DOUBLE, [], tensor(4), r"expected 1 argument \(a: Tensor\[\(n,\), float32\]\); found none"),
    (DOUBLE, [tensor(4)] * 2, tensor(4), r"expected 1 argument \(a: .*\); found Tensor\[\(4,\), float32\], Tensor"),
    (DOUBLE, [tensor(4, dtype="int32")], tensor(4), r"argument a: .* found Tensor\[\(4,\), int32\]"),
    (DOUBLE, [tensor(4, 4)], tensor(4), r"argument a: .* found Tensor\[\(4, 4\), float32\]"),
    (ADD, [tensor(4), tensor(5)], tensor(4), r"argument b: .* found Tensor\[\(5,\), float32\]; dimension 0 must be 4"),
    (ADD, [tensor("n"), tensor(N + 1)], tensor("n"), r"argument b: .*; dimension 0 must be n"),
    (PAIRS, [tensor(7)], gi.TupleType([tensor(3)] * 2), r"argument a: .*\(n \* 2,\).*; dimension 0 must be 6"),
    (PAIRS, [tensor(8)], gi.TupleType([tensor(4), tensor(5)]), r"result c: .*; dimension 0 must be 4"),
    (
        POWER,
        [tensor(4)],
        tensor(4),
        r"1 argument \(a: .*\) and behind them the size times, which no shape tells; found",
    ),
]


@pytest.mark.parametrize("func, types, result, message", WRONG)
def test_verify_and_build_say_what_does_not_fit(func: Any, types: Any, result: Any, message: str) -> None:
    mod = module(func, *variables(*types), result=result)
    with pytest.raises(VerifyError, match=message):
        gi.verify(mod)
    with pytest.raises(TypeInferenceError, match=message) as caught:
        tw.build(mod)
    assert any("@main" in note and "@k(" in note for note in caught.value.__notes__)


def test_a_pass_that_makes_a_wrong_call_is_named() -> None:
    good = module(DOUBLE, *variables(tensor(4)), result=tensor(4))
    swap = passes.module_pass(
        lambda mod, ctx: mod.with_functions({mod.get_global_var("k"): ADD}), opt_level=0, name="Swap"
    )
    with (
        tw.PassContext(instruments=[passes.VerifyInstrument()]),
        pytest.raises(VerifyError, match=r"pass Swap .*\n@main: @k: expected 2 arguments"),
    ):
        swap(good)


@pytest.mark.parametrize("size", [5, 1 << 24])
def test_a_declared_result_too_small_is_an_error_at_any_size(size: int) -> None:
    x = gi.var("x", shape=(size,))
    mod = module(DOUBLE, x, signature=gi.FuncType([x.type], tensor(3)))
    with pytest.raises(TypeInferenceError, match=rf"declared as Tensor\[\(3,\), float32\]; dimension 0 must be {size}"):
        tw.build(mod)


def test_the_type_of_a_call_follows_from_the_parameters() -> None:
    split = ti.parse("""primfunc @k(
      a: Buffer[(n, 2), float32], b: Buffer[(n,), float32], c: Buffer[(n + 1,), float32], n: int64
    ) {
      for i in range(n) { b[i] = a[i, 0] c[i] = a[i, 1] }
    }""")
    mod = passes.get_pass("InferType")(module(split, gi.var("x", tensor(5, 2))))
    assert mod["main"].body.type == gi.TupleType([tensor(5), tensor(6)])  # type: ignore[union-attr]
    mod = passes.get_pass("InferType")(module(ADD, *variables(tensor("m"), tensor("m"))))
    assert mod["main"].body.type == tensor("m")  # type: ignore[union-attr]


def test_a_size_that_only_the_result_has_is_the_declared_one() -> None:
    spread = ti.parse("""primfunc @k(a: Buffer[(1,), float32], b: Buffer[(m,), float32], m: int64) {
      for i in range(m) { b[i] = a[0] }
    }""")
    x = gi.var("x", tensor(1))
    with pytest.raises(TypeInferenceError, match="no argument tells the size m of the result; declare the type"):
        tw.build(module(spread, x))
    found = tw.build(module(spread, x, result=tensor(7)))(np.full(1, 3, "f4"))
    np.testing.assert_array_equal(found, np.full(7, 3, "f4"))


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_sizes_that_may_differ_are_compared_in_calls(kind: str) -> None:
    x, y = variables(tensor("p"), tensor("q"))
    model = tw.build(module(ADD, x, y), target=kind)
    for size in (1, 5, 17):
        a = np.arange(size, dtype="f4")
        np.testing.assert_array_equal(model(a, a + 1), 2 * a + 1)
    with pytest.raises(InputError, match="dimension 0 of argument b of @k: q is 6, but it must be p, which is 5"):
        model(np.ones(5, "f4"), np.ones(6, "f4"))


def test_declared_sizes_that_may_differ_are_compared_in_calls() -> None:
    x, y = variables(tensor("p"), tensor("q"))
    call = gi.Call(gi.GlobalVar("k"), [x], None, tensor("q"))
    model = tw.build(tw.IRModule({"main": gi.Function([x, y], gi.add(call, y)), "k": DOUBLE}))
    ones = np.ones(4, "f4")
    np.testing.assert_array_equal(model(ones, ones), ones * 3)
    with pytest.raises(InputError, match="dimension 0 of result b of @k: q is 3, but it must be p, which is 4"):
        model(ones, ones[:3])


@pytest.mark.parametrize("kind", ["llvm", "numba"])
def test_a_size_that_no_shape_tells_is_passed_as_a_constant(kind: str) -> None:
    x = gi.var("x", shape=("p",))
    calls = [gi.Call(gi.GlobalVar("k"), [x, gi.const(times)]) for times in (2, 3, 2)]
    mod = tw.IRModule({"main": gi.Function([x], gi.Tuple(calls)), "k": POWER})
    gi.verify(mod)
    values = np.arange(7, dtype="f4")
    for found, times in zip(tw.build(mod, target=kind)(values), (2, 3, 2), strict=True):
        np.testing.assert_array_equal(found, values**times)


@pytest.mark.parametrize("size, found", [(gi.const(0), "found 0"), (gi.const(-2), "-2"), (gi.const(2.0), "float32")])
def test_a_passed_size_is_a_positive_integer(size: gi.Expr, found: str) -> None:
    with pytest.raises(TypeInferenceError, match=rf"@k: size times: expected a positive integer constant, .*{found}"):
        tw.build(module(POWER, gi.var("x", shape=(4,)), size))


def test_a_function_over_a_dimension_of_the_model_gets_its_size() -> None:
    a = ti.placeholder((4,), "float32", "a")
    scaled = ti.compute((4,), lambda i: a[i] * ti.cast("float32", gi.symbol("p")), name="scaled")
    func = ti.create_prim_func("k", [a], [scaled])
    x, y = variables(tensor(4), tensor("p"))
    model = tw.build(
        tw.IRModule({"main": gi.Function([x, y], gi.Tuple([gi.Call(gi.GlobalVar("k"), [x]), y])), "k": func})
    )
    np.testing.assert_array_equal(model(np.ones(4, "f4"), np.ones(3, "f4"))[0], np.full(4, 3, "f4"))
    with pytest.raises(
        CodegenError, match=r"@k needs the size p, which is no dimension of the model's inputs \(.*none"
    ):
        tw.build(module(func, x))


def test_attributes_that_only_the_compiler_sets_do_not_get_around_the_check() -> None:
    x = gi.var("x", tensor(4))
    for attrs in ({"num_inputs": 1}, {"num_inputs": 1, "operators": ("exp",)}):
        func = ti.PrimFunc("k", DOUBLE.params, DOUBLE.body, {**attrs, "num_outputs": 1, "sizes_from": ((0, 0),)})
        with pytest.raises(TypeInferenceError, match="the number of elements must be 4"):
            tw.build(module(func, x, result=tensor(1)))


def test_types_that_are_not_known_yet_are_no_error() -> None:
    assert loop_call(DOUBLE, gi.Call(gi.GlobalVar("k"), [gi.var("x")])) is None


@pytest.mark.parametrize("attrs", [{}, {"operators": ("exp",)}])
def test_kernels_without_places_of_their_sizes_are_compared_too(attrs: dict[str, Any]) -> None:
    func = ti.PrimFunc("k", DOUBLE.params, DOUBLE.body, {"num_inputs": 1, "num_outputs": 1, **attrs})
    with pytest.raises(TypeInferenceError, match="the number of elements must be 4"):
        tw.build(module(func, gi.var("x", tensor(4)), result=tensor(1)))
    with pytest.raises(TypeInferenceError, match="no tensor tells the size n of a"):
        tw.build(module(func, gi.var("x", tensor(4, 1)), result=tensor(4)))
    values = np.ones(4, "f4")
    np.testing.assert_array_equal(tw.build(module(func, gi.var("x", tensor(4)), result=tensor(4)))(values), values * 2)


@pytest.mark.parametrize("stage", ["graph", "optimized", "tensor"])
def test_calls_that_a_pass_of_the_users_own_adds_are_compared(stage: str) -> None:
    @passes.module_pass(opt_level=0, name="AddsCall")
    def adds_call(mod: tw.IRModule, ctx: tw.PassContext) -> tw.IRModule:
        main = mod["main"]
        assert isinstance(main, gi.Function)
        call = gi.Call(gi.GlobalVar("k"), main.params, None, main.params[0].type)
        added = {mod.get_global_var("main"): main.with_body(call), gi.GlobalVar("k"): ADD}
        return mod.with_functions(added)  # type: ignore[arg-type]

    inputs = variables(tensor("p"), tensor("q"))
    graph = gi.Function(inputs, gi.tanh(inputs[0]))  # type: ignore[arg-type]
    if stage == "tensor":  # nothing can be compared in calls any more
        with pytest.raises(TypeInferenceError, match="argument b of @k must be p, found q, which may be another"):
            tw.build(graph, passes={stage: adds_call})
        return
    model = tw.build(graph, passes={stage: adds_call})
    np.testing.assert_array_equal(model(np.ones(3, "f4"), np.ones(3, "f4")), np.full(3, 2, "f4"))
    with pytest.raises(InputError, match="argument b of @k: q is 5, but it must be p, which is 3"):
        model(np.ones(3, "f4"), np.ones(5, "f4"))
