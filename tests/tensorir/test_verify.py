"""Each rule of the loop-level IR, broken once; and programs that keep them all."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import prim_funcs

from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Buffer, Call, FloatImm, IntImm, Var
from tilewright.tensorir.parser import parse
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
)
from tilewright.tensorir.verify import verify

GOOD = """primfunc @sum(A: Buffer[(n, 64), float32], C: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
  allocate t: Buffer[(16,), float32, stack]
  for i in parallel(n) {
    for k in range(64) {
      block sum(vi: spatial(n) = i, vk: reduction(64) = k) {
        reads A[vi, vk]
        writes C[vi]
        init {
          C[vi] = 0.0
        }
        let x: float32 = A[vi, vk]
        C[vi] = C[vi] + x
      }
    }
    for q in range(16) {
      t[q] = 1.0
    }
  }
}"""


def test_correct_function_passes() -> None:
    verify(parse(GOOD))


def test_an_index_that_is_not_known_to_reach_the_end_passes() -> None:
    """A remainder that leaves numbers out may stay inside: 0, 6 and 12 here."""
    verify(parse(GOOD.replace("t[q]", "t[q * 6 % 18]")))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(prim_funcs())
def test_random_correct_program_passes(func: PrimFunc) -> None:
    verify(func)


@pytest.mark.parametrize(
    ("before", "after", "message", "underlined"),
    [
        ("A[vi, vk]\n        C", "A[i, vk]\n        C", "uses the variable i of a loop or block around it", "i"),
        ("reads A[vi, vk]", "reads A[vi, k]", "uses the variable k of a loop or block around it", "k"),
        (
            "block sum",
            "let vk: int64 = k\n block other() { C[vk] = 0.0 }\n block sum",
            "uses the variable vk of a loop",
            "vk",
        ),
        ("reads A[vi, vk]", "reads A[vi]", "A has 2 dimensions, found 1 ranges", "A[vi]"),
        ("reads A[vi, vk]", "reads A[vi, 0:+1.0]", "region: expected integer bounds, found float32", "1.0"),
        ("block sum(", "block s() { }\n block s(", "a second block has the name s", None),
        ("(64) = k) {", "(64) = k) where vk {", "predicate is int64, not bool", None),
        ("(64) = k) {", "(64) = k) needed vk {", "the condition needed is int64, not bool", None),
        ("(64) = k) {", "(64) = k) needed A[vi, vk] > 0.0 {", "the condition needed depends on data", None),
        ("(64) = k) {", "(64) = k) needed k < 9 {", "uses the variable k of a loop or block around it", "k"),
        ("(64) = k) {", "(64) = k + 1) {", "index 1 to 64 is out of bounds for dimension 1 of A", "A[vi, vk]"),
        ("(64) = k) {", "(64) = k - 1) {", "index -1 to 62 is out of bounds for dimension 1 of A", "A[vi, vk]"),
        (
            "range(64)",
            "range(65)",
            "index 0 to 64 is out of bounds for dimension 1 of A, whose extent is 64",
            "A[vi, vk]",
        ),
        (
            "t[q]",
            "t[q + 1]",
            "index 1 to 16 is out of bounds for dimension 0 of t, whose extent is 16",
            "t[q + 1] = 1.0",
        ),
        ("t[q]", "t[q // 2 + 9]", "index 9 to 16 is out of bounds", "t[q // 2 + 9] = 1.0"),
        ("t[q]", "t[q % 32 + 1]", "index 1 to 16 is out of bounds", "t[q % 32 + 1] = 1.0"),
        ("t[q] = 1.0", "t[ramp(q, 1, 2)] = broadcast(1.0, 2)", "index 0 to 16 is out of bounds", None),
        ("t[q]", "t[i + 16]", "index 16 to inf is out of bounds", "t[i + 16] = 1.0"),
        ("t[q] = 1.0", "let u: int64 = q - 1 t[u] = 1.0", "index -1 to 14 is out of bounds", "t[u] = 1.0"),
        ("t[q] = 1.0", "t[q] = select(q < 1, t[q + 4], 0.0)", "index 4 to 19 is out of bounds", "t[q + 4]"),
        ("t[q] = 1.0", "A[q, 0] = 1.0", "buffer A is an input and must not be written", "A[q, 0] = 1.0"),
        ("t[q] = 1.0", "@f(1.0)", "@f: expected addresses and integers, found float32", "1.0"),
        (
            "t[q] = 1.0",
            "evaluate reinterpret(q, dtype=float32)",
            "reinterpret: int64 and float32 have different widths",
            "reinterpret(q, dtype=float32)",
        ),
        ("t[q] = 1.0", "prefetch(q)", "prefetch: expected an element of a buffer", "prefetch(q)"),
        (
            "t[q] = 1.0",
            "profile_begin(q, 8)",
            "profile_begin: expected an address, found int64",
            "profile_begin(q, 8)",
        ),
        (
            "t[q] = 1.0",
            "profile_end(address_of(t[q]), 8.0)",
            "profile_end: expected an integer as the stride, found float32",
            "profile_end(address_of(t[q]), 8.0)",
        ),
        ("t[q] = 1.0", "@f(address_of(t[16]))", "index 16 is out of bounds for dimension 0 of t", "t[16]"),
        ('{"num_outputs": 1}', '{"num_outputs": 3}', "3 outputs and workspaces, but 2 buffers", None),
        ('{"num_outputs": 1}', '{"num_outputs": "one"}', "num_outputs: expected a number, found 'one'", None),
        ("(n,), float32", "(n,), float32, align=3", "alignment 3 is no power of two", None),
        ("(16,), float32", "(1.5,), float32", "buffer t: expected an integer extent, found float32", None),
        ("n: int64", "n: int64, m: float32", "parameter m: expected an integer, found float32", None),
    ],
)
def test_broken_rule_is_named_and_shown(before: str, after: str, message: str, underlined: str | None) -> None:
    assert before in GOOD
    with pytest.raises(VerifyError) as caught:
        verify(parse(GOOD.replace(before, after, 1)))
    assert message in str(caught.value)
    if underlined is not None:
        lines = str(caught.value).split("\n")
        at = next(number for number, line in enumerate(lines) if set(line.strip()) == {"^"})
        start = lines[at].index("^")
        assert lines[at - 1][start : start + lines[at].count("^")] == underlined


n, i = Var("n"), Var("i")
C = Buffer("C", (n,))


def function(body: Stmt, *more: Buffer | Var) -> PrimFunc:
    return PrimFunc("f", (C, *more, n), body)


def loop(body: Stmt, var: Var = i) -> Stmt:
    return For(var, 0, n, "serial", body)


def store(index: Var | IntImm = i) -> Stmt:
    return BufferStore(C, 0.0, (index,))


def _broken(node: Stmt, **fields: object) -> Stmt:
    """``node`` with fields changed behind its constructor's back."""
    for name, value in fields.items():
        object.__setattr__(node, name, value)
    return node


