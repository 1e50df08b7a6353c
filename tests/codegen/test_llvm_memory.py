"""Loads and stores: contiguous, strided, gathered, masked; and nothing outside of what a mask allows."""

from __future__ import annotations

import ctypes
import mmap

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.codegen.llvm import call_primfunc, compile_module, emit_llvm_ir, text
from tilewright.tensorir import interpret, parse
from tilewright.tensorir.dtype import TENSOR_DTYPES, DataType
from tilewright.tensorir.errors import CodegenError, InputError
from tilewright.tensorir.expr import (
    Broadcast,
    Buffer,
    BufferLoad,
    Compare,
    Expr,
    IntImm,
    Ramp,
    Var,
    as_expr,
    cast,
    const,
)
from tilewright.tensorir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target

TARGET = Target("llvm", num_threads=1)


def ramp(base: object, stride: int = 1, lanes: int = 8) -> Ramp:
    return Ramp(as_expr(base), as_expr(stride), lanes)


def execute(func: PrimFunc, *args: object) -> None:
    call_primfunc(compile_module([func], TARGET), func, *args)


def values(dtype: DataType, size: int) -> np.ndarray:
    rng = np.random.default_rng(size)
    return rng.integers(0, 2 if dtype.is_bool else 100, size).astype(dtype.numpy)


@pytest.mark.parametrize("name", TENSOR_DTYPES)
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, -1, -3, 0])
def test_vectors_with_any_stride(name: str, stride: int) -> None:
    dtype = DataType(name)
    source, result = Buffer("x", (40,), dtype), Buffer("y", (40,), dtype)
    x = values(dtype, 40)
    start = 7 * -stride if stride < 0 else 0
    load = BufferStore(result, BufferLoad(source, (ramp(start, stride),)), (ramp(0),))
    y = np.zeros(40, dtype.numpy)
    execute(PrimFunc("f", (source, result), load), x, y)
    places = start + stride * np.arange(8)
    assert (y[:8] == x[places]).all() and not y[8:].any()
    store = BufferStore(result, BufferLoad(source, (ramp(3),)), (ramp(start, stride),))
    y = np.zeros(40, dtype.numpy)
    execute(PrimFunc("f", (source, result), store), x, y)
    expected = np.zeros(40, dtype.numpy)
    for lane, place in enumerate(places):
        expected[place] = x[3 + lane]
    assert (y == expected).all()


@pytest.mark.parametrize("stride", [2, 3, 4, 5, -1, -2])
def test_lanes_a_small_step_apart_are_shuffled_from_vectors(stride: int) -> None:
    source, result = Buffer("x", (64,), "float32"), Buffer("y", (8,), "float32")
    index = ramp(0 if stride > 0 else 7 * -stride, stride)
    store = BufferStore(result, BufferLoad(source, (index,)), (ramp(0),))
    code = emit_llvm_ir([PrimFunc("f", (source, result), store)], TARGET)
    assert ("gather" in code) == (stride == 5)


@pytest.mark.parametrize("stride", [2, 3, 4, -2])
def test_lanes_a_small_step_apart_read_nothing_behind_the_last(stride: int) -> None:
    size = 7 * abs(stride) + 1
    source, result = Buffer("x", (size,), "float32"), Buffer("y", (8,), "float32")
    pages = GuardedPages()
    x, y = pages.at_end(size, DataType("float32")), np.zeros(8, np.float32)
    x[:] = np.arange(size)
    index = ramp(0 if stride > 0 else size - 1, stride)
    execute(PrimFunc("f", (source, result), BufferStore(result, BufferLoad(source, (index,)), (ramp(0),))), x, y)
    np.testing.assert_array_equal(y, x[::stride])


@pytest.mark.parametrize("stride", [2, 3, 4, -1, -2])
@pytest.mark.parametrize("is_masked", [False, True])
def test_shuffled_vectors_of_a_stack_buffer_are_loaded_with_their_own_alignment(stride: int, is_masked: bool) -> None:
    """The buffer begins at a multiple of 64 bytes, the vectors that follow the first one do not."""
    lanes, size = 16, 64
    source, result = Buffer("x", (size,)), Buffer("y", (lanes,))
    held = Buffer("t", (size,), scope="stack")
    i = Var("i")
    copy = For(i, as_expr(0), as_expr(size), "serial", BufferStore(held, BufferLoad(source, (i,)), (i,)))
    first = 0 if stride > 0 else size + stride
    index = ramp(first, stride, lanes)
    n = Var("n")
    mask = Compare("lt", ramp(0, 1, lanes), Broadcast(n, lanes)) if is_masked else None
    store = BufferStore(result, BufferLoad(held, (index,), mask), (ramp(0, 1, lanes),))
    func = PrimFunc("f", (source, result, n), Allocate(held, sequence(copy, store)))
    x, y = np.arange(size, dtype=np.float32), np.zeros(lanes, np.float32)
    execute(func, x, y, 11)
    places = first + stride * np.arange(lanes)
    np.testing.assert_array_equal(y, np.where(np.arange(lanes) < 11, x[places], 0) if is_masked else x[places])


