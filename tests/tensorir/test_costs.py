"""Costs against the textbook's formulas, and against programs that are run and counted step by step."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tilewright import graphir as gi
from tilewright import passes
from tilewright.graphir.module import IRModule
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.pipelines import kernel_pipeline, lowering_pipeline, schedule_pipeline
from tilewright.tensorir import parse
from tilewright.tensorir.costs import Cost, function_cost
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    Select,
    UnaryOp,
    Var,
    as_expr,
    const,
)
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import (
    Block,
    BufferStore,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    sequence,
)
from tilewright.tensorir.target import Target

_numbers = itertools.count()


def var(*shape: Any, dtype: str = "float32") -> gi.Var:
    return gi.var(f"x{next(_numbers)}", shape=shape, dtype=dtype)


def formula(result: gi.Expr, *inputs: gi.Var) -> PrimFunc:
    """The loops of the one operator in ``result``, without any schedule."""
    mod = LowerToTensorIR()(passes.graph.InferType()(IRModule.from_expr(gi.Function(inputs, result))))
    (kernel,) = [function for key, function in mod.functions.items() if key.name != "main"]
    assert isinstance(kernel, PrimFunc)
    return kernel


def cost(result: gi.Expr, *inputs: gi.Var, **sizes: int) -> Cost:
    func = formula(result, *inputs)
    return function_cost(func, {variable: sizes[variable.name] for variable in func.variables})


def text_cost(text: str, **sizes: int) -> Cost:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return function_cost(func, {variable: sizes[variable.name] for variable in func.variables})


def test_product_is_2mnk_operations_on_three_matrices() -> None:
    a, b = var(5, 7), var(7, 11)
    found = cost(gi.matmul(a, b), a, b)
    assert found.operations == {FLOAT32: 2 * 5 * 7 * 11}
    assert (found.read, found.written) == (4 * (5 * 7 + 7 * 11), 4 * 5 * 11)
    assert found.bytes == found.read + found.written and found.total_operations == 770


def test_symbolic_sizes_take_their_numbers() -> None:
    a, b = gi.var("a", shape=("m", 7)), gi.var("b", shape=(7, "n"))
    for m, n in ((1, 1), (5, 11), (0, 3)):
        found = cost(gi.matmul(a, b), a, b, m=m, n=n)
        assert found.total_operations == 2 * m * 7 * n
        assert found.bytes == 4 * (m * 7 + (7 * n if m else 0) * (n > 0) + m * n)


@pytest.mark.parametrize(("stride", "size"), [(1, 10), (2, 5)])
def test_convolution_multiplies_each_weight_with_each_pixel_of_the_result(stride: int, size: int) -> None:
    x, w = var(2, 3, 10, 10), var(8, 3, 3, 3)
    found = cost(gi.nn.conv2d(x, w, strides=(stride, stride), padding=(1, 1)), x, w)
    assert found.total_operations == 2 * 2 * 8 * size * size * 3 * 3 * 3
    assert found.written == 4 * 2 * 8 * size * size
    assert found.read == 4 * (2 * 3 * 10 * 10 + 8 * 3 * 3 * 3)


@pytest.mark.parametrize(
    ("make", "operations"),
    [
        (lambda x: x + x, 1),
        (lambda x: gi.exp(x), 1),
        (lambda x: -x, 1),
        (lambda x: gi.nn.relu(x), 1),
        (lambda x: x * 2.0, 1),
    ],
)
def test_elementwise_operators_cost_one_operation_for_each_element(make: Any, operations: int) -> None:
    x = var(6, 9)
    found = cost(make(x), x)
    assert found.total_operations == operations * 54
    assert (found.read, found.written) == (4 * 54, 4 * 54)


def test_a_comparison_costs_nothing_but_reads_what_it_compares() -> None:
    x, y = var(6, 9), var(6, 9)
    found = cost(gi.greater(x, y), x, y)
    assert (found.total_operations, found.read, found.written) == (0, 2 * 4 * 54, 54)


def test_a_choice_reads_its_condition_and_both_sides() -> None:
    c, x, y = var(6, 9, dtype="bool"), var(6, 9), var(6, 9)
    found = cost(gi.where(c, x, y), c, x, y)
    assert (found.total_operations, found.read, found.written) == (0, 54 + 2 * 4 * 54, 4 * 54)


def test_conversions_cost_nothing() -> None:
    x = var(6, 9)
    found = cost(gi.cast(x, "float64"), x)
    assert (found.total_operations, found.read, found.written) == (0, 4 * 54, 8 * 54)


def test_sum_adds_each_element_once_and_does_not_read_its_own_result() -> None:
    x = var(6, 9)
    found = cost(gi.sum(x, axis=1), x)
    assert (found.total_operations, found.read, found.written) == (54, 4 * 54, 4 * 6)


def test_maximum_compares_each_element_once() -> None:
    x = var(6, 9)
    assert cost(gi.max(x, axis=0), x).operations == {FLOAT32: 54}


def test_softmax_is_five_operations_for_each_element() -> None:
    """Maximum, difference, exponential, sum, and a quotient; where the sum is inverted first, one more for each row."""
    x = var(6, 9)
    found = cost(gi.nn.softmax(x), x)
    assert 5 * 54 <= found.total_operations <= 6 * 54
    assert found.read >= 4 * 54 and found.written >= 4 * 54


def test_gather_reads_the_rows_that_it_takes_and_their_numbers() -> None:
    table, rows = var(1000, 16), var(3, dtype="int64")
    found = cost(gi.take(table, rows, axis=0), table, rows)
    assert found.written == 4 * 3 * 16
    assert found.read == 4 * 3 * 16 + 8 * 3
    assert found.total_operations == 0


def test_a_slice_reads_what_it_takes() -> None:
    x = var(100, 16)
    found = cost(x[10:13], x)
    assert (found.read, found.written) == (4 * 3 * 16, 4 * 3 * 16)


def test_fma_and_dot_count_products_and_sums() -> None:
    found = text_cost("""
