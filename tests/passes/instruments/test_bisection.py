"""``PassCounter`` counts passes, ``OptBisect`` runs the first of them, ``bisect_passes`` finds the one to blame."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import (
    Culprit,
    ModulePass,
    OptBisect,
    Pass,
    PassContext,
    PassCounter,
    PassInstrument,
    Sequential,
    bisect_passes,
    module_pass,
)
from tilewright.tensorir.errors import PassError


def noting(name: str, ran: list[str], wanted: bool = False) -> Pass:
    """A pass that writes its name into ``ran``; ``wanted``: it is essential."""

    @module_pass(opt_level=1, name=name)
    class Noting(ModulePass):
        essential = wanted

        def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
            ran.append(name)
            return mod

    return Noting()


def test_the_counter_counts_runs_of_passes_and_no_pipelines(mod: IRModule) -> None:
    counter = PassCounter()
    a, b = noting("A", []), noting("B", [])
    with PassContext(instruments=[counter]):
        Sequential([Sequential([b, a], name="inner"), a], name="outer")(mod)
    assert counter.counts == {"B": 1, "A": 2}
    assert list(counter.counts) == ["B", "A"]
    assert counter.total == 3
    assert [line.split() for line in counter.render().splitlines()[2:]] == [["A", "2"], ["B", "1"], ["all", "3"]]
    assert json.loads(counter.to_json()) == {"total": 3, "counts": {"B": 1, "A": 2}}


def test_the_counter_leaves_out_what_is_vetoed_and_counts_what_fails(mod: IRModule) -> None:
    class Veto(PassInstrument):
        def should_run(self, mod: Any, info: Any) -> bool:
            return bool(info.name != "A")

    counter = PassCounter()
    failing = module_pass(lambda mod, ctx: 1 / 0, opt_level=1, name="Failing")
    with pytest.raises(ZeroDivisionError), PassContext(instruments=[counter, Veto()]):
        Sequential([noting("A", []), failing])(mod)
    assert counter.counts == {"Failing": 1}
    counter.reset()
    assert counter.total == 0


def test_passes_up_to_the_limit_run_and_each_has_a_line(mod: IRModule) -> None:
    ran: list[str] = []
    stream = io.StringIO()
    pipeline = Sequential([noting("A", ran), Sequential([noting("B", ran)], name="inner"), noting("A", ran)])
    with PassContext(instruments=[OptBisect(2, stream)]):
        pipeline(mod)
    assert ran == ["A", "B"]
    assert stream.getvalue().splitlines() == [
        "BISECT: running pass (1) A on module",
        "BISECT: running pass (2) B on module",
        "BISECT: NOT running pass (3) A on module",
    ]


def test_essential_passes_run_above_the_limit_and_have_no_number(mod: IRModule) -> None:
    ran: list[str] = []
    bisect = OptBisect(0, quiet=True)
    with PassContext(instruments=[bisect]):
        Sequential([noting("A", ran), noting("Lower", ran, wanted=True), noting("B", ran)])(mod)
    assert ran == ["Lower"]
    assert bisect.seen == ["A", "B"]


@pytest.mark.parametrize("limit", [-1, 2])
def test_without_a_limit_all_run_and_lines_go_to_standard_error(mod: IRModule, limit: int, capsys: Any) -> None:
    ran: list[str] = []
    with PassContext(instruments=[OptBisect(limit)]):
        Sequential([noting("A", ran), noting("B", ran)])(mod)
    assert ran == ["A", "B"]
    assert capsys.readouterr().err.splitlines()[-1] == "BISECT: running pass (2) B on module"


def test_numbers_begin_anew_in_each_context(mod: IRModule) -> None:
    ran: list[str] = []
    bisect = OptBisect(1, quiet=True)
    for _ in range(2):
        with PassContext(instruments=[bisect]):
            noting("A", ran)(mod)
    assert ran == ["A", "A"]
    assert bisect.count == 1


def test_a_limit_below_minus_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limit: expected .* found -2"):
        OptBisect(-2)


def network() -> tuple[IRModule, np.ndarray[Any, Any]]:
    r = np.random.default_rng(0)
    x = gi.var("x", shape=(1, 16, 8, 8))
    weight, scale = r.standard_normal((16, 16, 3, 3)).astype("f4") * 0.1, r.standard_normal((16, 1, 1)).astype("f4")
    hidden = gi.nn.conv2d(x, gi.const(weight), padding=(1, 1, 1, 1)) * gi.const(scale)
    body = gi.nn.softmax(gi.reshape(gi.nn.relu(hidden) + x, (16, 64)))
    return IRModule.from_expr(gi.Function([x], body)), r.standard_normal((1, 16, 8, 8)).astype("f4")


@pytest.mark.parametrize("limit", [0, 3, 8, 12, 16, 20, 24, 28, 32, 36, 40])
def test_a_model_is_right_whatever_number_of_passes_runs(limit: int) -> None:
    mod, x = network()
    bisect = OptBisect(limit, quiet=True)
    with PassContext(opt_level=3, instruments=[bisect]):
        model = tw.build(mod)
    assert bisect.count > 40
    np.testing.assert_allclose(model(x), gi.evaluate(mod["main"], x, dtype="float64"), rtol=1e-3, atol=1e-5)


def broken_from(number: int, count: int, mod: IRModule, attempts: list[int]) -> Any:
    """Tests a pipeline of ``count`` passes; those before ``number`` do no harm."""

    def is_good(bisect: OptBisect) -> bool:
        ran: list[str] = []
        attempts.append(bisect.limit)
        with PassContext(instruments=[bisect]):
            Sequential([noting(f"P{place % 3}", ran) for place in range(1, count + 1)])(mod)
        return len(ran) < number

    return is_good


@pytest.mark.parametrize("number", [1, 2, 17, 99, 100])
def test_the_first_harmful_pass_is_found_by_halving(mod: IRModule, number: int) -> None:
    attempts: list[int] = []
    culprit = bisect_passes(broken_from(number, 100, mod, attempts))
    assert culprit is not None
    assert (culprit.number, culprit.name) == (number, f"P{number % 3}")
    assert culprit.attempts == len(attempts) <= 2 + 7


def test_nothing_is_found_where_all_passes_do_no_harm(mod: IRModule) -> None:
    assert bisect_passes(broken_from(1000, 10, mod, [])) is None


def test_a_model_that_is_wrong_without_passes_is_an_error_with_the_cause(mod: IRModule) -> None:
    def is_good(bisect: OptBisect) -> bool:
        raise KeyError("no such file")

    with pytest.raises(PassError, match="without all optional passes") as caught:
        bisect_passes(is_good)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_instrument_that_no_context_got_is_an_error() -> None:
    with pytest.raises(PassError, match="no pass has a number"):
        bisect_passes(lambda bisect: False)


def test_a_pass_that_raises_is_found(mod: IRModule) -> None:
    failing = module_pass(lambda mod, ctx: 1 / 0, opt_level=1, name="Failing")

    def is_good(bisect: OptBisect) -> bool:
        with PassContext(instruments=[bisect]):
            Sequential([noting("A", []), noting("B", []), failing, noting("C", [])])(mod)
        return True

    culprit = bisect_passes(is_good)
    assert culprit == Culprit(3, "Failing", ("A", "B", "Failing", "C"), 4)
    assert str(culprit) == "pass (3) Failing of 4 passes"


def test_the_text_of_a_culprit_says_which_run_of_a_pass_it_was() -> None:
    assert str(Culprit(3, "A", ("A", "B", "A", "A"), 5)) == "pass (3) A, run 2 of 3 of 4 passes"


def test_attempts_are_told_of_and_print_what_runs(mod: IRModule) -> None:
    told: list[tuple[int, bool]] = []
    stream = io.StringIO()
    bisect_passes(broken_from(2, 3, mod, []), stream, lambda limit, good: told.append((limit, good)))
    assert told == [(-1, False), (0, True), (1, True), (2, False)]
    assert stream.getvalue().count("NOT running") == 3 + 2 + 1


def test_a_pass_that_breaks_a_model_is_found_in_a_build() -> None:
    mod, x = network()
    expected = gi.evaluate(mod["main"], x, dtype="float64")

    @tw.passes.function_pass(opt_level=2, name="Spoil")
    def spoil(function: Any, mod: Any, ctx: Any) -> Any:
        return gi.rewrite(function, lambda old, new: gi.nn.relu(new) if old is function.body else new)

    double = tw.passes.function_pass(lambda f, mod, ctx: f.with_body(f.body * 2.0), opt_level=2, name="Double")

    def is_good(bisect: OptBisect) -> bool:
        with PassContext(opt_level=2, instruments=[bisect]):
            model = tw.build(mod, passes={"graph": Sequential([spoil, double])})
        return np.allclose(model(x), expected, rtol=1e-3, atol=1e-5)

    culprit = bisect_passes(is_good)
    assert culprit is not None
    assert (culprit.number, culprit.name) == (2, "Double")