@pytest.mark.parametrize("name", TENSOR_DTYPES)
@pytest.mark.parametrize("stride", [2, 3, -2, 5])
@pytest.mark.parametrize("mcpu", ["x86-64-v3", ""])
def test_masked_lanes_with_any_stride(name: str, stride: int, mcpu: str) -> None:
    """The lanes that are off lie behind the end of memory, those of negative strides in front of the last, too."""
    dtype = DataType(name)
    size = 4 * abs(stride) + 1  # five lanes
    base = 0 if stride > 0 else 4 * -stride
    source, result, given = Buffer("x", (size,), dtype), Buffer("y", (8,), dtype), Buffer("m", (8,), "bool")
    mask = BufferLoad(given, (ramp(0),))
    store = BufferStore(result, BufferLoad(source, (ramp(base, stride),), mask), (ramp(0),))
    func = PrimFunc("f", (source, given, result), store)
    target = Target("llvm", mcpu=mcpu, num_threads=1) if mcpu else TARGET
    pages, compiled = GuardedPages(), compile_module([func], target)
    x = pages.at_end(size, dtype)
    x[:] = np.where(values(dtype, size) == 0, 1, values(dtype, size)).astype(dtype.numpy)
    for chosen in ([1, 1, 1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0, 0, 0], [0] * 8):
        y = np.ones(8, dtype.numpy)
        call_primfunc(compiled, func, x, np.array(chosen, bool), y)
        for lane, on in enumerate(chosen):
            assert y[lane] == (x[base + lane * stride] if on else 0)


@pytest.mark.parametrize(("mcpu", "name", "gathered"), [
    ("x86-64-v4", "float32", False), ("x86-64-v4", "int8", False), ("x86-64-v3", "float32", False),
    ("x86-64-v3", "int64", False), ("x86-64-v3", "float16", True), ("x86-64-v2", "float32", True),
])  # fmt: skip
def test_masked_lanes_are_shuffled_where_an_instruction_loads_them(mcpu: str, name: str, gathered: bool) -> None:
    source, result = Buffer("x", (64,), name), Buffer("y", (8,), name)
    n = Var("n")
    mask = Compare("lt", ramp(0), Broadcast(n, 8))
    store = BufferStore(result, BufferLoad(source, (ramp(0, 2),), mask), (ramp(0),))
    code = emit_llvm_ir([PrimFunc("f", (source, result, n), store)], Target("llvm", mcpu=mcpu, num_threads=1))
    assert ("masked.gather" in code) == gathered


@pytest.mark.parametrize("name", TENSOR_DTYPES)
def test_gather_and_scatter_by_an_index_array(name: str) -> None:
    dtype = DataType(name)
    source, index, result = Buffer("x", (40,), dtype), Buffer("i", (8,), "int32"), Buffer("y", (40,), dtype)
    x, order = values(dtype, 40), np.array([3, 39, 0, 7, 7, 12, 25, 1], np.int32)
    places = cast("int64", BufferLoad(index, (ramp(0),)))
    gathered, scattered = np.zeros(40, dtype.numpy), np.zeros(40, dtype.numpy)
    params = (source, index, result)
    execute(PrimFunc("f", params, BufferStore(result, BufferLoad(source, (places,)), (ramp(0),))), x, order, gathered)
    assert (gathered[:8] == x[order]).all()
    execute(PrimFunc("f", params, BufferStore(result, BufferLoad(source, (ramp(0),)), (places,))), x, order, scattered)
    expected = np.zeros(40, dtype.numpy)
    for lane, place in enumerate(order):
        expected[place] = x[lane]
    assert (scattered == expected).all()


class GuardedPages:
    """Memory whose end is followed by a page that must not be touched."""

    def __init__(self) -> None:
        self.page = mmap.PAGESIZE
        self.memory = mmap.mmap(-1, 2 * self.page)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        assert protect(self.address + self.page, self.page, 0) == 0

    def at_end(self, size: int, dtype: DataType) -> np.ndarray:
        """An array whose last element is the last before the forbidden page."""
        count = size * dtype.bytes
        raw = (ctypes.c_uint8 * count).from_address(self.address + self.page - count)
        return np.frombuffer(raw, dtype.numpy)


