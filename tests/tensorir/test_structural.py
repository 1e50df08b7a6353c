"""Programs that differ in names alone are equal and hash alike; any other difference is found and shown."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import prim_funcs

from tilewright.tensorir.expr import Buffer, Cast, Compare, Expr, FloatImm, IntImm, Select, Var
from tilewright.tensorir.functor import copy_with_fresh_definitions, walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.parser import parse
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from tilewright.tensorir.structural import assert_structural_equal, structural_equal, structural_hash


def program(
    names: str = "ijnACt",
    *,
    extent: int = 8,
    kind: str = "serial",
    dtype: str = "float32",
    scope: str = "stack",
    alignment: int = 0,
    strides: tuple[int, ...] = (),
    shape: tuple[int, ...] = (8,),
    value: Any = 1.0,
    swapped: bool = False,
    block: str = "copy",
    annotation: Any = 1,
    attribute: Any = 1,
    guarded: bool = False,
) -> PrimFunc:
    """A function with one thing of each sort that can differ."""
    i, j, n, size = Var(names[0]), Var(names[1]), Var(names[2]), Var("size")
    A, C = Buffer(names[3], (n, size)), Buffer(names[4], (n,))  # noqa: N806
    temporary = Buffer(names[5], shape, dtype, scope, strides, alignment)
    v = Var("v")
    store: Stmt = BufferStore(C, A[v, j] * value if swapped else A[j, v] * value, (v,))
    body = Block(block, (IterVar(v, 0, n, "spatial", i),), None, (), (), None, store, {"note": annotation})
    inner: Stmt = For(j, 0, extent, kind, IfThenElse(j < 4, body) if guarded else body)
    loops = For(i, 0, n, "serial", Allocate(temporary, inner))
    return PrimFunc("f", (A, C, n, size), loops, {"num_outputs": attribute})


DIFFERENCES: list[dict[str, Any]] = [
    {"extent": 9},
    {"kind": "parallel"},
    {"dtype": "float64"},
    {"scope": "arena"},
    {"alignment": 64},
    {"strides": (2,)},
    {"shape": (9,)},
    {"shape": (8, 1)},
    {"value": 2.0},
    {"swapped": True},
    {"block": "other"},
    {"annotation": 2},
    {"annotation": 1.0},
    {"annotation": True},
    {"annotation": [1]},
    {"annotation": (1,)},
    {"annotation": {"a": 1}},
    {"annotation": {"a": 2}},
    {"annotation": None},
    {"annotation": IntImm(1)},
    {"annotation": IntImm(2)},
    {"attribute": 2},
    {"guarded": True},
]


def test_names_of_definitions_do_not_matter() -> None:
    first, second = program(), program("klmXYz")
    assert structural_equal(first, second)
    assert structural_hash(first) == structural_hash(second)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
def test_every_other_difference_matters(difference: dict[str, Any]) -> None:
    first, second = program(), program(**difference)
    assert not structural_equal(first, second)
    assert not structural_equal(second, first)
    assert structural_hash(first) != structural_hash(second)
    assert structural_equal(second, program(**difference))
    assert structural_hash(second) == structural_hash(program(**difference))


def test_kinds_of_difference_have_different_hashes() -> None:
    hashes = {structural_hash(program(**difference)) for difference in DIFFERENCES}
    assert len(hashes) == len(DIFFERENCES)


def test_definitions_correspond_one_to_one() -> None:
    def nest(use: Callable[[Var, Var], Expr]) -> Stmt:
        i, j = Var("i"), Var("j")
        return For(i, 0, 4, "serial", For(j, 0, 4, "serial", Evaluate(use(i, j))))

    assert structural_equal(nest(lambda i, j: i - j), nest(lambda i, j: i - j))
    assert not structural_equal(nest(lambda i, j: i - j), nest(lambda i, j: j - i))
    assert not structural_equal(nest(lambda i, j: i - j), nest(lambda i, j: i - i))
    assert not structural_equal(nest(lambda i, j: i - i), nest(lambda i, j: i - j))
    one = Var("one")
    shadowing = For(one, 0, 4, "serial", For(one, 0, 4, "serial", Evaluate(one)))
    assert structural_equal(nest(lambda i, j: j), shadowing)
    assert not structural_equal(nest(lambda i, j: i), shadowing)


def test_a_variable_that_is_defined_twice_hashes_as_two() -> None:
    def nest(i: Var, j: Var, k: Var) -> Stmt:
        return For(i, 0, 4, "serial", For(j, 0, 4, "serial", For(k, 0, 4, "serial", Evaluate(j - k))))

    one = Var("one")
    assert structural_hash(nest(one, one, Var("k"))) == structural_hash(nest(Var("i"), Var("j"), Var("k")))


def test_free_variables_are_compared_by_identity_unless_mapped() -> None:
    a, b, c = Var("a"), Var("b"), Var("c")
    assert structural_equal(a + b, a + b)
    assert not structural_equal(a + b, a + c)
    assert structural_equal(a + b, a + c, map_free_vars=True)
    assert structural_equal(a - b, b - a, map_free_vars=True)
    assert not structural_equal(a + b, c + c, map_free_vars=True)
    assert not structural_equal(a + a, b + c, map_free_vars=True)
    assert not structural_equal(Evaluate(a), Evaluate(Var("a", "int32")), map_free_vars=True)
    assert structural_hash(a - b) == structural_hash(b - a)


def test_free_buffers_are_mapped_by_type() -> None:
    n, m = Var("n"), Var("m")
    first, same = Buffer("A", (n, 4)), Buffer("B", (m, 4))
    other = Buffer("A", (n, 5))
    assert not structural_equal(first[n, 0], same[m, 0])
    assert structural_equal(first[n, 0], same[m, 0], map_free_vars=True)
    assert not structural_equal(first[n, 0], same[n, 0], map_free_vars=True)
    assert not structural_equal(first[n, 0], other[n, 0], map_free_vars=True)


def test_a_bound_variable_is_no_free_one() -> None:
    i, free = Var("i"), Var("i")
    bound = For(i, 0, 4, "serial", Evaluate(i))
    loose = For(Var("i"), 0, 4, "serial", Evaluate(free))
    assert not structural_equal(bound, loose, map_free_vars=True)
    assert not structural_equal(loose, bound, map_free_vars=True)
    assert structural_hash(bound) != structural_hash(loose)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_compare_by_their_bits_but_all_nans_are_one(dtype: str) -> None:
    nan, zero, minus = FloatImm(math.nan, dtype), FloatImm(0.0, dtype), FloatImm(-0.0, dtype)
    assert structural_equal(nan, FloatImm(-math.nan, dtype))
    assert structural_hash(nan) == structural_hash(FloatImm(-math.nan, dtype))
    assert not structural_equal(zero, minus)
    assert structural_hash(zero) != structural_hash(minus)
    assert not structural_equal(zero, FloatImm(0.0, "float16"))
    assert not structural_equal(Cast("int8", zero), Cast("int16", zero))


def test_plain_data_compares_by_value() -> None:
    def with_note(value: Any) -> Node:
        return For(Var("i"), 0, 1, "serial", SeqStmt(()), {"note": value})

    alike: list[tuple[Any, Any]] = [
        ({"a": 1, "b": [math.nan]}, {"b": [math.nan], "a": 1}),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (IntImm(3), IntImm(3)),
    ]
    for a, b in alike:
        assert structural_equal(with_note(a), with_note(b))
        assert structural_hash(with_note(a)) == structural_hash(with_note(b))
    assert not structural_equal(with_note(0.0), with_note(-0.0))
    assert not structural_equal(with_note(["a", "b"]), with_note(["ab"]))


def test_nesting_is_part_of_the_hash() -> None:
    a, b = Evaluate(IntImm(1)), Evaluate(IntImm(2))
    nested = [SeqStmt((SeqStmt((a, b)),)), SeqStmt((SeqStmt((a,)), b)), SeqStmt((a, b)), SeqStmt((a, SeqStmt((b,))))]
    assert len({structural_hash(stmt) for stmt in nested}) == 4


def test_annotations_see_what_their_node_defines() -> None:
    def block(offset: int) -> Node:
        v = Var("v")
        store = Evaluate(v)
        return Block("b", (IterVar(v, 0, 4, "spatial", 0),), None, (), (), None, store, {"at": [v + offset]})

    assert structural_equal(block(1), block(1))
    assert structural_hash(block(1)) == structural_hash(block(1))
    assert not structural_equal(block(1), block(2))
    assert structural_hash(block(1)) != structural_hash(block(2))


def test_one_statement_and_a_sequence_of_it_differ() -> None:
    stmt = Evaluate(IntImm(1))
    assert not structural_equal(stmt, SeqStmt((stmt,)))
    assert not structural_equal(IfThenElse(IntImm(1, "bool"), stmt), IfThenElse(IntImm(1, "bool"), stmt, SeqStmt(())))


def test_copy_keeps_a_choice_between_constants() -> None:
    one, i = IntImm(1), Var("i")
    stmt = For(i, IntImm(0), IntImm(3), "serial", Evaluate(Select(Compare("eq", one, one), one, i)))
    assert structural_equal(copy_with_fresh_definitions(stmt), stmt)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(prim_funcs())
def test_renamed_copy_is_equal_and_hashes_alike(func: PrimFunc) -> None:
    copy = func.with_body(copy_with_fresh_definitions(func.body, "_new"))
    assert structural_equal(func, copy)
    assert structural_hash(func) == structural_hash(copy)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(prim_funcs(), prim_funcs())
def test_equality_is_that_of_canonical_text(first: PrimFunc, second: PrimFunc) -> None:
    def canonical(func: PrimFunc) -> str:
        """The text with each definition named by its position."""
        text, names = parse(str(func)), {}
        for node in walk(text):
            for name, role in node.node_fields:
                if role in ("definition", "new_buffer"):
                    value = getattr(node, name)
                    for found in value if isinstance(value, tuple) else (value,):
                        names[found] = f"d{len(names)}"
        for found, name in names.items():
            object.__setattr__(found, "name", name)
        return str(text)

    same = canonical(first) == canonical(second)
    assert structural_equal(first, second) == same
    assert (structural_hash(first) == structural_hash(second)) == same


def test_hash_is_the_same_in_another_process() -> None:
    code = (
        "from tilewright.tensorir.parser import parse\n"
        "from tilewright.tensorir.structural import structural_hash\n"
        "import sys\n"
        "print(structural_hash(parse(sys.argv[1])))"
    )
    func = program()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code, str(func)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert int(run.stdout) == structural_hash(func)


def test_a_hash_of_the_first_nodes_is_that_of_equal_programs() -> None:
    for most in (1, 5, 1000):
        assert structural_hash(program(), most) == structural_hash(program("klmXYz"), most)
    assert structural_hash(program(), 1) == structural_hash(program(value=2.0), 1)
    assert structural_hash(program(), 1000) != structural_hash(program(value=2.0), 1000)


def test_chains_longer_than_the_recursion_limit() -> None:
    def chain() -> Stmt:
        body: Stmt = Evaluate(IntImm(0))
        for _ in range(5000):
            body = LetStmt(Var("x"), IntImm(1), body)
        return body

    first, second = chain(), chain()
    assert structural_equal(first, second)
    assert structural_hash(first) == structural_hash(second)


def test_assertion_shows_the_first_difference_and_the_texts() -> None:
    assert_structural_equal(program(), program("klmXYz"))
    with pytest.raises(AssertionError) as caught:
        assert_structural_equal(program(), program(value=2.0))
    message = str(caught.value)
    assert "value 1.0 and 2.0" in message
    assert "-        C[v] = A[j, v] * 1.0" in message
    lines = message.split("\n")
    place = lines.index("        C[v] = A[j, v] * 2.0")
    assert lines[place + 1] == " " * 25 + "^" * 3
