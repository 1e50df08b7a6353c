"""Index arithmetic in front of loops."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.llvm import call_primfunc, compile_module, emit_llvm_ir
from tilewright.tensorir.expr import Buffer, Var, as_expr
from tilewright.tensorir.stmt import BufferStore, For, IfThenElse, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=1)


def rows(accesses: int, guarded: bool = False) -> PrimFunc:
    """y[r, j] = x[r, j] + r for the first rows of a matrix of n columns, row after row in the loop over columns."""
    n, m, i, j = Var("n"), Var("m"), Var("i"), Var("j")
    x, y = Buffer("x", (m,)), Buffer("y", (m,))
    stores: list[Stmt] = []
    for row in range(accesses):
        place = (i * accesses + row) * n + j
        stores.append(BufferStore(y, x[place] + float(row), (place,)))
    body = sequence(*stores)
    if guarded:
        body = IfThenElse(j < n - 1, body)
    columns = For(j, as_expr(0), n, "serial", body)
    return PrimFunc("rows", (x, y, n, m), For(i, as_expr(0), as_expr(2), "serial", columns))


def inner_loop(text: str) -> tuple[str, str]:
    """What stands in front of the loop over columns, and the loop."""
    start, end = text.index("\nloop_j"), text.index("\nend_j")
    return text[:start], text[start:end]


def test_sums_that_a_loop_does_not_change_are_opaque_numbers_before_it():
    before, loop = inner_loop(emit_llvm_ir([rows(12)], TARGET))
    assert before.count("freeze i64") >= 11  # of each row but the first, which is no sum where i * 12 * n is shared
    assert "mul " not in loop and "freeze" not in loop


def test_short_loops_keep_their_sums():
    before, loop = inner_loop(emit_llvm_ir([rows(2)], TARGET))
    assert "freeze" not in before + loop


def test_what_is_hoisted_is_computed_right_and_out_of_conditions_too():
    for guarded in (False, True):
        func = rows(12, guarded)
        compiled = compile_module([func], TARGET)
        for columns in (0, 1, 2, 7):
            x = np.random.default_rng(1).normal(size=(24, columns)).astype(np.float32)
            y = np.zeros_like(x)
            call_primfunc(compiled, func, x, y, columns, x.size)
            expected = x + np.tile(np.arange(12, dtype=np.float32), 2)[:, None]
            if guarded:
                expected[:, columns - 1 :] = 0
            assert (y == expected).all(), (guarded, columns)