@pytest.mark.parametrize("name", TENSOR_DTYPES)
def test_masked_access_stops_at_the_end_of_memory(name: str) -> None:
    dtype, size = DataType(name), 11
    i = Var("i")
    source, result = Buffer("x", (size,), dtype), Buffer("y", (size,), dtype)
    index = ramp(i * 8)
    mask = Compare("lt", index, Broadcast(as_expr(size), 8))
    load = BufferLoad(source, (index,), mask)
    func = PrimFunc(
        "f", (source, result), For(i, as_expr(0), as_expr(3), "serial", BufferStore(result, load, (index,), mask))
    )
    first, second = GuardedPages(), GuardedPages()
    x, y = first.at_end(size, dtype), second.at_end(size, dtype)
    x[:] = values(dtype, size)
    execute(func, x, y)
    assert (x == y).all()


def test_lanes_off_read_as_zero_and_are_not_written() -> None:
    source, result = Buffer("x", (8,)), Buffer("y", (8,))
    mask = Compare("lt", ramp(0), Broadcast(as_expr(3), 8))
    x = np.arange(1, 9, dtype=np.float32)
    y = np.full(8, -1, np.float32)
    execute(
        PrimFunc("f", (source, result), BufferStore(result, BufferLoad(source, (ramp(0),), mask), (ramp(0),))), x, y
    )
    assert y.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    y = np.full(8, -1, np.float32)
    execute(
        PrimFunc("f", (source, result), BufferStore(result, BufferLoad(source, (ramp(0),)), (ramp(0),), mask)), x, y
    )
    assert y.tolist() == [1, 2, 3, -1, -1, -1, -1, -1]


def test_predicates_of_scalars() -> None:
    i = Var("i")
    source, result = Buffer("x", (8,)), Buffer("y", (8,))
    load = BufferLoad(source, (i,), i < 6)
    body = For(i, as_expr(0), as_expr(8), "serial", BufferStore(result, load, (i,), i > 2))
    x, y = np.arange(1, 9, dtype=np.float32), np.full(8, -1, np.float32)
    execute(PrimFunc("f", (source, result), body), x, y)
    assert y.tolist() == [-1, -1, -1, 4, 5, 6, 0, 0]


@pytest.mark.parametrize("scope", ["register", "stack", "arena"])
def test_masked_access_to_a_stack_buffer_that_ends_inside_of_a_vector(scope: str) -> None:
    source, result, local = Buffer("x", (16,)), Buffer("y", (16,)), Buffer("t", (11,), scope=scope)
    mask = Compare("lt", ramp(8), Broadcast(as_expr(11), 8))
    zero = const(0.0, "float32x8")
    body = sequence(
        BufferStore(local, zero, (ramp(0),)),
        BufferStore(local, zero, (ramp(8),), mask),
        BufferStore(local, BufferLoad(source, (ramp(8),)), (ramp(8),), mask),
        BufferStore(result, BufferLoad(local, (ramp(0),)), (ramp(0),)),
        BufferStore(result, BufferLoad(local, (ramp(8),), mask), (ramp(8),)),
    )
    x, y = np.arange(16, dtype=np.float32), np.full(16, -1, np.float32)
    execute(PrimFunc("f", (source, result), Allocate(local, body)), x, y)
    assert y.tolist() == [0] * 8 + [8, 9, 10] + [0] * 5


@pytest.mark.parametrize(("start", "is_masked"), [(-4, True), (0, False), (3, False), (4, True)])
def test_a_masked_access_touches_no_memory_before_or_far_behind_a_stack_buffer(start: int, is_masked: bool) -> None:
    source, result, local = Buffer("x", (4,)), Buffer("y", (8,)), Buffer("t", (4,), scope="stack")
    mask = Compare("ge", ramp(start), Broadcast(as_expr(0), 8))
    body = sequence(
        BufferStore(local, BufferLoad(source, (ramp(0, lanes=4),)), (ramp(0, lanes=4),)),
        BufferStore(result, BufferLoad(local, (ramp(start),), mask), (ramp(0),)),
    )
    func = PrimFunc("f", (source, result), Allocate(local, body))
    assert ("call <8 x float> @llvm.masked.load" in emit_llvm_ir([func], TARGET)) == is_masked


