"""The text of the loop-level IR: readable, exact, and with a place for every node."""

from __future__ import annotations

import ast
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Choose,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    address_of,
    call,
)
from tilewright.tensorir.printer import to_text, underline
from tilewright.tensorir.spelling import float_text
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Range,
    SeqStmt,
)

i, j, n = Var("i"), Var("j"), Var("n")
x, y, p = Var("x", "float32"), Var("y", "float64"), Var("p", "bool")
small = Var("small", "int32")
A = Buffer("A", (n, 64))
C = Buffer("C", (n,))
lanes = Ramp(i, IntImm(1), 16)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (IntImm(3), "3"),
        (IntImm(-3), "-3"),
        (IntImm(3, "int32"), "int32(3)"),
        (IntImm(1, "bool"), "True"),
        (FloatImm(2.0), "2.0"),
        (FloatImm(0.1), "0.1"),
        (FloatImm(-0.0), "-0.0"),
        (FloatImm(1e30), "1e+30"),
        (FloatImm(1.5, "float64"), "float64(1.5)"),
        (FloatImm(math.inf), "float32(inf)"),
        (FloatImm(-math.inf, "float16"), "float16(-inf)"),
        (FloatImm(math.nan, "bfloat16"), "bfloat16(nan)"),
        (UnaryOp("neg", IntImm(3)), "-(3)"),
        (-(i + j), "-(i + j)"),
        (~p, "not p"),
        (~i, "~i"),
        (Cast("int32", x), "int32(x)"),
        (Cast("int32", IntImm(3)), "cast(int32, 3)"),
        (small + 1, "small + 1"),
        (y * 2.5, "y * 2.5"),
        (BinaryOp("sub", IntImm(5, "int32"), IntImm(2, "int32")), "int32(5) - int32(2)"),
        ((i + j) * 2 - (i - j), "(i + j) * 2 - (i - j)"),
        (i - (j - n), "i - (j - n)"),
        (i // 4 % 2, "i // 4 % 2"),
        (BinaryOp("truncdiv", i, IntImm(4)), "truncdiv(i, 4)"),
        (BinaryOp("max", small, IntImm(0, "int32")), "max(small, 0)"),
        ((i < n) & (p | (j.equal(i))), "i < n and (p or j == i)"),
        (BinaryOp("bitand", p, p), "p & p"),
        (Compare("eq", Compare("lt", i, j), p), "(i < j) == p"),
        (Select(p, x, FloatImm(0.0)), "select(p, x, 0.0)"),
        (Choose(i % 2, (FloatImm(0.0), x)), "choose(i % 2, 0.0, x)"),
        (A[i, 0], "A[i, 0]"),
        (Buffer("s", ())[()], "s[()]"),
        (BufferLoad(A, (lanes, j), Broadcast(p, 16)), "A[ramp(i, 1, 16), j where broadcast(p, 16)]"),
        (call("exp", x), "exp(x)"),
        (call("pow", y, FloatImm(2.0, "float64")), "pow(y, 2.0)"),
        (call("reinterpret", x, dtype="int32"), "reinterpret(x, dtype=int32)"),
        (Call("@f", (address_of(A, i, 0), n), "void"), "@f(address_of(A[i, 0]), n)"),
        (Call("@f", (n,), "int64"), "@f(n, dtype=int64)"),
        (Var("for"), "`for`"),
        (Var("conv/1 x`"), "`conv/1 x\\u0060`"),
        (Var("a.b"), "a.b"),
    ],
    ids=str,
)
def test_expression(expr: Expr, text: str) -> None:
    assert str(expr) == text


def test_what_is_neither_expression_nor_statement() -> None:
    assert str(Range(i, 4)) == "i:+4"
    assert str(Range(i, 1)) == "i"
    assert str(BufferRegion(A, (Range(i, 1), Range(0, 64)))) == "A[i, 0:+64]"
    assert str(IterVar(i, 0, n, "spatial", j + 1)) == "i: spatial(n) = j + 1"
    buffer = Buffer("B", (4,), "int8", "stack", (IntImm(2),), 64)
    assert str(buffer) == "B: Buffer[(4,), int8, stack, strides=(2,), align=64]"


def test_function_with_every_statement() -> None:
    t = Buffer("t", (4,), scope="register")
    vi, vk, k = Var("vi"), Var("vk"), Var("k")
    update = BufferStore(C, C[vi] + x, (vi,))
    block = Block(
        "sum",
        (IterVar(vi, 0, n, "spatial", i), IterVar(vk, 2, 60, "reduction", k)),
        i < n,
        (BufferRegion(A, (Range(vi, 1), Range(0, 64))),),
        (BufferRegion(C, (Range(vi, 1),)),),
        BufferStore(C, 0.0, (vi,)),
        LetStmt(x, A[vi, vk], update),
        {"pragma": [1, 2.5, None, (True,)]},
        vk <= vi,
    )
    guard = IfThenElse(n < 4, Evaluate(call("prefetch", A[0, 0])), SeqStmt(()))
    loops = For(i, 0, n, "parallel", For(k, 2, 60, "serial", block), {"step": n + 1})
    func = PrimFunc("sum", (A, C, n), Allocate(t, SeqStmt((guard, loops))), {"num_outputs": 1})
    assert (
        str(func)
        == """\
primfunc @sum(A: Buffer[(n, 64), float32], C: Buffer[(n,), float32], n: int64) attrs {"num_outputs": 1} {
  allocate t: Buffer[(4,), float32, register]
  if n < 4 {
    prefetch(A[0, 0])
  } else {
  }
  for i in parallel(n) annotations {"step": expr(n + 1)} {
    for k in range(2, extent=60) {
      block sum(vi: spatial(n) = i, vk: reduction(2, extent=60) = k) where i < n needed vk <= vi annotations {"pragma": [1, 2.5, None, (True,)]} {
        reads A[vi, 0:+64]
        writes C[vi]
        init {
          C[vi] = 0.0
        }
        let x: float32 = A[vi, vk]
        C[vi] = C[vi] + x
      }
    }
  }
}"""  # noqa: E501
    )


