"""The simplifier against plain Python integers: whatever it returns has the same value for every assignment."""

from __future__ import annotations

import functools
import random

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tilewright.tensorir.arith import Analyzer, partition_point, region_of
from tilewright.tensorir.dtype import BOOL
from tilewright.tensorir.expr import BinaryOp, Compare, Expr, IntImm, Select, UnaryOp, Var
from tilewright.tensorir.folding import fold_binary, fold_compare, wrap_integer

NAMES = "ijkn"
VARS = {name: Var(name) for name in NAMES}
OPS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max", "bitand", "shr")
COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")

PROPERTY = settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))


class UndefinedValueError(Exception):
    """A division by zero: the expression has no value there."""


def evaluate(expr: Expr, env: dict[Var, int]) -> int:
    """The value of an integer or boolean expression, straight from the definition of its nodes."""
    if isinstance(expr, Var):
        return env[expr]
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, BinaryOp):
        value = fold_binary(expr.op, evaluate(expr.a, env), evaluate(expr.b, env), expr.dtype)
        if value is None:
            raise UndefinedValueError
        return int(value)
    if isinstance(expr, Compare):
        return int(fold_compare(expr.op, evaluate(expr.a, env), evaluate(expr.b, env)))
    if isinstance(expr, UnaryOp):
        value = evaluate(expr.a, env)
        return wrap_integer({"neg": -value, "not": 1 - value, "bitnot": ~value}[expr.op], expr.dtype)
    assert isinstance(expr, Select)
    values = evaluate(expr.true_value, env), evaluate(expr.false_value, env)
    return values[0] if evaluate(expr.condition, env) else values[1]


@functools.cache
def integers(depth: int) -> st.SearchStrategy[Expr]:
    constants = st.sampled_from([-16, -7, -4, -3, -1, 0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32]).map(IntImm)
    leaves = st.one_of(st.sampled_from(list(VARS.values())), constants)
    if depth == 0:
        return leaves
    inner = integers(depth - 1)
    scaled = st.builds(lambda op, a, c: BinaryOp(op, a, c), st.sampled_from(OPS[:7]), inner, constants)
    divisors = st.sampled_from([-4, 2, 3, 4, 6, 8, 16, 32]).map(IntImm)
    split = st.builds(
        lambda op, a, c, b, d, divisor: BinaryOp(op, a * c + b + d, divisor),
        st.sampled_from(["floordiv", "floormod"]),
        inner,
        constants,
        inner,
        constants,
        divisors,
    )  # what splitting and fusing loops leaves behind
    general = st.builds(BinaryOp, st.sampled_from(OPS), inner, inner)
    selects = st.builds(Select, conditions(depth - 1), inner, inner)
    return st.one_of(leaves, split, split, scaled, general, selects)


