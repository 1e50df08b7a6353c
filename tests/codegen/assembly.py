"""Read machine code: find the innermost loops of assembly text, and match their instructions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tilewright import graphir as gi
from tilewright.codegen.llvm import compile_module
from tilewright.passes.context import PassContext
from tilewright.passes.pipelines import STAGES
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

_LABEL = re.compile(r"^(\.L\w+):")
_BRANCH = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s(?:.*\s)?(\.L\w+)\s*$")


@dataclasses.dataclass(frozen=True)
class InstructionSet:
    """One instruction set, with patterns of its instructions.

    Attributes:
        target: one thread, so that loops are in one function.
        multiply_add: what sums of float32 products are made of: all of them occur.
        arithmetic: float32 arithmetic on a whole register.
        scalar: float32 arithmetic on one element.
        stack_store: a vector register written to the stack.
    """

    name: str
    target: Target
    multiply_add: tuple[str, ...]
    arithmetic: str
    scalar: str
    stack_store: str


def _x86(name: str, mcpu: str, prefix: str, register: str, multiply_add: tuple[str, ...]) -> InstructionSet:
    operation = rf"{prefix}(?:fn?m\w+|add|sub|mul|div|max|min|sqrt)"
    return InstructionSet(
        name,
        Target("llvm", mcpu=mcpu, num_threads=1),
        multiply_add,
        rf"^{operation}ps\s.*%{register}\d+$",
        rf"^{operation}ss\s",
        r"^v?mov\w+\s+%[xyz]mm\d+, -?\d*\(%r[sb]p\)",
    )


INSTRUCTION_SETS = (
    _x86("avx512", "x86-64-v4", "v", "zmm", (r"^vfmadd\d+ps\s.*%zmm\d+",)),
    _x86("avx2", "x86-64-v3", "v", "ymm", (r"^vfmadd\d+ps\s.*%ymm\d+",)),
    _x86("sse4.2", "x86-64-v2", "", "xmm", (r"^mulps\s.*%xmm\d+", r"^addps\s.*%xmm\d+")),
    InstructionSet(
        "neon",
        Target("llvm", mtriple="aarch64-unknown-linux-gnu", num_threads=1),
        (r"^fmla\s+v\d+\.4s",),
        r"^f(?:mla|mls|add|sub|mul|div|max|min|sqrt)\w*\s+v\d+\.4s",
        r"^f(?:madd|msub|add|sub|mul|div|max|min|sqrt)\w*\s+s\d+",
        r"^st\w+\s+q\d+.*\[(?:sp|x29)",
    ),
)


def lowered_kernels(function: gi.Function, target: Target, opt_level: int = 3) -> list[PrimFunc]:
    """The kernels of a model for a target that need not be this machine's."""
    mod = gi.IRModule.from_expr(function)
    with PassContext(opt_level=opt_level) as ctx, target:
        for pipeline in STAGES.values():
            mod = pipeline(target)(mod, ctx)
    return [func for func in mod.functions.values() if isinstance(func, PrimFunc) and func.name != "main"]


def innermost_loops(assembly: str) -> list[list[str]]:
    """Return the instructions of each loop that contains no other: from a label to the branch back to it."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        branch = _BRANCH.match(line)
        if branch and branch[1] in labels:
            spans.append((labels[branch[1]], number))
    inner = [
        (first, last)
        for first, last in spans
        if not any((a, b) != (first, last) and first <= a and b <= last for a, b in spans)
    ]
    text = [[line.strip() for line in lines[first : last + 1]] for first, last in inner]
    return [[line for line in loop if line and line[0] not in ".#"] for loop in text]


def matching(pattern: str, loop: Sequence[str]) -> list[str]:
    """The instructions of a loop that match a pattern."""
    return [line for line in loop if re.search(pattern, line)]


def hot_loop(kernel: PrimFunc, isa: InstructionSet) -> list[str]:
    """Return the innermost loop with most arithmetic, on vectors or on scalars."""
    loops = innermost_loops(compile_module([kernel], isa.target).assembly)
    assert loops, f"{kernel.name} has no loop"
    return max(loops, key=lambda loop: len(matching(isa.arithmetic, loop)) + len(matching(isa.scalar, loop)))
