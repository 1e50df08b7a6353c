"""Test the division of a graph at sizes that become known only at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.runtime_sizes import bind_size, fresh_symbol
from tilewright.passes.lower.segments import Segments, binds_sizes, cut
from tilewright.tensorir.errors import CodegenError, TypeInferenceError

H = gi.symbol("h")


def nonzero(x: Any) -> Any:
    return gi.get_operator("nonzero")(x)


def segments(*args: Any) -> Segments:
    params, body = args
    return cut(gi.IRModule.from_expr(gi.Function(params, body)), [H])


def operators(found: Segments) -> list[list[str]]:
    """The names of the operators of each segment, sorted."""
    return [
        sorted(node.op.name for node in gi.visitor.call_nodes(segment.module["main"])) for segment in found.segments
    ]


def test_model_without_such_sizes_is_not_cut() -> None:
    x = gi.var("x", shape=("h",))
    assert not binds_sizes(gi.IRModule.from_expr(gi.Function([x], gi.exp(x))))


def test_what_a_size_is_computed_from_comes_before_what_mentions_it() -> None:
    x = gi.var("x", shape=("h",))
    places = nonzero(x)
    found = segments([x], gi.negative(places))
    assert operators(found) == [["cast", "not_equal", "sum", "zeros_like"], ["negative", "nonzero"]]
    first, second = found.segments
    assert (first.args, first.results, first.sizes) == ((0,), (1,), ())
    assert (second.args, second.results) == ((0,), (2,))
    assert [value for _, value in second.sizes] == [1]
    assert second.module["main"].attrs["Symbols"] == ("h", places.attrs.dim.name)
    assert found.results == (2,)


def test_size_that_is_an_input_needs_no_segment_before() -> None:
    n, size = fresh_symbol(), gi.var("n", shape=(), dtype="int64")
    found = segments([size], bind_size(gi.zeros(shape=(n,)), size, n))
    assert operators(found) == [["zeros"]]
    assert found.segments[0].sizes == ((n, 0),)
    assert found.segments[0].args == ()


def test_what_has_a_size_in_its_attributes_alone_comes_after_it() -> None:
    n, x = fresh_symbol(), gi.var("x", shape=("h",))
    count = gi.cast(gi.sum(x), dtype="int64")
    found = segments([x], (gi.sum(gi.zeros(shape=(n,))), bind_size(gi.arange(n), count, n)))
    assert operators(found) == [["cast", "sum"], ["arange", "sum", "zeros"]]


def test_value_that_a_later_segment_uses_is_computed_once() -> None:
    x = gi.var("x", shape=("h",))
    y = gi.exp(x)
    found = segments([x], gi.take(y, gi.squeeze(nonzero(gi.greater(y, 1.0)), axis=0), axis=0))
    assert [names.count("exp") for names in operators(found)] == [1, 0]


def test_fields_of_a_result_of_several_parts_cross_alone() -> None:
    x = gi.var("x", shape=("h", 6))
    parts = gi.split(x, indices_or_sections=3, axis=1)
    places = nonzero(gi.greater(parts[0], 0.0))
    found = segments([x], (places, gi.concatenate([parts[1], parts[2]], axis=1)))
    assert operators(found)[1] == ["nonzero"]
    assert len(found.segments[1].args) == 1


def test_loop_that_uses_a_size_runs_after_it() -> None:
    x = gi.var("x", shape=("h",))
    y = gi.exp(x)
    places = nonzero(gi.greater(y, 1.0))
    i, state = gi.var("i", shape=(), dtype="int64"), gi.Var("s", places.type)
    body = gi.Function([i, state], gi.Tuple([gi.add(state, gi.cast(gi.sum(y), dtype="int64"))]))
    loop = gi.Loop(gi.const(3), None, body, [places])
    function = gi.Function([x], gi.TupleGetItem(loop, 0))
    assert [names.count("exp") for names in operators(segments(function.params, function.body))] == [1, 0]
    array = np.array([0.5, -1, 2, -3, 1], "f4")
    expected = np.array(np.nonzero(array > 0)) + 3 * int(np.exp(array).sum())
    np.testing.assert_array_equal(tw.build(function)(array), expected)


def test_size_that_changes_with_every_iteration_is_refused() -> None:
    x, i = gi.var("x", shape=("h",)), gi.var("i", shape=(), dtype="int64")
    state = gi.Var("s", x.type)
    count = gi.get_operator("sum")(nonzero(state))
    body = gi.Function([i, state], gi.Tuple([gi.add(state, gi.cast(count, dtype="float32"))]))
    loop = gi.Loop(gi.const(3), None, body, [x])
    with pytest.raises(CodegenError, match=r"the size nonzero_\d+ changes with every iteration"):
        segments([x], gi.TupleGetItem(loop, 0))


def test_one_name_for_two_sizes_is_refused() -> None:
    n = fresh_symbol("n")
    a, b = (gi.var(name, shape=(), dtype="int64") for name in "ab")
    with pytest.raises(CodegenError, match=rf"the size {n.name} is bound to two different values"):
        segments([a, b], (bind_size(gi.zeros(shape=(n,)), a, n), bind_size(gi.ones(shape=(n,)), b, n)))


def test_size_that_depends_on_itself_is_refused() -> None:
    n = fresh_symbol("n")
    zeros = gi.zeros(shape=(n,), dtype="int64")
    with pytest.raises(CodegenError, match=f"depend on each other: {n.name}"):
        segments([], bind_size(zeros, gi.sum(zeros), n))


def test_size_is_a_number() -> None:
    n, x = fresh_symbol(), gi.var("x", shape=("h",), dtype="int64")
    with pytest.raises(TypeInferenceError, match="a number of type int64"):
        bind_size(gi.zeros(shape=(n,)), x, n)
