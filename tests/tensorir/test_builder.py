"""Check that a builder makes the functions that its calls say, and refuses calls that make none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from both_targets import on_both_targets
from compiled_loops import run_compiled

import tilewright.tensorir as ti
from tilewright.tensorir.errors import BuilderError, VerifyError
from tilewright.tensorir.target import Target


def product() -> ti.PrimFunc:
    b = ti.Builder("product")
    n = b.size("n")
    x, y, z = b.buffer("x", (n, 5)), b.buffer("y", (5, 3)), b.buffer("z", (n, 3))
    with b.grid(n, 3, 5) as (i, j, k), b.block("product"):
        vi, vj, vk = b.axes("SSR", (i, j, k))
        with b.init():
            b.store(z, (vi, vj), 0)
        b.store(z, (vi, vj), z[vi, vj] + x[vi, vk] * y[vk, vj])
    return b.finish()


def test_a_block_takes_its_ranges_from_loops_and_its_regions_from_its_body() -> None:
    expected = """
primfunc @product(x: Buffer[(n, 5), float32], y: Buffer[(5, 3), float32], z: Buffer[(n, 3), float32], n: int64) {
  for i in range(n) {
    for j in range(3) {
      for k in range(5) {
        block product(vi: spatial(n) = i, vj: spatial(3) = j, vk: reduction(5) = k) {
          reads x[vi, vk], y[vk, vj]
          writes z[vi, vj]
          init {
            z[vi, vj] = 0.0
          }
          z[vi, vj] = z[vi, vj] + x[vi, vk] * y[vk, vj]
        }
      }
    }
  }
}
"""
    ti.assert_structural_equal(product(), ti.parse(expected))


@on_both_targets
@pytest.mark.parametrize("rows", [1, 7])
def test_a_schedule_of_what_was_built_computes_the_same(target: Target, rows: int) -> None:
    schedule = ti.Schedule(product())
    i, j, _ = schedule.get_loops(schedule.get_block("product"))
    schedule.parallel(i)
    schedule.vectorize(j)
    rng = np.random.default_rng(rows)
    x, y = rng.standard_normal((rows, 5), "float32"), rng.standard_normal((5, 3), "float32")
    for func in product(), schedule.func:
        found = np.full((rows, 3), np.nan, "float32")
        run_compiled(target, func, x, y, found, rows)
        np.testing.assert_allclose(found, x @ y, rtol=1e-5, atol=1e-6)


def test_every_statement_is_built() -> None:
    b = ti.Builder("all", attrs={"num_outputs": 2})
    x, y = b.buffer("x", (8,)), b.buffer("y", (8,), "float32", strides=(2,), alignment=64)
    n = ti.Var("n", "int32")
    with b.parallel(4, name="i") as i:
        t = b.alloc((2,), name="t", scope="stack")
        v = b.let(x[i] * 2.0, "v")
        b.evaluate(ti.prefetch(x[i + 9]))
        with b.if_(v > 1.0):
            b.store(t, 0, v)
        with b.else_(), b.if_(i > 2):
            b.store(t, [0], 1)
        with b.vectorized(0, 2) as j:
            b.store(y, (i * 2 + j,), t[j])
    with b.serial(n, 7) as k, b.unrolled(2) as q, b.block("last", {"note": 1}):
        vk = b.spatial((2, 6), ti.cast("int64", k) + 2, "vk")
        vq = b.reduce(2, q, "vq")
        b.where(k < 4)
        b.where(q < 1)
        b.needed(vk > vq)
        b.reads(x[vk], ti.BufferRegion(y, (ti.Range(0, 4),)))
        b.writes(y[vk])
        b.insert(ti.BufferStore(y, x[vk], (vk,)))
    b.buffer("z", (n,))  # its size becomes a parameter, behind all buffers
    expected = """