def test_dimensions_strides_and_symbolic_extents() -> None:
    m, n, i, j = Var("m"), Var("n"), Var("i"), Var("j")
    dense = Buffer("x", (m, n), "float64")
    columns = Buffer("y", (m, n), "float64", strides=(IntImm(1), m))
    body = For(
        i, as_expr(0), m, "serial", For(j, as_expr(0), n, "serial", BufferStore(columns, dense[i, j] * 2.0, (i, j)))
    )
    func = PrimFunc("f", (dense, columns, m, n), body)
    compiled = compile_module([func], TARGET)
    for shape in [(3, 5), (1, 1), (0, 4), (4, 0)]:
        x, y = np.random.default_rng(0).normal(size=shape), np.zeros(shape, order="F")
        call_primfunc(compiled, func, x, y, *shape)
        assert (y == 2 * x).all()


@pytest.mark.parametrize("name", ["int32", "uint8", "int64", "uint64"])
def test_loops_of_any_type_bindings_and_branches(name: str) -> None:
    i, t, n = Var("i", name), Var("t", name), Var("n", name)
    result = Buffer("y", (12,), name)
    one, two = const(1, name), const(2, name)
    body: Stmt = LetStmt(
        t,
        i % two,
        IfThenElse(t.equal(one), BufferStore(result, i * two, (i,)), BufferStore(result, i + one, (i,))),
    )
    func = PrimFunc("f", (result, n), For(i, const(1, name), n - one, "unrolled", body))
    y = np.zeros(12, name)
    execute(func, y, 9)
    assert y.tolist() == [0, 2, 3, 6, 5, 10, 7, 14, 9, 0, 0, 0]


def test_shared_operands_are_written_once() -> None:
    source, result = Buffer("x", (1,), "float64"), Buffer("y", (1,), "float64")
    value: Expr = source[0]
    for _ in range(60):
        value = (value + value) * 0.5
    y = np.zeros(1)
    execute(PrimFunc("f", (source, result), BufferStore(result, value, (as_expr(0),))), np.array([0.1]), y)
    assert y[0] == 0.1


def test_errors_show_the_place() -> None:
    n, i = Var("n"), Var("i")
    result, local, stray = Buffer("y", (n,)), Buffer("t", (n,), scope="stack"), Buffer("z", (n,))
    with pytest.raises(CodegenError, match="constant extents"):
        compile_module(
            [PrimFunc("f", (result, n), Allocate(local, BufferStore(local, const(0.0, "float32"), (n,))))], TARGET
        )
    with pytest.raises(CodegenError, match=r"z is neither a parameter nor allocated(.|\n)*\^"):
        compile_module([PrimFunc("f", (result, n), BufferStore(result, stray[0], (as_expr(0),)))], TARGET)
    with pytest.raises(CodegenError, match=r"variable i is not defined(.|\n)*\^"):
        compile_module([PrimFunc("f", (result, n), BufferStore(result, const(0.0, "float32"), (i,)))], TARGET)
    large = Buffer("t", (1 << 20,), scope="arena")
    with pytest.raises(CodegenError, match="do not fit on the stack"):
        compile_module(
            [PrimFunc("f", (result, n), Allocate(large, BufferStore(large, const(0.0, "float32"), (n,))))], TARGET
        )


def test_arguments_are_checked() -> None:
    source = Buffer("x", (4,))
    func = PrimFunc("f", (source,), BufferStore(source, const(1.0, "float32"), (as_expr(0),)))
    compiled = compile_module([func], TARGET)
    for bad in (np.zeros(4), np.zeros(5, np.float32), np.zeros(8, np.float32)[::2], [0.0] * 4):
        with pytest.raises(InputError, match="f: x: expected"):
            call_primfunc(compiled, func, bad)


