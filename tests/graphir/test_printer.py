"""Test the text of the graph-level IR. test_parser checks that it parses back."""

from __future__ import annotations

import hashlib
import math
import time

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.printer import summary
from tilewright.graphir.spelling import digest
from tilewright.tensorir.dtype import as_dtype


def lines(node: object) -> list[str]:
    return [line.strip() for line in str(node).split("\n")]


def test_a_function_is_written_one_expression_a_line():
    x = gi.var("x", shape=("n", 4))
    module = gi.IRModule({"main": gi.Function([x], gi.tanh(x + 1.0), attrs={"a": 1})})
    assert str(module).split("\n") == [
        'def @main(%x: Tensor[(n, 4), float32]) -> Tensor[(n, 4), float32] attrs {"a": 1} {',
        "  %0 = add(%x, float32(1.0)) : Tensor[(n, 4), float32]",
        "  %1 = tanh(%0) : Tensor[(n, 4), float32]",
        "  %1",
        "}",
    ]


def test_what_is_used_twice_is_written_once():
    x = gi.var("x", shape=(4,))
    y = gi.tanh(x)
    assert sum("tanh" in line for line in lines(gi.Function([x], y * y))) == 1


def test_a_result_shared_by_both_branches_stands_before_the_if():
    x, c = gi.var("x", shape=(4,)), gi.var("c", shape=(), dtype="bool")
    shared = gi.tanh(x)
    text = lines(gi.IRModule({"main": gi.Function([x, c], gi.If(c, gi.exp(shared), gi.sin(shared)))}))
    tanh, branch, exp = (next(i for i, line in enumerate(text) if word in line) for word in ("tanh", "if %c", "exp"))
    assert tanh < branch < exp


def test_a_chain_of_lets_is_written_flat():
    x = gi.var("x", shape=(4,))
    a, b = gi.var("a", shape=(4,)), gi.var("b", shape=(4,))
    body = gi.Let(a, gi.tanh(x), gi.Let(b, gi.exp(a), b))
    text = str(gi.IRModule({"main": gi.Function([x], body)})).split("\n")
    assert [line.split(" = ")[0] for line in text[1:3]] == ["  let %a", "  let %b"]


def test_variables_of_one_name_are_told_apart():
    first, second = gi.var("x", shape=(4,)), gi.var("x", shape=(4,))
    assert "%x_1" in str(gi.IRModule({"main": gi.Function([first, second], first + second)}))


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (2**60 + 1, "int64", "int64(1152921504606846977)"),
        (True, "bool", "bool(True)"),
        (0.5, "float16", "float16(0.5)"),
        ([1, 2], "uint8", "const(uint8, [1, 2])"),
        ([[True], [False]], "bool", "const(bool, [[True], [False]])"),
        ([[1, 2, 3], [4, 5, 6]], "float64", "const(float64, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])"),
        ([], "int32", "const(int32, [])"),
        (range(8), "int8", "const(int8, [0, 1, 2, 3, 4, 5, 6, 7])"),
    ],
)
def test_a_small_constant_is_written_where_it_is_used(value, dtype, text):
    constant = gi.const(np.array(value, dtype))
    assert lines(gi.IRModule({"main": gi.Function([], gi.Tuple([constant]))}))[1].startswith(f"%0 = ({text},)")


def test_large_constants_are_described_below_the_functions():
    x = gi.var("x", shape=(100,))
    module = gi.IRModule({"main": gi.Function([x], x + gi.const(np.ones(100, np.float32)))})
    assert lines(module)[-1].startswith('const#0: Tensor[(100,), float32] sha256="')
    assert 'base64="' in gi.to_text(module, constants="inline")


def test_a_summary_is_one_short_line_however_large_the_graph_is():
    x = gi.var("x", shape=(4,))
    y = x
    for _ in range(1000):
        y = gi.tanh(y)
    assert summary(y + x) == "add(tanh(...), %x) : Tensor[(4,), float32]"


def test_deep_graphs_print_in_linear_time_without_recursion():
    def seconds(count: int) -> float:
        x = y = gi.var("x", shape=(4,))
        for _ in range(count):
            y = gi.tanh(y)
        best = float("inf")
        for _ in range(3):
            start = time.thread_time()
            str(gi.IRModule({"main": gi.Function([x], y)}))
            best = min(best, time.thread_time() - start)
        return best

    assert seconds(50_000) < 10 * seconds(10_000)


def test_a_deep_chain_of_lets_prints():
    x = gi.var("x", shape=(4,))
    names = [gi.var(f"v{i}", shape=(4,)) for i in range(5000)]
    body: gi.Expr = names[-1]
    for before, var in zip(reversed([x, *names[:-1]]), reversed(names), strict=True):
        body = gi.Let(var, gi.tanh(before), body)
    assert len(lines(gi.IRModule({"main": gi.Function([x], body)}))) == 5003


@pytest.mark.parametrize("dtype", ["float32", "bool", "int4", "bfloat16", "uint64"])
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4)])
def test_a_digest_is_that_of_type_shape_and_bytes(dtype, shape):
    data = np.arange(math.prod(shape)).reshape(shape).astype(as_dtype(dtype).numpy)
    for array in (data, data.T):
        stored = np.ascontiguousarray(array)
        expected = hashlib.sha256(f"{dtype}{stored.shape}".encode() + stored.tobytes()).hexdigest()
        assert digest(gi.const(array)) == expected