def test_visible_definitions_with_one_name_print_apart_and_others_share_it() -> None:
    inner, other, buffer = Var("i"), Var("i"), Buffer("i", (8,))
    store = BufferStore(buffer, 0.0, (i * inner,))
    loops = For(i, 0, 2, "serial", For(inner, 0, 2, "serial", store))
    text = str(
        PrimFunc("f", (buffer,), SeqStmt((loops, For(other, 0, 2, "serial", BufferStore(buffer, 1.0, (other,))))))
    )
    assert "i[i_1 * i_2] = 0.0" in text
    assert "i[i_1] = 1.0" in text


def test_free_variable_keeps_its_name_beside_a_loop_of_that_name() -> None:
    loop = For(Var("i"), 0, 4, "serial", BufferStore(C, 0.0, (i,)))
    assert str(loop).split("\n")[:2] == ["for i_1 in range(4) {", "  C[i] = 0.0"]


def test_let_whose_scope_ends_early_stands_in_braces() -> None:
    store = BufferStore(Buffer("C", (1,)), x, (0,))
    text = str(SeqStmt((LetStmt(x, FloatImm(1.0), store), Evaluate(IntImm(0)))))
    assert " ".join(text.split()) == "{ let x: float32 = 1.0 C[0] = x } evaluate 0"


def _as_python(expr: Expr) -> ast.expr:
    """The same expression as Python's own syntax tree."""
    operators = {
        "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "floordiv": ast.FloorDiv, "floormod": ast.Mod,
        "bitand": ast.BitAnd, "bitor": ast.BitOr, "bitxor": ast.BitXor, "shl": ast.LShift, "shr": ast.RShift,
    }  # fmt: skip
    if isinstance(expr, BinaryOp):
        return ast.BinOp(_as_python(expr.a), operators[expr.op](), _as_python(expr.b))
    if isinstance(expr, UnaryOp):
        return ast.UnaryOp({"neg": ast.USub, "bitnot": ast.Invert}[expr.op](), _as_python(expr.a))
    if isinstance(expr, IntImm):
        return ast.Constant(expr.value)
    assert isinstance(expr, Var)
    return ast.Name(expr.name)


_INFIX_OPS = ("add", "sub", "mul", "floordiv", "floormod", "bitand", "bitor", "bitxor", "shl", "shr")
_trees = st.recursive(
    st.sampled_from([i, j, n]),
    lambda inner: st.one_of(
        st.builds(BinaryOp, st.sampled_from(_INFIX_OPS), inner, st.one_of(inner, st.integers(0, 9).map(IntImm))),
        st.builds(UnaryOp, st.sampled_from(["neg", "bitnot"]), inner),
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(_trees)
def test_parentheses_are_those_that_python_writes(expr: Expr) -> None:
    assert str(expr) == ast.unparse(_as_python(expr))


@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["float16", "bfloat16", "float32", "float64"]))
def test_floats_read_back_exactly(value: float, name: str) -> None:
    with np.errstate(over="ignore"):
        stored = FloatImm(value, name).value
    if math.isfinite(stored):
        again = FloatImm(float(float_text(stored, DataType(name))), name).value
        assert again == stored and math.copysign(1, again) == math.copysign(1, stored)


def test_chains_longer_than_the_recursion_limit() -> None:
    body: LetStmt | BufferStore = BufferStore(Buffer("C", (1,)), 0.0, (0,))
    total: Expr = i
    for _ in range(3000):
        body = LetStmt(Var("x"), j, body)
        total = total + i
    assert str(body).count("\n") == 3000
    assert str(total) == " + ".join(["i"] * 3001)


@pytest.mark.parametrize(("within", "line"), [(None, 1), ("second", 2)])
def test_underline_shows_the_place(within: str | None, line: int) -> None:
    first, second = BufferStore(C, 0.0, (i,)), BufferStore(C, 1.0, (i,))
    text = underline(SeqStmt((first, second)), i, "here", within=second if within else None)
    lines = text.split("\n")
    assert lines[line] == "  ^ here"
    assert lines[line - 1].startswith("C[i]")


def test_underline_marks_the_whole_node_and_cuts_far_lines() -> None:
    stores = [BufferStore(C, float(k), (k,)) for k in range(40)]
    value = (i + 1) * 2
    stores[20] = BufferStore(C, x, (value,))
    text = underline(PrimFunc("f", (C, n), SeqStmt(tuple(stores))), value, context=1)
    assert text.split("\n") == [
        "primfunc @f(C: Buffer[(n,), float32], n: int64) {",
        "  ...",
        "  C[19] = 19.0",
        "  C[(i + 1) * 2] = x",
        "    ^^^^^^^^^^^",
        "  C[21] = 21.0",
        "  ...",
    ]


def test_underline_of_a_node_that_is_not_there_shows_both() -> None:
    assert to_text(j) in underline(i + 1, j)
