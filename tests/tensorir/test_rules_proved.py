"""Prove every row of the integer and boolean tables with z3: both sides are equal for all integers of the type,
wrapping and division included, and for all numbers without limits."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np
import pytest

z3 = pytest.importorskip("z3")

from z3_meaning import Meaning, counterexample, stated  # noqa: E402 - it imports z3

from tilewright.tensorir.arith import rules  # noqa: E402
from tilewright.tensorir.arith.pattern import Node, Rule, RuleTable, Variable, intrinsic, operation  # noqa: E402
from tilewright.tensorir.dtype import DataType  # noqa: E402
from tilewright.tensorir.expr import Var  # noqa: E402
from tilewright.tensorir.folding import _INTEGER, fold_binary, trunc_div, wrap_integer  # noqa: E402

x, y = Variable("x"), Variable("y")

WIDTHS = [DataType(name) for name in ("int8", "uint8", "int16", "uint16")]
TABLES = {
    "INTEGER_RULES": WIDTHS,
    "INTEGER_COMPARE_RULES": WIDTHS,
    "INTEGER_NEGATION_RULES": WIDTHS,
    "BOOL_RULES": [DataType("bool")],
    "SELECT_RULES": [*WIDTHS, DataType("bool")],
}


def rows() -> list[Any]:
    """Each rule of each table, with each type that it is applied to."""
    found = []
    for table, dtypes in TABLES.items():
        for number, (rule, dtype) in enumerate(itertools.product(getattr(rules, table).rules, dtypes)):
            kinds = WIDTHS if holds_comparison(rule) else [dtype]
            found += [pytest.param(rule, kind, id=f"{table}-{number}-{kind!s}") for kind in kinds]
    return found


def holds_comparison(rule: Rule) -> bool:
    """Return whether the operands of a rule of bools are operands of a comparison, which are numbers."""
    inner = rule.before.operands[0] if isinstance(rule.before, Node) else None
    return isinstance(inner, Node) and inner.name in ("eq", "ne")


def refutation(rule: Rule, dtype: DataType, unlimited: bool = False) -> str | None:
    """Return values for which the sides of a rule differ; None if there are none. The condition of a rule is not
    assumed, so that the proof is of a stronger claim."""
    variables: dict[str, Var] = {}
    meaning = Meaning(unlimited)
    before, after = (stated(side, dtype, variables) for side in (rule.before, rule.after))
    return counterexample(meaning.of(before) == meaning.of(after))


@pytest.mark.parametrize(("rule", "dtype"), rows())
def test_both_sides_are_equal_for_all_values_of_the_type(rule: Rule, dtype: DataType) -> None:
    assert refutation(rule, dtype) is None


def test_rules_without_operations_on_bits_hold_for_numbers_without_limits() -> None:
    proved = 0
    for table in ("INTEGER_RULES", "INTEGER_COMPARE_RULES", "INTEGER_NEGATION_RULES"):
        for rule in getattr(rules, table).rules:
            try:
                assert refutation(rule, DataType("int64"), unlimited=True) is None, rule
                proved += 1
            except NotImplementedError:
                continue
    assert proved >= 50


@pytest.mark.parametrize(
    ("before", "after", "wrong_for"),
    [
        ((x + 1) > x, True, "int8"),  # it wraps
        (x // -1, -x, "uint8"),  # -1 is 255 there
        ((x * 4) // 4, x, "int16"),
        (intrinsic("abs", -x), x, "int8"),
        (operation("truncdiv", x, 2), x // 2, "int8"),  # negative numbers are rounded differently
        (x // y * y + x % y, x, "int8"),  # not if y is zero
        (operation("min", x, y), y, "uint16"),
        (x << y, x * 2, "int8"),
    ],
)
def test_a_rule_that_is_wrong_is_refuted(before: Any, after: Any, wrong_for: str) -> None:
    table = RuleTable([(before, after)])
    assert refutation(table.rules[0], DataType(wrong_for)) is not None


@pytest.mark.parametrize(("before", "after"), [((x + 1) > x, True), ((x * 4) // 4, x)])
def test_what_only_wrapping_refutes_holds_for_numbers_without_limits(before: Any, after: Any) -> None:
    assert refutation(RuleTable([(before, after)]).rules[0], DataType("int64"), unlimited=True) is None


# -- constants --------------------------------------------------------------------------------------------------------


class Whole:
    """A Python integer that is not known, as a formula. Where the code under test asks for its truth, it continues with
    one of both answers (:func:`paths`)."""

    #: The answers of this run so far, the conditions that they assume, and the answers still to give.
    taken: ClassVar[list[bool]] = []
    assumed: ClassVar[list[Any]] = []
    script: ClassVar[list[bool]] = []

    def __init__(self, formula: Any) -> None:
        self.formula = formula

    def __bool__(self) -> bool:
        condition = self.formula if z3.is_bool(self.formula) else self.formula != 0
        answer = Whole.script.pop(0) if Whole.script else True
        Whole.taken.append(answer)
        Whole.assumed.append(condition if answer else z3.Not(condition))
        return answer

    def __and__(self, mask: int) -> Whole:
        assert mask + 1 & mask == 0  # low bits only
        return Whole(self.formula % (mask + 1))

    def __rshift__(self, count: int) -> Whole:
        return Whole(self.formula / (1 << count))

    def __floordiv__(self, other: Whole) -> Whole:
        a, b = self.formula, other.formula
        return Whole(z3.If(b > 0, a / b, (-a) / (-b)))

    def __mod__(self, other: Whole) -> Whole:
        return Whole(self.formula - (self // other).formula * other.formula)

    def __abs__(self) -> Whole:
        return Whole(z3.If(self.formula < 0, -self.formula, self.formula))

    def __neg__(self) -> Whole:
        return Whole(-self.formula)

    def __eq__(self, other: object) -> bool:
        return bool(Whole(self.formula == formula_of(other)))

    __hash__ = None  # type: ignore[assignment]


def formula_of(value: Any) -> Any:
    return value.formula if isinstance(value, Whole) else z3.IntVal(int(value))


def _operator(name: str) -> Any:
    def apply(self: Whole, other: Any) -> Whole:
        return Whole(getattr(self.formula, name)(formula_of(other)))

    return apply


for _name in ("__add__", "__sub__", "__mul__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(Whole, _name, _operator(_name))


def paths(function: Any, *args: Any) -> list[tuple[list[Any], Any]]:
    """Run ``function`` once for each combination of answers: the conditions of each path, and its result."""
    found: list[tuple[list[Any], Any]] = []
    waiting: list[list[bool]] = [[]]
    while waiting:
        script = waiting.pop()
        Whole.taken, Whole.assumed, Whole.script = [], [], list(script)
        result = function(*args)
        found.append((Whole.assumed, formula_of(result)))
        waiting += [[*Whole.taken[:n], False] for n in range(len(script), len(Whole.taken)) if Whole.taken[n]]
    return found


DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")
MACHINE = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "truncdiv": lambda a, b: np.trunc(a / b.astype(float)).astype(int).astype(a.dtype),
    "truncmod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
A, B = z3.Int("a"), z3.Int("b")
INTEGER_TYPES = [DataType(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=str)
def test_a_number_wraps_to_the_one_number_of_the_type_with_the_same_low_bits(dtype: DataType) -> None:
    least = -(1 << (dtype.bits - 1)) if dtype.is_int else 0
    for assumed, result in paths(wrap_integer, Whole(A), dtype):
        in_range = z3.And(least <= result, result < least + (1 << dtype.bits))
        assert counterexample(z3.And(in_range, (A - result) % (1 << dtype.bits) == 0), assumed) is None


def test_a_truncated_quotient_is_rounded_toward_zero() -> None:
    # |a| = |b| * q + r, which the code divides: what it makes of q leaves a rest of the sign of a, smaller than b.
    for assumed, quotient in paths(trunc_div, Whole(A), Whole(B)):
        rest = A - quotient * B
        size = z3.If(B > 0, B, -B)
        claim = z3.And(z3.Or(rest == 0, (rest > 0) == (A > 0)), -size < rest, rest < size)
        assert counterexample(claim, [*assumed, B != 0]) is None


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_are_one_operand_and_no_worse_than_the_other(name: str) -> None:
    for assumed, result in paths(_INTEGER[name], Whole(A), Whole(B)):
        bound = z3.And(result <= A, result <= B) if name == "min" else z3.And(result >= A, result >= B)
        assert counterexample(z3.And(bound, z3.Or(result == A, result == B)), assumed) is None


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", sorted(MACHINE))
def test_all_constants_of_eight_bits_fold_to_what_the_machine_computes(op: str, dtype: str) -> None:
    values = np.arange(256).astype(np.uint8).view(dtype)
    a, b = (side.ravel() for side in np.meshgrid(values, values))
    kept = (b >= 0) & (b < 8) if op in ("shl", "shr") else (b != 0) | (op not in DIVISIONS)
    folded = [fold_binary(op, *pair, DataType(dtype)) for pair in zip(a.tolist(), b.tolist(), strict=True)]
    assert {value is None for value, has_one in zip(folded, kept, strict=True) if not has_one} <= {True}
    found = np.array([value for value, has_one in zip(folded, kept, strict=True) if has_one], dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, MACHINE[op](a[kept], b[kept]))
