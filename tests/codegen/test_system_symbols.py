"""Object code for other systems refers to nothing that the run time does not supply there."""

from __future__ import annotations

import itertools

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as tw
from tests.codegen.object_symbols import undefined_symbols
from tilewright import graphir as gi
from tilewright.codegen.llvm import clock, compile_module
from tilewright.codegen.llvm.compile import create_target_machine
from tilewright.codegen.llvm.emission import emit_object
from tilewright.codegen.llvm.module import PREFIX
from tilewright.codegen.llvm.system_symbols import system_addresses, system_symbols
from tilewright.codegen.llvm.team_ir import (
    FORK,
    PARALLEL_FOR,
    RUN_TEAM,
    SHARED_TASK_NAMES,
    THREAD_LIMIT,
    YIELD,
    team_ir,
)
from tilewright.tensorir import parse
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.target import Target

#: Systems with processors: the least that the system's programs may assume, where LLVM calls most, and a newer one.
SYSTEMS = [
    ("aarch64-unknown-linux-gnu", "generic"),
    ("x86_64-unknown-linux-gnu", "x86-64"),
    ("x86_64-pc-windows-msvc", "x86-64"),
    ("x86_64-pc-windows-msvc", "x86-64-v3"),
    ("x86_64-w64-windows-gnu", "x86-64"),
    ("aarch64-pc-windows-msvc", "generic"),
    ("x86_64-apple-macosx10.15", "x86-64-v2"),
    ("arm64-apple-macosx11.0", "apple-m1"),
]
ON_EACH = pytest.mark.parametrize(("mtriple", "mcpu"), SYSTEMS, ids=lambda value: value)
FLOATS = ("float16", "bfloat16", "float32", "float64")


def undefined(text: str, target: Target, full: bool = False) -> set[str]:
    """The undefined symbols of the object code of functions of loops."""
    function = parse(text)
    return undefined_symbols(compile_module([function.with_attr("llvm_vectorize", full)], target).object_bytes)


@ON_EACH
@pytest.mark.parametrize("full", [False, True], ids=["scheduled", "all of LLVM's passes"])
def test_every_intrinsic_on_floats_links(mtriple: str, mcpu: str, full: bool) -> None:
    target = Target("llvm", mtriple=mtriple, mcpu=mcpu, num_threads=1)
    names = {name: found.arity for name, found in INTRINSICS.items() if found.in_c_library}
    names |= {"sqrt": 1, "rsqrt": 1, "floor": 1, "ceil": 1, "trunc": 1, "round": 1, "fma": 3, "sigmoid": 1}
    lines = []
    for dtype in FLOATS:  # the half types are computed as the others
        values = (
            []
            if "16" in dtype
            else [(f"{name}({', '.join([f'x_{dtype}[{{0}}]'] * arity)})", 2) for name, arity in names.items()]
        )
        values.append((f"sin(x_{dtype}[i]) + cos(x_{dtype}[i])", 1))  # LLVM knows a function for both: sincos
        values += [(f"cast({dtype}{{1}}, x_{other}[{{0}}])", 2) for other in FLOATS if other != dtype]
        places = itertools.count()
        for value, forms in values:
            for index, lanes in (("i", ""), ("ramp(8 * i, 1, 8)", "x8"))[:forms]:
                offset = 64 * next(places)
                place = f"i + {offset}" if not lanes else f"ramp(8 * i + {offset}, 1, 8)"
                lines.append(f"y_{dtype}[{place}] = {value.format(index, lanes)}")
    buffers = ", ".join(f"x_{dtype}: Buffer[(64,), {dtype}], y_{dtype}: Buffer[(9999,), {dtype}]" for dtype in FLOATS)
    body = "\n    ".join(lines)
    found = undefined(f"primfunc @f({buffers}) {{\n  for i in range(8) {{\n    {body}\n  }}\n}}", target, full)
    assert "atan2" in found  # the file was read
    assert found <= system_symbols(mtriple)


LARGE_FRAME = """
primfunc @f(x: Buffer[(65536,), float32], y: Buffer[(65536,), float32], n: int64) {
  allocate t: Buffer[(65536,), float32, stack]
  for i in range(n) { t[i] = x[i] }
  for i in range(n) { y[i] = t[65535 - i] }
}
"""
#: LLVM calls functions for the loops.
COPIES = """
primfunc @f(x: Buffer[(65536,), float32], y: Buffer[(65536,), float32], z: Buffer[(65536,), float32], n: int64) {
  for i in range(n) { y[i] = x[i] }
  for j in range(n) { z[j] = 0.0 }
}
"""
INTEGERS = """
primfunc @f(x: Buffer[(64,), int64], y: Buffer[(64,), int64], u: Buffer[(64,), uint64], f: Buffer[(64,), float64]) {
  for i in range(64) {
    y[i] = x[i] // 7 + x[i] % y[i] + popcount(x[i]) + count_leading_zeros(x[i])
    u[i] = cast(uint64, f[i]) // u[i]
    f[i] = cast(float64, u[i])
  }
}
"""


@ON_EACH
@pytest.mark.parametrize("text", [LARGE_FRAME, COPIES, INTEGERS], ids=["large frame", "copies", "integers"])
def test_frames_copies_and_integers_link(mtriple: str, mcpu: str, text: str) -> None:
    target = Target("llvm", mtriple=mtriple, mcpu=mcpu, num_threads=1)
    assert undefined(text, target, full=True) <= system_symbols(mtriple)


@ON_EACH
@pytest.mark.parametrize("profiling", [False, True], ids=["teams", "profiled teams"])
def test_functions_of_teams_link(mtriple: str, mcpu: str, profiling: bool) -> None:
    machine = create_target_machine(Target("llvm", mtriple=mtriple, mcpu=mcpu))
    module = llvm.parse_assembly(team_ir(mtriple.split("-")[0], True, profiling), llvm.create_context())
    module.triple, module.data_layout = mtriple, str(machine.target_data)
    supplied = {PARALLEL_FOR, THREAD_LIMIT, YIELD} | ({clock.CLOCK} if profiling else set())
    found = undefined_symbols(emit_object(machine, module))
    assert supplied <= found <= supplied | system_symbols(mtriple)


@ON_EACH
def test_a_network_links(mtriple: str, mcpu: str) -> None:
    """The objects of a model define what they refer to in each other; the rest is that of teams and of the system."""
    x, weight = gi.var("x", shape=("n", 3, 33, 35)), gi.const(np.ones((20, 3, 3, 3), np.float32))
    body = gi.nn.softmax(gi.sum(gi.nn.gelu(gi.nn.conv2d(x, weight)), axis=(2, 3)))
    model = tw.build(gi.Function([x], body), target=Target("llvm", mtriple=mtriple, mcpu=mcpu, num_threads=2))
    (segment,) = model._built.segments
    code = segment.stored().code
    found = set[str]().union(*map(undefined_symbols, code.objects))
    kernels = {PREFIX + name for name, _, _ in code.symbols}
    assert kernels <= found <= kernels | {FORK, RUN_TEAM, *SHARED_TASK_NAMES} | system_symbols(mtriple)


@pytest.mark.parametrize("name", sorted(system_symbols(llvm.get_process_triple())))
def test_this_system_has_the_function(name: str) -> None:
    assert system_addresses(name.encode())[name]
