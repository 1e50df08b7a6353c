"""Every row of the rule tables, over all values of a small type: both sides are equal, wrapping and NaN included."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.tensorir import structural_equal
from tilewright.tensorir.arith import Analyzer, rules
from tilewright.tensorir.arith.pattern import Node, Number, Pattern, Rule, RuleTable, Variable, _matcher, build
from tilewright.tensorir.expr import BinaryOp, Call, Compare, FloatImm, IntImm, Select, UnaryOp, Var, const

NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "truncdiv": lambda a, b: np.trunc(a.astype(float) / b).astype(a.dtype),
    "truncmod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "and": np.logical_and,
    "or": np.logical_or,
    "neg": np.negative,
    "not": np.logical_not,
    "bitnot": np.invert,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "select": np.where,
    "@abs": np.abs,
    "@sqrt": np.sqrt,
    "@rsqrt": lambda x: 1 / np.sqrt(x),
    "@log": np.log,
    "@exp": np.exp,
}


def evaluate(pattern: Pattern, values: dict[str, np.ndarray], dtype: str) -> np.ndarray:
    """A pattern as a NumPy expression: the meaning of a row, without the machinery that applies it."""
    if isinstance(pattern, Variable):
        return values[pattern.name]
    if isinstance(pattern, Number):
        return np.asarray(pattern.value).astype("bool" if isinstance(pattern.value, bool) else dtype)
    assert isinstance(pattern, Node)
    with np.errstate(all="ignore"):
        return NUMPY[pattern.name](*[evaluate(o, values, dtype) for o in pattern.operands])


def variables(pattern: Pattern) -> dict[str, bool]:
    """Names of the variables of a pattern, and whether each stands for constants only."""
    if isinstance(pattern, Variable):
        return {pattern.name: pattern.constant}
    operands = pattern.operands if isinstance(pattern, Node) else ()
    return {name: constant for o in operands for name, constant in variables(o).items()}


def holds(rule: Rule, names: dict[str, bool], combination, dtype: str) -> bool:
    """Return whether the condition of the rule accepts these values for its constants."""
    if rule.condition is None:
        return True
    make = FloatImm if dtype.startswith("float") else IntImm
    bound = {n: make(v, dtype) if c else Var(n) for (n, c), v in zip(names.items(), combination, strict=True)}
    return rule.condition(bound)


def check(rule: Rule, domains: dict[str, np.ndarray], dtype: str, tolerance: float = 0.0) -> None:
    names = variables(rule.before)
    grids = np.meshgrid(*[domains[n] for n in names], indexing="ij")
    if rule.condition is not None and not all(not c for c in names.values()):
        constants = [domains[n] if c else domains[n][:1] for n, c in names.items()]
        accepted = [np.array(v) for v in itertools.product(*constants) if holds(rule, names, v, dtype)]
        if not accepted:
            return
        chosen = np.array(accepted)
        grids = [
            np.broadcast_to(chosen[:, None, i], (len(chosen), domains[n].size)).astype(dtype)
            if c
            else np.broadcast_to(domains[n][None], (len(chosen), domains[n].size))
            for i, (n, c) in enumerate(names.items())
        ]
    values = dict(zip(names, [g.ravel() for g in grids], strict=True))
    before, after = (evaluate(side, values, dtype) for side in (rule.before, rule.after))
    before, after = np.broadcast_arrays(before, after)
    if tolerance:
        np.testing.assert_allclose(after, before, rtol=tolerance, atol=tolerance)
        return
    np.testing.assert_array_equal(after, before)
    if before.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(after)[~np.isnan(after)], np.signbit(before)[~np.isnan(before)])


def integer_domain(dtype: str, count: int) -> np.ndarray:
    info = np.iinfo(dtype)
    full = np.arange(info.min, info.max + 1).astype(dtype)
    return full if count <= 2 else np.unique(np.concatenate([full[:6], full[-6:], full[120:136], full[::17]]))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_rules_hold_for_all_values_of_eight_bits(dtype):
    tables = (rules.INTEGER_RULES, rules.INTEGER_COMPARE_RULES, rules.INTEGER_NEGATION_RULES)
    for rule in itertools.chain(*[table.rules for table in tables]):
        if dtype == "uint8" and any(n.value == -1 for n in numbers(rule.before)):
            continue  # matches no unsigned constant
        names = variables(rule.before)
        check(rule, dict.fromkeys(names, integer_domain(dtype, len(names))), dtype)


def numbers(pattern: Pattern) -> list[Number]:
    if isinstance(pattern, Number):
        return [pattern]
    return [n for o in pattern.operands for n in numbers(o)] if isinstance(pattern, Node) else []


def test_bool_rules_hold_for_all_values():
    domain = np.array([False, True])
    for rule in rules.BOOL_RULES.rules:
        check(rule, dict.fromkeys(variables(rule.before), domain), "bool")


FLOATS = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 4.0, 3.0, -7.5, 1e-30, 1e30, 0.1, np.inf, -np.inf, np.nan, 1e-44, -3e38]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_exact_float_rules_keep_every_bit(dtype):
    with np.errstate(over="ignore"):
        domain = np.array(FLOATS).astype(dtype)
    negated_equalities = [r for r in rules.BOOL_RULES.rules if isinstance(r.before, Node) and holds_comparison(r)]
    assert len(negated_equalities) == 2
    tables = (rules.EXACT_FLOAT_RULES.rules, rules.EXACT_FLOAT_COMPARE_RULES.rules, negated_equalities)
    for rule in itertools.chain(*tables):
        check(rule, dict.fromkeys(variables(rule.before), domain), dtype)


def holds_comparison(rule: Rule) -> bool:
    inner = rule.before.operands[0] if isinstance(rule.before, Node) else None
    return isinstance(inner, Node) and inner.name in ("eq", "ne")


def test_select_rules_hold():
    values = np.arange(3).astype("int8")
    for rule in rules.SELECT_RULES.rules:
        check(rule, {"x": np.array([False, True]), "y": values, "z": values}, "int8")


def test_fast_float_rules_hold_in_real_arithmetic():
    domain = np.array([0.25, 0.5, 1.0, 1.7, 3.1, 6.0])
    for rule in rules.FAST_FLOAT_RULES.rules:
        check(rule, dict.fromkeys(variables(rule.before), domain), "float64", tolerance=1e-12)


def instantiate(pattern: Pattern, dtype: str):
    """A pattern as an expression, nothing folded: variables, 4 and 5 for its constants."""
    if isinstance(pattern, Variable):
        bindings = {"c": const(4, dtype), "d": const(5, dtype)}
        if pattern.constant:
            return bindings[pattern.name]
        return VARS.setdefault((pattern.name, dtype), Var(pattern.name, dtype))
    if isinstance(pattern, Number):
        return const(pattern.value, "bool" if isinstance(pattern.value, bool) else dtype)
    assert isinstance(pattern, Node)
    operands = [
        instantiate(o, "bool" if pattern.name == "select" and i == 0 else dtype) for i, o in enumerate(pattern.operands)
    ]
    if pattern.name.startswith("@"):
        return Call(pattern.name[1:], tuple(operands), operands[0].dtype)
    if pattern.name == "select":
        return Select(*operands)
    if pattern.name in ("neg", "not", "bitnot"):
        return UnaryOp(pattern.name, operands[0])
    kind = Compare if pattern.name in ("eq", "ne", "lt", "le", "gt", "ge") else BinaryOp
    return kind(pattern.name, *operands)


VARS: dict[tuple[str, str], Var] = {}

ROWS = [
    (table, rule, dtype)
    for table, dtype in (
        ("INTEGER_RULES", "int32"),
        ("INTEGER_COMPARE_RULES", "int32"),
        ("INTEGER_NEGATION_RULES", "int32"),
        ("BOOL_RULES", "bool"),
        ("EXACT_FLOAT_RULES", "float32"),
        ("EXACT_FLOAT_COMPARE_RULES", "float32"),
        ("FAST_FLOAT_RULES", "float32"),
    )
    for rule in getattr(rules, table).rules
]


def test_every_row_is_applied_by_the_analyzer():
    for table, rule, dtype in ROWS:
        kind = "int32" if table == "BOOL_RULES" and holds_comparison(rule) else dtype
        expr = instantiate(rule.before, kind)
        simplified = Analyzer(fast=table == "FAST_FLOAT_RULES").simplify(expr)
        assert not structural_equal(simplified, expr), f"{table}: {expr!s}"


def test_a_table_applies_the_first_of_all_rules_that_matches():
    table: RuleTable = rules.EXACT_FLOAT_RULES + rules.FAST_FLOAT_RULES + rules.SELECT_RULES
    x, y = Var("x", "float32"), Var("y", "float32")
    zero, three = const(0.0, "float32"), const(3.0, "float32")
    inner = [BinaryOp(op, a, b) for op in ("add", "sub", "mul", "div") for a, b in ((x, y), (x, three), (zero, x))]
    pool = [x, y, zero, three, UnaryOp("neg", x), Call("sqrt", (x,)), Call("exp", (y,)), *inner]
    applied = 0
    for op, a, b in itertools.product(("add", "sub", "mul", "div", "min", "max"), pool, pool):
        expr = BinaryOp(op, a, b)
        expected = None
        for rule in table.rules:
            bound: dict[str, object] = {}
            if _matcher(rule.before)(expr, bound) and (rule.condition is None or rule.condition(bound)):
                expected = build(rule.after, bound, expr.dtype)
                break
        found = table.apply(expr)
        assert (found is None) == (expected is None), expr
        assert found is None or structural_equal(found, expected), expr
        applied += found is not None
    assert applied > 100