def test_vectors_of_equal_constants_are_the_same_to_llvm_in_the_short_form_and_lane_by_lane(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    func = parse(
        """
primfunc @f(A: Buffer[(32,), float32], C: Buffer[(32,), float32]) {
  C[ramp(0, 1, 16)] = max(A[ramp(0, 1, 16)] * broadcast(1.5, 16), broadcast(-0.0, 16))
  C[ramp(16, 1, 16)] = max(A[ramp(16, 1, 16)], broadcast(0.0, 16))
}
"""
    )
    made = []
    for short in (False, llvm.llvm_version_info[0] >= 19):
        monkeypatch.setattr(text, "_HAS_SPLATS", short)
        text.uniform_vector.cache_clear()
        made.append(compile_module([func], Target("llvm", num_threads=1)))
    text.uniform_vector.cache_clear()
    assert made[0].object_bytes == made[1].object_bytes
    assert len(made[0].llvm_ir) > len(made[1].llvm_ir) or llvm.llvm_version_info[0] < 19
    assert "zeroinitializer" in made[0].llvm_ir


def test_indices_that_are_vectors_are_offsets_as_they_stand() -> None:
    func = parse(
        """
primfunc @f(A: Buffer[(32,), float32], I: Buffer[(8,), int64], C: Buffer[(8,), float32]) {
  C[ramp(0, 1, 8)] = A[I[ramp(0, 1, 8)]]
}
"""
    )
    assert " mul " not in emit_llvm_ir([func], Target("llvm", num_threads=1))


TWICE = """
primfunc @f(A: Buffer[(16,), float32], B: Buffer[(16,), float32], C: Buffer[(16,), float32], n: int64) ATTRS {
  allocate R: Buffer[(16,), float32, register]
  R[ramp(0, 1, 8)] = A[ramp(n, 1, 8)]
  FIRST
  C[ramp(0, 1, 8)] = A[ramp(n, 1, 8)] + R[ramp(0, 1, 8)]
}
"""


@pytest.mark.parametrize(
    ("between", "attrs", "loads"),
    [
        ("B[n] = 1.0", "", 1),
        ("A[3] = 1.0", "", 2),
        ("A[ramp(0, 2, 8)] = B[ramp(0, 1, 8)]", "", 2),
        ("A[ramp(0, 1, 8) where n > 0] = B[ramp(0, 1, 8)]", "", 2),
        ("B[n] = 1.0", 'attrs {"may_alias": True}', 2),
        ("if n > 0 { B[0] = 1.0 }", "", 2),
    ],
)
def test_a_block_loads_what_it_needs_once_unless_it_may_have_changed(between: str, attrs: str, loads: int) -> None:
    func = parse(TWICE.replace("FIRST", between).replace("ATTRS", attrs))
    lines = emit_llvm_ir([func], TARGET, packed=False).splitlines()
    assert sum(" load <8 x float>" in line and "%A." in line.split("=")[0] for line in lines) == loads
    found = [np.arange(16, dtype=np.float32) * k for k in (1, 2, 0)]
    expected = [array.copy() for array in found]
    interpret(func, *expected, 2)
    execute(func, *found, 2)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("place", "value"), [("R[5]", 9.0), ("R[ramp(4, 1, 4)]", 9.0), ("R[ramp(1, 2, 4)]", 9.0)])
def test_registers_are_read_again_where_a_store_overlaps(place: str, value: float) -> None:
    lanes = f"broadcast({value}, 4)" if "ramp" in place else str(value)
    func = parse(TWICE.replace("FIRST", f"{place} = {lanes}").replace("ATTRS", ""))
    found = [np.arange(16, dtype=np.float32) for _ in range(3)]
    expected = [array.copy() for array in found]
    interpret(func, *expected, 2)
    execute(func, *found, 2)
    np.testing.assert_array_equal(found[2], expected[2])


@pytest.mark.parametrize("counter", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("lane", [0, 3, 15])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "float16", "bfloat16", "int32", "float64"])
def test_a_store_of_one_lane_writes_nothing_behind_it(dtype: str, lane: int, counter: str) -> None:
    """LLVM 22 stores 32 bits where the number is truncated from as many, and only one lane of the mask is set."""
    kind = DataType(dtype)
    wide = "float32" if kind.is_float else "int32"
    x, y = Buffer("x", (16,), wide), Buffer("y", (32,), dtype)
    value = cast(kind.with_lanes(16), BufferLoad(x, (ramp(0, lanes=16),)))
    numbers = Ramp(const(16, counter), const(1, counter), 16)
    mask = Compare("eq", numbers, Broadcast(const(16 + lane, counter), 16))
    func = PrimFunc("f", (x, y), BufferStore(y, value, (ramp(4, lanes=16),), mask))
    found = np.full(32, 7, kind.numpy)
    execute(func, np.arange(16, dtype=wide) + 1, found)
    expected = np.full(32, 7, kind.numpy)
    expected[4 + lane] = lane + 1
    np.testing.assert_array_equal(found, expected)


def test_an_index_that_memory_holds_is_read_again_after_a_store_to_it() -> None:
    func = parse(
        """primfunc @f(x: Buffer[(4,), float32], place: Buffer[(1,), int64], y: Buffer[(3,), float32]) {
  y[0] = x[place[0]]
  place[0] = place[0] + 1
  y[1] = x[place[0]]
  place[0] = place[0] + 1
  y[2] = x[place[0]]
}
"""
    )
    y = np.zeros(3, "f4")
    execute(func, np.arange(4, dtype="f4"), np.array([1]), y)
    np.testing.assert_array_equal(y, [1, 2, 3])
