"""The width of vectors, read from assembly: of lines written by hand, and of what compilers make."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import numba_
from tilewright.codegen.llvm import compile_module
from tilewright.codegen.vector_width import vector_bits
from tilewright.graphir import parse
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.target import Target


@pytest.mark.parametrize(
    ("line", "bits"),
    [
        ("\taddps\t%xmm1, %xmm0", 128),
        ("\tvaddps\t(%rdi,%rax,4), %ymm0, %ymm0", 256),
        ("\tvfmadd231pd\t%zmm1, %zmm2, %zmm0", 512),
        ("\tvfnmadd213ps\t(%rsi), %ymm2, %ymm0", 256),
        ("\tvmulps\t(%rsi){1to16}, %zmm1, %zmm0", 512),
        ("\tvpaddd\t%ymm1, %ymm2, %ymm3", 256),
        ("\tpmaddwd\t%xmm1, %xmm2", 128),
        ("\tvpmulld\t%xmm1, %xmm2, %xmm3", 128),
        ("\tvsqrtpd\t%ymm1, %ymm0", 256),
        ("\tvaddss\t%xmm1, %xmm2, %xmm0", 0),  # one number
        ("\tvfmadd231sd\t%xmm1, %xmm2, %xmm0", 0),
        ("\tvmovups\t%ymm1, (%rdi)", 0),  # moves
        ("\tvxorps\t%xmm0, %xmm0, %xmm0", 0),  # makes a zero
        ("\tvcvtps2pd\t%xmm0, %ymm0", 0),
        ("\taddq\t$8, %rax", 0),
        ("addps_loop:", 0),
        ("\t# vaddps %ymm0", 0),
        ("\tfadd\tv0.4s, v1.4s, v2.4s", 128),
        ("\tfmla\tv0.2d, v1.2d, v2.d[0]", 128),
        ("\tadd\tv0.8b, v1.8b, v2.8b", 64),
        ("\tsmax\tv0.8h, v1.8h, v2.8h", 128),
        ("\tfadd.4s\tv0, v1, v2", 128),  # Apple's
        ("\tfadd\ts0, s1, s2", 0),
        ("\tadd\tx0, x1, x2", 0),
        ("\tldr\tq0, [x1]", 0),
    ],
)
def test_instructions(line: str, bits: int) -> None:
    assert vector_bits(f"main:\n{line}\n\tretq\n") == bits


def test_most_instructions_decide() -> None:
    narrow, wide = "\tvaddps\t%xmm1, %xmm2, %xmm3\n", "\tvmulps\t%ymm1, %ymm2, %ymm3\n"
    assert vector_bits(narrow + 2 * wide) == 256
    assert vector_bits(2 * narrow + wide) == 128
    assert vector_bits(narrow + wide) == 256
    assert vector_bits("") == 0


SUM = """
primfunc @add(x: Buffer[(1024,), float32], y: Buffer[(1024,), float32]) {
  for i in range(1024) {
    y[i] = x[i] * x[i] + y[i]
  }
}
"""
CHAIN = """
primfunc @chain(y: Buffer[(1024,), float32]) {
  for i in range(1023) {
    y[i + 1] = y[i] / (y[i + 1] + y[i])
  }
}
"""
PARALLEL = """
primfunc @parallel_add(x: Buffer[(4, 256), float32], y: Buffer[(4, 256), float32]) {
  for i in parallel(4) {
    for j in range(256) {
      y[i, j] = x[i, j] * x[i, j] + y[i, j]
    }
  }
}
"""


def test_numbas_loops_have_the_vectors_that_their_assembly_shows() -> None:
    functions = [f for f in parse(SUM + CHAIN + PARALLEL).functions.values() if isinstance(f, PrimFunc)]
    module = numba_.compile_module(functions, Target("numba", num_threads=2))
    assert module.vector_bits("add") == 0  # not compiled so far
    arrays = [np.ones(1024, np.float32) for _ in range(2)]
    module.call("add", *arrays)
    module.call("parallel_add", *[array.reshape(4, 256) for array in arrays])
    module.call("chain", arrays[0])
    assert module.vector_bits("add") in (128, 256, 512)
    assert module.vector_bits("parallel_add") in (128, 256, 512)
    assert module.vector_bits("chain") == 0  # each number needs the one before


def test_a_function_that_python_runs_has_no_vectors() -> None:
    text = SUM + "primfunc @main(x: Buffer[(1024,), float32], y: Buffer[(1024,), float32]) {\n  @add(x, y)\n}"
    text = text.replace("@add(x, y)", "@add(address_of(x[0]), address_of(y[0]))")
    functions = [f for f in parse(text).functions.values() if isinstance(f, PrimFunc)]
    module = numba_.compile_module(functions, Target("numba", num_threads=1))
    module.call("main", np.ones(1024, np.float32), np.ones(1024, np.float32))
    assert module.vector_bits("main") == 0 and module.vector_bits("add") > 0


def test_another_main_takes_the_compiled_functions_over() -> None:
    functions = [f for f in parse(SUM + CHAIN).functions.values() if isinstance(f, PrimFunc)]
    module = numba_.compile_module(functions, Target("numba", num_threads=1))
    module.call("add", *[np.ones(1024, np.float32) for _ in range(2)])
    other = parse(CHAIN.replace("/", "*"))["chain"]
    assert isinstance(other, PrimFunc)
    again = module.with_function(other)
    assert again.functions["add"] is module.functions["add"]
    assert again.functions["chain"] is not module.functions["chain"]
    y = np.ones(1024, np.float32)
    again.call("chain", y)
    assert y[1] == 2


@pytest.mark.parametrize(("mcpu", "bits"), [("x86-64", 128), ("x86-64-v3", 256), ("x86-64-v4", 512)])
def test_vectors_of_loops_are_those_of_the_machine_code(mcpu: str, bits: int) -> None:
    """The two ways to know the width agree: from the loops' types, and from assembly."""
    lanes = bits // 32
    text = f"""
primfunc @f(x: Buffer[({lanes},), float32]) {{
  x[ramp(0, 1, {lanes})] = x[ramp(0, 1, {lanes})] + x[ramp(0, 1, {lanes})]
}}"""
    func = parse(text)["f"]
    assert isinstance(func, PrimFunc)
    target = Target("llvm", mcpu=mcpu, mtriple="x86_64-unknown-linux-gnu", num_threads=1)
    assert vector_bits(compile_module([func], target).assembly) == bits
