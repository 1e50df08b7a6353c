"""Test sums of index arithmetic: the order of their terms, and the known facts about their parts."""

from __future__ import annotations

import re

from tilewright.codegen.llvm import emit_llvm_ir
from tilewright.codegen.llvm.sums import SumOrder
from tilewright.tensorir import parse
from tilewright.tensorir.arith.transfer import IntervalAnalysis
from tilewright.tensorir.expr import BinaryOp, Buffer, Var, as_expr
from tilewright.tensorir.target import Target


def test_terms_that_change_less_often_come_first() -> None:
    n, i, j, named = Var("n"), Var("i"), Var("j"), Var("named")
    table = Buffer("table", (8,), "int64")
    order = SumOrder()
    order.enter_loop(i, 1)
    order.enter_loop(j, 2)
    order.define(named, i * n)
    total = as_expr(j * 64 - n + table[n] + named * 8 + n * 2 + 5)
    assert isinstance(total, BinaryOp)
    found = [("-" if term.negative else "") + str(term.value) for term in order.terms(total)]
    assert found == ["n * 2", "-n", "named * 8", "j * 64", "table[n]", "5"]


def test_the_innermost_variable_is_added_last() -> None:
    func = parse("""
    primfunc @f(A: Buffer[(m,), float32], n: int64, m: int64) {
      for i in range(n) {
        for j in range(n) {
          A[j * 64 + i * n + n * 2] = 1.0
        }
      }
    }
    """)
    text = emit_llvm_ir([func], Target("llvm", num_threads=1))
    (last,) = re.findall(r"= add i64 (\S+), (\S+)\n\s+%\S+ = getelementptr", text)
    assert re.search(rf"{re.escape(last[1])} = mul.* %j", text)  # all before is one number in the inner loop


def test_a_size_under_a_name_does_not_wrap() -> None:
    n, stride, i = Var("n"), Var("stride"), Var("i")
    bounds = IntervalAnalysis()
    bounds.bind_size(n)
    bounds.bind_loop(i, as_expr(0), n)
    bounds.bind_value(stride, (n + 2) * 16)
    product = i * stride
    assert isinstance(product, BinaryOp) and not bounds.may_wrap(product)
