"""Connect the lines of generated code: machine instructions with LLVM IR, and LLVM IR with statements of loops.

LLVM itself carries the number of each line of its IR to the machine instructions, as debug information does with the
lines of a source file: the text is compiled once more with a location for each instruction, and the ``.loc`` directives
of the assembly are read. The instructions are those of the build, as debug information does not change them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from tilewright.codegen.llvm.compile import Effort, assembly_of
from tilewright.codegen.llvm.module import ModuleEmitter
from tilewright.codegen.llvm.text import Makers, maker_of
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import PrimFunc, Stmt
from tilewright.tensorir.target import Target

_METADATA = re.compile(r"^!(\d+) = ")
_LOCATION = re.compile(r"\s*\.loc\s+\d+\s+(\d+)\s")


@dataclasses.dataclass(frozen=True)
class TracedCode:
    """Generated code whose lines know where they come from.

    Attributes:
        llvm_ir: the LLVM IR.
        statements: for each of its lines the statement that it was emitted for; None for declarations and the like.
        assembly: the assembly text.
        instructions: for each of its lines the number of the line of ``llvm_ir``, from 0; None for directives.
    """

    llvm_ir: str
    statements: Sequence[Stmt | None]
    assembly: str
    instructions: Sequence[int | None]


def trace_code(functions: Sequence[PrimFunc], target: Target) -> TracedCode:
    """Generate code for ``functions`` as :func:`.compile.compile_module` does, with the origin of each line.

    Raises:
        CodegenError: a program contains something that cannot be expressed; the place is underlined.
    """
    emitter = ModuleEmitter(functions, target, [func.name for func in functions], traced=True)
    llvm_ir = emitter.emit()
    effort = Effort.of(functions)
    assembly = assembly_of(llvm_ir, target, effort)
    try:
        located = assembly_of(_with_locations(llvm_ir), target, effort)
    except CodegenError:  # user-written LLVM IR may hold what this module does not expect
        located = ""
    lines = assembly.splitlines()
    return TracedCode(llvm_ir, _statements(llvm_ir, emitter.text.makers), assembly, _lines_of(lines, located))


def _statements(llvm_ir: str, makers: dict[str, Makers]) -> list[Stmt | None]:
    found: list[Stmt | None] = []
    own: Makers = {}
    for line in llvm_ir.splitlines():
        if line.startswith("define "):
            own = makers.get(line, {})
        found.append(maker_of(line, own))
    return found


def _with_locations(llvm_ir: str) -> str:
    """Add to each instruction the number of its line, from 1."""
    lines = llvm_ir.splitlines()
    free = 1 + max([int(found[1]) for line in lines if (found := _METADATA.match(line))], default=-1)
    unit, file, kind, flags = (f"!{free + number}" for number in range(4))
    added = [
        f"!llvm.dbg.cu = !{{{unit}}}",
        f"!llvm.module.flags = !{{{flags}}}",
        f"{unit} = distinct !DICompileUnit(language: DW_LANG_C, file: {file}, emissionKind: LineTablesOnly)",
        f'{file} = !DIFile(filename: "kernel.ll", directory: "")',
        f"{kind} = !DISubroutineType(types: !{{}})",
        f'{flags} = !{{i32 2, !"Debug Info Version", i32 3}}',
    ]
    free += 4
    scope = ""
    for number, line in enumerate(lines):
        if line.startswith("define ") and line.endswith("{"):
            scope, free = f"!{free}", free + 1
            added.append(
                f'{scope} = distinct !DISubprogram(name: "f{number}", file: {file}, line: {number + 1}, type: {kind}, '
                f"unit: {unit}, spFlags: DISPFlagDefinition)"
            )
            lines[number] = f"{line[:-1]}!dbg {scope} {{"
        elif line == "}":
            scope = ""
        elif scope and line.startswith("  ") and " = alloca " not in line:
            added.append(f"!{free} = !DILocation(line: {number + 1}, column: 1, scope: {scope})")
            lines[number] = f"{line}, !dbg !{free}"
            free += 1
    return "\n".join([*lines, *added]) + "\n"


def _lines_of(assembly: Sequence[str], located: str) -> list[int | None]:
    """Find the lines of ``assembly`` among those of ``located``, which has directives between them; nothing where they
    are not there in this order."""
    found: list[int | None] = [None] * len(assembly)
    place, current = 0, None
    for line in located.splitlines():
        directive = _LOCATION.match(line)
        if directive:
            current = int(directive[1]) - 1 if int(directive[1]) else None
        elif place < len(assembly) and line == assembly[place]:
            stripped = line.strip()
            if line.startswith("\t") and not stripped.startswith((".", "#")):
                found[place] = current
            elif line and not line[0].isspace() and not line.startswith("."):
                current = None  # a new function
            place += 1
    return found if place == len(assembly) else [None] * len(assembly)
