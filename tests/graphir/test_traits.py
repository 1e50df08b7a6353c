"""Check the traits that operators declare against their NumPy references."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir import meaning
from tilewright.graphir.meaning import meaning_of
from tilewright.graphir.op import Operator, get_operator, list_operators
from tilewright.graphir.ops import ANY
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import TypeInferenceError

Array = np.ndarray[Any, Any]

#: Attributes for operators that need some, or of which the default shows little.
ATTRS: dict[str, dict[str, Any]] = {
    "clip": {"a_min": -2, "a_max": 3},
    "flip": {"axis": 1},
    "reshape": {"newshape": (4, 6)},
    "expand_dims": {"axis": 1},
    "transpose": {"axes": (1, 0)},
    "concatenate": {"axis": 0},
    "stack": {"axis": 1},
    "slice": {"begin": (1,), "end": (5,)},
    "tile": {"reps": (2, 1)},
    "repeat": {"repeats": 2, "axis": 1},
    "pad": {"pad_width": ((0, 0), (-1, 1))},
    "layout_transform": {"src_layout": "AB", "dst_layout": "AB"},
    "broadcast_to": {"shape": (6, 4)},
    "cast": {"dtype": "float32"},
}
SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1.5, 3e38, 0.5, -0.5, 2.5, 7, -7, 1, -1, 100, -100, 3.25]


def arrays(dtype: str, count: int = 1) -> list[Array]:
    """Arrays that hold each element beside each other one, if there are two."""
    if dtype == "bool":
        values = np.array([False, True])
    elif as_dtype(dtype).is_float:
        special = np.array(SPECIAL)
        values = (special.clip(-65504, 65504) if dtype == "float16" else special).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        values = np.array([limits.min, limits.max, 0, 1, 2, 5, limits.max - 1, limits.min + 1], dtype)
    if count == 2:
        pairs = np.array(list(itertools.product(values, values)), dtype)
        return [pairs[:, :1], pairs[:, 1:]]
    return [values.reshape(-1, 2)]


def attrs_of(op: Operator) -> Any:
    return op.make_attrs(ATTRS.get(op.name, {}))


def takes(op: Operator, dtype: str) -> bool:
    """Return whether arguments of the type are allowed."""
    try:
        op.infer_type([gi.TensorType((24, 1), dtype)] * op.required, attrs_of(op))
    except TypeInferenceError:
        return False
    return True


def dtypes_of(op: Operator) -> list[str]:
    return [dtype for dtype in ANY if dtype != "bfloat16" and takes(op, dtype)]


def overrides(name: str, trait: str) -> bool:
    return getattr(type(get_operator(name)), trait) is not getattr(Operator, trait)


def run(op: Operator, *args: Array) -> Array:
    with np.errstate(all="ignore"):
        found: Array = op.reference(list(args), attrs_of(op))
    return found


def assert_same_bits(found: Array, expected: Array) -> None:
    np.testing.assert_array_equal(found, expected)
    if found.dtype.kind == "f":
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


def stating(trait: str, arity: int | None = None) -> list[Any]:
    """The operators that state a trait, with each element type that they take."""
    operators = [op for op in map(get_operator, list_operators()) if getattr(op, trait)]
    found = [op for op in operators if arity in (None, op.required)]
    return [pytest.param(op, dtype, id=f"{op.name}-{dtype}") for op in found for dtype in dtypes_of(op)]


@pytest.mark.parametrize(("op", "dtype"), stating("involution"))
def test_an_involution_undoes_itself(op: Operator, dtype: str) -> None:
    (x,) = arrays(dtype)
    assert_same_bits(run(op, run(op, x)), x)


@pytest.mark.parametrize(("op", "dtype"), stating("idempotent", 1))
def test_an_idempotent_operator_changes_its_results_no_more(op: Operator, dtype: str) -> None:
    (x,) = arrays(dtype)
    once = run(op, x)
    assert_same_bits(run(op, once), once)


@pytest.mark.parametrize(("op", "dtype"), stating("idempotent", 2))
def test_an_idempotent_operator_of_two_equal_arguments_gives_them(op: Operator, dtype: str) -> None:
    (x,) = arrays(dtype)
    assert_same_bits(run(op, x, x), x)


@pytest.mark.parametrize(("op", "dtype"), stating("even"))
def test_an_even_operator_ignores_the_sign(op: Operator, dtype: str) -> None:
    (x,) = arrays(dtype)
    if not as_dtype(dtype).is_uint:
        assert_same_bits(run(op, run(get_operator("negative"), x)), run(op, x))


@pytest.mark.parametrize(("op", "dtype"), stating("commutative"))
def test_a_commutative_operator_takes_its_arguments_in_any_order(op: Operator, dtype: str) -> None:
    a, b = arrays(dtype, 2)
    assert_same_bits(run(op, a, b), run(op, b, a))


@pytest.mark.parametrize(("op", "dtype"), stating("ignores_elements"))
def test_an_operator_that_ignores_elements_repeats_one_number(op: Operator, dtype: str) -> None:
    (x,) = arrays(dtype)
    element = op.uniform_value([np.zeros((), x.dtype)], op.make_attrs({}))
    assert_same_bits(run(op, x), np.full(x.shape, element, x.dtype))


@pytest.mark.parametrize(("op", "dtype"), stating("associative"))
def test_an_associative_operator_groups_integers_as_it_likes(op: Operator, dtype: str) -> None:
    a, b = arrays(dtype, 2)
    if not as_dtype(dtype).is_float:
        assert_same_bits(run(op, run(op, a, b), b), run(op, a, run(op, b, b)))


@pytest.mark.parametrize("name", [name for name in list_operators() if overrides(name, "neutral")])
def test_a_neutral_number_leaves_the_other_argument_as_it_is(name: str) -> None:
    op = get_operator(name)
    assert dtypes_of(op)
    for dtype, argument in itertools.product(dtypes_of(op), (0, 1)):
        number = op.neutral(argument, as_dtype(dtype))
        if number is not None:
            (x,) = arrays(dtype)
            constant = np.array(number, dtype)
            assert_same_bits(run(op, *((constant, x) if argument == 0 else (x, constant))), x)


@pytest.mark.parametrize(("op", "dtype"), stating("keeps_order"))
def test_an_operator_that_keeps_the_order_only_gives_another_shape(op: Operator, dtype: str) -> None:
    x = np.arange(-12, 12).astype(dtype).reshape(24, 1)
    assert_same_bits(run(op, x).reshape(-1), x.reshape(-1))


@pytest.mark.parametrize(("op", "dtype"), stating("moves_elements"))
def test_an_operator_that_moves_elements_moves_any_object(op: Operator, dtype: str) -> None:
    x = np.arange(24).reshape(6, 4)
    objects = np.array([f"n + {number}" for number in range(24)], object).reshape(6, 4)
    moved = run(op, objects)
    assert moved.dtype == object
    assert [f"n + {number}" for number in run(op, x).reshape(-1)] == moved.reshape(-1).tolist()


@pytest.mark.parametrize("name", [name for name in list_operators() if overrides(name, "is_identity")])
def test_what_is_said_to_be_the_argument_is_it(name: str) -> None:
    op = get_operator(name)
    x = gi.var("x", shape=(6, 4))
    call = op(x, **ATTRS[name])
    assert isinstance(call, gi.Call)
    if call.type == x.type and op.is_identity(call.args, call.attrs):
        values = np.arange(24, dtype="f4").reshape(6, 4)
        assert_same_bits(run(op, values), values)


X, Y = gi.var("x", shape=(2, 3, 4)), gi.var("y", shape=(2, 3, 4))
CALLS = {
    "add": gi.add(X, Y),
    "subtract": gi.subtract(X, Y),
    "multiply": gi.multiply(X, Y),
    "divide": gi.divide(X, Y),
    "where": gi.where(gi.less(X, Y), X, Y),
    "cast": gi.cast(X, dtype="int32"),
    "matmul": gi.matmul(X, gi.transpose(Y, (0, 2, 1))),
    "nn.batch_matmul": gi.nn.batch_matmul(X, Y, transpose_a=True),
    "nn.softmax": gi.nn.softmax(X, axis=1),
    "nn.bias_add": gi.nn.bias_add(X, gi.const(np.arange(3, dtype="f4")), axis=1),
}


@pytest.mark.parametrize("name", [name for name in list_operators() if overrides(name, "meaning")])
def test_a_call_computes_what_its_meaning_says(name: str) -> None:
    call = CALLS[name]
    form = meaning_of(call)
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal((2, 3, 4), "f4") for _ in range(2))

    def value(node: Any) -> Array:
        found: Array = gi.evaluate(gi.Function([X, Y], node), x, y)
        return found

    match form:
        case meaning.Sum(a, b):
            expected = value(a) + value(b)
        case meaning.Difference(a, b):
            expected = value(a) - value(b)
        case meaning.Product(a, b):
            expected = value(a) * value(b)
        case meaning.Quotient(a, b):
            expected = value(a) / value(b)
        case meaning.Choice(condition, a, b):
            expected = np.where(value(condition), value(a), value(b))
        case meaning.Conversion(a):
            expected = value(a).astype(call.dtype.numpy)
        case meaning.MatrixProduct(a, b):
            expected = value(a) @ value(b)
        case meaning.Softmax(a, axis):
            expected = np.exp(value(a)) / np.exp(value(a)).sum(axis, keepdims=True)
        case _:
            pytest.fail(f"{call} means nothing")
    np.testing.assert_allclose(value(call), expected, rtol=1e-5, atol=1e-6)