x = Var("x", "float32")
other = Buffer("D", (4,))
BROKEN: list[tuple[str, PrimFunc]] = [
    ("undefined variable i", function(store())),
    ("undefined buffer D", function(loop(BufferStore(other, 0.0, (i,))))),
    ("variable i is used outside of the scope of its definition", function(SeqStmt((loop(store()), store())))),
    (
        "variable v is used outside",
        function(
            SeqStmt(
                (
                    Block("b", (IterVar(v := Var("v"), 0, 1, "spatial", 0),), None, (), (), None, SeqStmt(())),
                    Evaluate(v),
                )
            )
        ),
    ),
    ("variable x is used outside", function(SeqStmt((LetStmt(x, FloatImm(1.0), SeqStmt(())), Evaluate(x))))),
    ("undefined variable x", function(LetStmt(x, x, SeqStmt(())))),
    ("buffer D is used outside", function(SeqStmt((Allocate(other, SeqStmt(())), BufferStore(other, 0.0, (0,)))))),
    ("variable i is defined a second time", function(SeqStmt((loop(store()), loop(store()))))),
    ("variable i is defined a second time", function(loop(loop(store())))),
    (
        "variable x is defined a second time",
        function(LetStmt(x, FloatImm(1.0), LetStmt(x, FloatImm(1.0), SeqStmt(())))),
    ),
    ("buffer D is defined a second time", function(Allocate(other, SeqStmt(())), other)),
    ("undefined variable m", PrimFunc("f", (Buffer("A", (Var("m"),)),), SeqStmt(()))),
    ("buffer A stands after a variable", PrimFunc("f", (n, Buffer("A", (n,))), SeqStmt(()))),
    ("loop x: expected an integer variable", function(For(x, FloatImm(0.0), FloatImm(1.0), "serial", SeqStmt(())))),
    ("store to C: expected float32, found int64", function(loop(_broken(store(), value=IntImm(0))))),
    ("buffer C has 1 dimensions, found 0 indices", function(loop(_broken(store(), indices=())))),
    ("let x: variable is float32", function(_broken(LetStmt(x, FloatImm(1.0), SeqStmt(())), value=n))),
    ("for i: variable is int64", function(_broken(loop(store()), extent=IntImm(1, "int32")))),
    (
        "v: the value is int32, the variable int64",
        function(
            Block("b", (IterVar(Var("v"), 0, 1, "spatial", IntImm(0, "int32")),), None, (), (), None, SeqStmt(()))
        ),
    ),
    (
        "iteration variable x: expected an integer",
        function(Block("b", (IterVar(x, 0.0, 1.0, "spatial", 0.0),), None, (), (), None, SeqStmt(()))),
    ),
    (
        "undefined buffer D",
        function(Block("b", (), None, (BufferRegion(other, (Range(0, 1),)),), (), None, SeqStmt(()))),
    ),
    ("sqrt: expected float arguments", function(Evaluate(_broken(Call("sqrt", (x,)), args=(n,))))),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("message", "func"), BROKEN, ids=[message for message, _ in BROKEN])
