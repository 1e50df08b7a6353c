"""The oracle accepts what rounding explains, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.oracle import Oracle
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.tensorir.dtype import as_dtype


def _oracle(body: gi.Expr, x: gi.Var, value: object, dtype: str = "float32") -> Oracle:
    return Oracle(IRModule.from_expr(gi.Function([x], body)), [np.asarray(value, as_dtype(dtype).numpy)])


@pytest.mark.parametrize(("dtype", "units"), [("float32", 200), ("float64", 200), ("bfloat16", 60), ("float16", 60)])
def test_an_error_of_many_units_is_wrong(dtype: str, units: int) -> None:
    x = gi.var("x", shape=(3,), dtype=dtype)
    oracle = _oracle(gi.tanh(x), x, [0.5, 1.0, 1.5], dtype)
    right = oracle.own[0]
    eps = 2.0 ** -{"float32": 23, "float64": 52, "bfloat16": 7, "float16": 10}[dtype]
    assert not oracle.judge([right], 0).wrong
    assert oracle.judge([(right.astype(np.float64) * (1 + units * eps)).astype(right.dtype)], 0).wrong


def test_the_difference_of_close_numbers_may_be_off_by_units_of_the_numbers() -> None:
    x = gi.var("x", shape=(2,))
    oracle = _oracle(gi.exp(x) - gi.exp(x * 1.0001), x, [1.0, 2.0])
    assert not oracle.judge([oracle.own[0] + np.float32(3e-7)], 0).wrong
    assert oracle.judge([oracle.own[0] + np.float32(1e-4)], 0).wrong


@pytest.mark.parametrize("approximate", [False, True])
def test_what_gelu_leaves_of_a_number_may_be_off_by_units_of_the_number(approximate: bool) -> None:
    x = gi.var("x", shape=(2,))
    oracle = _oracle(gi.nn.gelu(x, approximate=approximate), x, [-5.0, 3.0])
    assert not oracle.judge([oracle.own[0] + np.array([1e-7, 0], np.float32)], 0).wrong
    assert oracle.judge([oracle.own[0] + np.array([5e-5, 0], np.float32)], 0).wrong


def test_a_state_near_0_may_be_off_by_units_of_its_candidate() -> None:
    x, bias = gi.var("x", shape=(1, 1, 1)), gi.const(np.array([[24.0, 0, 0, 0, 0, 0]], "f4"))  # 1 - update: 4e-11
    weights = [gi.const(np.ones((1, 3, 1), "f4"))] * 2
    oracle = _oracle(gi.nn.gru(x, *weights, bias, gi.const(np.zeros((1, 1, 1), "f4")))[0], x, [[[1.0]]])
    assert abs(oracle.own[0].item()) < 1e-7
    assert not oracle.judge([oracle.own[0] + np.float32(6e-8)], 0).wrong
    assert oracle.judge([oracle.own[0] + np.float32(1e-4)], 0).wrong


def test_the_sum_of_an_old_state_and_a_new_one_may_be_off_by_units_of_1() -> None:
    x = gi.var("x", shape=(1, 1, 1))
    still = gi.const(np.zeros((1, 4, 1), "f4"))  # the gates are those of the bias: i and f are 1/2, o is 1
    bias, state = (gi.const(np.array(value, "f4")) for value in ([[0, 99, 0, 1, 0, 0, 0, 0]], [[[0]]]))
    cell = gi.const(np.full((1, 1, 1), -np.tanh(np.float32(1)), "f4"))
    oracle = _oracle(gi.nn.lstm(x, still, still, bias, state, cell)[2], x, [[[1.0]]])
    assert abs(oracle.own[0].item()) < 1e-7
    assert not oracle.judge([oracle.own[0] + np.float32(6e-8)], 0).wrong
    assert oracle.judge([oracle.own[0] + np.float32(1e-4)], 0).wrong


def test_the_sign_of_nan_is_not_known() -> None:
    x = gi.var("x", shape=(2,))
    oracle = _oracle(gi.bitcast(x / x, dtype="int32"), x, [0.0, 3.0])
    own = oracle.own[0]
    assert not oracle.judge([own ^ np.int32([np.iinfo(np.int32).min, 0])], 0).wrong
    assert oracle.judge([own ^ np.int32([0, 1])], 0).wrong


@pytest.mark.parametrize("causal", [False, True])
def test_causal_attention_may_leave_out_what_comes_later(causal: bool) -> None:
    query, ones = gi.var("x", shape=(1, 1, 1, 1)), gi.const(np.ones((1, 1, 2, 1), "f4"))
    value = gi.const(np.array([[[[1.0], [np.inf]]]], "f4"))
    oracle = _oracle(gi.nn.attention(query, ones, value, causal=causal), query, [[[[1.0]]]])
    assert bool(oracle.judge([np.ones((1, 1, 1, 1), "f4")], 0).wrong) == (not causal)


def test_a_quotient_by_a_constant_is_a_product_with_its_reciprocal_at_level_3() -> None:
    x = gi.var("x", shape=(1,))
    third, half = (_oracle(x / by + 0.5, x, [-0.5 * by]) for by in (3.0, 2.0))  # both are 0 if they are exact
    off = np.array([-1.5e-8], np.float32)
    assert not third.judge([off], 3).wrong
    assert third.judge([off], 2).wrong
    assert half.judge([off], 3).wrong


def test_constants_that_are_added_may_be_added_to_each_other_first_at_level_3() -> None:
    x = gi.var("x", shape=(1,))
    first, second, start = (np.array([value], "f4") for value in (2**-22, 4.25, -3.75))
    oracle = _oracle(x + gi.const(first) + gi.const(second), x, start)
    assert start + (first + second) == 0.5 != oracle.own[0] == oracle.exact[0]
    assert not oracle.judge([start + (first + second)], 3).wrong
    assert oracle.judge([start + (first + second)], 2).wrong
    assert oracle.judge([start + (first + second) + np.float32(1e-3)], 3).wrong


def test_where_errors_would_change_a_size_that_fits_zeros_stay() -> None:
    x = gi.var("x", shape=(2,))
    places = gi.broadcast_to(gi.nonzero(gi.sin(x)), shape=(1, 1))  # of 0 and 2: one, with an error of 0 two
    oracle = Oracle(IRModule.from_expr(gi.Function([x], gi.Tuple([gi.tanh(x), places]))), [np.array([0, 2], "f4")])
    right, place = oracle.own
    assert not oracle.judge([right * np.float32(1 + 3e-7), place], 0).wrong
    assert oracle.judge([right * np.float32(1 + 3e-5), place], 0).wrong


def test_integers_are_equal() -> None:
    x = gi.var("x", shape=(2,), dtype="int32")
    oracle = _oracle(gi.multiply(x, x), x, [3, 4], "int32")
    assert oracle.judge([np.array([9, 17], np.int32)], 0).wrong


def test_what_depends_on_the_last_bit_is_not_known() -> None:
    x = gi.var("x", shape=(2,))
    oracle = _oracle(gi.floor(gi.exp(gi.log(x))), x, [3.0, 2.5])
    verdict = oracle.judge([np.array([2.0, 2.0], np.float32)], 0)
    assert (verdict.wrong, verdict.unknown + verdict.loose) == ("", 1)
    assert oracle.judge([np.array([3.0, 3.0], np.float32)], 0).wrong


def test_nan_is_a_result_below_level_3() -> None:
    x = gi.var("x", shape=(2,))
    oracle = _oracle(gi.log(x), x, [-1.0, 1.0])
    assert oracle.judge([np.array([0.0, 0.0], np.float32)], 2).wrong
    assert not oracle.judge([np.array([np.nan, 0.0], np.float32)], 2).wrong


def test_another_shape_or_type_is_wrong() -> None:
    x = gi.var("x", shape=(2,))
    oracle = _oracle(gi.negative(x), x, [1.0, 2.0])
    assert "shape" in oracle.judge([np.zeros((2, 1), np.float32)], 0).wrong
    assert "type" in oracle.judge([np.zeros(2, np.float64)], 0).wrong


def test_a_batch_norm_whose_shift_overflows_may_have_either_infinity() -> None:
    x = gi.var("x", shape=(1, 1))
    zero, one = (gi.const(np.full(1, value, "f4")) for value in (0, 1))
    oracle, huge = (
        _oracle(gi.nn.batch_norm(x, gi.const(np.full(1, scale, "f4")), zero, one, one), x, [[3.0]])
        for scale in (2.0, 3e38)
    )
    assert oracle.judge([np.float32([[np.inf]])], 0).wrong
    assert not huge.judge([np.float32([[-np.inf]])], 0).wrong
