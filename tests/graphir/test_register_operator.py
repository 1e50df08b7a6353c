"""Test the registration of operators, and the errors about a class that breaks its own declaration."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.op import OPERATORS
from tilewright.tensorir import cast
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import TypeInferenceError


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    before = dict(OPERATORS)
    yield
    OPERATORS.clear()
    OPERATORS.update(before)


class Same(gi.Operator):
    """Gives a type equal to that of its argument."""

    name = "test.same"
    arguments = ("x",)

    def infer_type(self, args: Any, attrs: Any) -> Any:
        return args[0]


def make(**members: Any) -> gi.Operator:
    return gi.register_operator(type("Broken", (Same,), {"name": "test.broken", **members}))


def build(op: gi.Operator) -> tw.Executable:
    x = gi.var("x", shape=("n",))
    return tw.build(gi.Function([x], op(x)))


def test_a_class_defined_anew_replaces_the_old_one() -> None:
    first, second = make(), make()
    assert gi.get_operator("test.broken") is second is not first


def test_the_name_of_another_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="'add' is already registered"):
        make(name="add")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"name": ""}, "Broken states no name"),
        ({"kind": "pointwise"}, "unknown fusion kind 'pointwise'; one of elementwise, "),
    ],
)
def test_a_class_that_lacks_a_fact_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**members)


@pytest.mark.parametrize("attrs", [int, dataclasses.make_dataclass("Thawed", ["axis"])])
def test_attributes_are_a_frozen_dataclass(attrs: type) -> None:
    with pytest.raises(TypeError, match=r"test\.broken: Attrs: expected a dataclass with frozen=True"):
        make(Attrs=attrs)


def test_only_operators_are_registered() -> None:
    with pytest.raises(TypeError, match="decorates a subclass of Operator; found <class 'object'>"):
        gi.register_operator(object)  # type: ignore[type-var]


def test_infer_type_must_return_a_type() -> None:
    op = make(infer_type=lambda self, args, attrs: None)
    with pytest.raises(TypeInferenceError, match=r"test\.broken: infer_type: .* found None \(does it lack a return"):
        op(gi.var("x", shape=(2,)))


@pytest.mark.parametrize(
    ("compute", "found"),
    [
        (lambda x, out: te.compute(out.shape, lambda i: cast("float64", x[i])), r"Tensor\[\(n,\), float64\]"),
        (lambda x, out: te.compute((3,), lambda i: x[i]), r"Tensor\[\(3,\), float32\]"),
        (lambda x, out: [x, x], "2"),
        (lambda x, out: None, r"None \(does it lack a return statement\?\)"),
    ],
)
def test_loops_for_another_result_than_the_type_says_are_refused(compute: Any, found: str) -> None:
    op = make(compute=lambda self, args, attrs, out: compute(args[0], out))
    with pytest.raises(TypeInferenceError, match=rf"test\.broken: compute: expected .*, found {found}"):
        build(op)


@pytest.mark.parametrize(
    ("decompose", "found"),
    [(lambda x: gi.cast(x, dtype="float64"), r"Tensor\[\(n,\), float64\]"), (lambda x: None, "None")],
)
def test_a_decomposition_of_another_type_is_refused(decompose: Any, found: str) -> None:
    op = make(decompose=lambda self, args, attrs: decompose(args[0]))
    with pytest.raises(TypeInferenceError, match=rf"test\.broken: decompose: expected .*, found {found}"):
        build(op)


def test_what_a_decomposition_gives_is_the_reference() -> None:
    op = make(decompose=lambda self, args, attrs: gi.tanh(args[0]) * 2.0)
    for dtype in ("float32", "float64"):
        values = np.linspace(-1, 1, 5, dtype=dtype)
        found = op.reference([values], op.make_attrs({}))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, 2 * np.tanh(values), rtol=1e-6)
    pair = make(decompose=lambda self, args, attrs: gi.Tuple([args[0], gi.negative(args[0])]))
    same, turned = pair.reference([values], None)
    assert (turned == -same).all()


def test_an_operator_with_neither_reference_nor_decomposition_says_so() -> None:
    with pytest.raises(NotImplementedError, match=r"test\.broken states neither a NumPy reference nor a decomposition"):
        make().reference([np.ones(2)], None)


def test_operators_state_a_reference_beside_a_decomposition_for_a_reason_only() -> None:
    both = {op.name for op in OPERATORS.values() if op.decompose is not None and "reference" in vars(type(op))}
    derived = {name for name in both if type(OPERATORS[name]).reference is gi.Operator.reference}
    assert both - derived == {"dft", "stft", "stack"}  # each says why
