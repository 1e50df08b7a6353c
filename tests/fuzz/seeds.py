"""Hold valid programs, as texts and as modules, from which bad input is made."""

from __future__ import annotations

import functools

import numpy as np

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti

#: The name of the block of :func:`matmul`.
MATMUL_BLOCK = "matmul"


@functools.cache
def network() -> tw.IRModule:
    """A network of few operators with weights and a symbolic dimension."""
    x = gi.var("x", shape=("batch", 12))
    weight = gi.const(np.linspace(-1, 1, 48).astype("f4").reshape(12, 4))
    return tw.IRModule.from_expr(gi.Function([x], gi.tanh(gi.matmul(x, weight)) * 2.0))


@functools.cache
def matmul() -> ti.PrimFunc:
    """A product of matrices, without a schedule."""
    return ti.parse(_LOOPS[0])


_LOOPS = (
    """primfunc @matmul(a: Buffer[(n, 16), float32], b: Buffer[(16, 8), float32], c: Buffer[(n, 8), float32], n: int64)
    attrs {"num_outputs": 1} {
  for i in range(n) {
    for j in range(8) {
      for k in range(16) {
        block matmul(vi: spatial(n) = i, vj: spatial(8) = j, vk: reduction(16) = k) {
          reads a[vi, vk], b[vk, vj]
          writes c[vi, vj]
          init { c[vi, vj] = 0.0 }
          c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]
        }
      }
    }
  }
}
""",
    """primfunc @mixed(x: Buffer[(64,), bfloat16], y: Buffer[(64,), int8, align=64], `s p`: Buffer[(4, 4), bool],
    n: int64, m: int32) attrs {"note": [1, -2.5, (True, None), {"k": expr(n + 1)}, "text\\n", -inf]} {
  allocate t: Buffer[(n, 4), float32, stack, strides=(8, 1)]
  for i: int32 in parallel(4, extent=m) annotations {"grain": 4} {
    let v: float32 = select(n > 3 and not (n == 7), exp(t[n // 2, 0]), float32(nan))
    if v < 1.5 or `s p`[0, 1] {
      t[cast(int64, i), 3] = -v * 2.0
    } else if v >= float32(-inf) {
      y[ramp(0, 1, 4)] = broadcast(int8(-128), 4)
    } else {
      evaluate prefetch(address_of(t[0, 0]))
    }
  }
  for u in unrolled(4) { x[u * 16 % 64] = cast(bfloat16, 3) }
  for w in vectorized(8) { y[w] = y[w] + choose(w, int8(1), int8(2)) << int8(1) }
  @other(address_of(x[0]), n, dtype=void)
}
""",
    """primfunc @copy(a: Buffer[(), int64], b: Buffer[(), int64]) {
  b[()] = min(a[()], 3) ^ ~a[()] | truncdiv(7, 2) & 1
}
""",
)

_GRAPHS = (
    """def @main(%x: Tensor[(n, 16), float32], %w: Tensor[(16, 8), float32]) -> Tensor[(n, 8), float32] {
  %0 = matmul(%x, %w)
  %1 = tanh(%0) : Tensor[(n, 8), float32]
  let %y = multiply(%1, float32(2.5))
  %2 = add(%y, const(float32, [1, 2, 3, 4, 5, 6, 7, -8.5]))
  %2
}
""",
    """def @main(%c: Tensor[(), bool], %i: Tensor[(), int64], %`a b`: Tensor[(4, n + 1), float32]) attrs {"level": 3,
    "names": ["x", "y"], "dim": dim[min(n, 4) + 1], "type": Tensor[(n,), int8], "none": None} {
  %0 = if %c {
    %1 = sum(%`a b`, axis=(0,), keepdims=True)
    %1
  } else {
    %2 = reshape(%`a b`, newshape=(1, -1))
    %3 = strided_slice(%2, begin=(0, 0), end=(1, 2))
    %4 = sum(%`a b`, axis=(0,), keepdims=True)
    %4
  }
  %5 = fn(%k: Tensor[(), int64], %s: Tensor[(1, n + 1), float32]) {
    %6 = add(%s, float32(1))
    %6
  }
  %7 = loop(%i, None, %5, %0)
  %8 = (%7, const#0)
  %9 = %8.0
  %10 = @helper(%9)
  %10
}

def @helper(%t: Tensor[(1, n + 1), float32]) { %0 = exp(%t) %0 }

const#0: Tensor[(4,), float32] base64 = "AACAPwAAAEAAAEBAAACAQA=="
""",
    """def @main(%x: Tensor[(1, 8, 4, 4), float32]) {
  %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW4c")
  %1 = nn.softmax(%0, axis=-1)
  %1
}
primfunc @kernel(a: Buffer[(4,), float32], b: Buffer[(4,), float32]) attrs {"num_outputs": 1} {
  for i in range(4) { b[i] = a[i] + 1.0 }
}
""",
)

_SCRIPTS = (
    """@ti.func
def matmul(a: ti.Buffer[("n", 64), "float32"], b: ti.Buffer[(64, 32), "float32"], c: ti.Buffer[("n", 32), "float32"]):
    for i, j, k in ti.grid(n, 32, 64):
        with ti.block("matmul"):
            vi, vj, vk = ti.axes("SSR", [i, j, k])
            with ti.init():
                c[vi, vj] = 0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
""",
    """@ti.func
def mixed(x: ti.Buffer[(8, "n"), "float32"], y: ti.Buffer[(8,), "int64"], n: int):
    t = ti.allocate((8, 4), "float32", "stack")
    for i in ti.parallel(8):
        s = x[i, 0] + 1.5
        for j in range(1, n):
            if x[i, j] < 0.0 and not j == 3:
                t[i, j % 4] = ti.exp(s) if n > 2 else -s
            elif s >= 2:
                y[i] = j // 2 ** 2
            else:
                y[i] -= ti.cast("int64", x[i, j]) << 1
""",
)


def graph_texts() -> tuple[str, ...]:
    """Texts of modules."""
    return _GRAPHS


def loop_texts() -> tuple[str, ...]:
    """Texts of loop-level functions."""
    return _LOOPS


def scripts() -> tuple[str, ...]:
    """Loops that are written as Python."""
    return _SCRIPTS