primfunc @f(x: Buffer[(32,), uint8], w: Buffer[(32,), int8], s: Buffer[(8,), int32], y: Buffer[(8,), float32]) {
  s[ramp(0, 1, 8)] = dot(s[ramp(0, 1, 8)], x[ramp(0, 1, 32)], w[ramp(0, 1, 32)])
  for i in range(8) {
    y[i] = fma(y[i], y[i], y[i])
  }
}""")
    assert found.operations == {DataType("uint8"): 2 * 32, FLOAT32: 2 * 8}
    assert found.vector_bits == 256
    assert found.read == 32 + 32 + 4 * 8 + 4 * 8  # the sums and y were there before


def test_a_sum_over_lanes_is_one_operation_less_than_lanes() -> None:
    found = text_cost("""
primfunc @f(x: Buffer[(32,), float32], y: Buffer[(4,), float32]) {
  for i in range(4) {
    y[i] = reduce_add(x[ramp(i * 8, 1, 8)])
  }
}""")
    assert (found.total_operations, found.vector_bits) == (4 * 7, 256)


def test_what_begins_a_sum_runs_once_for_each_result() -> None:
    x, y = Buffer("x", (3, 5)), Buffer("y", (3,))
    i, k, vi, vk = Var("i"), Var("k"), Var("vi"), Var("vk")
    iters = (IterVar(vi, 0, 3, "spatial", i), IterVar(vk, 0, 5, "reduction", k))
    first = BufferStore(y, Call("exp", (x[vi, 0],), FLOAT32), (vi,))
    block = Block("sum", iters, None, (), (), first, BufferStore(y, y[vi] + x[vi, vk], (vi,)))
    loops = For(i, as_expr(0), as_expr(3), "serial", For(k, as_expr(0), as_expr(5), "serial", block))
    assert function_cost(PrimFunc("f", (x, y), loops), {}).total_operations == 3 + 3 * 5


def test_a_loop_whose_end_depends_on_data_counts_as_one_iteration() -> None:
    found = text_cost("""
primfunc @f(ends: Buffer[(10,), int64], x: Buffer[(10, 100), float32], y: Buffer[(10,), float32]) {
  for i in range(10) {
    y[i] = 0.0
    for j in range(ends[i]) {
      y[i] = y[i] + x[i, j]
    }
  }
}""")
    assert (found.total_operations, found.read) == (10, 10 * 8 + 10 * 4)


def test_a_loop_whose_end_depends_on_another_counts_as_in_its_middle() -> None:
    found = text_cost("""
