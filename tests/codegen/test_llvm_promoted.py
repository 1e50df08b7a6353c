"""Test the promotion of buffers to LLVM values: those with known places are values, those that escape stay in
memory."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module, emit_llvm_ir
from tilewright.tensorir import parse
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

ONE = Target("llvm", num_threads=1)

HEAD = "primfunc @f(A: Buffer[(16,), float32], C: Buffer[(16,), float32], n: int64) {"
TILE = f"""
{HEAD}
  allocate t: Buffer[(16,), float32, register]
  for u in unrolled(4) {{ t[ramp(u * 4, 1, 4)] = A[ramp(u * 4, 1, 4)] }}
  BODY
  for u in unrolled(4) {{ C[ramp(u * 4, 1, 4)] = t[ramp(u * 4, 1, 4)] }}
}}
"""

#: What is done to a tile of four vectors that are values, by what it shows.
VALUES = {
    "sums of a loop that may not run": "for i in range(n) { t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + A[ramp(i, 1, 4)] }",
    "sums of loops in loops": """
  for i in range(n) {
    for j in range(3) {
      for u in unrolled(2) { t[ramp(u * 8, 1, 4)] = t[ramp(u * 8, 1, 4)] + t[ramp(4, 1, 4)] }
    }
    t[ramp(12, 1, 4)] = t[ramp(0, 1, 4)]
  }""",
    "a swap in each iteration": """
  for i in range(n) {
    let a: float32x4 = t[ramp(0, 1, 4)]
    t[ramp(0, 1, 4)] = t[ramp(4, 1, 4)]
    t[ramp(4, 1, 4)] = a
  }""",
    "a slot that the loop reads, beside one that it changes": """
  for i in range(3) { t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] * t[ramp(8, 1, 4)] }""",
    "branches": """
  if n > 2 { t[ramp(0, 1, 4)] = t[ramp(4, 1, 4)] }
  if n > 4 { t[ramp(4, 1, 4)] = t[ramp(8, 1, 4)] } else { t[ramp(8, 1, 4)] = t[ramp(4, 1, 4)] * broadcast(2.0, 4) }""",
    "branches in loops": """
  for i in range(n) {
    if i == 1 { t[ramp(0, 1, 4)] = t[ramp(4, 1, 4)] } else {
      for j in range(i) { t[ramp(4, 1, 4)] = t[ramp(4, 1, 4)] + A[ramp(j, 1, 4)] }
    }
  }""",
    "masks": """
  for i in range(n) {
    t[ramp(4, 1, 4) where ramp(0, 1, 4) < broadcast(i, 4)] = t[ramp(4, 1, 4)] + t[ramp(0, 1, 4)]
    t[ramp(0, 1, 4)] = t[ramp(4, 1, 4) where ramp(0, 1, 4) < broadcast(n - 3, 4)]
  }""",
    "elements of vectors": """
  for i in range(n) {
    t[3] = t[6] + A[i]
    t[ramp(4, 1, 4)] = broadcast(t[3], 4) + t[broadcast(9, 4)]
    t[ramp(8, 1, 4)] = t[ramp(0, 1, 4)]
  }""",
    "a tile that comes to life in each iteration": """
  for i in range(n) {
    allocate s: Buffer[(2,), float32, stack]
    s[0] = A[i]
    s[1] = s[0] * 2.0
    for j in range(3) { s[0] = s[0] + s[1] }
    t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + broadcast(s[0], 4)
  }""",
    "bits": """
  allocate b: Buffer[(8,), bool, register]
  b[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] > t[ramp(4, 1, 4)]
  for i in range(n) { b[ramp(0, 1, 4)] = b[ramp(0, 1, 4)] or A[ramp(i, 1, 4)] > broadcast(3.0, 4) }
  t[ramp(8, 1, 4)] = select(b[ramp(0, 1, 4)], t[ramp(0, 1, 4)], t[ramp(12, 1, 4)])""",
    "integers that are indices": """
  allocate k: Buffer[(4,), int64, register]
  k[ramp(0, 1, 4)] = ramp(0, 1, 4)
  for i in range(n) { k[ramp(0, 1, 4)] = ramp(0, 1, 4) + k[ramp(0, 1, 4)] }
  t[ramp(0, 1, 4)] = cast(float32x4, k[ramp(0, 1, 4)])""",
    "a long loop with a vector of constants": """
  allocate k: Buffer[(4,), int64, register]
  k[ramp(0, 1, 4)] = ramp(0, 1, 4)
  t[ramp(12, 1, 4)] = cast(float32x4, broadcast(n, 4))
  for i in range(2) {
    t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + cast(float32x4, k[ramp(0, 1, 4)] * broadcast(n, 4))
    for u in unrolled(12) { t[ramp(4, 1, 4)] = t[ramp(4, 1, 4)] + broadcast(A[u + i], 4) }
  }""",
}
#: What keeps it in memory.
MEMORY = {
    "an index that a loop computes": "for i in range(n) { t[i] = t[i] + 1.0 }",
    "vectors that cross each other": "t[ramp(2, 1, 4)] = t[ramp(0, 1, 4)]",
    "vectors of two widths": "t[ramp(0, 1, 8)] = t[ramp(8, 1, 8)]",
    "lanes apart": "t[ramp(0, 1, 4)] = t[ramp(0, 4, 4)]",
    "a loop that becomes a function": """
  for i in range(2) annotations {"outline": True} { t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + t[ramp(4, 1, 4)] }""",
    "a loop for several threads": "for i in parallel(2) { C[i] = t[0] }",
    "an address": "prefetch(t[0])",
}


def program(body: str) -> PrimFunc:
    return parse(TILE.replace("BODY", body))


def check(func: PrimFunc, n: int, target: Target = ONE) -> None:
    """The compiled function computes what the interpreter does, bit for bit: small integers do not round."""
    a = np.random.default_rng(n).integers(-4, 5, 16).astype(np.float32)
    expected, found = np.zeros(16, np.float32), np.zeros(16, np.float32)
    interpret(func, a, expected, n)
    call_primfunc(compile_module([func], target), func, a, found, n)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("what", VALUES)
def test_a_tile_whose_places_are_known_is_no_memory(what: str, n: int) -> None:
    func = program(VALUES[what])
    assert "alloca" not in emit_llvm_ir([func], ONE)
    check(func, n)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("what", MEMORY)
def test_a_tile_whose_places_are_not_known_or_that_others_see_is_memory(what: str, threads: int) -> None:
    func, target = program(MEMORY[what]), Target("llvm", num_threads=threads)
    assert re.search(r"%t\.\d+ = alloca \[\d+ x float\]", emit_llvm_ir([func], target))
    check(func, 5, target)


def test_a_function_that_a_loop_becomes_has_values_of_its_own() -> None:
    func = parse(
        HEAD
        + """
  for i in parallel(4) {
    allocate t: Buffer[(4,), float32, register]
    t[ramp(0, 1, 4)] = A[ramp(i * 4, 1, 4)]
    for j in range(n) { t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + A[ramp(j, 1, 4)] }
    C[ramp(i * 4, 1, 4)] = t[ramp(0, 1, 4)]
  }
}
"""
    )
    target = Target("llvm", num_threads=2)
    assert not re.search(r"%t\.\d+ = alloca", emit_llvm_ir([func], target))
    check(func, 3, target)


def test_a_loop_carries_only_what_it_needs_from_before() -> None:
    text = emit_llvm_ir(
        [
            program(
                """
  for i in range(8) {
    t[ramp(0, 1, 4)] = A[ramp(i, 1, 4)]
    for j in range(8) { t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + A[ramp(j, 1, 4)] * t[ramp(4, 1, 4)] }
    t[ramp(8, 1, 4)] = t[ramp(8, 1, 4)] + t[ramp(0, 1, 4)]
  }"""
            )
        ],
        ONE,
    )
    outer, inner = text.split("\nloop_i.")[1].split("\nloop_j.")
    assert len(re.findall(r"= phi <4 x float>", outer)) == 1, "the sum of all iterations"
    assert len(re.findall(r"= phi <4 x float>", inner)) == 1, "the sum of one"


def test_a_loop_says_nothing_of_a_tile_that_it_only_reads() -> None:
    func = program("for i in range(n) { C[ramp(0, 1, 4)] = C[ramp(0, 1, 4)] + t[ramp(4, 1, 4)] }")
    assert not re.search("phi <|bitcast", emit_llvm_ir([func], ONE))


def test_what_was_never_stored_is_undefined_and_costs_nothing() -> None:
    func = parse(
        HEAD
        + """
  allocate t: Buffer[(4,), float32, register]
  C[0] = A[0]
  C[ramp(4, 1, 4) where ramp(0, 1, 4) < broadcast(0, 4)] = broadcast(t[1], 4)
}
"""
    )
    assert "alloca" not in emit_llvm_ir([func], ONE)
    a, c = np.full(16, 2.0, np.float32), np.zeros(16, np.float32)
    call_primfunc(compile_module([func], ONE), func, a, c, 1)
    assert c[0] == 2 and not c[1:].any()
