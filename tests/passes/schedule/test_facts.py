"""Test the facts that schedule rules derive from the index expressions and formulas of a block."""

from __future__ import annotations

import pytest

from tilewright.passes.schedule.cost import is_expensive, vector_lanes
from tilewright.passes.schedule.facts import (
    axis_of,
    block_of,
    contraction,
    is_contiguous,
    loads,
    mergeable,
    panel_width,
    product_of_extents,
    shared_by,
)
from tilewright.tensorir import parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.arith.iter_map import coefficient
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, Var, as_expr, call, cast
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.stmt import Block, IterVar, PrimFunc
from tilewright.tensorir.target import Target

I, J, K, N = Var("i"), Var("j"), Var("k"), Var("n")


def load(*indices: object, shape: tuple[object, ...] | None = None, strides: tuple[int, ...] = ()) -> BufferLoad:
    extents = tuple(as_expr(extent) for extent in shape or (64,) * len(indices))
    buffer = Buffer("a", extents, strides=tuple(as_expr(stride) for stride in strides))
    return BufferLoad(buffer, tuple(as_expr(index) for index in indices))


def op(name: str, a: object, b: object) -> Expr:
    """The operation as it stands, not simplified."""
    return BinaryOp(name, as_expr(a), as_expr(b))


def block(func: PrimFunc) -> Block:
    schedule = Schedule(func)
    return block_of(schedule, schedule.get_blocks()[-1])


@pytest.mark.parametrize(
    ("indices", "count"),
    [
        ((J, K), None),
        ((I, J), 1),
        ((op("floordiv", I, 6), J), 6),
        ((op("floordiv", I, 6) * 3 + J, op("floordiv", I, 4)), 2),
        ((op("floordiv", I, 6), I), 1),
        ((op("floordiv", I + 1, 6), J), 1),
    ],
)
def test_neighbouring_values_that_share_an_element(indices: tuple[Expr, ...], count: int | None) -> None:
    assert shared_by(load(*indices), I) == count


@pytest.mark.parametrize(
    ("indices", "axis"),
    [
        ((I, J), 0),
        ((J, I), 1),
        ((J, K), None),
        ((I, I), None),
        ((I, I + 1), None),
        ((I + 1, I), None),
        ((J, I * 2), None),
    ],
)
def test_axis_of_a_variable_is_where_it_stands_alone_and_nowhere_else(
    indices: tuple[Expr, ...], axis: int | None
) -> None:
    assert axis_of(load(*indices), I) == axis


@pytest.mark.parametrize(
    ("expr", "factor"),
    [
        (I, 1),
        (J, 0),
        (op("mul", I, 3), 3),
        (op("mul", 3, I), 3),
        (op("add", op("mul", I, 3), I), 4),
        (op("sub", J, I), -1),
        (op("sub", op("mul", I, 2), I), 1),
        (op("mul", op("sub", I, J), 5), 5),
        (op("mul", I, I), None),
        (op("mul", I, N), None),
        (op("floordiv", I, 2), None),
        (op("add", op("floordiv", I, 2), I), None),
    ],
)
def test_coefficient_is_the_constant_factor_of_a_variable(expr: Expr, factor: int | None) -> None:
    assert coefficient(expr, I) == factor


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ((J, I), True),
        ((J, I + J), True),
        ((J, op("sub", op("mul", I, 2), I)), True),
        ((I, J), False),
        ((I, I), False),
        ((J, I * 2), False),
        ((J, op("sub", J, I)), False),
        ((J, op("floordiv", I, 1)), True),
        ((J, op("floordiv", I, 2)), False),
        ((J, K), False),
        ((), False),
    ],
)
def test_contiguous_is_a_step_of_one_in_the_last_dimension_alone(indices: tuple[Expr, ...], expected: bool) -> None:
    assert is_contiguous(load(*indices), I) is expected


