"""All tensor passes in order, on random programs: results stay, and code can be generated for every result."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from strategies import SYMBOLIC_SIZE, make_arguments, prim_funcs

from tilewright.graphir.module import IRModule
from tilewright.passes import get_pass, list_passes
from tilewright.passes.context import PassContext
from tilewright.passes.tensor import tensor_pipeline
from tilewright.passes.tensor.part_by_part import PartByPart
from tilewright.tensorir import interpret, parse, structural_equal, verify
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


def several() -> IRModule:
    """More functions than go through the pipeline together."""
    text = """
primfunc @f(A: Buffer[(NUMBER,), float32], B: Buffer[(NUMBER,), float32]) attrs {"num_outputs": 1} {
  for i in vectorized(NUMBER) {
    B[i] = A[i] + 1.0
  }
}
"""
    functions = {f"f{n}": parse(text.replace("@f", f"@f{n}").replace("NUMBER", str(8 + n))) for n in range(11)}
    return IRModule(functions)


def test_functions_that_are_through_are_told_of_while_others_wait():
    told: list[list[str]] = []
    with PassContext(opt_level=2), Target("llvm", num_threads=2):
        whole = tensor_pipeline()(several())
        parts = PartByPart(tensor_pipeline(), lambda functions: told.append([f.name for f in functions]))(several())
    assert len(told) > 2 and sorted(name for names in told for name in names) == sorted(
        gv.name for gv in whole.functions
    )
    for gv, function in whole.functions.items():
        assert structural_equal(function, parts[gv.name])


def test_who_watches_sees_each_pass_on_the_whole_module():
    seen: list[int] = []
    told: list[object] = []
    with (
        PassContext(trace=lambda mod, info, is_before: seen.append(len(mod.functions))),
        Target("llvm", num_threads=2),
    ):
        PartByPart(tensor_pipeline(), told.append)(several())
    assert set(seen) == {11} and not told


@pytest.mark.parametrize(
    "name",
    [
        *("TransposeTiles", "UnmaskRegisters", "CommonSubexprElim", "HoistInvariant", "StorageRewrite", "DotProduct"),
        *("InterleaveStores", "PrefetchPanels", "PrefetchEpilogue", "LowerIntrin", "RemoveNoOp", "VerifyMemory"),
    ],
)
def test_a_pass_with_nothing_to_do_gives_back_the_very_function(name):
    # So that what the nodes keep of what is in them holds for the passes that follow.
    func = parse("""
    primfunc @f(A: Buffer[(4000000,), float32], B: Buffer[(4000000,), float32], n: int64) {
      for i in parallel(100) {
        for j in range(25) {
          B[ramp(i * 400 + j * 16, 1, 16)] = A[ramp(i * 400 + j * 16, 1, 16)] + broadcast(1.0, 16)
        }
        if i < n {
          B[i] = A[i + 1] * 2.0
        }
      }
    }
    """)
    mod = IRModule({"f": func})
    with Target("llvm", num_threads=2):
        assert get_pass(name)(mod)["f"] is func
