"""The numba target computes what the LLVM target computes, from source that a reader can follow."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen import llvm, numba_
from tilewright.tensorir.dtype import TENSOR_DTYPES, DataType
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    address_of,
    as_expr,
    cast,
    const,
)
from tilewright.tensorir.stmt import Allocate, BufferStore, Evaluate, For, LetStmt, PrimFunc, Stmt, sequence
from tilewright.tensorir.target import Target

LLVM, NUMBA = Target("llvm", num_threads=2), Target("numba", num_threads=2)
SIZE = 240


def both_targets(functions: list[PrimFunc], entry: str, arguments: Callable[[], list[object]]) -> None:
    """Run ``entry`` on both targets with equal arguments, and compare all arrays afterwards."""
    func = next(func for func in functions if func.name == entry)
    first, second = arguments(), arguments()
    llvm.call_primfunc(llvm.compile_module(functions, LLVM), func, *first)
    numba_.compile_module(functions, NUMBA).call(entry, *second)
    for param, a, b in zip(func.params, first, second, strict=True):
        if isinstance(a, np.ndarray):
            same = (a == b) | ((a != a) & (b != b))
            assert same.all(), f"{param.name}: llvm {a[~same][:5]}, numba {b[~same][:5]}"


def edge_values(dtype: DataType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, SIZE).astype(bool)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        fixed = np.array([info.min, info.min + 1, info.max, 0, 1, 2, 3, 7], dtype.numpy)
        return np.where(
            rng.random(SIZE) < 0.5, rng.choice(fixed, SIZE), rng.integers(info.min, info.max, SIZE, dtype.numpy)
        ).astype(dtype.numpy)
    fixed = np.array([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e-7, 300.0, -6e4])
    return np.where(rng.random(SIZE) < 0.5, rng.choice(fixed, SIZE), rng.normal(size=SIZE) * 10).astype(dtype.numpy)


def formulas(dtype: DataType, a: Expr, b: Expr) -> list[Expr]:
    """Every operation that ``dtype`` has, on two values."""
    made: list[Expr] = [Compare(op, a, b) for op in ("eq", "ne", "lt", "le", "gt", "ge")]
    boolean = DataType("bool").with_lanes(a.dtype.lanes)
    made += [Cast(DataType(target).with_lanes(a.dtype.lanes), a) for target in TENSOR_DTYPES]
    made.append(Select(Compare("lt", a, b), a, b))
    if dtype.is_bool:
        made += [BinaryOp(op, a, b) for op in ("and", "or", "bitxor", "min", "max")]
        return [*made, UnaryOp("not", a)]
    made += [BinaryOp(op, a, b) for op in ("add", "sub", "mul", "min", "max")]
    made += [UnaryOp("neg", a), Call("abs", (a,), a.dtype)]
    if dtype.is_float:
        made += [BinaryOp("div", a, b), BinaryOp("max", const(0.0, a.dtype), a)]
        made += [
            Call(name, (a,), a.dtype) for name in ("floor", "ceil", "trunc", "round", "sqrt", "exp", "erf", "sigmoid")
        ]
        made += [Call(name, (a,), boolean) for name in ("isnan", "isinf", "isfinite")]
        made.append(Call("copysign", (a, b), a.dtype))
        return made
    made += [BinaryOp(op, a, b) for op in ("floordiv", "floormod", "truncdiv", "truncmod", "bitand", "bitor", "bitxor")]
    made += [BinaryOp(op, a, b) for op in ("shl", "shr")]
    made += [
        BinaryOp(op, a, const(3, a.dtype)) for op in ("floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr")
    ]
    return [*made, UnaryOp("bitnot", a), Call("popcount", (a,), a.dtype), Call("count_leading_zeros", (a,), a.dtype)]


# A sample of the types, each with all operations: numba takes seconds to compile one.
@pytest.mark.parametrize("name", ["bool", "int8", "int32", "uint64", "float16", "bfloat16", "float32"])
def test_every_operation_is_equal_on_both_targets(name: str) -> None:
    dtype, i = DataType(name), Var("i")
    a, b = Buffer("a", (SIZE,), dtype), Buffer("b", (SIZE,), dtype)
    results, stores = [], []
    lanes = 8 if dtype.bits != 32 else 1
    index = Ramp(i * lanes, as_expr(1), lanes) if lanes > 1 else i
    for k, value in enumerate(formulas(dtype, BufferLoad(a, (index,)), BufferLoad(b, (index,)))):
        result = Buffer(f"y{k}", (SIZE,), value.dtype.element)
        results.append(result)
        stores.append(BufferStore(result, value, (index,)))
    loop = For(i, as_expr(0), as_expr(SIZE // lanes), "serial", sequence(*stores))

    def arguments() -> list[object]:
        inputs: list[object] = [edge_values(dtype, 1), edge_values(dtype, 2)]
        return inputs + [np.zeros(SIZE, result.dtype.numpy) for result in results]

    both_targets([PrimFunc("operations", (a, b, *results), loop)], "operations", arguments)


def test_masks_gathers_bindings_and_reductions_are_equal_on_both_targets() -> None:
    x, y, order = Buffer("x", (11,)), Buffer("y", (32,)), Buffer("order", (8,), "int32")
    index, t = Ramp(as_expr(8), as_expr(1), 8), Var("t", "float32x8")
    mask = Compare("lt", index, Broadcast(as_expr(11), 8))
    first = Ramp(as_expr(0), as_expr(1), 8)
    whole = BufferLoad(x, (first,))
    body: Stmt = sequence(
        BufferStore(y, BufferLoad(x, (index,), mask), (first,)),
        BufferStore(y, BufferLoad(x, (cast("int64", BufferLoad(order, (first,))),)), (index,), mask),
        LetStmt(
            t, BinaryOp("mul", whole, whole), BufferStore(y, BinaryOp("add", t, t), (Ramp(as_expr(16), as_expr(1), 8),))
        ),
        BufferStore(y, Call("reduce_add", (BinaryOp("mul", whole, whole),), DataType("float32")), (as_expr(24),)),
        BufferStore(y, Call("reduce_max", (whole,), DataType("float32")), (as_expr(25),)),
        BufferStore(y, BufferLoad(y, (Ramp(as_expr(7), as_expr(-1), 8),)), (first,)),
    )
    rng = np.random.default_rng(0)
    data = rng.normal(size=11).astype(np.float32)

    def arguments() -> list[object]:
        return [data.copy(), np.zeros(32, np.float32), np.array([3, 10, 0, 7, 7, 2, 5, 1], np.int32)]

    both_targets([PrimFunc("vectors", (x, y, order), body)], "vectors", arguments)


def test_a_condition_may_be_conditional_itself() -> None:
    flags, x, y, i = Buffer("flags", (8,), "bool"), Buffer("x", (8,)), Buffer("y", (8,)), Var("i")
    condition = Select(i < 5, flags[i], BufferLoad(flags, (i - 5,), i >= 6))
    body = BufferStore(y, Select(condition, x[i], const(-1.0, "float32")), (i,))
    func = PrimFunc("chosen", (flags, x, y), For(i, as_expr(0), as_expr(8), "serial", body))
    given = np.array([1, 0, 1, 1, 0, 0, 1, 0], bool)
    both_targets([func], "chosen", lambda: [given, np.arange(8, dtype="float32"), np.zeros(8, "float32")])


def matmul(m: int, n: int, k: int) -> PrimFunc:
    a, b, c = Buffer("a", (m, k)), Buffer("b", (k, n)), Buffer("c", (m, n))
    row, column, depth = Var("row"), Var("column"), Var("depth")
    acc = Buffer("acc", (1,), scope="register")
    zero = as_expr(0)
    step = BufferStore(acc, acc[0] + a[row, depth] * b[depth, column], (zero,))
    inner = sequence(
        BufferStore(acc, const(0.0, "float32"), (zero,)),
        For(depth, zero, as_expr(k), "serial", step),
        BufferStore(c, acc[0], (row, column)),
    )
    columns = For(column, zero, as_expr(n), "serial", Allocate(acc, inner))
    return PrimFunc("matmul", (a, b, c), For(row, zero, as_expr(m), "parallel", columns))


def test_a_maximum_over_many_elements_is_compiled_in_a_moment() -> None:
    # LLVM takes hours for 128 times np.maximum, as numba writes it, and an hour is no test that fails: so the source
    # must not have it. Operands that are computed have a name, so nested ones are not written again and again.
    x, y = Buffer("x", (8, 16), "float32"), Buffer("y", (), "float32")
    i, j = Var("i"), Var("j")
    element: Expr = BufferLoad(x, (i, j))
    for _ in range(20):
        element = BinaryOp("min", BinaryOp("add", element, element), const(9.0, "float32"))
    step = BufferStore(y, BinaryOp("max", BufferLoad(y, ()), element), ())
    body: Stmt = For(i, 0, 8, "serial", For(j, 0, 16, "serial", step))
    func = PrimFunc("main", (x, y), sequence(BufferStore(y, const(-np.inf, "float32"), ()), body))
    values = edge_values(DataType("float32"), 3)[:128].reshape(8, 16)
    source = numba_.compile_module([func], NUMBA).source
    assert "maximum" not in source and len(source) < 3000
    both_targets([func], "main", lambda: [values, np.zeros((), np.float32)])
    both_targets([func], "main", lambda: [np.where(np.isfinite(values), values, 1), np.zeros((), np.float32)])


def test_a_model_calls_its_kernels_with_parts_of_an_arena() -> None:
    kernel = matmul(6, 5, 7)
    x, w, y = Buffer("x", (6, 7)), Buffer("w", (7, 5)), Buffer("y", (6, 5))
    arena, n, i = Buffer("arena", (4096,), "uint8"), Var("n"), Var("i")
    vector = Buffer("v", (n,))
    scale = PrimFunc("scale", (vector, n), For(i, as_expr(0), n, "serial", BufferStore(vector, vector[i] * 2.0, (i,))))

    def run(callee: PrimFunc, *args: Expr) -> Evaluate:
        return Evaluate(Call(f"@{callee.name}", args, "void"))

    copy = For(
        i,
        as_expr(0),
        as_expr(30),
        "serial",
        BufferStore(y, y[i // 5, i % 5] + 1.0, (i // 5, i % 5)),
    )
    body = sequence(
        run(kernel, address_of(x, 0, 0), address_of(w, 0, 0), address_of(arena, 256)),
        run(scale, address_of(arena, 256), IntImm(30)),
        run(kernel, address_of(x, 0, 0), address_of(w, 0, 0), address_of(y, 0, 0)),
        run(scale, address_of(y, 1, 0), IntImm(10)),
        copy,
    )
    main = PrimFunc("main", (x, w, y, arena), body)

    def arguments() -> list[object]:
        rng = np.random.default_rng(0)
        shapes = [(6, 7), (7, 5), (6, 5)]
        return [*(rng.integers(-9, 9, s).astype(np.float32) for s in shapes), np.zeros(4096, np.uint8)]

    both_targets([main, kernel, scale], "main", arguments)


def test_symbolic_dimensions_strides_and_empty_arrays() -> None:
    m, n, i, j = Var("m"), Var("n"), Var("i"), Var("j")
    dense, columns = Buffer("x", (m, n), "float64"), Buffer("y", (m, n), "float64", strides=(IntImm(1), m))
    body = For(
        i, as_expr(0), m, "parallel", For(j, as_expr(0), n, "serial", BufferStore(columns, dense[i, j] * 2.0, (i, j)))
    )
    compiled = numba_.compile_module([PrimFunc("f", (dense, columns, m, n), body)], NUMBA)
    for shape in [(3, 5), (0, 4)]:
        x, y = np.random.default_rng(0).normal(size=shape), np.zeros(shape, order="F")
        compiled.call("f", x, y, *shape)
        assert (y == 2 * x).all()


def test_source_reads_like_the_formula() -> None:
    source = numba_.emit_source([matmul(6, 5, 7)])
    ast.parse(source)
    assert "acc[0] = acc[0] + a[row, depth] * b[depth, column]" in source.replace("(a[", "a[").replace(
        "column])", "column]"
    )
    assert "numba.prange(6)" in source


def test_each_line_of_the_source_knows_its_statement() -> None:
    functions = [matmul(6, 5, 7), dataclasses.replace(matmul(3, 3, 3), name="g")]
    traced = numba_.trace_source(functions)
    assert traced.text == numba_.emit_source(functions)
    assert len(traced.statements) == len(traced.text.splitlines())
    for line, made in zip(traced.text.splitlines(), traced.statements, strict=True):
        if line.lstrip().startswith("for "):
            assert isinstance(made, For)
        elif "] = " in line:
            assert isinstance(made, BufferStore)
        elif not line.startswith(" "):
            assert made is None


def test_copies_of_an_operand_are_computed_once_in_a_statement() -> None:
    a, out = Buffer("a", (8,), "float32"), Buffer("out", (8,), "float32")
    i = Var("i")

    def root() -> Expr:
        return Call("sqrt", (a[i] * 2.0 + 1.0,), "float32")

    formula = (root() + 0.0) * (root() + -0.0) * root()  # zeros have signs
    func = PrimFunc("f", (a, out), For(i, as_expr(0), as_expr(8), "serial", BufferStore(out, formula, (i,))))
    source = numba_.emit_source([func])
    assert source.count("sqrt") == 1
    assert "0.0)" in source and "-0.0)" in source


def test_names_that_python_keeps_for_itself_are_changed() -> None:
    x, i = Buffer("lambda", (4,)), Var("np")
    func = PrimFunc("class", (x,), For(i, as_expr(0), as_expr(4), "serial", BufferStore(x, x[i] + 1.0, (i,))))
    data = np.zeros(4, np.float32)
    numba_.compile_module([func], NUMBA).call("class", data)
    assert (data == 1).all()


def test_errors_show_the_place() -> None:
    x, stray = Buffer("x", (4,)), Buffer("z", (4,))
    with pytest.raises(CodegenError, match=r"z is neither a parameter nor allocated(.|\n)*\^"):
        numba_.emit_source([PrimFunc("f", (x,), BufferStore(x, stray[0], (as_expr(0),)))])


def test_numba_makes_no_wrapper_that_nobody_calls() -> None:
    x = Buffer("x", (4,), "float32")
    func = PrimFunc("f", (x,), BufferStore(x, const(1.0, "float32"), (IntImm(0),)))
    module = numba_.compile_module([func], NUMBA)
    module.call("f", np.zeros(4, np.float32))
    text = "".join(module.functions["f"].inspect_llvm().values())  # type: ignore[attr-defined]
    assert "cpython" in text and "cfunc" not in text


def test_python_runs_a_function_of_calls_until_that_costs_more_than_to_compile_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    v, w, i = Buffer("v", (5,)), Buffer("w", (10,)), Var("i")
    twice = PrimFunc("twice", (v,), For(i, as_expr(0), as_expr(5), "serial", BufferStore(v, v[i] * 2.0, (i,))))
    calls = [Evaluate(Call("@twice", (address_of(w, place),), "void")) for place in (0, 0, 5)]
    repeated = For(Var("k"), as_expr(0), as_expr(3), "serial", calls[0])
    modules = [
        numba_.compile_module([PrimFunc("main", (w,), body), twice], NUMBA) for body in (sequence(*calls), repeated)
    ]
    for module, ahead in zip(modules, (2, 0), strict=True):  # a loop is nothing that Python should run
        monkeypatch.setattr(module, "runs_by_python", 2)
        main = module.functions["main"]
        for run in range(4):
            data = np.ones(10, np.float32)
            module.call("main", data)
            assert len(main.signatures) == (run >= ahead)  # type: ignore[attr-defined]
            np.testing.assert_array_equal(data, [4] * 5 + [2] * 5 if ahead else [8] * 5 + [1] * 5)


def test_a_part_of_an_array_that_several_calls_take_is_made_once() -> None:
    arena, v, i, k = Buffer("arena", (4096,), "uint8"), Buffer("v", (2, 5)), Var("i"), Var("k")
    scale = PrimFunc(
        "scale", (v,), For(i, as_expr(0), as_expr(5), "serial", BufferStore(v, v[1, i] * 2.0, (as_expr(1), i)))
    )

    def run(place: Expr | int) -> Evaluate:
        return Evaluate(Call("@scale", (address_of(arena, place),), "void"))

    often = For(k, as_expr(0), as_expr(3), "serial", sequence(run(128), run(k * 128), run(k * 128), run(256)))
    functions = [PrimFunc("main", (arena,), sequence(run(128), run(128), often, run(256), run(256))), scale]
    lines = numba_.emit_source(functions).splitlines()
    made = [line for line in lines if "arena[" in line]
    # Where it stands in a loop, it is not known behind it.
    assert [len(line) - len(line.lstrip()) for line in made] == [4, 8, 8, 4]
    assert sum("scale(" in line for line in lines) == 1 + 8

    both_targets(functions, "main", lambda: [np.arange(1024, dtype=np.float32).view(np.uint8)])


def test_parallel_loops_read_and_write_buffers_without_dimensions() -> None:
    factor, x, y, total = (
        Buffer(name, shape) for name, shape in (("a", ()), ("x", (SIZE,)), ("y", (SIZE,)), ("t", ()))
    )
    inner, i, j = Buffer("inner", (), "float32", "stack"), Var("i"), Var("j")
    scaled = Allocate(inner, sequence(BufferStore(inner, x[i] * factor[()], ()), BufferStore(y, inner[()], (i,))))
    zero, size = as_expr(0), as_expr(SIZE)
    summed = For(j, zero, size, "serial", BufferStore(total, total[()] + y[j], ()))
    func = PrimFunc("f", (factor, x, y, total), sequence(For(i, zero, size, "parallel", scaled), summed))
    values = np.arange(SIZE, dtype="float32")
    both_targets([func], "f", lambda: [np.array(3, "float32"), values, np.zeros_like(values), np.zeros((), "float32")])


def test_a_process_that_lost_its_pool_shares_no_parallel_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a call nor by a module that takes functions over, as profiles make it."""
    source, result = Buffer("source", (64,), "float32"), Buffer("result", (64,), "float32")
    i = Var("i")
    copy = BufferStore(result, source[i], (i,))
    funcs = [PrimFunc(name, (source, result), For(i, IntImm(0), IntImm(64), "parallel", copy)) for name in ("f", "g")]
    module = numba_.compile_module(funcs, Target("numba"))
    assert all(function.targetoptions["parallel"] for function in module.functions.values())
    monkeypatch.setattr("tilewright.codegen.numba_.compile.pool_is_lost", lambda: True)
    for made in (module.with_function(funcs[0]), module):
        assert not any(function.targetoptions["parallel"] for function in made.functions.values())
        found = np.zeros(64, "f4")
        made.call("g", np.arange(64, dtype="f4"), found)
        assert found.tolist() == list(range(64))