@functools.cache
def conditions(depth: int) -> st.SearchStrategy[Expr]:
    compares = st.builds(Compare, st.sampled_from(COMPARES), integers(depth), integers(depth))
    if depth == 0:
        return compares
    inner = conditions(depth - 1)
    return st.one_of(
        compares,
        st.builds(BinaryOp, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(lambda a: UnaryOp("not", a), inner),
    )


def ranges() -> st.SearchStrategy[dict[Var, tuple[int, int]]]:
    one = st.tuples(st.integers(-9, 9), st.sampled_from([1, 2, 4, 6, 8, 16]))
    return st.fixed_dictionaries(dict.fromkeys(VARS.values(), one))


def assignments(bounds: dict[Var, tuple[int, int]], data: st.DataObject, count: int = 12) -> list[dict[Var, int]]:
    # One seed: numbers that Hypothesis draws one by one take more time than expressions and simplifier together.
    rng = random.Random(data.draw(st.integers(0, (1 << 32) - 1)))
    corners = [{v: low for v, (low, _) in bounds.items()}, {v: low + e - 1 for v, (low, e) in bounds.items()}]
    return corners + [
        {v: rng.randrange(low, low + extent) for v, (low, extent) in bounds.items()} for _ in range(count)
    ]


def bound_analyzer(bounds: dict[Var, tuple[int, int]], bind: list[bool]) -> Analyzer:
    analyzer = Analyzer()
    for (var, (low, extent)), use in zip(bounds.items(), bind, strict=True):
        if use:
            analyzer.bind(var, low, extent)
    return analyzer


BINDS = st.lists(st.booleans(), min_size=len(NAMES), max_size=len(NAMES))


@PROPERTY
@given(integers(3), ranges(), BINDS, st.data())
def test_simplified_integers_have_the_same_value_and_lie_in_their_bounds(expr, bounds, bind, data):
    analyzer = bound_analyzer(bounds, bind)
    simplified = analyzer.simplify(expr)
    interval = analyzer.bounds(expr)
    modulus, remainder = analyzer.modular_set(expr)
    for env in assignments(bounds, data):
        try:
            value = evaluate(expr, env)
        except UndefinedValueError:
            continue
        assert evaluate(simplified, env) == value
        assert interval.contains(value)
        assert (value - remainder) % modulus == 0 if modulus else value == remainder


@PROPERTY
@given(conditions(2), ranges(), BINDS, st.data())
def test_simplified_conditions_have_the_same_value_and_proofs_are_true(condition, bounds, bind, data):
    analyzer = bound_analyzer(bounds, bind)
    simplified = analyzer.simplify(condition)
    proved = analyzer.prove(condition)
    for env in assignments(bounds, data):
        try:
            value = evaluate(condition, env)
        except UndefinedValueError:
            continue
        assert evaluate(simplified, env) == value
        assert value or not proved


@PROPERTY
@given(conditions(1), conditions(1), integers(2), ranges(), BINDS, st.data())
def test_what_follows_from_an_assumption_holds_wherever_the_assumption_does(fact, goal, expr, bounds, bind, data):
    analyzer = bound_analyzer(bounds, bind)
    with analyzer.assuming(fact):
        proved, simplified, interval = analyzer.prove(goal), analyzer.simplify(expr), analyzer.bounds(expr)
    for env in assignments(bounds, data, count=40):
        try:
            if not evaluate(fact, env):
                continue
            value, held = evaluate(expr, env), evaluate(goal, env)
        except UndefinedValueError:
            continue
        assert evaluate(simplified, env) == value
        assert interval.contains(value)
        assert held or not proved


@PROPERTY
@given(integers(2), integers(1), ranges(), st.data())
def test_symbolic_ranges_prove_only_what_holds(extent, expr, bounds, data):
    i, k = VARS["i"], VARS["k"]
    free = {v: r for v, r in bounds.items() if v in (VARS["j"], VARS["n"])}
    analyzer = Analyzer()
    for var, (low, length) in free.items():
        analyzer.bind(var, low, length)
    outer = Select(IntImm(1, BOOL), extent, extent)
    simple = Analyzer().simplify(outer)
    if any(v in (i, k) for v in _variables(simple)):
        return
    analyzer.bind(i, 0, simple)
    analyzer.bind(k, i, 4)
    goal = Compare("lt", expr, BinaryOp("add", simple, IntImm(3)))
    proved, interval = analyzer.prove(goal), analyzer.bounds(expr)
    for env in assignments(free, data):
        try:
            count = evaluate(simple, env)
        except UndefinedValueError:
            continue
        for value in range(min(count, 5)):
            inner = {**env, i: value, k: value + 2}
            try:
                held, result = evaluate(goal, inner), evaluate(expr, inner)
            except UndefinedValueError:
                continue
            assert held or not proved
            assert interval.contains(result)


def _variables(expr: Expr) -> list[Var]:
    if isinstance(expr, Var):
        return [expr]
    names = [name for name, role in expr.node_fields if role == "child"]
    return [var for name in names for var in _variables(getattr(expr, name))]


@PROPERTY
@given(integers(2), ranges(), st.data())
def test_regions_hold_every_index(expr, bounds, data):
    inner = {v: r for v, r in bounds.items() if v in (VARS["i"], VARS["j"])}
    (box,) = region_of([expr], inner)
    if box is None:
        return
    for env in assignments(bounds, data):
        outer = {v: x for v, x in env.items() if v not in inner}
        try:
            value = evaluate(expr, env)
            low, extent = evaluate(box[0], outer), evaluate(box[1], outer)
        except UndefinedValueError:
            continue
        assert low <= value < low + extent


@PROPERTY
@given(conditions(1), ranges(), st.data())
def test_conditions_hold_in_their_partition(condition, bounds, data):
    i, j = VARS["i"], VARS["j"]
    found = partition_point(condition, i, {j: bounds[j]})
    if found is None:
        return
    for env in assignments(bounds, data, count=30):
        outer = {v: x for v, x in env.items() if v not in (i, j)}
        try:
            lower = env[i] if found[0] is None else evaluate(found[0], outer)
            upper = env[i] + 1 if found[1] is None else evaluate(found[1], outer)
            if lower <= env[i] < upper:
                assert evaluate(condition, env)
        except UndefinedValueError:
            continue


NARROW_OPS = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "floormod",
    "truncdiv",
    "truncmod",
    "min",
    "max",
    "bitand",
    "bitor",
    "bitxor",
)


