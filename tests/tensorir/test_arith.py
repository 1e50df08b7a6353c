"""Test the analyzer on the index expressions of real compilations, one line for each."""

from __future__ import annotations

import contextlib
import time

import pytest

from tilewright.tensorir import structural_equal
from tilewright.tensorir.arith import Analyzer, lower_bound_expr, partition_point, region_of, upper_bound_expr
from tilewright.tensorir.arith.linear import Linear
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    Var,
    as_expr,
    binary,
    call,
    compare,
    const,
    maximum,
    minimum,
)
from tilewright.tensorir.folding import fold_compare
from tilewright.tensorir.functor import uses_var

I, J, K, N, M, X = (Var(name) for name in ("i", "j", "k", "n", "m", "x"))
F = Var("f", "float32")
FLAG = Var("flag", "bool")
G = Var("g", "float32")
DATA = Buffer("data", (IntImm(9),), "int64")
LOADED = BufferLoad(DATA, (I,))


@pytest.fixture
def analyzer():
    """Knows 0 <= j < 16, 0 <= i < n, and that n and m are dimensions."""
    found = Analyzer()
    found.bind_nonnegative(N)
    found.bind_nonnegative(M)
    found.bind(J, 0, 16)
    found.bind(I, 0, N)
    return found


CASES = [
    (X + 1 - X, 1),  # x + 1 - x -> 1
    ((I * 16 + J) // 16, I),
    ((I * 16 + J) % 16, J),
    ((I * 32 + J) // 32, I),
    ((X // 4) * 4 + X % 4, X),
    (((X // 4) // 8), X // 32),
    ((X // 8) % 4 * 8 + X % 8, X % 32),
    ((I * 32 + K) // 16, I * 2 + K // 16),
    ((X * 16 + 8) // 4, X * 4 + 2),
    ((X % 32) % 8, X % 8),
    ((X % 6) % 4, (X % 6) % 4),  # 6 is no multiple of 4
    ((X // 4 + 3) // 8, (X + 12) // 32),
    ((X * 12 + 5) % 4, 1),
    (X * N - N * X, 0),
    ((X + 1) * (X - 1) - X * X, -1),
    (minimum(J, 16), J),
    (minimum(J, 15), J),
    (maximum(J - 20, 0), 0),
    (minimum(minimum(X, 4), 8), minimum(X, 4)),
    (minimum(X + 3, X + 5), X + 3),
    (minimum(X + N, X + M), minimum(N, M) + X),
    (binary("truncdiv", J, 4), J // 4),
    (binary("truncmod", I * 4 + 1, 4), 1),
    (I * 16 + J < N * 16, True),  # for i < n
    (X * 16 + J < N * 16, X < N),
    (X * 16 + J >= N * 16, N <= X),
    (X * 4 < 18, X < 5),
    (X * 2 >= 5, X >= 3),
    (compare("eq", X * 2 + 1, X * 4), False),
    (compare("eq", X * 4 + 4, N * 4), compare("eq", N, X + 1)),
    (compare("eq", N * 4, X * 4 + 4), compare("eq", N, X + 1)),
    (J < 16, True),
    (J >= 16, False),
    (I < N + 1, True),
    ((N + 3) // 4 * 4 >= N, True),
    ((X < N) & (X < N + 1), X < N),
    ((X < 3) & (X > 5), False),
    (~(X < N), N <= X),
    ((X < N) | ~(X < N), True),
    (Select(X < X + 1, X, N), X),
    (Select(X < N, X, X), X),
    (Select(~FLAG, X, M), Select(FLAG, M, X)),
    (Ramp(I * 2, as_expr(1), 4) + Broadcast(X - I * 2, 4), Ramp(X, as_expr(1), 4)),
    (compare("lt", Ramp(J, as_expr(1), 4), Broadcast(as_expr(19), 4)), const(True, "boolx4")),
    (Cast("int32", Cast("int64", Var("q", "int32"))), None),
]


@pytest.mark.parametrize(("expr", "expected"), CASES, ids=[str(e) for e, _ in CASES])
def test_simplify(analyzer, expr, expected):
    if expected is None:
        expected = expr.value.value
    wanted = as_expr(expected, "bool" if isinstance(expected, bool) else INT64)
    found = analyzer.simplify(expr)
    assert structural_equal(found, wanted), f"{found!s} instead of {wanted!s}"


def test_an_expression_in_canonical_form_is_returned_itself(analyzer):
    for expr in (I * 16 + K, X // 4, minimum(N, X), X < N, I * 2 + K // 16):
        assert analyzer.simplify(expr) is expr


UNCHANGED = [
    F + FloatImm(0.0),  # -0.0 + 0.0 is 0.0
    F - F,  # NaN for infinity
    F * FloatImm(0.0),
    (F + FloatImm(1.0)) + FloatImm(2.0),
    F / FloatImm(3.0),
    ~(F < G),  # true for NaN, which no comparison is
    compare("eq", F, F),  # false for NaN
]


@pytest.mark.parametrize("expr", UNCHANGED, ids=str)
def test_floats_are_not_simplified_by_what_is_not_exact(analyzer, expr):
    assert analyzer.simplify(expr) is expr


def test_fast_rules_are_read_only_when_asked_for():
    expr = call("exp", F) * call("exp", F + FloatImm(0.0))
    assert Analyzer().simplify(expr) is expr
    assert structural_equal(Analyzer(fast=True).simplify(expr), call("exp", F + F))


def test_a_quotient_in_a_sum_meets_the_remainder_that_it_was_taken_from():
    analyzer = Analyzer()
    analyzer.bind(K, 0, 28)
    analyzer.bind(J, 0, 14)
    whole = K * 14 + J  # whole // 7 becomes k * 2 + j // 7, and whole % 7 becomes j % 7
    assert structural_equal(analyzer.simplify(whole // 7 // 7 * 49 + whole % 49), whole)
    assert structural_equal(analyzer.simplify(whole // 7 % 7 * 7 + whole % 7), whole % 49)
    for expr in ((X * 2 + J // 7) // 7, (X * 2 + J // 7) % 7 * 7 + J % 7):  # x * 14 might overflow
        assert structural_equal(analyzer.simplify(expr), expr)
    for expr in ((K + LOADED // 7) // 7, (K + LOADED // 7) % 7 * 7 + LOADED % 7):  # k * 7 and any number might, too
        assert structural_equal(analyzer.simplify(expr), expr)
    assert structural_equal(analyzer.simplify(LOADED // 7 % 7 * 7 + LOADED % 7), LOADED % 49)


def test_data_may_wrap_so_that_only_sums_and_products_of_it_are_reordered(analyzer):
    assert structural_equal(analyzer.simplify(LOADED * 2 - LOADED), LOADED)
    for expr in (compare("lt", LOADED, LOADED + 1), (LOADED * 16 + J) // 16, minimum(LOADED, LOADED + 1)):
        found = analyzer.simplify(expr)
        assert structural_equal(found, expr), str(found)
    assert not analyzer.prove(LOADED < LOADED + 1)


def test_division_by_zero_stays():
    expr = X // (N - N)
    assert not isinstance(Analyzer().simplify(expr), IntImm)
    assert structural_equal(Analyzer().simplify((I * N) // N), (I * N) // N)  # n may be zero


def test_symbolic_division_needs_a_positive_divisor():
    analyzer = Analyzer()
    analyzer.bind(N, 1)
    analyzer.bind(J, 0, N)
    assert analyzer.simplify((X * N + J) // N) is X
    assert analyzer.simplify((X * N + J) % N) is J


@pytest.mark.parametrize(
    "condition",
    [
        I * N + K < N * N,
        I + K <= 2 * N - 2,
        minimum(I + 4, N) <= N,
        minimum(I + 4, N) - I >= 1,
        maximum(I, K) < N,
        (N + 7) // 8 * 8 - N <= 7,
        I // 4 <= N // 4,
        (I // 4) * 4 + 3 < N + 4,
        N % 4 <= N,
        compare("ne", I, N),
        (I < N) & (I >= 0),
        Select(FLAG, I, I + 1) >= I,
        Select(FLAG, I, N) <= N,
    ],
    ids=str,
)
def test_prove(analyzer, condition):
    analyzer.bind(K, 0, N)
    assert analyzer.prove(condition)


def test_a_search_for_a_proof_ends_before_its_numbers_wrap():
    """Each step multiplies the constant by four, in a cycle of bounds of ``J // 4`` and ``X // 4``."""
    analyzer = Analyzer()
    analyzer.bind(J, 0, 8)
    sizes = X + (J + 1) // 4
    assert not analyzer.prove(minimum((sizes + 3) // 4, J) <= (sizes + 1) // 4)  # 1 <= 0 for X = 0, J = 7


@pytest.mark.parametrize("condition", [I < N - 1, X < N, I * 2 < N, N // 4 * 4 >= N, compare("eq", X % 2, 0)], ids=str)
def test_what_does_not_always_hold_is_not_proved(analyzer, condition):
    assert not analyzer.prove(condition)


def test_quotients_by_one_divisor_are_ordered_as_what_is_divided():
    analyzer = Analyzer()
    with analyzer.assuming(J <= K):
        assert analyzer.prove(K // 4 >= J // 4)
        assert not analyzer.prove(K // 4 > J // 4)
    with analyzer.assuming(J + 8 <= K):
        assert analyzer.prove(K // 4 - J // 4 >= 2)
        assert not analyzer.prove(K // 4 - J // 4 >= 3)


def test_split_loops_stay_inside_their_bound():
    analyzer = Analyzer()
    analyzer.bind(I, 0, M // 6)
    analyzer.bind(J, 0, 6)
    assert analyzer.prove_less(I * 6 + J, M)
    analyzer.bind(I, 0, (M + 5) // 6)
    assert not analyzer.prove_less(I * 6 + J, M)
    assert analyzer.prove_less(I * 6 + J, M + 5 + 1)


def test_assumptions_hold_inside_their_scope_only(analyzer):
    with analyzer.assuming(X >= 0, X < 8, compare("eq", K % 4, 0)):
        assert analyzer.bounds(X + 1) == (1, 8)
        assert analyzer.prove(X * 2 < 15)
        assert structural_equal(analyzer.simplify(K % 2), as_expr(0))
        assert analyzer.divisible_by(K * 3, 12)
        with analyzer.assuming(compare("eq", X, 3)):
            assert structural_equal(analyzer.simplify(X + 1), as_expr(4))
    assert not analyzer.prove(X * 2 < 15)
    assert not analyzer.bounds(X).is_finite


def test_a_scaled_assumption_rounds_to_integers(analyzer):
    with analyzer.assuming(X * 4 >= N - N + 6, K * 4 <= 6):
        assert analyzer.bounds(X).lower == 2
        assert analyzer.bounds(K).upper == 1
    with analyzer.assuming(X * 3 + J >= 100):
        assert analyzer.prove(X > 28)
        assert not analyzer.prove(X > 29)


def test_a_condition_on_memory_is_not_remembered(analyzer):
    with analyzer.assuming(LOADED < 5):
        assert not analyzer.prove(LOADED < 5)


def test_bounds_and_remainders(analyzer):
    assert analyzer.bounds(J * 3 + 1) == (1, 46)
    assert analyzer.bounds(X % 8) == (0, 7)
    assert analyzer.bounds(minimum(X, 4)).upper == 4
    assert analyzer.modular_set(X * 12 + N * 8 + 3) == (4, 3)
    assert analyzer.bounds(Cast("int64", Var("b", "uint8"))) == (0, 255)
    assert analyzer.bounds(Var("a", "int8") + Var("b", "int8")) == (-128, 127)


def test_binding_again_replaces_the_range():
    analyzer = Analyzer()
    analyzer.bind(X, 0, 4)
    assert analyzer.prove(X < 4)
    analyzer.bind(X, 0, 8)
    assert not analyzer.prove(X < 4)
    analyzer.bind(X, N, 1)
    assert analyzer.simplify(X + 1 - N).value == 1


def box(indices, ranges):
    return [None if part is None else tuple(str(end) for end in part) for part in region_of(indices, ranges)]


def test_regions():
    ranges = {J: (0, 16), K: (0, N)}
    assert box([I * 16 + J, K * 2, I * N + K, J // 4, 15 - J], ranges) == [
        (str(I * 16), "16"),
        ("0", str(N * 2 - 1)),
        ("i * n", "n"),
        ("0", "4"),
        ("0", "16"),
    ]
    assert box([LOADED, I % 8], {I: (0, 16)}) == [None, ("0", "8")]
    assert box([I * 4 + J], {I: (2, 3), J: (0, 6)}) == [("8", "14")]


def test_a_range_may_depend_on_an_outer_one():
    (found,) = region_of([I * 16 + J], {I: (0, 4), J: (0, minimum(16, N - I * 16))})
    assert str(found[0]) == "0"


def test_chunks_of_a_symbolic_row_end_before_it_does():
    """The remainder of a pixel's row under a main loop of whole vectors, whose end is the lesser of two."""
    n, chunk, vector, lane = (Var(name) for name in ("n", "chunk", "vector", "lane"))
    analyzer = Analyzer()
    analyzer.bind_nonnegative(n)
    analyzer.bind(chunk, 0, (n + 2047) // 2048)
    analyzer.assume((n + 2047) // 2048 > 0)
    extent = minimum(n // 8 - chunk * 256, 256)
    analyzer.assume(extent > 0)
    analyzer.bind(vector, 0, extent)
    analyzer.bind(lane, 0, 16)
    found = analyzer.simplify((chunk * 2048 + vector * 8 + lane // 2) // n)
    assert isinstance(found, IntImm)
    assert found.value == 0


def test_symbolic_bounds():
    assert structural_equal(upper_bound_expr(I + J, {I: (0, N), J: (0, 3)}), N + 1)
    assert structural_equal(lower_bound_expr(I - J, {I: (0, N), J: (0, 3)}), as_expr(-2))
    assert upper_bound_expr(LOADED, {I: (0, 4)}) is None


def test_partition_points():
    assert structural_equal(partition_point(I * 6 + J < M, I, {J: (0, 6)})[1], M // 6)
    lower, upper = partition_point((I + J >= 1) & (I + J < N + 1), I, {J: (0, 3)})
    assert structural_equal(lower, as_expr(1)) and structural_equal(upper, N - 1)
    assert partition_point(I * I < M, I) is None
    assert partition_point(LOADED < 3, I) is None


def test_simplifying_a_typical_index_is_fast():
    analyzer = Analyzer()
    analyzer.bind_nonnegative(N)
    analyzer.bind(J, 0, 16)
    analyzer.bind(I, 0, N)
    best = min(_time(analyzer) for _ in range(30))
    assert best < 500e-6  # 50 microseconds on the machine this was written on


def _time(analyzer):
    expr = (I * 32 + J) // 16 * 16 + (I * 32 + J) % 16 + N * 4
    start = time.thread_time()
    analyzer.simplify(expr)
    return time.thread_time() - start


def test_what_follows_from_an_extent_that_is_a_product() -> None:
    analyzer, m, n, i = Analyzer(), Var("m"), Var("n"), Var("i")
    for size in (m, n):
        analyzer.bind_nonnegative(size)
    extent = m * ((n + 1) // 2) * 12
    analyzer.bind(i, 0, extent)
    assert not analyzer.prove(n > 0)
    analyzer.assume(extent > 0)
    assert analyzer.prove(m > 0) and analyzer.prove(n > 0)
    assert analyzer.prove(i // ((n + 1) // 2 * 12) < m)
    assert analyzer.prove(i % ((n + 1) // 2) < (n + 1) // 2)
    assert not analyzer.prove(i // ((n + 1) // 2 * 12) < m - 1)


def test_nested_scopes_do_not_convert_again() -> None:
    """The work of a loop nest: a scope for each loop, and the same formula of outer variables in each."""

    class Counting(Analyzer):
        conversions = 0

        def _convert(self, expr: Expr) -> Linear:
            self.conversions += 1
            return super()._convert(expr)

    def work(depth: int) -> int:
        analyzer, sizes = Counting(), [Var(f"n{number}") for number in range(8)]
        formula = as_expr(0)
        for size in sizes:
            formula = (formula + size * 3) // 2
        with contextlib.ExitStack() as stack:
            for number in range(depth):
                stack.enter_context(analyzer.scope())
                analyzer.bind(Var(f"i{number}"), 0, 16)
                analyzer.simplify(formula)
        return analyzer.conversions

    assert work(40) - work(20) < 20 * 10  # a few for each range, none of the formula's forty


def test_a_fact_of_an_inner_scope_does_not_outlive_it() -> None:
    analyzer, i, n = Analyzer(), Var("i"), Var("n")
    form = (i // n) + 1
    assert analyzer.simplify(form) is not None
    with analyzer.scope():
        analyzer.bind(i, 0, n)
        analyzer.assume(n > 0)
        assert analyzer.prove_equal(i // n, 0)
    assert not analyzer.prove_equal(i // n, 0)


def test_uses_of_variables_take_time_linear_in_a_graph_of_shared_parts() -> None:
    x, y = Var("x"), Var("y")
    formula = x + 1
    for _ in range(2000):
        formula = BinaryOp("mul", formula, formula)  # a tree of 2 ** 2000 leaves
    assert uses_var(formula, {x}) and not uses_var(formula, {y})


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
@pytest.mark.parametrize(("a", "b"), [(0, -(1 << 63)), (-(1 << 63), (1 << 63) - 1), (-1, (1 << 63) - 1)])
def test_constants_are_compared_as_they_are_even_where_their_difference_does_not_fit(op, a, b):
    for x, y in ((a, b), (b, a)):
        found = Analyzer().simplify(Compare(op, IntImm(x), IntImm(y)))
        assert isinstance(found, IntImm) and bool(found.value) == fold_compare(op, x, y)
