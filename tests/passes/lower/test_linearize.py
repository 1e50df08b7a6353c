"""Test a graph function as a list of instructions: their order, and the sizes that a kernel is called with."""

from __future__ import annotations

import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes.lower.instructions import Branch, Copy, CountedLoop, Instruction, KernelCall, Program
from tilewright.passes.lower.linearize import linearize, model_constants
from tilewright.tensorir import parse
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc

TYPE = gi.TensorType((4,), "float32")
COUNTER = gi.TensorType((), "int64")

KERNEL = parse("""
primfunc @kernel(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  for i in range(4) {
    b[i] = a[i] + 1.0
  }
}
""")


def call(name: str, *args: gi.Expr, result: gi.TensorType = TYPE) -> gi.Call:
    return gi.Call(gi.GlobalVar(name), args, None, result)


def program(main: gi.Function, **others: gi.Function | PrimFunc) -> Program:
    mod = IRModule({"main": main, "kernel": KERNEL, **others})
    return linearize(mod["main"], mod)  # type: ignore[arg-type]


def kinds(body: list[Instruction]) -> list[type]:
    return [type(instruction) for instruction in body]


def test_branches_are_computed_only_where_they_are_taken() -> None:
    x, condition = gi.var("x", TYPE), gi.var("condition", shape=(), dtype="bool")
    body = program(gi.Function([x, condition], gi.If(condition, call("kernel", x), call("kernel", x)))).body
    assert kinds(body) == [Branch]
    assert isinstance(body[0], Branch)
    assert kinds(body[0].then_body) == kinds(body[0].else_body) == [KernelCall, Copy]


def test_loop_body_is_computed_only_in_the_loop() -> None:
    x, i, a = gi.var("x", TYPE), gi.var("i", COUNTER), gi.var("a", TYPE)
    step = gi.Function([i, a], gi.Tuple([call("kernel", a)]))
    body = program(gi.Function([x], gi.Loop(gi.const(3), None, step, [x]))).body
    assert kinds(body) == [Copy, CountedLoop]
    assert isinstance(body[1], CountedLoop)
    assert kinds(body[1].body) == [KernelCall, Copy]


def test_many_calls_one_after_the_other_are_no_recursion() -> None:
    x, p = gi.var("x", TYPE), gi.var("p", TYPE)
    value: gi.Expr = x
    for _ in range(100):
        value = call("helper", value)
    found = program(gi.Function([x], value), helper=gi.Function([p], call("kernel", p)))
    assert kinds(found.body) == [KernelCall] * 100


def test_functions_that_call_functions_are_no_recursion() -> None:
    x = gi.var("x", TYPE)
    others = {}
    for depth in range(10):
        p = gi.var("p", TYPE)
        others[f"f{depth}"] = gi.Function([p], call(f"f{depth + 1}" if depth < 9 else "kernel", p))
    assert kinds(program(gi.Function([x], call("f0", x)), **others).body) == [KernelCall]


def test_function_in_a_function_sees_what_is_around_it() -> None:
    x, y, p = gi.var("x", TYPE), gi.var("y", TYPE), gi.var("p", TYPE)
    inner = gi.Function([p], gi.Tuple([call("kernel", y), call("kernel", p)]))
    found = program(gi.Function([x, y], gi.Call(inner, [x])))
    first, second = found.body
    assert isinstance(first, KernelCall) and isinstance(second, KernelCall)
    assert first.args == [found.inputs[1]]
    assert second.args == [found.inputs[0]]


def test_called_function_computes_from_its_arguments_where_it_shares_expressions_with_its_caller() -> None:
    x = gi.var("x", TYPE)
    shared = call("kernel", x)
    found = program(gi.Function([x], call("helper", shared)), helper=gi.Function([x], shared))
    first, second = found.body
    assert isinstance(first, KernelCall) and isinstance(second, KernelCall)
    assert second.args == first.results


def test_loop_body_of_the_module_computes_from_its_arguments_where_it_shares_expressions_with_main() -> None:
    x, i = gi.var("x", TYPE), gi.var("i", COUNTER)
    shared = call("kernel", x)
    step = gi.GlobalVar("step", gi.FuncType([COUNTER, TYPE], gi.TupleType([TYPE])))
    main = gi.Function([x], gi.Loop(gi.const(3), None, step, [shared]))
    found = program(main, step=gi.Function([i, x], gi.Tuple([shared])))
    loop = found.body[-1]
    assert isinstance(loop, CountedLoop)
    assert kinds(loop.body) == [KernelCall, Copy]


