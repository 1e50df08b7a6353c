"""``minimize``: the smallest graph for which a predicate holds is found, in a bounded number of evaluations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes, count_operators
from tilewright.passes.graph import EliminateCommonSubexpr
from tilewright.runtime.observe.numeric import MinimizeError, minimize, minimize_with_inputs
from tilewright.tensorir.errors import InputError

STEPS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda v, x: gi.tanh(v),
    lambda v, x: v + x,
    lambda v, x: gi.nn.relu(v),
    lambda v, x: v * x,
    lambda v, x: gi.sigmoid(v),
)


def chain(length: int, at: dict[int, Callable[[Any], Any]] | None = None) -> tw.IRModule:
    """Build a chain of operators, with those in ``at`` at the given positions."""
    x = gi.var("x", shape=(8, 8))
    value: Any = x
    for number in range(length):
        special = (at or {}).get(number)
        value = special(value) if special is not None else STEPS[number % len(STEPS)](value, x)
    return tw.IRModule.from_expr(gi.Function([x], value))


def net(layers: int, at: int = -1) -> tw.IRModule:
    """Build layers that each use the previous two."""
    x = gi.var("x", shape=(4, 8))
    random = np.random.default_rng(0)
    last: Any = x
    value: Any = gi.tanh(x)
    for number in range(layers):
        weight = gi.const(random.standard_normal((8, 8)).astype(np.float32))
        made = gi.nn.relu(gi.nn.dense(value, weight) + last) * gi.sigmoid(value)
        last, value = value, gi.exp(made) if number == at else made
    return tw.IRModule.from_expr(gi.Function([x], (value, last)))


class Counted:
    """A predicate that counts its calls."""

    def __init__(self, predicate: Callable[[tw.IRModule], Any]) -> None:
        self.predicate = predicate
        self.calls = 0

    def __call__(self, mod: tw.IRModule) -> Any:
        self.calls += 1
        gi.verify(mod)
        return self.predicate(mod)


def has(*names: str) -> Callable[[tw.IRModule], bool]:
    def check(mod: tw.IRModule) -> bool:
        present = [call.op.name for call in call_nodes(mod["main"]) if isinstance(call.op, gi.Operator)]
        return set(names) <= set(present)

    return check


@pytest.mark.parametrize("place", [0, 3, 250, 499])
def test_chain_of_500_becomes_the_one_operator(place: int) -> None:
    predicate = Counted(has("exp"))
    small = minimize(chain(500, {place: gi.exp}), predicate)
    assert [call.op.name for call in call_nodes(small["main"])] == ["exp"]
    assert predicate.calls <= 20


def test_operators_of_changing_types_are_no_obstacle() -> None:
    """No operator can be replaced by its argument."""
    x = gi.var("x", shape=(4, 8))
    value: Any = x
    for number in range(500):
        value = gi.transpose(gi.exp(value) if number == 200 else value)
    predicate = Counted(has("exp"))
    small = minimize(tw.IRModule.from_expr(gi.Function([x], value)), predicate)
    assert [call.op.name for call in call_nodes(small["main"])] == ["exp"]
    assert predicate.calls <= 20


def test_graph_of_500_operators_becomes_the_one_operator() -> None:
    mod = net(100, 37)
    assert count_operators(mod["main"]) > 400
    predicate = Counted(has("exp"))
    small = minimize(mod, predicate)
    assert [call.op.name for call in call_nodes(small["main"])] == ["exp"]
    assert predicate.calls <= 25


def test_two_operators_far_apart_stay_connected() -> None:
    def feeds(mod: tw.IRModule) -> bool:
        order = call_nodes(mod["main"])
        below = {call for last in order if last.op.name == "exp" for call in gi.visitor.post_order(last)}
        return any(isinstance(node, gi.Call) and node.op.name == "sqrt" for node in below)

    predicate = Counted(feeds)
    small = minimize(chain(500, {20: gi.sqrt, 480: gi.exp}), predicate)
    assert [call.op.name for call in call_nodes(small["main"])] == ["sqrt", "exp"]
    assert predicate.calls <= 120


def test_two_branches_that_are_needed_stay() -> None:
    predicate = Counted(has("exp", "sqrt"))
    small = minimize(chain(500, {100: gi.exp, 300: gi.sqrt}), predicate)
    assert count_operators(small["main"]) <= 2
    assert predicate.calls <= 120


def test_what_a_pass_does_is_a_predicate() -> None:
    x = gi.var("x", shape=(8,))
    value: Any = x
    for number in range(100):
        value = STEPS[number % 5](value, x)
    twice = gi.tanh(value) * 2.0 + gi.exp(gi.tanh(value))
    mod = tw.IRModule.from_expr(gi.Function([x], gi.sigmoid(twice)))

    def merges(mod: tw.IRModule) -> bool:
        return count_operators(EliminateCommonSubexpr()(mod)["main"]) < count_operators(mod["main"])

    small = minimize(mod, merges)
    assert sorted(call.op.name for call in call_nodes(small["main"]))[-2:] == ["tanh", "tanh"]
    assert count_operators(small["main"]) <= 3


def test_dimensions_become_small() -> None:
    small = minimize(chain(20, {10: lambda v: gi.nn.dense(v, np.ones((8, 8), np.float32))}), has("nn.dense"))
    assert [param.shape for param in small["main"].params] == [(1, 1), (1, 1)]


def test_sizes_stay_where_types_need_them() -> None:
    x = gi.var("x", shape=(6, 10))
    mod = tw.IRModule.from_expr(gi.Function([x], gi.reshape(gi.exp(x), (5, 12)) * 2.0))
    small = minimize(mod, has("reshape"))
    assert [call.op.name for call in call_nodes(small["main"])] == ["reshape"]


def test_shapes_may_be_kept() -> None:
    small = minimize(chain(20, {10: gi.exp}), has("exp"), shapes=False)
    assert small["main"].params[0].shape == (8, 8)


def test_unused_functions_and_parameters_go() -> None:
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    mod = tw.IRModule({"main": gi.Function([x, y], gi.exp(x) + y), "other": gi.Function([x], gi.tanh(x))})
    small = minimize(mod, has("exp"))
    assert [gv.name for gv in small] == ["main"]
    assert len(small["main"].params) == 1


def test_called_functions_are_looked_into() -> None:
    x, y = gi.var("x", shape=(4,)), gi.var("y", shape=(4,))
    inner = gi.GlobalVar("inner")
    mod = tw.IRModule({
        "inner": gi.Function([y], gi.tanh(gi.exp(gi.tanh(y)))),
        "main": gi.Function([x], gi.sigmoid(gi.Call(inner, [gi.tanh(x)], None, x.type))),
    })  # fmt: skip
    small = minimize(mod, lambda mod: any(has("exp")(tw.IRModule.from_expr(f)) for f in mod.functions.values()))
    assert [call.op.name for call in call_nodes(small["main"])] == ["exp"]


def test_operator_of_constants_keeps_constants() -> None:
    x = gi.var("x", shape=(4,))
    constant = gi.exp(gi.tanh(gi.const(np.ones(4, np.float32))))
    mod = tw.IRModule.from_expr(gi.Function([x], gi.sqrt(x * constant)))

    def folds(mod: tw.IRModule) -> bool:
        exps = [call for call in call_nodes(mod["main"]) if call.op.name == "exp"]
        return any(not gi.visitor.free_vars(call) for call in exps)

    (call,) = call_nodes(minimize(mod, folds, shapes=False)["main"])
    assert isinstance(call.args[0], gi.Constant)
    np.testing.assert_array_equal(call.args[0].data, np.tanh(np.ones(4, np.float32)))


def test_branch_is_taken_out_of_an_if() -> None:
    x, flag = gi.var("x", shape=(4,)), gi.var("flag", shape=(), dtype="bool")
    mod = tw.IRModule.from_expr(gi.Function([x, flag], gi.tanh(gi.If(flag, gi.exp(x), gi.sqrt(x)))))
    small = minimize(mod, has("exp"))
    assert not any(isinstance(node, gi.If) for node in gi.visitor.post_order(small["main"]))
    assert count_operators(small["main"]) == 1


def test_let_and_tuples_are_no_obstacle() -> None:
    x, v = gi.var("x", shape=(4, 6)), gi.var("v")
    parts = gi.split(gi.tanh(x), indices_or_sections=3, axis=1)
    body = gi.Let(v, gi.exp(parts[1]), gi.tanh(v) + parts[0])
    small = minimize(tw.IRModule.from_expr(gi.Function([x], body)), has("exp"))
    assert count_operators(small["main"]) == 1


def test_loop_gives_way_to_its_first_state() -> None:
    x = gi.var("x", shape=(4,))
    i, state = gi.var("i", shape=(), dtype="int64"), gi.var("state", shape=(4,))
    loop = gi.Loop(gi.const(3), None, gi.Function([i, state], gi.Tuple([gi.tanh(gi.sigmoid(state))])), [gi.exp(x)])
    mod = tw.IRModule.from_expr(gi.Function([x], gi.sqrt(gi.TupleGetItem(loop, 0))))
    assert count_operators(minimize(mod, has("exp"))["main"]) == 1
    inside = minimize(mod, has("sigmoid"))
    assert has("sigmoid")(inside) and not has("tanh")(inside) and not has("sqrt")(inside)


def test_what_is_true_of_anything_needs_no_operator() -> None:
    assert count_operators(minimize(chain(50), lambda mod: True)["main"]) == 0


def test_result_is_the_same_each_time() -> None:
    first, second = (minimize(net(20, 7), has("exp", "sigmoid")) for _ in range(2))
    assert str(first) == str(second)


def test_input_of_every_parameter_is_the_value_that_it_had() -> None:
    mod, x = chain(60, {40: gi.exp}), np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    whole = next(call for call in call_nodes(mod["main"]) if call.op.name == "exp")
    expected = gi.evaluate(gi.Function(mod["main"].params, whole), x)

    def predicate(mod: tw.IRModule, inputs: dict[str, np.ndarray]) -> bool:
        gi.evaluate(mod, **inputs)
        return has("exp")(mod)

    found = minimize_with_inputs(mod, predicate, {"x": x}, shapes=False)
    assert found.inputs is not None
    np.testing.assert_array_equal(gi.evaluate(found.module, **found.inputs), expected)
    (operator,) = call_nodes(found.module["main"])
    assert found.origin[operator] is whole


def test_inputs_are_cut_with_their_dimensions() -> None:
    x = np.ones((8, 8), np.float32)
    found = minimize_with_inputs(chain(30, {20: gi.exp}), lambda mod, inputs: has("exp")(mod), [x])
    assert found.inputs is not None
    assert [value.shape for value in found.inputs.values()] == [(1, 1)]


def test_predicate_that_is_false_already_is_an_error() -> None:
    with pytest.raises(MinimizeError, match="false for the given module"):
        minimize(chain(5), lambda mod: False)


def test_error_of_the_predicate_on_the_given_module_goes_on() -> None:
    with pytest.raises(ZeroDivisionError):
        minimize(chain(5), lambda mod: 1 // 0)


def test_error_of_the_predicate_later_means_no() -> None:
    def picky(mod: tw.IRModule) -> bool:
        if count_operators(mod["main"]) < 3:
            raise InputError("too small")
        return True

    assert count_operators(minimize(chain(30), picky)["main"]) == 3


def test_main_of_loop_nests_is_refused() -> None:
    with tw.PassContext(opt_level=0):
        lowered = gi.parse("primfunc @main(x: Buffer[(4,), float32]) {\n  x[0] = float32(1)\n}")
    with pytest.raises(MinimizeError, match="the graph"):
        minimize(lowered, lambda mod: True)


def test_operators_between_two_that_are_needed_are_left_out_though_they_change_the_type() -> None:
    x = gi.var("x", shape=(3, 4))
    value = gi.exp(x)
    for _ in range(5):
        value = gi.TupleGetItem(gi.split(gi.stack([value, value]), 2), 1)
    mod = tw.IRModule.from_expr(gi.Function([x], value * x))
    small = minimize(mod, has("exp", "multiply"))
    assert count_operators(small["main"]) == 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_result_satisfies_the_predicate_and_verifies(data: st.DataObject) -> None:
    """Draw any graph and any set of operators that must stay."""
    x, y = gi.var("x", shape=(3, 4)), gi.var("y", shape=(4,))
    values: list[Any] = [x, y, gi.const(np.ones((3, 4), np.float32))]
    makers: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b, lambda a, b: a * b, lambda a, b: gi.exp(a), lambda a, b: gi.nn.relu(b),
        lambda a, b: gi.sum(a), lambda a, b: gi.TupleGetItem(gi.split(gi.stack([a, a]), 2), 1),
        lambda a, b: gi.reshape(a, a.shape), lambda a, b: gi.where(a > 0.0, a, a),
    ]  # fmt: skip
    for _ in range(data.draw(st.integers(1, 25))):
        make = data.draw(st.sampled_from(makers))
        values.append(make(data.draw(st.sampled_from(values)), data.draw(st.sampled_from(values))))
    results = data.draw(st.lists(st.sampled_from(values[3:]), min_size=1, max_size=3))
    mod = tw.IRModule.from_expr(gi.Function([x, y], results))
    names = sorted({call.op.name for call in call_nodes(mod["main"])})
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    small = minimize(mod, has(*wanted))
    gi.verify(small)
    assert has(*wanted)(small)
    # Every operator can stand alone, as its operands can be given.
    assert count_operators(small["main"]) <= len(wanted)
    again = gi.parse(gi.printer.to_text(small, "inline"))
    gi.assert_structural_equal(again, small)
