"""The interpreter's statements, memory and calls, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tensorir.dtype import BOOL
from tilewright.tensorir.errors import (
    ExecutionError,
    InputError,
    OutOfBoundsError,
    TilewrightError,
    UndefinedOperationError,
)
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    IntImm,
    Ramp,
    Select,
    Var,
    address_of,
    as_expr,
    compare,
    const,
    maximum,
)
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
)

I, J, K, N, M = (Var(name) for name in ("i", "j", "k", "n", "m"))
RANDOM = np.random.default_rng(7)


def vector(name="x", extent=N, dtype="float32"):
    return Buffer(name, (as_expr(extent),), dtype)


def test_loops_of_every_kind_run_in_order():
    for kind in ("serial", "parallel", "vectorized", "unrolled"):
        x, y = vector("x"), vector("y")
        func = PrimFunc("f", (x, y, N), For(I, 0, N, kind, BufferStore(y, x[I] * 2.0 + 1.0, (I,))))
        array, out = RANDOM.standard_normal(9).astype(np.float32), np.zeros(9, np.float32)
        interpret(func, array, out)
        np.testing.assert_array_equal(out, array * np.float32(2) + np.float32(1))


def test_a_loop_starts_at_its_least_value_and_a_negative_extent_runs_nothing():
    y = vector("y", 6, "int64")
    body = SeqStmt(
        (
            For(I, 2, 3, "serial", BufferStore(y, I, (I,))),
            For(I, 0, -4, "serial", BufferStore(y, I + 100, (I,))),
        )
    )
    out = np.zeros(6, np.int64)
    interpret(PrimFunc("f", (y,), body), out)
    assert out.tolist() == [0, 0, 2, 3, 4, 0]


def test_a_sequence_of_ten_thousand_statements_and_lets_runs():
    y = vector("y", 1, "int64")
    steps = tuple(BufferStore(y, y[0] + 1, (0,)) for _ in range(10_000))
    body = SeqStmt(steps)
    for _ in range(5_000):
        body = LetStmt(Var("t"), as_expr(1), body)
    out = np.zeros(1, np.int64)
    interpret(PrimFunc("f", (y,), body), out)
    assert out[0] == 10_000


def matmul(n, m, k):
    a, b, c = (Buffer(name, shape) for name, shape in (("a", (n, k)), ("b", (k, m)), ("c", (n, m))))
    vi, vj, vk = Var("vi"), Var("vj"), Var("vk")
    iters = (
        IterVar(vi, 0, n, "spatial", I),
        IterVar(vj, 0, m, "spatial", J),
        IterVar(vk, 0, k, "reduction", K),
    )
    init = BufferStore(c, 0.0, (vi, vj))
    update = BufferStore(c, c[vi, vj] + a[vi, vk] * b[vk, vj], (vi, vj))
    return (a, b, c), Block("c", iters, None, (), (), init, update)


def test_a_reduction_block_initializes_at_its_first_step():
    n, m, k = Var("n"), Var("m"), Var("k")
    buffers, block = matmul(n, m, k)
    loops = For(I, 0, n, "serial", For(J, 0, m, "serial", For(K, 0, k, "serial", block)))
    a, b = (RANDOM.integers(-4, 5, shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
    out = np.full((3, 4), np.nan, np.float32)
    interpret(PrimFunc("matmul", (*buffers, n, m, k), loops), a, b, out)
    np.testing.assert_array_equal(out, a @ b)


def test_a_block_with_a_false_predicate_does_not_run():
    y, v = vector("y", 5, "int64"), Var("v")
    value = I * 3 + J
    block = Block("y", (IterVar(v, 0, 5, "spatial", value),), value < 5, (), (), None, BufferStore(y, v, (v,)))
    out = np.full(5, -1, np.int64)
    interpret(PrimFunc("f", (y,), For(I, 0, 2, "serial", For(J, 0, 3, "serial", block))), out)
    assert out.tolist() == [0, 1, 2, 3, 4]


def test_an_iteration_variable_outside_its_range_is_an_error():
    y, v = vector("y", 9), Var("v")
    block = Block("y", (IterVar(v, 0, 5, "spatial", I),), None, (), (), None, BufferStore(y, 0.0, (v,)))
    with pytest.raises(OutOfBoundsError, match=r"v = 5 is outside of \[0, 5\)"):
        interpret(PrimFunc("f", (y,), For(I, 0, 6, "serial", block)), np.zeros(9, np.float32))


def test_if_takes_one_side():
    y = vector("y", 4, "int64")
    branch = IfThenElse(I < 2, BufferStore(y, 10, (I,)), BufferStore(y, 20, (I,)))
    out = np.zeros(4, np.int64)
    interpret(PrimFunc("f", (y,), For(I, 0, 4, "serial", branch)), out)
    assert out.tolist() == [10, 10, 20, 20]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_allocated_memory_reads_as_nan_until_it_is_written(dtype):
    y, temporary = vector("y", 2, dtype), vector("t", 2, dtype)
    body = SeqStmt((BufferStore(temporary, 3.0, (1,)), For(I, 0, 2, "serial", BufferStore(y, temporary[I], (I,)))))
    out = np.zeros(2, y.dtype.numpy)
    interpret(PrimFunc("f", (y,), Allocate(temporary, body)), out)
    assert np.isnan(out[0]) and out[1] == 3


def test_vector_loads_and_stores_touch_only_the_lanes_of_their_predicate():
    x, y = vector("x", 6), vector("y", 6)
    index = Ramp(as_expr(4), as_expr(1), 4)
    mask = compare("lt", index, Broadcast(as_expr(6), 4))
    loaded = BufferLoad(x, (index,), mask) + Broadcast(const(1.0, "float32"), 4)
    body = SeqStmt(
        (
            BufferStore(y, BufferLoad(x, (Ramp(as_expr(3), as_expr(-1), 4),)), (Ramp(as_expr(0), as_expr(1), 4),)),
            BufferStore(y, loaded, (index,), mask),
        )
    )
    array, out = RANDOM.standard_normal(6).astype(np.float32), np.zeros(6, np.float32)
    interpret(PrimFunc("f", (x, y), body), array, out)
    np.testing.assert_array_equal(out[:4], array[3::-1])
    np.testing.assert_array_equal(out[4:], array[4:] + np.float32(1))


def test_lanes_without_predicate_read_as_zero_and_select_chooses_per_lane():
    x, y = vector("x", 2), vector("y", 4)
    index = Ramp(as_expr(0), as_expr(1), 4)
    loaded = BufferLoad(x, (index,), compare("lt", index, Broadcast(as_expr(2), 4)))
    odd = compare("eq", index % 2, Broadcast(as_expr(1), 4))
    body = BufferStore(y, Select(odd, loaded, -loaded), (index,))
    out = np.full(4, 9, np.float32)
    interpret(PrimFunc("f", (x, y), body), np.array([3, 4], np.float32), out)
    np.testing.assert_array_equal(out, [-3, 4, 0, 0])


def test_a_scalar_predicate_guards_a_scalar_access():
    x, y = vector("x", 3), vector("y", 5)
    body = For(I, 0, 5, "serial", BufferStore(y, BufferLoad(x, (I - 1,), (I >= 1) & (I < 4)), (I,)))
    out = np.ones(5, np.float32)
    interpret(PrimFunc("pad", (x, y), body), np.array([1, 2, 3], np.float32), out)
    np.testing.assert_array_equal(out, [0, 1, 2, 3, 0])


@pytest.mark.parametrize("index", [-1, 4])
def test_an_access_out_of_bounds_names_the_index_and_shows_the_place(index):
    x, y = vector("x", 4), vector("y", 4)
    func = PrimFunc("f", (x, y), BufferStore(y, x[as_expr(index)], (0,)))
    with pytest.raises(OutOfBoundsError, match=rf"index \[{index}\] of x is outside of shape \(4,\)") as caught:
        interpret(func, np.zeros(4, np.float32), np.zeros(4, np.float32))
    assert "^^" in str(caught.value)
    assert isinstance(caught.value, (IndexError, TilewrightError))
    wide = PrimFunc("f", (x, y), BufferStore(y, Broadcast(x[0], 2), (Ramp(as_expr(index), as_expr(1), 2),)))
    with pytest.raises(OutOfBoundsError):
        interpret(wide, np.zeros(4, np.float32), np.zeros(4, np.float32))


@pytest.mark.parametrize("op", ["floordiv", "floormod", "truncdiv", "truncmod"])
def test_integer_division_by_zero_is_an_error_that_shows_the_place(op):
    x, y = vector("x", 1, "int32"), vector("y", 1, "int32")
    func = PrimFunc("f", (x, y), BufferStore(y, BinaryOp(op, x[0], x[0]), (0,)))
    with pytest.raises(UndefinedOperationError, match=f"{op} of 0 and 0"):
        interpret(func, np.zeros(1, np.int32), np.zeros(1, np.int32))


def test_symbolic_dimensions_come_from_shapes_or_arguments():
    x, y = Buffer("x", (N, M)), Buffer("y", (N + 1,))
    body = For(I, 0, N, "serial", BufferStore(y, Cast("float32", M), (I,)))
    func = PrimFunc("f", (x, y, N, M), body)
    out = np.zeros(4, np.float32)
    interpret(func, np.zeros((3, 5), np.float32), out)
    assert out.tolist() == [5, 5, 5, 0]
    interpret(func, np.zeros((3, 5), np.float32), out, 3, 5)
    with pytest.raises(InputError, match=r"dimension n is 3 by dimension 0 of x, but 4 by dimension 0 of y"):
        interpret(func, np.zeros((3, 5), np.float32), np.zeros(5, np.float32))
    with pytest.raises(InputError, match=r"dimension m is 6 by the argument, but 5"):
        interpret(func, np.zeros((3, 5), np.float32), out, 3, 6)


def test_a_flattened_buffer_takes_an_array_of_as_many_elements():
    x = Buffer("x", (N * 4,))
    func = PrimFunc("f", (x, N), For(I, 0, N * 4, "serial", BufferStore(x, Cast("float32", I), (I,))))
    array = np.zeros((3, 4), np.float32)
    interpret(func, array)
    np.testing.assert_array_equal(array, np.arange(12).reshape(3, 4))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, np.float64), "x: expected float32, found float64"),
        (np.zeros(3, np.float32), r"x: expected shape \(4,\), found \(3,\)"),
        ([1.0, 2.0], "x: expected a NumPy array, found list"),
        (np.broadcast_to(np.float32(1), 4), "x is written, but its array is read-only"),
    ],
)
def test_a_wrong_argument_is_named(array, message):
    func = PrimFunc("f", (vector("x", 4),), BufferStore(vector("x", 4), 0.0, (0,)))
    x = func.params[0]
    func = PrimFunc("f", (x,), BufferStore(x, 0.0, (0,)))
    with pytest.raises(InputError, match=message):
        interpret(func, array)
    with pytest.raises(InputError, match="expected 1 arrays for x"):
        interpret(func, array, array, array)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros((2, 2), np.float32), True), "n: expected an integer, found bool"),
        ((np.zeros((2, 2), np.float32), 2.0), "n: expected an integer, found float"),
        ((np.zeros((2, 2, 2), np.float32),), r"x: expected 2 dimensions, found shape \(2, 2, 2\)"),
        ((np.zeros((2, 2), np.float32),), "no shape determines the size of n; pass it as an integer"),
    ],
)
def test_a_size_is_an_integer_or_that_of_an_array(arrays, message):
    x = Buffer("x", (IntImm(2), IntImm(2)))
    with pytest.raises(InputError, match=message):
        interpret(PrimFunc("f", (x, N), For(I, 0, N, "serial", BufferStore(x, 1.0, (I, I)))), *arrays)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((address_of(vector("x", 4), 0),), "@callee: expected 2 arguments, found 1"),
        ((IntImm(3), IntImm(4)), "@callee: a: expected an address for a buffer and an integer for a variable"),
        ((IntImm(3),) * 3, "@callee: expected 2 arguments, found 3"),
    ],
)
def test_a_called_function_gets_addresses_and_integers(args, message):
    a = vector("a")
    callee = PrimFunc("callee", (a, N), BufferStore(a, 1.0, (0,)))
    x = args[0].args[0].buffer if isinstance(args[0], Call) else vector("x", 4)
    main = PrimFunc("main", (x,), Evaluate(Call("@callee", args, "void")))
    with pytest.raises(ExecutionError, match=message):
        interpret(main, np.zeros(4, np.float32), functions={"callee": callee})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: BufferStore(x, Var("v", "float32"), (0,)), "f: variable v is not defined"),
        (lambda x: BufferStore(x, vector("y", 4)[0], (0,)), "f: buffer y is not defined"),
        (lambda x: Evaluate(address_of(x, 5)), r"address of index \[5\] in shape \(4,\)"),
    ],
)
def test_what_does_not_exist_is_named(make, message):
    x = vector("x", 4)
    with pytest.raises(ExecutionError, match=message):
        interpret(PrimFunc("f", (x,), make(x)), np.zeros(4, np.float32))


def test_functions_called_with_addresses_see_the_arena_in_their_own_type_and_shape():
    a, b = Buffer("a", (N, M)), Buffer("b", (N, M))
    double = PrimFunc(
        "double",
        (a, b, N, M),
        For(I, 0, N, "serial", For(J, 0, M, "serial", BufferStore(b, a[I, J] * 2.0, (I, J)))),
    )
    x, y, arena = vector("x", K * 2), vector("y", K * 2), Buffer("arena", (64 + K * 8,), "uint8", "arena")

    def invoke(source, target):
        return Evaluate(Call("@double", (source, target, K, IntImm(2)), "void"))

    body = SeqStmt(
        (
            invoke(address_of(x, 0), address_of(arena, 64)),
            invoke(address_of(arena, 64), address_of(y, 0)),
        )
    )
    main = PrimFunc("main", (x, y, K), Allocate(arena, body))
    array, out = RANDOM.standard_normal(6).astype(np.float32), np.zeros(6, np.float32)
    interpret(main, array, out, functions={"double": double})
    np.testing.assert_array_equal(out, array * 4)
    short = PrimFunc("main", (x, y, K), Allocate(arena, invoke(address_of(x, 1), address_of(arena, 64))))
    with pytest.raises(OutOfBoundsError, match="a of shape"):
        interpret(short, array, out, functions={"double": double})
    with pytest.raises(TilewrightError, match="@double"):
        interpret(main, array, out)


def test_a_buffer_with_padded_rows_keeps_its_rows_apart():
    padded = Buffer("t", (2, 3), "float32", "stack", (IntImm(5), IntImm(1)))
    a = Buffer("a", (2, 3), "float32", "global", (IntImm(5), IntImm(1)))
    y = Buffer("y", (2, 3))
    fill = PrimFunc("fill", (a,), For(I, 0, 2, "serial", For(J, 0, 3, "serial", BufferStore(a, 7.0, (I, J)))))
    copy = For(I, 0, 2, "serial", For(J, 0, 3, "serial", BufferStore(y, padded[I, J], (I, J))))
    body = SeqStmt((Evaluate(Call("@fill", (address_of(padded, 0, 0),), "void")), copy))
    out = np.zeros((2, 3), np.float32)
    interpret(PrimFunc("main", (y,), Allocate(padded, body)), out, functions={"fill": fill})
    np.testing.assert_array_equal(out, np.full((2, 3), 7))


def test_zero_size_dimensions_run_nothing():
    x, y = vector("x"), vector("y")
    func = PrimFunc("f", (x, y, N), For(I, 0, N, "serial", BufferStore(y, x[I], (I,))))
    interpret(func, np.zeros(0, np.float32), np.zeros(0, np.float32))


def test_nan_passes_through_maximum_and_comparisons_with_it_are_false():
    x, y, z = vector("x", 3), vector("y", 3), vector("z", 3, "bool")
    body = For(
        I,
        0,
        3,
        "serial",
        SeqStmt((BufferStore(y, maximum(x[I], 0.0), (I,)), BufferStore(z, ~(x[I] <= 0.0), (I,)))),
    )
    out, flags = np.zeros(3, np.float32), np.zeros(3, np.bool_)
    interpret(PrimFunc("f", (x, y, z), body), np.array([np.nan, -1, 2], np.float32), out, flags)
    np.testing.assert_array_equal(out, [np.nan, 0, 2])
    assert flags.tolist() == [True, False, True]
    assert z.dtype is BOOL
