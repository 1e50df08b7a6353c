"""Test the origins of generated code: machine instructions lead to LLVM IR, and LLVM IR to statements."""

from __future__ import annotations

import re

import pytest

from tilewright import tensorir as ti
from tilewright.codegen.llvm import compile_module
from tilewright.codegen.llvm.source_lines import TracedCode, trace_code
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext
from tilewright.passes.pipelines import schedule_pipeline
from tilewright.passes.tensor.pipeline import tensor_pipeline
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc
from tilewright.tensorir.target import Target

TARGETS = [
    Target("llvm", mcpu="x86-64-v3", num_threads=1),
    Target("llvm", mcpu="x86-64-v4", num_threads=2),
    Target("llvm", mtriple="aarch64-unknown-linux-gnu", mcpu="generic", num_threads=1),
]


def product(target: Target) -> PrimFunc:
    """A product of matrices and its square root, lowered for the target."""
    a, b = (ti.placeholder((64, 64), "float32", name) for name in "ab")
    k = ti.reduce_axis(64, "k")
    c = ti.compute((64, 64), lambda i, j: ti.sum(a[i, k] * b[k, j], axis=k), "c")
    d = ti.compute((64, 64), lambda i, j: ti.sqrt(c[i, j]), "d")
    mod = IRModule({"f": ti.create_prim_func("f", [a, b], [d])})
    with PassContext(opt_level=2), target:
        func = tensor_pipeline(target)(schedule_pipeline(target)(mod))["f"]
    assert isinstance(func, PrimFunc)
    return func


@pytest.fixture(scope="module", params=TARGETS, ids=str)
def traced(request: pytest.FixtureRequest) -> tuple[PrimFunc, TracedCode, Target]:
    func = product(request.param)
    return func, trace_code([func], request.param), request.param


def test_the_code_is_that_of_a_build(traced: tuple[PrimFunc, TracedCode, Target]) -> None:
    func, code, target = traced
    built = compile_module([func], target)
    assert code.llvm_ir == built.llvm_ir
    assert code.assembly == built.assembly


def test_there_is_an_origin_for_each_line(traced: tuple[PrimFunc, TracedCode, Target]) -> None:
    _, code, _ = traced
    assert len(code.statements) == code.llvm_ir.count("\n")
    assert len(code.instructions) == len(code.assembly.splitlines())
    assert all(line is None or 0 <= line < len(code.statements) for line in code.instructions)


def test_square_roots_lead_to_the_store_of_them(traced: tuple[PrimFunc, TracedCode, Target]) -> None:
    func, code, _ = traced
    lines = code.llvm_ir.splitlines()
    places = [
        place
        for text, place in zip(code.assembly.splitlines(), code.instructions, strict=True)
        if re.match(r"\s+v?f?sqrt", text) and place is not None
    ]
    assert places
    for place in places:
        assert "sqrt" in lines[place]
        stmt = code.statements[place]
        assert isinstance(stmt, BufferStore) and stmt.buffer.name == "d"
    assert {code.statements[place] for place in places} <= set(walk_statements(func.body))


def test_products_lead_to_their_sums(traced: tuple[PrimFunc, TracedCode, Target]) -> None:
    _, code, _ = traced
    lines = code.llvm_ir.splitlines()
    places = [
        place
        for text, place in zip(code.assembly.splitlines(), code.instructions, strict=True)
        if re.match(r"\s+(?:vfmadd\d+ps|fmla)", text)
    ]
    assert places and None not in places
    for place in places:
        assert place is not None and re.search("fmul|fadd|fma", lines[place])
        stmt = code.statements[place]
        assert isinstance(stmt, BufferStore) and stmt.buffer.name == "c"


def test_each_instruction_of_a_body_belongs_to_a_statement(traced: tuple[PrimFunc, TracedCode, Target]) -> None:
    """But for stack slots, parameters and the end of the function, which are for none."""
    _, code, _ = traced
    inside = code.llvm_ir[code.llvm_ir.index("define") : code.llvm_ir.index("\n}")].count("\n")
    start = code.llvm_ir[: code.llvm_ir.index("define")].count("\n")
    lines = code.llvm_ir.splitlines()[start + 2 : start + inside]
    found = code.statements[start + 2 : start + inside]
    without = [line for line, stmt in zip(lines, found, strict=True) if stmt is None]
    assert len(without) < 12 and not any("fmul" in line or "store <" in line for line in without)


def test_a_branch_of_a_loop_belongs_to_the_loop(traced: tuple[PrimFunc, TracedCode, Target]) -> None:
    _, code, _ = traced
    branches = [
        stmt
        for line, stmt in zip(code.llvm_ir.splitlines(), code.statements, strict=True)
        if "!llvm.loop" in line and "br i1" in line
    ]
    assert branches and all(isinstance(stmt, For) for stmt in branches)
