"""All tensor passes in order, on random programs: results stay, and nothing is left that code cannot be made of."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import SYMBOLIC_SIZE, make_arguments, prim_funcs

from tilewright.graphir.module import IRModule
from tilewright.passes import list_passes
from tilewright.passes.context import PassContext
from tilewright.passes.tensor import tensor_pipeline
from tilewright.tensorir import interpret, verify
from tilewright.tensorir.arith import Analyzer
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import substitute, walk
from tilewright.tensorir.stmt import Block, For
from tilewright.tensorir.target import Target


@pytest.mark.parametrize("opt_level", [0, 2])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(func=prim_funcs(), seed=st.integers(0, 2**32 - 1))
def test_results_of_random_programs_stay(opt_level, func, seed):
    with PassContext(opt_level=opt_level), Target("llvm", num_threads=2):
        (after,) = tensor_pipeline()(IRModule({"f": func})).functions.values()
    verify(after)
    assert not any(isinstance(n, Block) or (isinstance(n, For) and n.kind == "vectorized") for n in walk(after.body))
    arguments = make_arguments(func, seed)
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    interpret(func, *arguments)
    sizes = {var: IntImm(SYMBOLIC_SIZE) for var in after.variables}
    workspaces = []
    count = len(func.buffers)
    for buffer in after.buffers[count:]:
        workspaces.append(np.zeros(Analyzer().simplify(substitute(buffer.shape[0], sizes)).value, buffer.dtype.numpy))
    interpret(after, *copies[:count], *workspaces, *copies[count:])
    for a, b in zip(arguments[:count], copies[:count], strict=True):
        np.testing.assert_allclose(b.astype(np.float64), a.astype(np.float64), rtol=1e-5)


def test_every_tensor_pass_is_registered():
    names = {child.info.name for child in tensor_pipeline().passes}
    assert names <= set(list_passes()) and {"LowerBlocks", "VectorizeLoop", "VerifyMemory"} <= names
