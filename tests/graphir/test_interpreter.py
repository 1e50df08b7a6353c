"""Test the graph interpreter against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.tensorir.errors import InputError, TilewrightError, VerifyError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.stmt import BufferStore, PrimFunc

X = gi.var("x", shape=("n",))
VALUES = np.linspace(-1, 2, 5, dtype=np.float32)


def test_operators_tuples_and_lets():
    v = gi.var("v", shape=("n",))
    body = gi.Let(v, gi.tanh(X), gi.Tuple([v + v, gi.TupleGetItem(gi.Tuple([X, v]), 0)]))
    total, same = gi.evaluate(gi.Function([X], body), VALUES)
    np.testing.assert_allclose(total, 2 * np.tanh(VALUES), rtol=1e-6)
    np.testing.assert_array_equal(same, VALUES)


def test_only_the_branch_that_is_taken_is_computed():
    c = gi.var("c", shape=(), dtype="bool")
    undefined = gi.var("undefined", shape=("n",))
    function = gi.Function([X, c], gi.If(c, X * 2.0, undefined))
    np.testing.assert_array_equal(gi.evaluate(function, VALUES, np.array(True)), 2 * VALUES)
    with pytest.raises(VerifyError, match="%undefined"):
        gi.evaluate(function, VALUES, np.array(False))


def test_closures_see_the_variables_around_them():
    p = gi.var("p", shape=("n",))
    add_x = gi.Function([p], p + X)
    function = gi.Function([X], gi.Call(add_x, [gi.Call(add_x, [X])]))
    np.testing.assert_array_equal(gi.evaluate(function, VALUES), 3 * VALUES)


def test_a_loop_carries_its_state_until_the_condition_fails():
    i, s = gi.var("i", shape=(), dtype="int64"), gi.var("s", shape=("n",))
    j, t = gi.var("j", shape=(), dtype="int64"), gi.var("t", shape=("n",))
    body, condition = gi.Function([i, s], gi.Tuple([s + X])), gi.Function([j, t], gi.less(j, 3))
    for asked, times in ((None, 11), (condition, 4)):
        function = gi.Function([X], gi.TupleGetItem(gi.Loop(gi.const(10), asked, body, [X]), 0))
        np.testing.assert_allclose(gi.evaluate(function, VALUES), times * VALUES, rtol=1e-6)


def test_recursion_through_the_module_does_not_recurse_in_python():
    down, n = gi.GlobalVar("down"), gi.var("n", shape=(), dtype="int64")
    body = gi.If(gi.greater(n, 0), gi.Call(down, [n - 1], type=n.type), n)
    mod = gi.IRModule({down: gi.Function([n], body, n.type), "main": gi.Function([n], gi.Call(down, [n]))})
    assert gi.evaluate(mod, np.array(3000)) == 0


def test_a_deep_graph_is_evaluated():
    y = X
    for _ in range(20_000):
        y = gi.negative(y)
    np.testing.assert_array_equal(gi.evaluate(gi.Function([X], y), VALUES), VALUES)


def test_float64_computes_all_floats_in_float64():
    third = gi.Function([X], X / 3.0)
    assert gi.evaluate(third, VALUES).dtype == np.float32
    wide = gi.evaluate(third, VALUES, dtype="float64")
    np.testing.assert_array_equal(wide, VALUES.astype(np.float64) / 3)


def test_bits_are_those_of_the_graphs_type_where_floats_are_computed_in_float64() -> None:
    x = gi.var("x", shape=(3,), dtype="bfloat16")
    function = gi.Function([x], [gi.bitcast(x * 2.0, dtype="uint16"), gi.bitcast(x, dtype="bfloat16")])
    bits, same = gi.evaluate(function, np.array([1, 1.5, -2]), dtype="float64")
    np.testing.assert_array_equal(bits, np.array([0x4000, 0x4040, 0xC080], np.uint16))
    np.testing.assert_array_equal(same, [1, 1.5, -2])
    y = gi.var("y", shape=(2,))
    scales = gi.evaluate(gi.Function([y], gi.decode(gi.encode(y, dtype="float8_e8m0fnu"))), [1.0, 8.0], dtype="float64")
    np.testing.assert_array_equal(scales, [1, 8])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "'x' is missing"),
        ([VALUES, VALUES], "expected 1 inputs"),
        ([VALUES.astype(np.int32)], "expected Tensor"),
        ([VALUES[None]], "expected Tensor"),
    ],
)
def test_wrong_inputs_are_named(inputs: list, message: str):
    with pytest.raises(InputError, match=message):
        gi.evaluate(gi.Function([X], X), *inputs)


def test_inputs_are_given_once_by_their_names_and_in_their_sizes():
    y = gi.var("y", shape=(3,))
    function = gi.Function([y], y)
    for named, message in [
        ({"x": VALUES}, "input 'x' is unknown: y"),
        ({"y": VALUES}, r"input 'y': expected Tensor\[\(3,\), float32\], found shape \(5,\)"),
    ]:
        with pytest.raises(InputError, match=message):
            gi.evaluate(function, **named)
    with pytest.raises(InputError, match="input 'y' is given twice: y"):
        gi.evaluate(function, VALUES[:3], y=VALUES[:3])


def test_what_is_called_is_a_function_of_the_graph():
    y = gi.var("y", shape=(3,))
    buffer = Buffer("b", (3,))
    loops = PrimFunc("loops", (buffer,), BufferStore(buffer, 0.0, (0,)))
    for op, functions, message in [
        (gi.GlobalVar("f"), {}, "function @f is called, but no module defines it"),
        (gi.GlobalVar("loops"), {"loops": loops}, "@loops is a loop-level function; run it with tensorir.interpret"),
        (y, {}, "%y.* is called, but is no function"),
    ]:
        main = gi.Function([y], gi.Call(op, [y], type=y.type))
        with pytest.raises(VerifyError, match=message):
            gi.evaluate(gi.IRModule({"main": main, **functions}), VALUES[:3])
    with pytest.raises(InputError, match="main: expected a graph-level function; run a loop-level one with"):
        gi.evaluate(gi.IRModule({"main": loops}))
    f = gi.Function([y], y)
    with pytest.raises(VerifyError, match="a function of 1 parameters is called with 2 arguments"):
        gi.evaluate(gi.Function([y], gi.Call(f, [y, y], type=y.type)), VALUES[:3])


def test_an_error_in_a_reference_names_the_call():
    bad = gi.Call("reshape", [X], {"newshape": (3, 2)}, type=gi.TensorType((3, 2)))
    with pytest.raises((ValueError, TilewrightError)) as found:
        gi.evaluate(gi.Function([X], bad), VALUES)
    assert any("reshape" in note for note in found.value.__notes__)


def test_sizes_of_symbolic_dimensions_reach_attributes() -> None:
    x = gi.var("x", shape=("n", "m"))
    n, m = x.shape
    body = gi.broadcast_to(gi.reshape(x, newshape=(n * m,)), shape=(2, n * m))
    values = np.arange(12, dtype="f4").reshape(4, 3)
    np.testing.assert_array_equal(gi.evaluate(gi.Function([x], body), values), [values.reshape(-1)] * 2)
