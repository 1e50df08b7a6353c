"""For the target ``numba`` loops stay as they are written, and the outermost run in parallel where they may."""

from __future__ import annotations

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.schedule import ScheduleKernels
from tilewright.tensorir import parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import For, PrimFunc
from tilewright.tensorir.target import Target


def loops_after(func: PrimFunc, remarks: list[str] | None = None) -> list[tuple[str, str]]:
    """Return the loops by name and kind, outermost first; append why others are not parallel to ``remarks``."""
    with Target("numba"), PassContext() as ctx:
        scheduled = ScheduleKernels()(IRModule({func.name: func}))[func.name]
    if remarks is not None:
        remarks += [remark.message for remark in ctx.remarks if remark.kind == "missed"]
    return [(node.var.name, node.kind) for node in walk(scheduled.body) if isinstance(node, For)]


def test_outermost_loop_of_every_nest_is_parallel() -> None:
    x = te.placeholder((4, 5), name="x")
    k = te.reduce_axis(5, "k")
    total = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="total")
    func = te.create_prim_func("f", [x], [te.compute((4, 5), lambda i, j: x[i, j] / total[i], name="out")])
    assert loops_after(func) == [("i", "parallel"), ("k", "serial"), ("i", "parallel"), ("j", "serial")]


def test_loop_of_a_reduction_is_not_parallel() -> None:
    x = te.placeholder((4,), name="x")
    k = te.reduce_axis(4, "k")
    func = te.create_prim_func("f", [x], [te.compute((), lambda: te.sum(x[k], axis=k), name="total")])
    remarks: list[str] = []
    assert loops_after(func, remarks) == [("k", "serial")]
    assert remarks == ["block total is not parallel: its outermost loop is a reduction"]


@pytest.mark.parametrize(("index", "kind"), [("vi", "parallel"), ("0", "serial")])
def test_loop_that_carries_a_value_is_not_parallel(index: str, kind: str) -> None:
    func = parse(f"""
primfunc @f(x: Buffer[(4,), float32], total: Buffer[(4,), float32], y: Buffer[(4,), float32])
    attrs {{"num_outputs": 2}} {{
  for i in range(4) {{
    block y(vi: spatial(4) = i) {{
      y[vi] = x[vi] * 2.0
    }}
    block total(vi: {"spatial" if index == "vi" else "reduction"}(4) = i) {{
      total[{index}] = total[{index}] + x[vi]
    }}
  }}
}}
""")
    remarks: list[str] = []
    assert loops_after(func, remarks) == [("i", kind)]
    assert [remark.partition(" is not parallel: ")[0] for remark in remarks] == (
        [] if kind == "parallel" else ["block y", "block total"]
    )
