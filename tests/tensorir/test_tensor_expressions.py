"""Test loop nests from formulas: the variables of their blocks."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tensorir import tensor as te
from tilewright.tensorir.expr import Buffer, Var, binary
from tilewright.tensorir.functor import walk
from tilewright.tensorir.interpreter import interpret
from tilewright.tensorir.stmt import Block, BufferStore, PrimFunc
from tilewright.tensorir.verify import verify


def blocks_of(func: PrimFunc) -> list[Block]:
    return [node for node in walk(func.body) if isinstance(node, Block)]


def test_an_axis_that_two_tensors_reduce_over_is_a_variable_of_each_block() -> None:
    x = te.placeholder((3, 5), "float32", "x")
    k = te.reduce_axis(5, "k")
    total = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="total")
    most = te.compute((3,), lambda i: te.max(x[i, k] - total[i], axis=k), name="most")
    func = te.create_prim_func("twice", [x], [most])
    variables = [item.var for block in blocks_of(func) for item in block.iters]
    assert len(set(variables)) == len(variables) == 4
    values = np.arange(15, dtype="float32").reshape(3, 5)
    found = np.zeros(3, "float32")
    interpret(func, values, found)
    np.testing.assert_array_equal(found, values.max(1) - values.sum(1))


def test_what_is_needed_mentions_the_variables_of_its_block() -> None:
    x, offset = te.placeholder((3, 5), "float32", "x"), Var("offset")
    k = te.reduce_axis(5, "k")
    sums = [te.compute((3,), lambda i: te.sum(x[i, k], axis=k), needed=lambda i: k <= i + offset) for _ in range(2)]
    func = te.create_prim_func("sums", [x], sums)
    verify(func)
    assert [str(block.needed) for block in blocks_of(func)] == ["vk <= vi + offset"] * 2


def test_a_formula_is_no_longer_copied_for_its_block() -> None:
    x = te.placeholder((8,), "float32", "x")
    out = te.compute((8,), lambda i: binary("mul", x[i], 2), name="out")
    (block,) = blocks_of(te.create_prim_func("double", [x], [out]))
    assert isinstance(block.body, BufferStore)
    assert block.body.value is out.body and block.body.indices == out.axes


def test_a_parameter_with_a_default_is_no_index() -> None:
    """As in formulas that a loop makes, each of which holds what it is made of."""
    x = te.placeholder((4,), "int64", "x")
    outs = [te.compute((4,), lambda i, by=by: x[i] * by, name=f"by{by}") for by in (2, 3)]
    found = np.zeros((2, 4), "int64")
    interpret(te.create_prim_func("multiples", [x], outs), np.arange(4), *found)
    np.testing.assert_array_equal(found, [[0, 2, 4, 6], [0, 3, 6, 9]])
    with pytest.raises(TypeError, match="the formula takes 1 indices, but the shape has 2 dimensions"):
        te.compute((4, 4), lambda i, by=2: x[i] * by)


def test_what_is_read_and_computed_is_among_inputs_and_outputs() -> None:
    x, y = te.placeholder((4,), "float32", "x"), te.placeholder((4,), "float32", "y")
    out = te.compute((4,), lambda i: x[i] + y[i], name="out")
    with pytest.raises(ValueError, match="f: y is read but is not among the inputs"):
        te.create_prim_func("f", [x], [out])
    with pytest.raises(ValueError, match="f: output x is a placeholder, not computed"):
        te.create_prim_func("f", [x], [x])


def test_loops_of_an_extern_read_tensors_and_their_own_buffers_alone() -> None:
    foreign = Buffer("foreign", (4,))
    with pytest.raises(TypeError, match="copy: the loops reads foreign, which is not a tensor"):
        te.extern([((4,), "float32")], lambda out: BufferStore(out[0], foreign[0], (0,)), "copy")
