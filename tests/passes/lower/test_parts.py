"""Test kernels that compute parts of larger values in place: strides, the remaining assembly, memory."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.graphir.parts import excess
from tilewright.passes.graph.walk import as_group
from tilewright.passes.lower import LowerToTensorIR, PlanMemory
from tilewright.passes.lower.instructions import KernelCall
from tilewright.passes.lower.linearize import is_empty, linearize
from tilewright.passes.lower.parts import assemble, find_parts, with_strides
from tilewright.passes.lower.plan_memory import plan
from tilewright.passes.lower.primitive import lower_primitive
from tilewright.tensorir import PrimFunc, interpret, verify
from tilewright.tensorir.errors import CodegenError, TypeInferenceError


def in_place(call: gi.Call, *placed: int) -> gi.Call:
    """``call`` in a group that says which of its arguments are computed in place."""
    params = [gi.var(f"p{number}", arg.type) for number, arg in enumerate(call.args)]
    body = gi.Call(call.op, params, call.attrs)
    group = gi.Function(params, body, attrs={"Primitive": True, "kind": "opaque", "in_place": placed})
    return gi.Call(group, call.args)


def main_of(body: gi.Expr, *params: gi.Var) -> tuple[IRModule, gi.Function]:
    lowered = LowerToTensorIR()(IRModule.from_expr(gi.Function(params, body)))
    for function in lowered.functions.values():
        if isinstance(function, PrimFunc):
            verify(function)
    return lowered, lowered["main"]


def test_excess_counts_behind_the_first_dimension_of_several_elements() -> None:
    assert excess((1, 4, 5), (1, 9, 5)) == (0, 0, 0)
    assert excess((2, 4, 5), (2, 9, 5)) == (0, 5, 0)
    assert excess((1, 4, 5), (1, 6, 7)) == (0, 0, 2)
    assert excess((2, 4), (2, 6), (0, 3)) == (0, 5)


def test_parts_of_parts_lie_in_the_outermost_value() -> None:
    x = gi.var("x", shape=(2, 4))
    a, b = gi.tanh(x), gi.exp(x)
    inner = in_place(gi.concatenate(a, b, axis=1), 0, 1)
    outer = in_place(gi.pad(inner, pad_width=((0, 0), (1, 2))), 0)
    assert find_parts(outer) == {inner: (0, 3), a: (0, 7), b: (0, 7)}


def test_distance_of_rows_that_is_symbolic_is_an_error() -> None:
    x, y = gi.var("x", shape=(2, 4)), gi.var("y", shape=(2, "n"))
    with pytest.raises(TypeInferenceError, match="its row stride depends on symbolic dimensions"):
        find_parts(in_place(gi.concatenate(gi.tanh(x), y, axis=1), 0))


def test_kernel_writes_the_rows_of_a_longer_memory_and_nothing_between() -> None:
    x = gi.var("x", shape=("n", 3))
    group, _ = as_group(gi.multiply(x, x))
    kernel = with_strides(lower_primitive(group, "square"), [None, (0, 2)])
    verify(kernel)
    memory = np.full((2, 5), 9.0, "f4")
    interpret(kernel, np.arange(6, dtype="f4").reshape(2, 3), memory[:, :3], 2)
    np.testing.assert_array_equal(memory, [[0, 1, 4, 9, 9], [9, 16, 25, 9, 9]])


def test_border_kernel_writes_the_border_alone() -> None:
    x = gi.var("x", shape=(2, "h", 3))
    call = gi.pad(x, pad_width=((0, 0), (2, 1), (1, 0)), pad_value=0.5)
    kernel = assemble(in_place(call, 0).op, "border")
    verify(kernel)
    found = np.full((2, 7, 4), 9.0, "f4")
    interpret(kernel, np.zeros((2, 4, 3), "f4"), found, 4)
    expected = np.pad(np.full((2, 4, 3), 9.0, "f4"), ((0, 0), (2, 1), (1, 0)), constant_values=0.5)
    np.testing.assert_array_equal(found, expected)


def test_arguments_that_are_not_in_place_are_copied() -> None:
    x, y, z = (gi.var(name, shape=(2, size)) for name, size in (("x", 2), ("y", "n"), ("z", 1)))
    kernel = assemble(in_place(gi.concatenate(x, y, z, axis=1), 0).op, "join")
    verify(kernel)
    found = np.full((2, 6), 9.0, "f4")
    interpret(kernel, np.zeros((2, 2), "f4"), np.full((2, 3), 5, "f4"), np.full((2, 1), 6, "f4"), found, 3)
    np.testing.assert_array_equal(found, [[9, 9, 5, 5, 5, 6]] * 2)


def test_what_has_nothing_left_to_do_is_not_called() -> None:
    x = gi.var("x", shape=(2, 4))
    joined = in_place(gi.concatenate(gi.tanh(x), gi.exp(x), axis=1), 0, 1)
    lowered, main = main_of(joined, x)
    assert is_empty(lowered["concatenate"])
    program = linearize(main, lowered)
    assert [call.kernel for call in program.body if isinstance(call, KernelCall)] == ["tanh", "exp"]
    assert "concatenate" not in [key.name for key in PlanMemory()(lowered).functions]


def test_parts_share_the_memory_and_the_life_of_their_whole() -> None:
    x = gi.var("x", shape=(2, 4))
    joined = in_place(gi.concatenate(gi.tanh(x), gi.exp(x), axis=1), 0, 1)
    lowered, main = main_of(gi.sqrt(gi.abs(joined)), x)
    program = linearize(main, lowered)
    first, second = program.body[0].results[0], program.body[1].results[0]
    assert first.owner is second.owner is not first
    assert (first.begin, second.begin) == ((0, 0), (0, 4))
    planned = PlanMemory()(lowered)["main"]
    assert "@tanh(address_of(x[0, 0]), address_of(arena[0]))" in str(planned).replace("input_0", "x")
    assert "@exp(address_of(x[0, 0]), address_of(arena[16]))" in str(planned).replace("input_0", "x")


def test_equal_kernels_on_longer_memory_are_kernels_of_their_own() -> None:
    x = gi.var("x", shape=(2, 4))
    a, b = gi.tanh(x), gi.tanh(gi.exp(x))
    lowered, _ = main_of(gi.Tuple([in_place(gi.concatenate(a, gi.exp(x), axis=1), 0), b]), x)
    strided = [key.name for key, kernel in lowered.functions.items() if key.name.startswith("tanh")]
    assert len(strided) == 2


def test_argument_that_is_not_computed_there_is_an_error() -> None:
    x = gi.var("x", shape=(2, 4))
    lowered, main = main_of(in_place(gi.concatenate(x, gi.exp(x), axis=1), 0, 1), x)
    with pytest.raises(
        CodegenError, match="argument 0 of @concatenate was not computed in place, in the memory of the result"
    ):
        linearize(main, lowered)


def test_values_of_two_calls_of_a_function_are_apart() -> None:
    p, x, y = gi.var("p", shape=(1, 4)), gi.var("x", shape=(1, 4)), gi.var("y", shape=(1, 4))
    helper = gi.GlobalVar("helper", gi.FuncType([p.type], gi.TensorType((1, 8), "float32")))
    inner = gi.Function([p], in_place(gi.concatenate(gi.tanh(p), gi.exp(p), axis=1), 0, 1))
    body = gi.subtract(gi.Call(helper, [x]), gi.Call(helper, [y]))
    mod = LowerToTensorIR()(IRModule({gi.GlobalVar("main"): gi.Function([x, y], body), helper: inner}))
    calls = [call for call in linearize(mod["main"], mod).body if isinstance(call, KernelCall)]
    assert len({call.results[0].owner for call in calls}) == 3


def test_result_that_lies_in_another_value_is_copied() -> None:
    x = gi.var("x", shape=(1, 4))
    part = gi.tanh(x)
    body = gi.Tuple([part, in_place(gi.concatenate(part, gi.exp(x), axis=1), 0, 1)])
    lowered, main = main_of(body, x)
    program = linearize(main, lowered)
    assert [value.role for value in program.outputs] == ["output", "output"]
    assert program.outputs[0].whole is None


def padded(call: gi.Call, amount: int) -> gi.Call:
    """``call`` in a group whose result has memory behind each row."""
    group, places = as_group(call)
    return gi.Call(group.with_attr("row_padding", amount), [call.args[place] for place in places])


def test_padded_rows_take_their_memory_in_all_dimensions_in_front() -> None:
    x = gi.var("x", shape=(2, 3, 4))
    rows = padded(gi.tanh(x), 16)
    assert find_parts(gi.exp(rows)) == {rows: (0, 0, 16)}
    lowered, main = main_of(gi.exp(gi.sqrt(gi.abs(rows))), x)
    program = linearize(main, lowered)
    plan(program)
    place = program.body[0].results[0].place
    assert place is not None and place.size == 512  # 2 * 3 * 20 * 4 bytes, and the rest of a line
    kernels = {key.name: kernel for key, kernel in lowered.functions.items() if isinstance(kernel, PrimFunc)}
    strides = {name: [[one.value for one in b.strides] for b in k.buffers] for name, k in kernels.items()}
    assert strides == {"tanh": [[], [60, 20, 1]], "abs": [[60, 20, 1], []], "sqrt": [[], []], "exp": [[], []]}


def test_padded_result_of_the_model_is_an_error_as_it_cannot_be_copied() -> None:
    x = gi.var("x", shape=(2, 4))
    lowered, _ = main_of(padded(gi.tanh(x), 16), x)
    with pytest.raises(CodegenError, match="cannot be copied: it is not contiguous in memory"):
        PlanMemory()(lowered)
