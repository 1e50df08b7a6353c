"""Share an instruction, an outer product, with its implementations, and schedules of products that use it."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from tilewright import tensorir as ti
from tilewright.tensorir import tensor as te

TARGETS = ("llvm", "numba")

OUTER = """
primfunc @outer(
    c: Buffer[(4, 8), float32, strides=(sc, 1)], a: Buffer[(4, 1), float32, strides=(sa, 1)],
    b: Buffer[(8,), float32], sc: int64, sa: int64
) {
  for i in range(4) {
    for j in range(8) {
      block step(vi: spatial(4) = i, vj: spatial(8) = j) {
        reads c[vi, vj], a[vi, 0], b[vj]
        writes c[vi, vj]
        c[vi, vj] = c[vi, vj] + a[vi, 0] * b[vj]
      }
    }
  }
}
"""
SIGNATURE = "void(CPointer(float32), CPointer(float32), CPointer(float32), int64, int64)"

#: Adds twice the products, so that results tell whether it ran.
LLVM_TWICE = """
define void @twice(ptr %c, ptr %a, ptr %b, i64 %sc, i64 %sa) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%n, %loop]
  %bv = load <8 x float>, ptr %b, align 4
  %ao = mul i64 %i, %sa
  %ap = getelementptr float, ptr %a, i64 %ao
  %av = load float, ptr %ap
  %two = fmul float %av, 2.0
  %s0 = insertelement <8 x float> poison, float %two, i64 0
  %s = shufflevector <8 x float> %s0, <8 x float> poison, <8 x i32> zeroinitializer
  %co = mul i64 %i, %sc
  %cp = getelementptr float, ptr %c, i64 %co
  %cv = load <8 x float>, ptr %cp, align 4
  %r = call <8 x float> @llvm.fma.v8f32(<8 x float> %s, <8 x float> %bv, <8 x float> %cv)
  store <8 x float> %r, ptr %cp, align 4
  %n = add i64 %i, 1
  %again = icmp slt i64 %n, 4
  br i1 %again, label %loop, label %end
end:
  ret void
}
declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)
"""


@numba.cfunc(SIGNATURE)
def c_thrice(c: Any, a: Any, b: Any, sc: int, sa: int) -> None:
    for i in range(4):
        for j in range(8):
            c[i * sc + j] += 3 * a[i * sa] * b[j]


def register(**given: Any) -> ti.TensorIntrin:
    return ti.tensor_intrin("outer", ti.parse(OUTER), **given)


def product(m: Any = 16, n: Any = 24, k: Any = 5) -> ti.PrimFunc:
    x, y = te.placeholder((m, k), "float32", "x"), te.placeholder((k, n), "float32", "y")
    r = te.reduce_axis(k, "k")
    z = te.compute((m, n), lambda i, j: te.sum(x[i, r] * y[r, j], axis=r), name="z")
    return ti.create_prim_func("matmul", [x, y], [z])


def tiled(func: ti.PrimFunc | None = None, rows: int = 4, columns: int = 8) -> tuple[ti.Schedule, Any, list[Any]]:
    schedule = ti.Schedule(product() if func is None else func)
    block = schedule.get_block("z")
    i, j, k = schedule.get_loops(block)
    outer, row = schedule.split(i, [None, rows])
    side, column = schedule.split(j, [None, columns])
    schedule.reorder(outer, side, k, row, column)
    schedule.decompose_reduction(block, k)
    return schedule, block, [outer, side, k, row, column]


def operands(m: int = 16, n: int = 24, k: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.random((m, k), "float32"), rng.random((k, n), "float32")
