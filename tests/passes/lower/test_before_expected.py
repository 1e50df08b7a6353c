"""Test LowerToTensorIR and PlanMemory on a small module, as text."""

from __future__ import annotations

from tilewright import graphir as gi
from tilewright.passes.lower import LowerToTensorIR, PlanMemory
from tilewright.tensorir import PrimFunc, assert_structural_equal, parse


def test_group_becomes_a_loop_nest_and_the_graph_calls_it() -> None:
    before = gi.parse("""
def @main(%x: Tensor[(n, 3), float32]) -> Tensor[(n, 3), float32] {
  %1 = fn (%p: Tensor[(n, 3), float32]) -> Tensor[(n, 3), float32] attrs {"Primitive": True, "kind": "broadcast"} {
    %0 = add(%p, %p)
    %0
  }
  %2 = %1(%x)
  %2
}
""")
    expected = parse("""
primfunc @add(p: Buffer[(n, 3), float32], add: Buffer[(n, 3), float32], n: int64)
    attrs {"kind": "broadcast", "num_inputs": 1, "num_outputs": 1, "overwrites": (0,)} {
  for i0 in range(n) {
    for i1 in range(3) {
      block add(vi0: spatial(n) = i0, vi1: spatial(3) = i1) {
        reads p[vi0, vi1]
        writes add[vi0, vi1]
        add[vi0, vi1] = p[vi0, vi1] + p[vi0, vi1]
      }
    }
  }
}
""")
    after = LowerToTensorIR()(before)
    kernel = after["add"]
    assert isinstance(kernel, PrimFunc)
    assert_structural_equal(kernel, expected, map_free_vars=True)
    main = after["main"]
    assert isinstance(main, gi.Function) and isinstance(main.body, gi.Call)
    assert main.body.op is after.get_global_var("add")
    assert main.body.args == main.params


def test_main_calls_kernels_on_addresses_in_the_arena() -> None:
    before = gi.parse("""
def @main(%x: Tensor[(n, 3), float32]) -> Tensor[(n, 3), float32] {
  %0 = @double(%x) : Tensor[(n, 3), float32]
  %1 = @double(%0) : Tensor[(n, 3), float32]
  %1
}
primfunc @double(a: Buffer[(n * 3,), float32], b: Buffer[(n * 3,), float32], n: int64) attrs {"num_outputs": 1} {
  for i in range(n * 3) {
    b[i] = a[i] + a[i]
  }
}
""")
    expected = parse("""
primfunc @main(
    x: Buffer[(n, 3), float32],
    output: Buffer[(n, 3), float32],
    arena: Buffer[((n * 3 + 15) // 16 * 64,), uint8, align=64],
    n: int64
) attrs {
  "num_inputs": 1, "num_constants": 0, "num_outputs": 1, "num_workspaces": 1,
  "arena_bytes": expr((n * 3 + 15) // 16 * 64), "parameters": ("x",)
} {
  let slot: int64 = 0
  @double(address_of(x[0, 0]), address_of(arena[slot]), n)
  @double(address_of(arena[slot]), address_of(output[0, 0]), n)
}
""")
    after = PlanMemory()(before)
    main = after["main"]
    assert isinstance(main, PrimFunc)
    assert sorted(key.name for key in after.functions) == ["double", "main"]
    assert str(main.body).count("@double") == 2
    assert_structural_equal(main, expected)