primfunc @all(x: Buffer[(8,), float32], y: Buffer[(8,), float32, strides=(2,), align=64], z: Buffer[(n,), float32],
  n: int32) attrs {"num_outputs": 2} {
  for i in parallel(4) {
    allocate t: Buffer[(2,), float32, stack]
    let v: float32 = x[i] * 2.0
    prefetch(x[i + 9])
    if v > 1.0 {
      t[0] = v
    } else if i > 2 {
      t[0] = 1.0
    }
    for j in vectorized(2) {
      y[i * 2 + j] = t[j]
    }
  }
  for k: int32 in range(n, extent=7 - n) {
    for q in unrolled(2) {
      block last(vk: spatial(2, extent=4) = int64(k) + 2, vq: reduction(2) = q) where k < 4 and q < 1 needed vk > vq
        annotations {"note": 1} {
        reads x[vk], y[0:+4]
        writes y[vk]
        y[vk] = x[vk]
      }
    }
  }
}
"""
    ti.assert_structural_equal(b.finish(), ti.parse(expected))


def test_a_value_is_bound_until_its_body_ends() -> None:
    b = ti.Builder("lets")
    x = b.buffer("x", (4,))
    with b.loop(4) as i:
        v = b.let(x[i], "v")
        b.store(x, i, v)
    b.store(x, 0, v)
    with pytest.raises(VerifyError, match="variable v is used outside of the scope of its definition"):
        b.finish()


def open_else(b: ti.Builder) -> None:
    with b.else_():
        pass


def second_else(b: ti.Builder) -> None:
    with b.if_(ti.const(True, "bool")):
        pass
    for _ in range(2):
        with b.else_():
            pass


def second_init(b: ti.Builder) -> None:
    with b.block("c"):
        for _ in range(2):
            with b.init():
                pass


def finish_inside(b: ti.Builder) -> None:
    with b.loop(3):
        b.finish()


def outer_ends_first(b: ti.Builder) -> None:
    outer, inner = b.loop(3), b.loop(4)
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)


def region_of_a_number(b: ti.Builder) -> None:
    with b.block("c"):
        b.reads(ti.Var("n"))  # type: ignore[arg-type]


def axes_with_a_name_too_few(b: ti.Builder) -> None:
    with b.grid(3, 4) as (i, j), b.block("c"):
        b.axes("SS", [i, j], names=["v"])


def axes_of(kinds: str, *values: object) -> Callable[[ti.Builder], None]:
    def call(b: ti.Builder) -> None:
        with b.loop(3) as i, b.block("c"):
            b.axes(kinds, [i, *values])  # type: ignore[list-item]

    return call


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (open_else, "@f: an else_ stands right behind an if_ without one"),
        (second_else, "@f: an else_ stands right behind an if_ without one"),
        (second_init, "block c has an init already"),
        (finish_inside, "loop i is still open"),
        (lambda b: b.where(True), "where: expected to stand directly in a block, found @f around it"),
        (axes_of("SS", ti.Var("n")), "expected variables of the loops around the block, found n"),
        (axes_of("SX", ti.Var("n")), "expected one letter S or R for each of 2 values, found 'SX'"),
        (outer_ends_first, "loop i ends, but loop i is still open"),
        (region_of_a_number, "expected an element or a region of a buffer, found n"),
        (axes_with_a_name_too_few, "axes: 2 values, but 1 names"),
        (lambda b: b.grid(3, names="ij").__enter__(), "grid: 1 extents, but 2 names"),
        (lambda b: b.loop(3, kind="fast").__enter__(), "unknown kind 'fast'"),
        (lambda b: b.loop(1.5).__enter__(), "expected a number of type int64, found 1.5"),
        (lambda b: b.if_(ti.Var("n")).__enter__(), "if: expected a bool condition, found int64"),
        (lambda b: b.store(b.buffer("x", (3,)), (0, 1), 0), "buffer x has 1 dimensions, found 2 indices"),
        (lambda b: b.store(b.buffer("x", (3,)), 0, ti.Var("n")), "store to x: expected float32, found int64"),
        (lambda b: b.alloc((3,), scope="cache"), "unknown scope 'cache'"),
    ],
)
def test_calls_that_make_no_function_are_refused(wrong: Callable[[ti.Builder], object], message: str) -> None:
    with pytest.raises((BuilderError, TypeError, ValueError), match=message.replace("(", r"\(")):
        wrong(ti.Builder("f"))


def test_an_error_leaves_nothing_open() -> None:
    b = ti.Builder("f")
    x = b.buffer("x", (3,))
    with pytest.raises(ZeroDivisionError), b.grid(3, 3), b.block("c"):
        b.store(x, 0, 1 / 0)
    b.store(x, 0, 1)
    assert str(b.finish().body) == "x[0] = 1.0"


def test_a_buffer_outside_of_func_says_how_to_store() -> None:
    with pytest.raises(TypeError, match=r"x\[\.\.\] = \.\. stands in a function decorated with @func"):
        ti.Buffer("x", (3,))[0] = 1.0


def test_long_functions_are_built_in_linear_time() -> None:
    b = ti.Builder("f")
    x = b.buffer("x", (20_000,))
    for number in range(10_000):
        b.store(x, number, b.let(x[number] + 1.0, "v"))
    assert len(ti.to_text(b.unverified()).splitlines()) == 20_002