primfunc @f(x: Buffer[(101, 101), float32]) {
  for i in range(101) {
    for j in range(i) {
      x[i, j] = x[i, j] + 1.0
    }
  }
}""")
    assert found.total_operations == sum(range(101))


def test_indices_cost_nothing() -> None:
    found = text_cost("""
primfunc @f(x: Buffer[(100,), float32], y: Buffer[(10,), float32]) {
  for i in range(10) {
    let place: int64 = i * 7 + 3
    y[i] = select(i * 3 > 5, x[place * 2 % 100], float32(i * 4 + 1))
  }
}""")
    assert (found.total_operations, found.read) == (0, 40)


def test_scalar_code_has_no_vectors_and_copies_have_those_that_they_store() -> None:
    scalar = "primfunc @f(x: Buffer[(8,), float32]) {\n  for i in range(8) {\n    x[i] = x[i] + 1.0\n  }\n}"
    copy = "primfunc @f(x: Buffer[(8,), float32], y: Buffer[(8,), float32]) {\n  y[ramp(0, 1, 4)] = x[ramp(0, 1, 4)]\n}"
    assert text_cost(scalar).vector_bits == 0
    assert text_cost(copy).vector_bits == 128


@pytest.mark.parametrize(("mcpu", "bits"), [("x86-64", 128), ("x86-64-v3", 256), ("x86-64-v4", 512)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scheduled_kernels_have_the_vectors_of_their_target(mcpu: str, bits: int, dtype: str) -> None:
    target = Target("llvm", mcpu=mcpu, num_threads=1)
    assert target.vector_bits == bits
    x, w = gi.var("x", shape=(64, 64), dtype=dtype), gi.var("w", shape=(64, 64), dtype=dtype)
    mod = passes.graph.InferType()(IRModule.from_expr(gi.Function([x, w], gi.nn.relu(gi.matmul(x, w)))))
    with target:
        for pipeline in (lowering_pipeline, schedule_pipeline, kernel_pipeline):
            mod = pipeline(target)(mod)
    kernels = [function for key, function in mod.functions.items() if key.name != "main"]
    assert {function_cost(kernel, {}).vector_bits for kernel in kernels if isinstance(kernel, PrimFunc)} == {bits}


# Programs that are made at random, and run.


@dataclasses.dataclass
class Counted:
    """The counted work of a program: operations by type, the elements that it read of inputs and those that it
    wrote."""

    operations: Counter[DataType] = dataclasses.field(default_factory=Counter)
    read: set[tuple[Buffer, tuple[int, ...]]] = dataclasses.field(default_factory=set)
    written: set[tuple[Buffer, tuple[int, ...]]] = dataclasses.field(default_factory=set)

    def run(self, stmt: Stmt, known: Mapping[Var, int]) -> None:
        if isinstance(stmt, SeqStmt):
            for part in stmt.stmts:
                self.run(part, known)
        elif isinstance(stmt, For):
            first, extent = (integer_value(each, known) or 0 for each in (stmt.min, stmt.extent))
            for number in range(first, first + extent):
                self.run(stmt.body, {**known, stmt.var: number})
        elif isinstance(stmt, IfThenElse):
            self.compute(stmt.condition, known)
            self.run(stmt.then_body, known)
            if stmt.else_body is not None:
                self.run(stmt.else_body, known)
        elif isinstance(stmt, LetStmt):
            self.compute(stmt.value, known)
            self.run(stmt.body, known)
        else:
            assert isinstance(stmt, BufferStore)
            self.compute(stmt.value, known)
            self.written.add((stmt.buffer, place(stmt.indices, known)))

    def compute(self, expr: Expr, known: Mapping[Var, int], done: set[Expr] | None = None) -> None:
        """Compute ``expr``, but for what was ``done`` for the same statement."""
        done = set() if done is None else done
        if expr in done:
            return
        done.add(expr)
        if isinstance(expr, BufferLoad):
            self.read.add((expr.buffer, place(expr.indices, known)))
        elif isinstance(expr, Select):
            for part in (expr.condition, expr.true_value, expr.false_value):
                self.compute(part, known, done)
        elif isinstance(expr, (Compare, BinaryOp)):
            self.operations[expr.dtype] += isinstance(expr, BinaryOp)
            self.compute(expr.a, known, done)
            self.compute(expr.b, known, done)
        elif isinstance(expr, UnaryOp):
            self.operations[expr.dtype] += 1
            self.compute(expr.a, known, done)
        elif isinstance(expr, Call):
            self.operations[expr.dtype] += 2 if expr.name == "fma" else 1
            for arg in expr.args:
                self.compute(arg, known, done)
        elif isinstance(expr, Cast):
            self.compute(expr.value, known, done)


def place(indices: tuple[Expr, ...], known: Mapping[Var, int]) -> tuple[int, ...]:
    numbers = [integer_value(index, known) for index in indices]
    return tuple(number for number in numbers if number is not None)


SIDE = 6
INPUTS = [Buffer("a", (SIDE, SIDE)), Buffer("b", (SIDE,)), Buffer("c", (SIDE,), FLOAT64)]
OUTPUT = Buffer("out", (SIDE, SIDE))


@st.composite
def places(draw: st.DrawFn, loops: list[Var]) -> Expr:
    """A number below SIDE: loops have at most three iterations."""
    choices: list[Expr] = [const(draw(st.integers(0, SIDE - 1)), "int64"), *loops]
    choices += [loop + draw(st.integers(0, 3)) for loop in loops]
    return draw(st.sampled_from(choices))


@st.composite
def float_values(draw: st.DrawFn, loops: list[Var], lets: list[Var], depth: int) -> Expr:
    if depth == 0 or draw(st.booleans()):
        buffer = draw(st.sampled_from(INPUTS))
        load = buffer[tuple(draw(places(loops)) for _ in buffer.shape)]
        leaves = [Cast(FLOAT32, load) if buffer.dtype == "float64" else load, const(draw(st.floats(0, 1)), FLOAT32)]
        return draw(st.sampled_from([*leaves, *lets]))
    inner = float_values(loops, lets, depth - 1)
    kind = draw(st.sampled_from(["add", "mul", "max", "neg", "exp", "fma", "select"]))
    if kind == "neg":
        return UnaryOp("neg", draw(inner))
    if kind == "exp":
        return Call("exp", (draw(inner),), FLOAT32)
    if kind == "fma":
        return Call("fma", (draw(inner), draw(inner), draw(inner)), FLOAT32)
    if kind == "select":
        return Select(Compare("lt", draw(inner), draw(inner)), draw(inner), draw(inner))
    return BinaryOp(kind, draw(inner), draw(inner))


@st.composite
def programs(draw: st.DrawFn, loops: list[Var], lets: list[Var], depth: int) -> Stmt:
    kind = draw(st.sampled_from(["store", "loop", "loop", "both", "if", "let"])) if depth else "store"
    if kind == "loop":
        loop = Var(f"i{len(loops)}")
        first = draw(st.integers(0, 1))
        body = draw(programs([*loops, loop], lets, depth - 1))
        return For(loop, const(first, "int64"), const(draw(st.integers(0, 3 - first)), "int64"), "serial", body)
    if kind == "both":
        return sequence(*[draw(programs(loops, lets, depth - 1)) for _ in range(2)])
    if kind == "if":
        condition = Compare("lt", draw(float_values(loops, lets, 1)), const(0.5, FLOAT32))
        other = draw(st.none() | programs(loops, lets, depth - 1))
        return IfThenElse(condition, draw(programs(loops, lets, depth - 1)), other)
    if kind == "let":
        name = Var(f"v{len(lets)}", FLOAT32)
        return LetStmt(name, draw(float_values(loops, lets, 2)), draw(programs(loops, [*lets, name], depth - 1)))
    index = (draw(places(loops)), draw(places(loops)))
    return BufferStore(OUTPUT, draw(float_values(loops, lets, 2)), index)


@settings(max_examples=200, deadline=None)
@given(programs([], [], 4))
def test_costs_of_a_program_are_those_of_running_it_step_by_step(body: Stmt) -> None:
    counted = Counted()
    counted.run(body, {})
    found = function_cost(PrimFunc("program", (*INPUTS, OUTPUT), body), {})
    assert found.operations == {dtype: number for dtype, number in counted.operations.items() if number}
    whole = sum(SIDE ** len(buffer.shape) * buffer.dtype.bytes for buffer, _ in {(b, 0) for b, _ in counted.read})
    assert sum(buffer.dtype.bytes for buffer, _ in counted.read) <= found.read <= whole
    assert len(counted.written) * 4 <= found.written <= SIDE * SIDE * 4