@pytest.mark.parametrize(
    ("indices", "width"),
    [
        ((J // 16, K, J % 16), 16),
        ((K % 2 * 4 + J // 16, K, J % 16), 16),
        ((K - J // 16 * 2, K, J % 16), 16),
        ((J // 16, K, K * 16 + J % 16), 16),
        ((J // 16, K, J % 16 * 2), None),
        ((J // 8 + K, K, J % 16), None),
        ((J // 16 + J // 32, K, J % 16), None),
        ((J // 16 * J, K, J % 16), None),
        ((J // 16 % 2, K, J % 16), None),
        ((J // 8, K, J % 16), None),
        ((J // 16, K, K % 16), None),
        ((K // 16, K, J % 16), None),
        ((J // 16, J // 16, J % 16), None),
        ((J % 16, K, J % 16), None),
        ((J // 16, K, J), None),
        ((J // N, K, J % N), None),
    ],
)
def test_panel_width_is_that_of_quotient_and_remainder(indices: tuple[Expr, ...], width: int | None) -> None:
    assert panel_width(load(*indices), J) == width


def spatial_iter(var: Var, extent: object) -> IterVar:
    return IterVar(var, 0, extent, "spatial", var)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (load(I, J, shape=(N, 8)), True),
        (load(K, I, J, shape=(3, N, 8)), True),
        (load(K, shape=(3,)), True),
        (load(J, shape=(8,)), False),
        (load(I, shape=(N,)), False),
        (load(J, I, shape=(8, N)), False),
        (load(I, K, J, shape=(N, 3, 8)), False),
        (load(I, J, shape=(N, 16)), False),
        (load(I, J, shape=(N, 8), strides=(16, 1)), False),
        (load(I, J + 1, shape=(N, 8)), False),
    ],
)
def test_variables_merge_where_they_walk_neighbouring_whole_dimensions(access: BufferLoad, expected: bool) -> None:
    assert mergeable([access], spatial_iter(I, N), spatial_iter(J, 8)) is expected


@pytest.mark.parametrize(("extent", "expected"), [(N, True), (Var("m"), False)])
def test_symbolic_dimension_is_walked_whole_by_its_own_size(extent: Var, expected: bool) -> None:
    assert mergeable([load(I, J, shape=(4, N))], spatial_iter(I, 4), spatial_iter(J, extent)) is expected


def test_one_access_that_does_not_merge_is_enough() -> None:
    accesses = [load(I, J, shape=(4, 8)), load(J, shape=(8,)), load(I, J, shape=(4, 8))]
    assert not mergeable(accesses, spatial_iter(I, 4), spatial_iter(J, 8))


def test_instances_of_symbolic_extents_are_not_counted() -> None:
    assert product_of_extents([spatial_iter(I, 4), spatial_iter(J, 6)]) == 24
    assert product_of_extents([spatial_iter(I, 4), spatial_iter(J, N)]) is None


SUM = """
primfunc @f(a: Buffer[(8, 4), float32], b: Buffer[(4,), float32], d: Buffer[(8,), float32], c: Buffer[(8,), float32]) {{
  for i in range(8) {{
    for k in range(4) {{
      block f(vi: spatial(8) = i, vk: {kind}(4) = k) {{
        c[vi] = {value}
      }}
    }}
  }}
}}
"""


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("c[vi] + a[vi, vk] * b[vk]", ("a", "b")),
        ("c[vi] + b[vk] * a[vi, vk]", ("b", "a")),
        ("c[vi] + (a[vi, vk] + b[vk])", None),
        ("c[vi] * (a[vi, vk] * b[vk])", None),
        ("max(c[vi], a[vi, vk] * b[vk])", None),
        ("d[vi] + a[vi, vk] * b[vk]", None),
        ("c[vi] + a[vi, vk]", None),
        ("c[vi] + a[vi, vk] * 2.0", None),
        ("c[vi] + exp(a[vi, vk]) * b[vk]", None),
    ],
)
def test_contraction_is_a_sum_of_products_of_two_loads(value: str, found: tuple[str, str] | None) -> None:
    result = contraction(block(parse(SUM.format(kind="reduction", value=value))))
    assert (result and (result.left.buffer.name, result.right.buffer.name)) == found


def test_contraction_reduces() -> None:
    assert contraction(block(parse(SUM.format(kind="spatial", value="c[vi] + a[vi, vk] * b[vk]")))) is None


def test_contraction_of_narrow_operands_widens_them() -> None:
    a, b = te.placeholder((4,), "int8", name="a"), te.placeholder((4, 3), "int8", name="b")
    k = te.reduce_axis(4, "k")
    product = te.compute((3,), lambda j: te.sum(cast("int32", a[k]) * cast("int32", b[k, j]), axis=k))
    assert contraction(block(te.create_prim_func("f", [a, b], [product]))) is not None


def test_loads_are_not_of_what_the_block_writes() -> None:
    found = loads(block(parse(SUM.format(kind="reduction", value="c[vi] + a[vi, vk] * b[vk]"))))
    assert [load.buffer.name for load in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "expected"), [("exp", True), ("tanh", True), ("sqrt", True), ("floor", False), ("abs", False)]
)
def test_functions_of_many_instructions_are_expensive(name: str, expected: bool) -> None:
    x = te.placeholder((4,), name="x")
    func = te.create_prim_func("f", [x], [te.compute((4,), lambda i: call(name, x[i]) + 1.0)])
    assert is_expensive(block(func)) is expected


@pytest.mark.parametrize(
    ("source", "target", "lanes"),
    [
        ("float32", "float32", 8),
        ("float64", "float32", 4),
        ("float32", "float64", 4),
        ("int8", "float32", 8),
        ("float16", "float16", 16),
        ("int8", "int8", 8),
        ("bool", "int64", 4),
    ],
)
def test_a_vector_of_the_widest_type_fills_one_register(source: str, target: str, lanes: int) -> None:
    """Of 256 bits; bytes are computed with in 32 bits."""
    x = te.placeholder((64,), source, name="x")
    func = te.create_prim_func("f", [x], [te.compute((64,), lambda i: cast(DataType(target), x[i]))])
    assert vector_lanes(block(func), Target("llvm", mcpu="x86-64-v3")) == lanes