@functools.cache
def narrow_integers(dtype: str, depth: int) -> st.SearchStrategy[Expr]:
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    leaves = st.one_of(
        st.sampled_from(NARROW_VARS[dtype]),
        st.sampled_from([low, high, 0, 1, 2, 3, 7, 100]).map(lambda v: IntImm(v, dtype)),
    )
    if depth == 0:
        return leaves
    inner = narrow_integers(dtype, depth - 1)
    selects = st.builds(Select, narrow_conditions(dtype, depth - 1), inner, inner)
    unary = st.builds(UnaryOp, st.sampled_from(["neg", "bitnot"]), inner)
    binary = st.builds(BinaryOp, st.sampled_from(NARROW_OPS), inner, inner)
    return st.one_of(leaves, binary, binary, binary, unary, selects)


@functools.cache
def narrow_conditions(dtype: str, depth: int) -> st.SearchStrategy[Expr]:
    inner = narrow_integers(dtype, depth)
    compares = st.builds(Compare, st.sampled_from(COMPARES), inner, inner)
    return st.one_of(compares, compares, st.builds(lambda a: UnaryOp("not", a), compares))


NARROW_VARS = {dtype: [Var("a", dtype), Var("b", dtype)] for dtype in ("int8", "uint8")}


@PROPERTY
@given(st.sampled_from(["int8", "uint8"]), st.data())
def test_types_that_wrap_are_simplified_only_by_what_holds_under_wrapping(dtype, data):
    expr = data.draw(narrow_integers(dtype, 3))
    condition = data.draw(narrow_conditions(dtype, 2))
    analyzer = Analyzer()
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    bounded = data.draw(st.booleans())
    if bounded:
        analyzer.bind(NARROW_VARS[dtype][0], 3, 9)
    simplified, known, interval = analyzer.simplify(expr), analyzer.simplify(condition), analyzer.bounds(expr)
    for _ in range(12):
        a = data.draw(st.integers(3, 11) if bounded else st.integers(low, high))
        env = dict(zip(NARROW_VARS[dtype], (a, data.draw(st.integers(low, high))), strict=True))
        try:
            value = evaluate(expr, env)
        except UndefinedValueError:
            continue
        assert evaluate(simplified, env) == value
        assert interval.contains(value)
        try:
            value = evaluate(condition, env)
        except UndefinedValueError:
            continue
        assert evaluate(known, env) == value
