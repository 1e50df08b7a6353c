"""Loops of kind ``unrolled`` are written out by the code generator as ``UnrollLoop`` would have done, or better."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module, emit_llvm_ir
from tilewright.passes.tensor.unroll_loop import unroll_loops
from tilewright.tensorir import parse
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

ONE = Target("llvm", num_threads=1)

#: Programs by what they show; the last buffer is the result.
PROGRAMS = {
    "a tile in registers, its indices sums of unrolled variables": """
primfunc @f(A: Buffer[(96,), float32], B: Buffer[(512,), float32], C: Buffer[(192,), float32]) {
  allocate acc: Buffer[(192,), float32, register]
  for m in unrolled(6) {
    for n in unrolled(2) {
      acc[ramp(m * 32 + n * 16, 1, 16)] = broadcast(0.0, 16)
    }
  }
  for k in range(16) {
    for m in unrolled(6) {
      for n in unrolled(2) {
        acc[ramp(m * 32 + n * 16, 1, 16)] = acc[ramp(m * 32 + n * 16, 1, 16)]
          + broadcast(A[m * 16 + k], 16) * B[ramp(k * 32 + n * 16, 1, 16)]
      }
    }
  }
  for m in unrolled(6) {
    for n in unrolled(2) {
      C[ramp(m * 32 + n * 16, 1, 16)] = acc[ramp(m * 32 + n * 16, 1, 16)]
    }
  }
}
""",
    "conditions and selects that become constant": """
primfunc @f(A: Buffer[(8, 8), float32], C: Buffer[(8, 8), float32]) {
  for i in range(8) {
    for u in unrolled(1, extent=6) {
      if u < 3 and i > 2 {
        C[i, u] = select(u == 1, A[i, u] * 2.0, A[i, u + 1] + cast(float32, u * 2))
      } else {
        if u == 5 {
          C[u, i] = A[u, i]
        } else {
          C[i, u] = select(u == 3 or i == 1, A[u, i], 4.0)
        }
      }
    }
  }
}
""",
    "values bound in each copy": """
primfunc @f(A: Buffer[(64,), float32], C: Buffer[(64,), float32]) {
  for i in range(4) {
    for u in unrolled(4) {
      let j: int64 = u * 4
      let k: int64 = i + j
      let x: float32 = A[k * 4 + 1]
      let y: float32 = x * x
      for v in unrolled(4) {
        let l: int64 = k * 4 + v
        C[l] = y + A[l] * cast(float32, j + v) + x * x
      }
    }
  }
}
""",
    "indices that are no sums, and loops whose bounds depend on copies": """
primfunc @f(A: Buffer[(64,), int32], C: Buffer[(64,), int32]) {
  for i in range(2) {
    for u in unrolled(8) {
      for j in range(u // 2, extent=4) {
        C[(i * 8 + u) // 3 * 2 + u * 5 % 7 + j] = A[u * i + j] * (cast(int32, u) - int32(2)) + cast(int32, i + u * 3)
      }
      for j in range(0, extent=u - 6) {
        C[60 + j] = A[u]
      }
    }
  }
}
""",
    "memory of its own for each copy": """
primfunc @f(A: Buffer[(32,), float32], C: Buffer[(32,), float32]) {
  for u in unrolled(4) {
    allocate t: Buffer[(8,), float32, stack]
    for i in range(8) {
      t[7 - i] = A[u * 8 + i]
    }
    for i in range(8) {
      C[u * 8 + i] = t[i] + cast(float32, u)
    }
  }
}
""",
    "masks and gathers": """
primfunc @f(A: Buffer[(64,), float32], C: Buffer[(64,), float32]) {
  for u in unrolled(4) {
    C[ramp(u * 16, 1, 16) where ramp(u * 16, 1, 16) < broadcast(50, 16)] = A[ramp(63 - u, -4, 16)]
      + A[ramp(u * 16, 1, 16) where ramp(0, 1, 16) < broadcast(u * 5 + 1, 16)] + A[ramp(u, u, 16)]
  }
}
""",
    "loops for several threads": """
primfunc @f(A: Buffer[(64,), float32], C: Buffer[(64,), float32]) {
  for u in unrolled(2) {
    let j: int64 = u * 32
    for p in parallel(8) {
      for v in unrolled(4) {
        C[j + p * 4 + v] = A[u * 32 + p * 4 + v] * cast(float32, u + v)
      }
    }
  }
}
""",
    "no iterations": """
primfunc @f(A: Buffer[(4,), float32], C: Buffer[(4,), float32]) {
  for u in unrolled(0) {
    C[u] = A[u]
  }
  C[1] = A[2]
}
""",
}


def instructions(text: str) -> int:
    """Lines of LLVM IR that are instructions."""
    return len(re.findall(r"^  ", text, re.MULTILINE))


def arguments(func: PrimFunc, seed: int) -> list[np.ndarray]:
    """An array for each buffer, with small integers as numbers: sums of them do not round."""
    rng = np.random.default_rng(seed)
    shapes = [[extent.value for extent in param.shape] for param in func.params if isinstance(param, Buffer)]
    return [
        rng.integers(-8, 8, shape).astype(param.dtype.numpy) for shape, param in zip(shapes, func.buffers, strict=True)
    ]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("threads", [1, 2])
def test_it_computes_what_the_interpreter_computes_and_what_copies_compute(program: str, threads: int) -> None:
    func = parse(PROGRAMS[program])
    copies, target = unroll_loops(func), Target("llvm", num_threads=threads)
    expected, found, of_copies = (arguments(func, seed=3) for _ in range(3))
    interpret(func, *expected)
    call_primfunc(compile_module([func], target), func, *found)
    call_primfunc(compile_module([copies], target), copies, *of_copies)
    np.testing.assert_array_equal(found[-1], expected[-1])
    np.testing.assert_array_equal(of_copies[-1], expected[-1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_takes_no_more_instructions_than_copies(program: str) -> None:
    func = parse(PROGRAMS[program])
    text = emit_llvm_ir([func], ONE)
    assert instructions(text) <= instructions(emit_llvm_ir([unroll_loops(func)], ONE))
    assert "loop_u" not in text and "loop_v" not in text


def test_a_tile_is_values_and_addresses_share_their_variable_part() -> None:
    func = parse(PROGRAMS["a tile in registers, its indices sums of unrolled variables"])
    target = Target("llvm", mcpu="x86-64-v4", num_threads=1)  # whose registers hold vectors of 16
    text = emit_llvm_ir([func], target)
    assert "alloca" not in text
    assert len(re.findall(r" = phi <16 x float> \[ zeroinitializer, ", text)) == 12
    assert len(re.findall(r"getelementptr (inbounds )?float, ptr %A\.\d+, i64 ", text)) == 1
    assert len(re.findall(r"getelementptr (inbounds )?float, ptr %B\.\d+, i64 ", text)) == 1
    assert not re.search(r"\[192 x float\]|%rsp", compile_module([func], target).assembly)


def test_memory_in_a_body_is_counted_for_each_copy() -> None:
    func = parse(PROGRAMS["memory of its own for each copy"])
    assert emit_llvm_ir([func], ONE).count("alloca") == 4


def test_a_loop_whose_extent_is_a_size_stays_a_loop() -> None:
    func = parse(
        """
primfunc @f(A: Buffer[(n,), float32], C: Buffer[(n,), float32], n: int64) {
  for u in unrolled(n) {
    C[u] = A[u]
  }
}
"""
    )
    assert "loop_u" in emit_llvm_ir([func], ONE)