def test_broken_node_is_found(message: str, func: PrimFunc) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(func)
    assert message in str(caught.value)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        "if i < 15 { t[i + 1] = 0.0 }",
        "t[i + 1 where i < 15] = 0.0",
        "block b(v: spatial(16) = i + 1) where i < 15 { t[v] = 0.0 }",
        "for j in range(i) { t[j - i + 15] = 0.0 t[i - 1] = 0.0 }",
        "for j in range(0) { t[20] = 0.0 }",
        "for j in range(4) { t[i - i % 4 + j] = 0.0 }",
        "t[i % 4 * 4 + i // 4] = 0.0",
        "t[min(i + 4, 15)] = 0.0",
        "t[i & 3] = 0.0",
        "t[int64(int32(i))] = 0.0",
        "prefetch(t[i + 1])",
        "let size: int64 = n + 1 t[n - n] = 0.0",
        "t[i - i // 2] = 0.0",
        "block b(v: spatial(16) = i) where i < 15 { t[16] = 0.0 }",
        "let last: uint8 = uint8(255) t[last + 1] = 0.0",
        "t[uint8(i + 256)] = 0.0",
    ],
)
def test_access_that_may_be_in_bounds_passes(body: str) -> None:
    verify(parse(f"primfunc @f(n: int64) {{ allocate t: Buffer[(16,), float32] for i in range(16) {{ {body} }} }}"))


def empty_buffer(extent: str) -> PrimFunc:
    """A copy of an empty buffer, in a loop of ``extent`` iterations."""
    return parse(f"primfunc @f(x: Buffer[(0,), float32], n: int64) {{ for i in range({extent}) {{ x[i] = 0.0 }} }}")


def test_empty_buffer_in_a_loop_of_unknown_extent_passes() -> None:
    verify(empty_buffer("n"))


def test_empty_buffer_in_a_loop_that_runs_is_refused() -> None:
    with pytest.raises(VerifyError, match="index 0 to 2 is out of bounds for dimension 0 of x"):
        verify(empty_buffer("3"))


def test_all_problems_are_listed_and_many_are_counted() -> None:
    wrong = [BufferStore(C, 0.0, (Var(f"v{k}"),)) for k in range(30)]
    with pytest.raises(VerifyError, match="@f breaks 30 rules") as caught:
        verify(function(SeqStmt(tuple(wrong))))
    message = str(caught.value)
    assert "undefined variable v0" in message
    assert "undefined variable v19" in message
    assert message.endswith("and 10 more")


def test_chain_longer_than_the_recursion_limit() -> None:
    body: Stmt = SeqStmt(())
    for _ in range(3000):
        body = LetStmt(Var("x"), n + 1, body)
    verify(function(body))


def test_an_operand_that_was_changed_is_found_in_expressions_that_stay_one_node() -> None:
    number = Var("number")
    expr = number + 1
    func = PrimFunc("f", (number,), Evaluate(expr))
    verify(func)
    object.__setattr__(number, "dtype", FloatImm(1.0).dtype)
    with pytest.raises(VerifyError, match="different types"):
        verify(func)
    object.__setattr__(number, "dtype", expr.dtype)
    verify(func)
    assert number + 1 is expr


def test_an_element_that_is_also_prefetched_has_to_be_there() -> None:
    t = Buffer("t", (16,))
    verify(PrimFunc("f", (t,), Evaluate(Call("prefetch", (t[16],), "void"))))
    both = SeqStmt((Evaluate(Call("prefetch", (t[16],), "void")), BufferStore(t, t[16], (0,))))
    with pytest.raises(VerifyError, match="t"):
        verify(PrimFunc("f", (t,), both))