def test_constants_are_listed_once_each() -> None:
    x, table = gi.var("x", TYPE), gi.const([1.0, 2.0, 3.0, 4.0])
    p = gi.var("p", TYPE)
    mod = IRModule(
        {
            "main": gi.Function([x], gi.Tuple([table, call("helper", x), call("helper", table)])),
            "helper": gi.Function([p], gi.Tuple([table, gi.const([5.0, 6.0, 7.0, 8.0])])),
        }
    )
    main = mod["main"]
    assert isinstance(main, gi.Function)
    assert [float(constant.data[0]) for constant in model_constants(main, mod)] == [1.0, 5.0]


PASSED = parse("""
primfunc @sized(a: Buffer[(4,), float32], b: Buffer[(4,), float32], k: int64)
    attrs {"num_inputs": 1, "num_outputs": 1, "sizes_from": ((0,),)} {
  for i in range(k) {
    b[i] = a[i]
  }
}
""")


def test_numbers_that_calls_pass_are_no_constants_of_the_model() -> None:
    x, number = gi.var("x", TYPE), gi.const(3)
    main = gi.Function([x], call("sized", x, number))
    found = program(main, sized=PASSED)
    assert found.constants == []
    (made,) = found.body
    assert isinstance(made, KernelCall)
    assert [str(size) for size in made.variables] == ["3"]


def test_a_number_that_is_a_value_too_is_a_constant() -> None:
    x, number = gi.var("x", TYPE), gi.const(3)
    found = program(gi.Function([x], gi.Tuple([call("sized", x, number), number])), sized=PASSED)
    assert found.constants == [number]


def test_a_size_that_is_no_constant_is_an_error() -> None:
    x, number = gi.var("x", TYPE), gi.var("n", COUNTER)
    with pytest.raises(CodegenError, match="passes a size as Var; expected a constant"):
        program(gi.Function([x, number], call("sized", x, number)), sized=PASSED)


def test_call_with_too_many_arguments_is_an_error() -> None:
    x = gi.var("x", TYPE)
    with pytest.raises(CodegenError, match="kernel takes 2 buffers, but is called with 2 arguments and 1 results"):
        program(gi.Function([x], call("kernel", x, x)))


def test_variable_that_nothing_defines_is_named() -> None:
    x, y = gi.var("x", TYPE), gi.var("y", TYPE)
    with pytest.raises(CodegenError, match="variable 'y' that is not defined"):
        program(gi.Function([x], call("kernel", y)))


def test_operator_that_was_not_lowered_is_named() -> None:
    x = gi.var("x", TYPE)
    with pytest.raises(
        CodegenError, match=r"a call of <operator tanh> was not lowered; run the pass LowerToTensorIR first"
    ):
        program(gi.Function([x], gi.tanh(x)))


SIZED = """
primfunc @sized(a: Buffer[(4,), float32], b: Buffer[({shape}), float32], c: Buffer[(4,), float32], k: int64)
    attrs {{"num_outputs": 1}} {{
  for i in range(4) {{
    c[i] = a[i]
  }}
}}
"""


def sizes(shape: str, *dims: object) -> list[str]:
    """The sizes that a call passes to a kernel whose second parameter, over its own ``k``, is of that shape."""
    x, y = gi.var("x", TYPE), gi.var("y", shape=dims)
    kernel = parse(SIZED.format(shape=shape))
    (found,) = program(gi.Function([x, y], call("sized", x, y)), sized=kernel).body
    assert isinstance(found, KernelCall)
    return [str(size) for size in found.variables]


@pytest.mark.parametrize(
    ("shape", "dims", "expected"),
    [
        ("k,", ("n",), "n"),
        ("k * 3,", (3, "n"), "n"),
        ("k, 3", ("n", 3), "n"),
        ("k,", (gi.symbol("n") * 2,), "n * 2"),
        ("k * 6,", (2, "n", 3), "n"),
    ],
)
def test_size_of_a_kernel_is_the_dimension_that_makes_the_argument_as_large(
    shape: str, dims: tuple[object, ...], expected: str
) -> None:
    assert sizes(shape, *dims) == [expected]


def test_size_that_no_argument_tells_is_named() -> None:
    with pytest.raises(CodegenError, match="its dimension k does not follow from the arguments of a call"):
        sizes("k * 5,", "n", 3)
