"""Test sizes that follow from the inputs' shapes, and the arguments and results of signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import PassInstrument
from tilewright.runtime import bind_params
from tilewright.runtime.dims import bindable_symbols, compile_dims
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import Step
from tilewright.tensorir.errors import CodegenError, InputError, TypeInferenceError
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, Select, Var, as_expr, cast

N, M = gi.symbol("n"), gi.symbol("m")


def op(name: str, a: object, b: object) -> Expr:
    """Make the operation without simplifying it."""
    return BinaryOp(name, as_expr(a), as_expr(b))


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (7, lambda n, m: 7),
        (as_expr(7), lambda n, m: 7),
        (N, lambda n, m: n),
        (op("add", N, M), lambda n, m: n + m),
        (op("sub", N, op("sub", M, 2)), lambda n, m: n - (m - 2)),
        (op("mul", op("add", N, 1), M), lambda n, m: (n + 1) * m),
        (op("floordiv", op("sub", N, M), 3), lambda n, m: (n - m) // 3),
        (op("floormod", op("sub", N, M), 3), lambda n, m: (n - m) % 3),
        (op("truncdiv", N, 3), lambda n, m: int(n / 3)),
        (op("truncmod", N, 3), lambda n, m: n - 3 * int(n / 3)),
        (op("min", N, M), lambda n, m: n if n < m else m),
        (op("max", N, M), lambda n, m: n if n > m else m),
        (Select(Compare("lt", N, M), op("add", N, 1), op("mul", M, 2)), lambda n, m: n + 1 if n < m else m * 2),
        (Select(Compare("eq", N, M), as_expr(1), as_expr(2)), lambda n, m: 1 if n == m else 2),
        (Select(Compare("ge", N, M), as_expr(1), as_expr(2)), lambda n, m: 1 if n >= m else 2),
        (cast("int64", Compare("le", N, M)), lambda n, m: 1 if n <= m else 0),
    ],
)
def test_dimension_is_what_its_formula_gives(dim: Any, expected: Callable[[int, int], int]) -> None:
    evaluate = compile_dims([dim], [N, M])
    for n in (0, 1, 2, 5, 9):
        for m in (0, 1, 5, 8):
            (found,) = evaluate(n, m)
            assert type(found) is int
            assert found == expected(n, m)


def test_dimensions_come_in_order_and_may_be_none() -> None:
    assert compile_dims([M, 3, N], [N, M])(10, 20) == (20, 3, 10)
    assert compile_dims([], [N])(10) == ()


@pytest.mark.parametrize(("dim", "text"), [(Var("unknown"), "unknown"), (cast("int64", cast("float32", N)), "float32")])
def test_dimension_that_is_no_arithmetic_of_known_sizes_is_named(dim: Expr, text: str) -> None:
    with pytest.raises(CodegenError, match=f"dimension .*{text}.* cannot be computed from the sizes of the inputs"):
        compile_dims([dim], [N])


def tensor(*shape: object) -> gi.TensorType:
    return gi.TensorType(shape, "float32")


def test_symbols_are_bound_in_the_order_of_first_use() -> None:
    assert bindable_symbols([tensor(M * 2, 3), tensor(N, M)]) == [M, N]


def test_symbol_that_never_stands_alone_is_named() -> None:
    with pytest.raises(CodegenError, match="symbolic dimension 'm' occurs only inside larger expressions"):
        bindable_symbols([tensor(N, N + M)])


def signature() -> Signature:
    result = gi.TupleType([tensor(N, 2), gi.TupleType([tensor(), tensor(M, N, 3)])])
    return Signature([Argument("x", tensor(N)), Argument("y", tensor(M))], result)


def test_shapes_of_results_follow_from_the_sizes() -> None:
    found = signature()
    step = Step(found.symbols, found.outputs, 0, lambda *_: None)
    assert step.output_shapes((5, 7)) == [(5, 2), (), (7, 5, 3)]


def test_results_are_nested_tuples_as_the_type_says() -> None:
    assert signature().restructure(["a", "b", "c"]) == ("a", ("b", "c"))


def test_fields_of_a_tuple_parameter_are_inputs_of_their_own() -> None:
    pair = gi.var("pair", gi.TupleType([tensor(N), tensor(N)]))
    model = tw.build(gi.Function([pair], gi.subtract(pair[0], pair[1])))
    assert [argument.name for argument in model.signature.inputs] == ["pair_0", "pair_1"]
    np.testing.assert_array_equal(model(pair_1=np.ones(2, "f4"), pair_0=np.full(2, 5, "f4")), [4, 4])


def test_parameters_of_one_name_are_refused() -> None:
    with pytest.raises(TypeInferenceError, match="two parameters of one name: x, x"):
        tw.build(gi.Function([gi.var("x", tensor(2)), gi.var("x", tensor(2))], gi.const(1.0)))


def test_parameter_that_is_no_tensor_is_refused_before_any_pass_runs() -> None:
    ran: list[str] = []

    class Recorder(PassInstrument):
        def run_before_pass(self, mod: tw.IRModule, info: Any) -> None:
            ran.append(info.name)

    function = gi.var("f", gi.FuncType([tensor(2)], tensor(2)))
    with (
        tw.PassContext(instruments=[Recorder()]),
        pytest.raises(TypeInferenceError, match="parameter 'f' of main: expected a tensor"),
    ):
        tw.build(gi.Function([function], gi.const(1.0)))
    assert ran == []


def test_bound_parameters_leave_the_attributes_of_main() -> None:
    x, w = gi.var("x", tensor(2)), gi.var("w", tensor(2))
    mod = tw.IRModule.from_expr(gi.Function([x, w], gi.add(x, w), attrs={"SkipOptimization": True}))
    main = bind_params(mod, {"w": np.ones(2, "f4")})["main"]
    assert dict(main.attrs) == {"SkipOptimization": True}
    assert isinstance(main, gi.Function)
    assert main.params == (x,)


def test_parameters_of_a_lowered_main_cannot_be_bound() -> None:
    x = gi.var("x", tensor(2))
    mod = tw.passes.lower.PlanMemory()(tw.passes.lower.LowerToTensorIR()(tw.IRModule.from_expr(gi.Function([x], x))))
    with pytest.raises(InputError, match="main is lowered already"):
        bind_params(mod, {"x": np.ones(2, "f4")})


def test_build_takes_a_module_or_a_function() -> None:
    with pytest.raises(TypeError, match="build takes an IRModule, a Function or a PrimFunc, found Var"):
        tw.build(gi.var("x", tensor(2)))  # type: ignore[arg-type]


def test_passes_see_the_target_that_build_was_given() -> None:
    """For numba, loops stay as written; for llvm, they are vectorized."""
    x = gi.var("x", tensor(64))
    function = gi.Function([x], gi.add(x, 1.0))
    assert "vectorized" in tw.build(function, target="llvm").ir("scheduled")
    assert "vectorized" not in tw.build(function, target="numba").ir("scheduled")


def misaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


@pytest.mark.parametrize(
    "view",
    [
        misaligned,
        np.asfortranarray,
        lambda array: array[:, ::-1],
        lambda array: misaligned(array)[:, ::-1],
        lambda array: misaligned(np.repeat(array, 2, axis=0))[::2],
    ],
    ids=["misaligned", "fortran", "reversed", "misaligned and reversed", "misaligned and strided"],
)
def test_code_reads_rows_of_aligned_elements_only(view: Callable[[np.ndarray], np.ndarray]) -> None:
    """An x86 processor permits misaligned loads, so that no result can show them."""
    checked = Signature([Argument("x", tensor(N, 3))], tensor(N, 3))
    values = view(np.arange(12, dtype="f4").reshape(4, 3))
    (found,), sizes = checked.check([values], convert=False)
    assert found.flags.c_contiguous and found.flags.aligned
    assert sizes == (4,)
    np.testing.assert_array_equal(found, values)


def test_misaligned_scalar_stays_a_scalar() -> None:
    checked = Signature([Argument("x", tensor())], tensor())
    (found,), _ = checked.check([misaligned(np.array(2.5, "f4"))], convert=False)
    assert found.shape == () and found.flags.aligned and found == 2.5


@pytest.mark.parametrize("shape", [(2, 4), (3, 3), (6,), (2, 3, 1), ()])
def test_array_of_another_shape_than_a_constant_one_is_refused(shape: tuple[int, ...]) -> None:
    checked = Signature([Argument("x", tensor(2, 3))], tensor())
    checked.check([np.zeros((2, 3), "f4")], convert=False)
    with pytest.raises(InputError, match=r"input 'x': expected float32 of shape \(2, 3\)"):
        checked.check([np.zeros(shape, "f4")], convert=False)
