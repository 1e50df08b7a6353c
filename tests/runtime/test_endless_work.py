"""Legal work without end, and sizes without memory: building ends, takes little memory, and what runs is the work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.onnx.bad_models import little_memory
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.tensorir.errors import ExecutionError, ShapeError

ONE = np.ones(4, "f4")
LOOPS = [2**31 + 1, 2**62, 2**63 - 1]


def one_thread(kind: str = "llvm") -> tw.Target:
    return tw.Target(kind, num_threads=1)


@pytest.mark.parametrize("target", ["llvm", "numba"])
@pytest.mark.parametrize("kind", ["serial", "parallel", "vectorized", "unrolled"])
@pytest.mark.parametrize("count", LOOPS)
def test_loops_without_end_are_built(count: int, kind: str, target: str) -> None:
    a, b = ti.Buffer("a", (4,)), ti.Buffer("b", (4,))
    i = ti.Var("i")
    store = ti.BufferStore(b, a[i % 4] + 1.0, (i % 4,)) if kind == "serial" else ti.Evaluate(ti.call("exp", a[i % 4]))
    loops = ti.SeqStmt((ti.For(i, 0, count, kind, store), ti.BufferStore(b, 1.0, (0,))))
    with little_memory():
        tw.build(ti.PrimFunc("f", (a, b), loops), target=one_thread(target))


def model(body: Callable[[gi.Expr], gi.Expr]) -> gi.Function:
    x = gi.var("x", shape=(4,))
    return gi.Function([x], body(x))


HUGE: dict[str, Callable[[gi.Expr], gi.Expr]] = {
    "a filled tensor": lambda x: gi.sum(gi.full((1 << 40,), 1.0, "float32")) + x,
    "a filled tensor that depends on an input": lambda x: gi.sum(gi.full((1 << 40,), 1.0, "float32") * x[0]) + x,
    "a range": lambda x: gi.cast(gi.sum(gi.arange(0, 1 << 40, 1)), "float32") + x,
    "a product of filled matrices": lambda x: (
        gi.sum(gi.matmul(gi.full((1 << 20, 1 << 20), 1.0, "float32"), gi.full((1 << 20, 1 << 20), 1.0, "float32"))) + x
    ),
    "a broadcast constant": lambda x: gi.broadcast_to(gi.const(np.float32(3)), (1 << 40,))[0:4] + x,
    "a tiled constant": lambda x: gi.tile(gi.const(ONE), (1 << 38,))[0:4] + x,
    "a cumulative sum": lambda x: gi.sum(gi.cumsum(gi.full((1 << 40,), 1.0, "float32"), axis=0)) + x,
    "a padded input": lambda x: gi.pad(x, ((1 << 40, 1 << 40),)),
    "an empty tensor with a long axis": lambda x: gi.sum(gi.full((0, 1 << 50), 1.0, "float32"), axis=0)[0:4] + x,
}


@pytest.mark.parametrize("target", ["llvm", "numba"])
@pytest.mark.parametrize("kind", HUGE)
def test_huge_constants_are_not_computed_by_a_build(kind: str, target: str) -> None:
    with little_memory():
        tw.build(model(HUGE[kind]), target=one_thread(target))


def test_results_without_memory_are_an_error_of_the_call() -> None:
    built = tw.build(model(HUGE["a padded input"]), target=one_thread())
    with little_memory(), pytest.raises(ExecutionError, match="no memory for the results"):
        built(ONE)


@pytest.mark.parametrize("size", [2**31, 2**33 + 3])
def test_offsets_beyond_32_bits(size: int) -> None:
    """An element far behind the first; the memory in between is never touched."""
    y = gi.var("y", shape=(size,), dtype="int8")
    values = np.zeros(size, "i1")
    values[-1] = 7
    built = tw.build(gi.Function([y], y[size - 1 :] + gi.const(np.int8(1))), target=one_thread())
    assert built(values).tolist() == [8]


@pytest.mark.parametrize("size", [2**62, 2**63, 2**64, 2**70])
def test_sizes_that_no_memory_has(size: int) -> None:
    with pytest.raises(ShapeError, match="more bytes than memory has addresses"):
        gi.var("y", shape=(size,))


def test_a_huge_parameter_of_loops() -> None:
    huge, b = ti.Buffer("huge", (1 << 62,)), ti.Buffer("b", (4,))
    with pytest.raises(ShapeError, match="more bytes than memory has addresses"):
        tw.build(ti.PrimFunc("f", (huge, b), ti.BufferStore(b, huge[0], (0,))))


@pytest.mark.parametrize("target", ["llvm", "numba"])
def test_a_huge_buffer_of_the_stack_is_no_overflow(target: str) -> None:
    a, b = ti.Buffer("a", (4,)), ti.Buffer("b", (4,))
    huge = ti.Buffer("huge", (1 << 24,), scope="stack")
    i, j = ti.Var("i"), ti.Var("j")
    fill = ti.For(i, 0, 1 << 24, "serial", ti.BufferStore(huge, a[i % 4], (i * 7 % (1 << 24),)))
    read = ti.For(j, 0, 4, "serial", ti.BufferStore(b, huge[j * 1234567], (j,)))
    built = tw.build(ti.PrimFunc("f", (a, b), ti.Allocate(huge, ti.SeqStmt((fill, read)))), target=one_thread(target))
    np.testing.assert_array_equal(built(ONE), ONE)


def test_slices_with_steps_without_end() -> None:
    built = tw.build(model(lambda x: x[-(1 << 62) : 1 << 62 : 1 << 62] + 1.0), target=one_thread())
    np.testing.assert_array_equal(built(ONE), [2])
