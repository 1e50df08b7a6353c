"""Printed text parses back to the same program; the error about invalid text states reason and place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import prim_funcs

from tilewright.tensorir import expr as expr_module
from tilewright.tensorir import stmt as stmt_module
from tilewright.tensorir.errors import ParseError
from tilewright.tensorir.expr import (
    BINARY_OPS,
    COMPARE_OPS,
    INTEGER_ONLY,
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
    PureExpr,
    Ramp,
    Select,
    UnaryOp,
    Var,
    address_of,
    call,
    const,
)
from tilewright.tensorir.functor import walk
from tilewright.tensorir.intrinsics import CHECK_INDEX, INTRINSICS
from tilewright.tensorir.node import Node
from tilewright.tensorir.parser import parse, parse_all, parse_expr, parse_stmt, primfunc_end
from tilewright.tensorir.stmt import (
    FOR_KINDS,
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
    Stmt,
)
from tilewright.tensorir.structural import assert_structural_equal, structural_equal

i, n, k, small = Var("i"), Var("n"), Var("k"), Var("small", "int32")
p, f, d = Var("p", "bool"), Var("f", "float32"), Var("d", "float64")
A, S = Buffer("A", (n, 64)), Buffer("S", (), "int32")
FREE = (i, n, k, small, p, f, d, A, S)
NAMES: dict[str, Any] = {node.name: node for node in FREE}


def vector(dtype: str) -> Expr:
    return Broadcast(const(1, dtype), 4)


EXPRESSIONS: list[Expr] = [
    *(const(value, dtype) for dtype in ("int8", "uint64", "int64", "bool") for value in (0, 1)),
    *(
        const(v, t)
        for t in ("float16", "bfloat16", "float32", "float64")
        for v in (-0.0, 0.1, float("inf"), float("nan"))
    ),
    *(BinaryOp(op, i, k) for op in BINARY_OPS if op not in ("div", "and", "or")),
    *(BinaryOp(op, f, FloatImm(0.5)) for op in BINARY_OPS if op not in (*INTEGER_ONLY, "and", "or")),
    *(BinaryOp(op, p, p) for op in ("and", "or", "min", "max", "bitand", "bitor", "bitxor")),
    *(Compare(op, small, IntImm(-3, "int32")) for op in COMPARE_OPS),
    UnaryOp("neg", i),
    UnaryOp("neg", IntImm(-3)),
    UnaryOp("not", UnaryOp("not", p)),
    UnaryOp("not", Compare("eq", i, k)),
    Compare("eq", UnaryOp("not", p), p),
    UnaryOp("bitnot", small),
    Select(p, d, FloatImm(1.0, "float64")),
    Select(p, vector("int8"), vector("int8")),
    Choose(i % 2, (d, FloatImm(1.0, "float64"), d * d)),
    Choose(small, (IntImm(1, "int32"),)),
    Cast("float16", f),
    Cast("int32", IntImm(3)),
    Cast("bool", IntImm(3)),
    Cast("int32", IntImm(1, "bool")),
    Cast("float32", FloatImm(1.0, "float64")),
    Cast("float64x4", vector("int8")),
    BufferLoad(A, (i, k)),
    BufferLoad(S, ()),
    BufferLoad(S, (), p),
    BufferLoad(A, (i, Ramp(k, IntImm(2), 8)), Broadcast(p, 8)),
    Ramp(small, IntImm(1, "int32"), 4),
    Ramp(IntImm(0, "int32"), IntImm(1, "int32"), 4),
    Broadcast(FloatImm(2.0, "float64"), 4),
    Call("@kernel", (address_of(A, 0, 0), n), "void"),
    Call("@for", (), "int64"),
    i,
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_expression_reads_back(expr: Expr) -> None:
    assert_structural_equal(parse_expr(str(expr), NAMES), expr)


@pytest.mark.parametrize("name", INTRINSICS)
def test_intrinsic_reads_back(name: str) -> None:
    intrinsic = INTRINSICS[name]
    vector = Broadcast(FloatImm(2.0, "float64"), 4)
    argument: Expr = {"float": d, "integer": small, "number": small, "vector": vector, "any": A[i, k]}[
        intrinsic.operands
    ]
    arguments = [argument] * intrinsic.arity
    if intrinsic.arity > 1 and intrinsic.operands != "vector":
        arguments[0] = const(1, argument.dtype)
    if name.removeprefix("interleave_").isdigit():
        arguments = [*[vector] * (intrinsic.arity - 1), const(1, "int64")]
    if name == CHECK_INDEX:
        arguments = [n, n, p, const(0, "int64")]
    if name == "dot":
        arguments = [Broadcast(FloatImm(1.0, "float32"), 2), *[Broadcast(const(2.0, "bfloat16"), 4)] * 2]
    expr = call(name, *arguments, dtype="int32" if intrinsic.result == "given" else None)
    assert_structural_equal(parse_expr(str(expr), NAMES), expr)


def store(value: Any = 0.0) -> Stmt:
    return BufferStore(A, value, (i, k))


STATEMENTS: list[Stmt] = [
    *(For(Var("i"), 0, n, kind, store()) for kind in FOR_KINDS),
    For(Var("q", "int32"), small, 5, "serial", store(), {"unroll": 4, "text": 'a "b"\n', "none": None}),
    For(
        Var("q"),
        IntImm(2),
        IntImm(0),
        "serial",
        SeqStmt(()),
        {"list": [1, (), (-2.5,), {"k": False}], "e": n + 1, "b": A},
    ),
    store(f * 2.0),
    BufferStore(A, 1.0, (i, k), p),
    BufferStore(S, 3, ()),
    BufferStore(A, vector("float32"), (i, Ramp(k, IntImm(1), 4)), Broadcast(p, 4)),
    SeqStmt(()),
    SeqStmt((store(),)),
    SeqStmt((store(), store())),
    SeqStmt((SeqStmt((store(), store())), store())),
    SeqStmt((store(), SeqStmt((store(), store())))),
    SeqStmt((SeqStmt(()), SeqStmt((SeqStmt((store(),)),)))),
    SeqStmt((LetStmt(Var("t"), n, store()), store())),
    SeqStmt((store(), LetStmt(Var("t"), n, SeqStmt((store(), store()))))),
    SeqStmt((LetStmt(Var("t"), n, SeqStmt((store(),))),)),
    IfThenElse(p, store()),
    IfThenElse(p, store(), SeqStmt(())),
    IfThenElse(p, store(), IfThenElse(i < n, store(), store())),
    IfThenElse(p, IfThenElse(i < n, store()), store()),
    Allocate(Buffer("t", (n, 4), "int8", "stack", (4, 1), 32), store()),
    Allocate(Buffer("t", (), "bool", "register"), LetStmt(Var("d", "float64"), FloatImm(1.0, "float64"), store())),
    LetStmt(Var("t", "bool"), IntImm(0, "bool"), SeqStmt(())),
    Evaluate(call("prefetch", A[i, k])),
    Evaluate(UnaryOp("neg", i)),
    Evaluate(IntImm(0)),
    Block("empty", (), None, (), (), None, SeqStmt(())),
    Block(
        "block",
        tuple(
            IterVar(Var("v"), 0, 4, kind, i + 1) for kind in ("spatial", "reduction", "spatial", "spatial", "spatial")
        ),
        i < n,
        (BufferRegion(A, (Range(i, 1), Range(0, 64))), BufferRegion(S, ())),
        (
            BufferRegion(
                A,
                (Range(i, IntImm(1, "int32")), Range(small, n)),
            ),
        ),
        store(1.0),
        LetStmt(Var("t"), n, store()),
        {"key": 1},
    ),
    Block("a b", (IterVar(Var("v", "int32"), 1, 4, "spatial", small),), None, (), (), None, store()),
]


@pytest.mark.parametrize("stmt", STATEMENTS, ids=lambda stmt: type(stmt).__name__)
def test_statement_reads_back(stmt: Stmt) -> None:
    assert_structural_equal(parse_stmt(str(stmt), NAMES), stmt)


@pytest.mark.parametrize("stmt", STATEMENTS, ids=lambda stmt: type(stmt).__name__)
def test_function_reads_back(stmt: Stmt) -> None:
    func = PrimFunc("with space", (A, S, i, n, k, small, p, f, d), stmt, {"num_outputs": 0, "nested": {"a": [1]}})
    assert_structural_equal(parse(str(func)), func)


def test_every_node_class_is_tested_above() -> None:
    declared = {
        found
        for module in (expr_module, stmt_module)
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Node) and found not in (Node, Expr, PureExpr, Stmt)
    }
    seen = {type(node) for root in (*EXPRESSIONS, *STATEMENTS) for node in walk(root)} | {Buffer, PrimFunc}
    assert seen == declared


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(prim_funcs())
def test_random_program_reads_back(func: PrimFunc) -> None:
    again = parse(str(func))
    assert_structural_equal(again, func)
    assert structural_equal(parse(str(again)), func)


def test_long_chain_of_lets_reads_back() -> None:
    body: Stmt = store()
    for _ in range(2000):
        body = LetStmt(Var("x"), n + 1, body)
    assert_structural_equal(parse_stmt(str(body), NAMES), body)


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("small + 3", "int32", 3),
        ("d * 2", "float64", 2.0),
        ("max(d, -2.5)", "float64", -2.5),
        ("p == True", "bool", 1),
        ("i # a comment\n + 7", "int64", 7),
    ],
)
def test_bare_constant_takes_the_type_beside_it(text: str, dtype: str, value: float) -> None:
    found = parse_expr(text, NAMES)
    assert isinstance(found, (BinaryOp, Compare))
    constant = found.b
    assert isinstance(constant, (IntImm, FloatImm))
    assert constant.dtype == dtype
    assert constant.value == value


def test_several_functions_in_one_text() -> None:
    text = 'primfunc @a() { }\n# then\nprimfunc @b(n: int64) attrs {"}": {"k": 1}} { { } }'
    assert [func.name for func in parse_all(text)] == ["a", "b"]
    with pytest.raises(ParseError, match="one function, found 2"):
        parse(text)


def test_end_of_an_embedded_function_is_found() -> None:
    func = 'primfunc @f(`}`: int64) attrs {"}": {"k": "{"}} {\n  # }\n  { }\n}'
    text = f"module {{ {func} }}"
    start = text.index("primfunc")
    assert text[start : primfunc_end(text, start)] == func
    with pytest.raises(ParseError, match=r"line 1.*ends inside"):
        primfunc_end(func[:-1], 0)


PROGRAM = """primfunc @f(A: Buffer[(n, 4), float32], n: int64) {
  for i in range(n) {
    A[i, 0] = 1.0
  }
}"""


@pytest.mark.parametrize(
    ("before", "after", "message", "underlined"),
    [
        ("A[i", "A[index", "line 3, column 7: undefined name index", "index"),
        ("range(n)", "range(m)", "undefined name m", "m"),
        ("A[i", "AA[i", "undefined name AA; did you mean A?", "AA"),
        ("A[i, 0]", "n[i, 0]", "expected a buffer, found the variable n", "n"),
        ("  }\n", "  }\n  A[i, 1] = 2.0\n", "undefined name i", "i"),
        ("= 1.0", "= A", "expected a value, found the buffer A", "A"),
        ("= 1.0", "= exq(1.0)", "unknown function exq; did you mean exp", "exq"),
        ("= 1.0", "= exp(1.0, 2.0)", "exp: expected 1 arguments, found 2", "exp(1.0, 2.0)"),
        ("= 1.0", "= inf", r"expected a typed constant such as float32\(inf\)", "inf"),
        ("= 1.0", "= i", "expected float32, found int64", "A[i, 0] = i"),
        ("A[i, 0]", "A[i]", "2 dimensions, found 1", "A[i] = 1.0"),
        ("i, 0", "i + 1.5, 0", "expected a constant of type int64, found 1.5", "1.5"),
        ("float32", "flot32", "unknown data type flot32; did you mean float32", "flot32"),
        ("range", "rnge", "expected 'range', 'parallel', 'vectorized' or 'unrolled', found 'rnge'", "rnge"),
        ("= 1.0", "= ?", "unexpected character '\\?'", "?"),
        ("= 1.0", "= int8(300)", "300 does not fit into int8", "300"),
        ("= 1.0", "= 1e39", "1e39 does not fit into float32", "1e39"),
        ("A[i, 0]", "A[i, 1" + "0" * 5000 + "]", "does not fit into int64|Exceeds the limit", "1" + "0" * 5000),
        ("{\n  for", "attrs {[1]: 2} {\n  for", "unhashable type", "{[1]: 2}"),
        ("@f", "@`\\q`", "Invalid .escape", "@`\\q`"),
        ("range(n)", "range(`\\q`)", "Invalid .escape", "`\\q`"),
        ("A[i, 0] = 1.0", "block b(v: float32 spatial(4) = 1.0) { }", "takes an integer or bool", "4"),
        ("n: int64", "n: int64, n: int64", "two parameters are named n", "n"),
        ("= 1.0", "= exp(1.0, mode=int32)", "unknown argument mode; expected dtype", "mode=int32"),
        ("= 1.0", "= select(True, 1.0)", "select: expected 3 arguments, found 2", "select(True, 1.0)"),
        ("= 1.0", "= choose(i)", "choose: expected at least 2 arguments, found 1", "choose(i)"),
        ("= 1.0", "= float32(1.0, 2.0)", "float32: expected 1 argument, found 2", "float32(1.0, 2.0)"),
        ("= 1.0", "= bool(1)", "expected a constant of a scalar number type, found bool", "bool(1)"),
        ("= 1.0", "= cast(1, 2)", "cast: expected a data type first", "1"),
        ("= 1.0", "= broadcast(1.0, i)", "expected a number of lanes", "i"),
        ("for i in", "for i: float32 in", "expected an integer type, found float32", "float32"),
        ("@f", "f", "expected a function name .@name., found 'f'", "f"),
    ],
)
def test_error_shows_the_place(before: str, after: str, message: str, underlined: str) -> None:
    assert before in PROGRAM
    with pytest.raises(ParseError, match=message) as caught:
        parse(PROGRAM.replace(before, after, 1))
    _, line, carets = str(caught.value).rsplit("\n", 2)
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == underlined


def test_error_at_the_end_says_what_is_missing() -> None:
    with pytest.raises(ParseError, match=r"line 14.*'}'.*found the end of the text"):
        parse(PROGRAM[:-2], first_line=11)
