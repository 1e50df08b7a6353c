"""The algebra that the simplifier knows, one row a rule: (before, after[, condition]).

Integer rules hold for every integer type, wrapping included. Float rules come in two tables: the exact ones give the
same bits for every input, NaN, infinities and signed zeros included (NaN payloads may differ); the fast ones round
differently or assume finite values, and are only read where the user allows it (optimization level 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilewright.tensorir.arith.pattern import RuleTable, Variable, constant_of, intrinsic, operation
from tilewright.tensorir.expr import Expr

x, y, z = Variable("x"), Variable("y"), Variable("z")
c, d = Variable("c", constant=True), Variable("d", constant=True)


def _minimum(a: object, b: object) -> object:
    return operation("min", a, b)  # type: ignore[arg-type]


def _maximum(a: object, b: object) -> object:
    return operation("max", a, b)  # type: ignore[arg-type]


INTEGER_RULES = RuleTable(
    [
        (x + 0, x),  # x + 0 -> x
        (0 + x, x),  # 0 + x -> x
        (c + x, x + c, lambda b: constant_of(b["x"]) is None),  # constants to the right
        ((x + c) + d, x + (c + d)),  # (x + c) + d -> x + (c + d)
        ((x - c) + d, x + (d - c)),  # (x - c) + d -> x + (d - c)
        ((x - y) + y, x),  # (x - y) + y -> x
        (x + (y - x), y),  # x + (y - x) -> y
        (x - 0, x),  # x - 0 -> x
        (0 - x, -x),  # 0 - x -> -x
        (x - x, 0),  # x - x -> 0
        ((x + y) - y, x),  # (x + y) - y -> x
        ((x + y) - x, y),  # (x + y) - x -> y
        ((x + c) - d, x + (c - d)),  # (x + c) - d -> x + (c - d)
        (operation("neg", -x), x),  # -(-x) -> x
        (-(x - y), y - x),  # -(x - y) -> y - x
        (x - (-y), x + y),  # x - (-y) -> x + y
        (x + (-y), x - y),  # x + (-y) -> x - y
        (x * 0, 0),  # x * 0 -> 0
        (0 * x, 0),  # 0 * x -> 0
        (x * 1, x),  # x * 1 -> x
        (1 * x, x),  # 1 * x -> x
        (x * -1, -x),  # x * -1 -> -x
        (c * x, x * c, lambda b: constant_of(b["x"]) is None),  # constants to the right
        ((x * c) * d, x * (c * d)),  # (x * c) * d -> x * (c * d)
        (x // 1, x),  # x // 1 -> x
        (x % 1, 0),  # x % 1 -> 0
        (operation("truncdiv", x, 1), x),  # truncdiv(x, 1) -> x
        (operation("truncmod", x, 1), 0),  # truncmod(x, 1) -> 0
        (x & 0, 0),  # x & 0 -> 0
        (x & x, x),  # x & x -> x
        (x | 0, x),  # x | 0 -> x
        (x | x, x),  # x | x -> x
        (x ^ 0, x),  # x ^ 0 -> x
        (x ^ x, 0),  # x ^ x -> 0
        (x << 0, x),  # x << 0 -> x
        (x >> 0, x),  # x >> 0 -> x
        (~(~x), x),  # ~~x -> x
        (_minimum(x, x), x),  # min(x, x) -> x
        (_maximum(x, x), x),  # max(x, x) -> x
        (_minimum(c, x), _minimum(x, c), lambda b: constant_of(b["x"]) is None),  # constants to the right
        (_maximum(c, x), _maximum(x, c), lambda b: constant_of(b["x"]) is None),  # constants to the right
        (_minimum(_minimum(x, c), d), _minimum(x, _minimum(c, d))),  # min(min(x, c), d) -> min(x, min(c, d))
        (_maximum(_maximum(x, c), d), _maximum(x, _maximum(c, d))),  # max(max(x, c), d) -> max(x, max(c, d))
        (_minimum(_minimum(x, y), y), _minimum(x, y)),  # min(min(x, y), y) -> min(x, y)
        (_maximum(_maximum(x, y), y), _maximum(x, y)),  # max(max(x, y), y) -> max(x, y)
        (_minimum(_maximum(x, y), y), y),  # min(max(x, y), y) -> y
        (_maximum(_minimum(x, y), y), y),  # max(min(x, y), y) -> y
        (intrinsic("abs", intrinsic("abs", x)), intrinsic("abs", x)),  # abs(abs(x)) -> abs(x)
    ]
)

#: Comparisons of integers; each is total, so that a negation turns into the opposite comparison.
INTEGER_COMPARE_RULES = RuleTable(
    [
        (operation("eq", x, x), True),  # x == x -> true
        (operation("ne", x, x), False),  # x != x -> false
        (x < x, False),  # x < x -> false
        (x > x, False),  # x > x -> false
        (x <= x, True),  # x <= x -> true
        (x >= x, True),  # x >= x -> true
    ]
)

INTEGER_NEGATION_RULES = RuleTable(
    [
        (operation("not", x < y), x >= y),  # not x < y -> x >= y
        (operation("not", x <= y), x > y),  # not x <= y -> x > y
        (operation("not", x > y), x <= y),  # not x > y -> x <= y
        (operation("not", x >= y), x < y),  # not x >= y -> x < y
    ]
)

BOOL_RULES = RuleTable(
    [
        (operation("and", x, True), x),  # x and true -> x
        (operation("and", True, x), x),  # true and x -> x
        (operation("and", x, False), False),  # x and false -> false
        (operation("and", False, x), False),  # false and x -> false
        (operation("and", x, x), x),  # x and x -> x
        (operation("and", x, operation("not", x)), False),  # x and not x -> false
        (operation("and", operation("not", x), x), False),  # not x and x -> false
        (operation("and", x, operation("or", x, y)), x),  # x and (x or y) -> x
        (operation("and", operation("or", x, y), x), x),  # (x or y) and x -> x
        (operation("and", operation("and", x, y), y), operation("and", x, y)),  # (x and y) and y -> x and y
        (operation("and", operation("and", x, y), x), operation("and", x, y)),  # (x and y) and x -> x and y
        (operation("or", x, False), x),  # x or false -> x
        (operation("or", False, x), x),  # false or x -> x
        (operation("or", x, True), True),  # x or true -> true
        (operation("or", True, x), True),  # true or x -> true
        (operation("or", x, x), x),  # x or x -> x
        (operation("or", x, operation("not", x)), True),  # x or not x -> true
        (operation("or", operation("not", x), x), True),  # not x or x -> true
        (operation("or", x, operation("and", x, y)), x),  # x or (x and y) -> x
        (operation("or", operation("and", x, y), x), x),  # (x and y) or x -> x
        (operation("not", operation("not", x)), x),  # not not x -> x
        (operation("not", operation("eq", x, y)), operation("ne", x, y)),  # not x == y -> x != y (also for NaN)
        (operation("not", operation("ne", x, y)), operation("eq", x, y)),  # not x != y -> x == y (also for NaN)
        (_minimum(x, y), operation("and", x, y)),  # min(x, y) -> x and y
        (_maximum(x, y), operation("or", x, y)),  # max(x, y) -> x or y
    ]
)

#: Selections of values of any type.
SELECT_RULES = RuleTable(
    [
        (operation("select", x, y, y), y),  # select(x, y, y) -> y
        (operation("select", operation("not", x), y, z), operation("select", x, z, y)),  # select(not x, y, z)
        (operation("select", True, y, z), y),  # select(true, y, z) -> y
        (operation("select", False, y, z), z),  # select(false, y, z) -> z
    ]
)


def _is_power_of_two(bound: Mapping[str, Expr]) -> bool:
    """Return whether the constant ``c`` and its reciprocal are powers of two well inside the range of the type."""
    value = constant_of(bound["c"])
    assert value is not None
    mantissa, exponent = math.frexp(abs(value))
    limit = {16: 8, 32: 60, 64: 500}[bound["c"].dtype.bits]
    return mantissa == 0.5 and abs(exponent) < limit


EXACT_FLOAT_RULES = RuleTable(
    [
        (x - 0.0, x),  # x - 0.0 -> x
        (x + -0.0, x),  # x + -0.0 -> x (x + 0.0 is not x for -0.0)
        (-0.0 + x, x),  # -0.0 + x -> x
        (x * 1.0, x),  # x * 1 -> x
        (1.0 * x, x),  # 1 * x -> x
        (x / 1.0, x),  # x / 1 -> x
        (x * -1.0, -x),  # x * -1 -> -x
        (-1.0 * x, -x),  # -1 * x -> -x
        (x / c, x * (1.0 / c), _is_power_of_two),  # x / 4 -> x * 0.25
        (operation("neg", -x), x),  # -(-x) -> x
        (-(x * c), x * (-c)),  # -(x * c) -> x * (-c)
        (x - (-y), x + y),  # x - (-y) -> x + y
        (x + (-y), x - y),  # x + (-y) -> x - y
        ((-x) * (-y), x * y),  # (-x) * (-y) -> x * y
        ((-x) / (-y), x / y),  # (-x) / (-y) -> x / y
        (_minimum(x, x), x),  # min(x, x) -> x
        (_maximum(x, x), x),  # max(x, x) -> x
        (_minimum(x, math.inf), x),  # min(x, inf) -> x
        (_minimum(math.inf, x), x),  # min(inf, x) -> x
        (_maximum(x, -math.inf), x),  # max(x, -inf) -> x
        (_maximum(-math.inf, x), x),  # max(-inf, x) -> x
        (intrinsic("abs", -x), intrinsic("abs", x)),  # abs(-x) -> abs(x)
        (intrinsic("abs", intrinsic("abs", x)), intrinsic("abs", x)),  # abs(abs(x)) -> abs(x)
    ]
)

EXACT_FLOAT_COMPARE_RULES = RuleTable(
    [
        (x < x, False),  # x < x -> false
        (x > x, False),  # x > x -> false
    ]
)

FAST_FLOAT_RULES = RuleTable(
    [
        (x + 0.0, x),  # x + 0.0 -> x
        (0.0 + x, x),  # 0.0 + x -> x
        (x - x, 0.0),  # x - x -> 0 (not for infinity, NaN)
        (x * 0.0, 0.0),  # x * 0 -> 0 (not for infinity, NaN)
        (0.0 * x, 0.0),  # 0 * x -> 0 (not for infinity, NaN)
        (0.0 - x, -x),  # 0 - x -> -x
        (x / x, 1.0),  # x / x -> 1 (not for zero, infinity, NaN)
        (x / c, x * (1.0 / c)),  # x / 3 -> x * (1 / 3)
        (c + x, x + c, lambda b: constant_of(b["x"]) is None),  # constants to the right
        (c * x, x * c, lambda b: constant_of(b["x"]) is None),  # constants to the right
        ((x + c) + d, x + (c + d)),  # (x + c) + d -> x + (c + d)
        ((x - c) + d, x + (d - c)),  # (x - c) + d -> x + (d - c)
        ((x + c) - d, x + (c - d)),  # (x + c) - d -> x + (c - d)
        ((x * c) * d, x * (c * d)),  # (x * c) * d -> x * (c * d)
        (x * y + x * z, x * (y + z)),  # x * y + x * z -> x * (y + z)
        (y * x + z * x, (y + z) * x),  # y * x + z * x -> (y + z) * x
        (1.0 / intrinsic("sqrt", x), intrinsic("rsqrt", x)),  # 1 / sqrt(x) -> rsqrt(x)
        (x / intrinsic("sqrt", y), x * intrinsic("rsqrt", y)),  # x / sqrt(y) -> x * rsqrt(y)
        (intrinsic("sqrt", x) * intrinsic("sqrt", x), x),  # sqrt(x) * sqrt(x) -> x
        (intrinsic("log", intrinsic("exp", x)), x),  # log(exp(x)) -> x
        (intrinsic("exp", x) * intrinsic("exp", y), intrinsic("exp", x + y)),  # exp(x) * exp(y) -> exp(x + y)
    ]
)
