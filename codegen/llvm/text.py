"""Write LLVM IR as text: type names, constants, and a builder that numbers values.

Building text is several times faster than an object for every instruction, and unrolled kernels have thousands of them.
The builder reuses an equal pure instruction that dominates the place (local value numbering over structured control
flow), so that no LLVM pass has to look for common subexpressions.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np

from tilewright.codegen.llvm.innermost import Mark
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.stmt import Stmt

#: The statements that the lines of a function were emitted for: by the name of the result, or by the whole line.
Makers = dict[str, Stmt]

_ELEMENT_TYPES = {
    "bool": "i1",
    "float16": "half",
    "bfloat16": "i16",  # arithmetic happens in float32, and LLVM's own conversion instruction flushes denormals
    "float32": "float",
    "float64": "double",
    "handle": "ptr",
    "void": "void",
}
#: Constants whose bits are all zero.
_ZEROS = frozenset({"0", "false", "0xH0000", "0x0000000000000000", "zeroinitializer"})
#: LLVM 19 has a short form for vectors of equal constants, which make up half of a kernel's text.
_HAS_SPLATS = llvm.llvm_version_info[0] >= 19
#: Marks a stack slot that LLVM can split and promote to registers.
DIVISIBLE = " ; divisible"
#: The size in bytes of an instruction cache line.
_CODE_LINE = 64
_PLAIN_NAME = re.compile(r"[A-Za-z$._][A-Za-z0-9$._]*")
#: LLVM cuts names off after 1,024 characters, also where they differ behind these.
_LONGEST_HINT = 200
_SUFFIXES = {"float16": "f16", "float32": "f32", "float64": "f64"}


@functools.cache
def value_type(dtype: DataType) -> str:
    """Return LLVM's type of a value in registers: a bool is one bit there."""
    element = _ELEMENT_TYPES.get(dtype.element) or f"i{dtype.bits}"
    return element if dtype.lanes == 1 else f"<{dtype.lanes} x {element}>"


@functools.cache
def memory_type(dtype: DataType) -> str:
    """Return LLVM's type of a value in memory: a bool is one byte there."""
    if not dtype.is_bool:
        return value_type(dtype)
    return "i8" if dtype.lanes == 1 else f"<{dtype.lanes} x i8>"


@functools.cache
def integer_type(bits: int, lanes: int) -> str:
    """Return the type of an integer, or of a vector of them."""
    return f"i{bits}" if lanes == 1 else f"<{lanes} x i{bits}>"


@functools.cache
def suffix(dtype: DataType) -> str:
    """Return the type as in the name of an overloaded intrinsic: ``v16f32``, ``i64``."""
    element = _SUFFIXES.get(dtype.element) or ("i1" if dtype.is_bool else f"i{dtype.bits}")
    return element if dtype.lanes == 1 else f"v{dtype.lanes}{element}"


def float_constant(value: float, dtype: DataType) -> str:
    """Return a floating-point constant of the element type of ``dtype``, exact to the bit."""
    name = str(dtype.element)
    if name == "bfloat16":
        return str(int(np.asarray(value, dtype.numpy).view(np.uint16)))
    if name == "float16":
        return f"0xH{int(np.asarray(value, np.float16).view(np.uint16)):04X}"
    if name == "float32":
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(value: float | int, dtype: DataType) -> str:
    """Return a constant of any type; a vector has the same value in every lane."""
    if dtype.is_float:
        text = _float_text(struct.pack("<d", value), dtype)
    elif dtype.is_bool:
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return text if dtype.lanes == 1 else uniform_vector(text, dtype)


@functools.cache
def _float_text(bits: bytes, dtype: DataType) -> str:
    """Return :func:`float_constant` of the bits of a float64: zeros have signs, and NaN is no key for a cache."""
    return float_constant(struct.unpack("<d", bits)[0], dtype)


@functools.lru_cache(4096)
def uniform_vector(scalar: str, dtype: DataType) -> str:
    """Return the vector constant of type ``dtype`` with the constant ``scalar`` in every lane."""
    if scalar in _ZEROS:
        return "zeroinitializer"
    if _HAS_SPLATS:
        return f"splat ({value_type(dtype.element)} {scalar})"
    return constant_vector([scalar] * dtype.lanes, value_type(dtype.element))


def constant_vector(elements: Sequence[str], element_type: str) -> str:
    """Return a vector constant of these elements."""
    return "<" + ", ".join([f"{element_type} {element}" for element in elements]) + ">"


def global_name(name: str) -> str:
    """Return ``@name`` with quotes and escapes where LLVM's syntax needs them.

    Raises:
        CodegenError: the name cannot be that of a symbol.
    """
    if _PLAIN_NAME.fullmatch(name):
        return f"@{name}"
    if "\0" in name or any(0xD800 <= ord(char) <= 0xDFFF for char in name):
        raise CodegenError(f"function {name!r}: the name of a symbol can have neither zeros nor lone surrogates")
    return f'@"{_escaped(name.encode())}"'


def _escaped(content: bytes) -> str:
    """Return bytes as LLVM's syntax writes them between quotes."""
    return "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in content)


class Module:
    """The declarations, metadata and helper functions that the functions of one module share.

    Args:
        converts_halves: whether the target has instructions between float16 and float32.
        traced: whether functions record the statements that their lines are for.

    Attributes:
        makers: these statements, by the first line of the function.
    """

    def __init__(self, converts_halves: bool = True, traced: bool = False) -> None:
        self.converts_halves = converts_halves
        self.traced = traced
        self.makers: dict[str, Makers] = {}
        self.declarations: dict[str, str] = {}
        self._operands: dict[str, str] = {}  # of declared functions, by name
        self.helpers: dict[str, str] = {}
        self._constants: dict[tuple[str, str], str] = {}  # in memory, by type and value
        self.functions: list[str] = []
        self.metadata: list[str] = [
            '!0 = !{!"llvm.loop.unroll.disable"}',
            '!1 = !{!"llvm.loop.vectorize.width", i32 1}',
            f'!2 = !{{!"llvm.loop.align", i32 {_CODE_LINE}}}',
        ]

    def declare(self, name: str, result: str, params: Sequence[str], attributes: str = "") -> str:
        """Declare an external function; return its name as an operand of ``call``."""
        known = self._operands.get(name)
        if known is not None:
            return known
        operand = self._operands[name] = global_name(name)
        if operand not in self.declarations:
            note = f" {attributes}" if attributes else ""
            self.declarations[operand] = f"declare {result} {operand}({', '.join(params)}){note}"
        return operand

    def c_string(self, text: str) -> str:
        """Define a constant C string; return the operand that is its address. Equal strings are one constant."""
        content = text.encode()
        operand = f"@string.{hashlib.sha256(content).hexdigest()[:16]}"
        kind = f"[{len(content) + 1} x i8]"
        self.helpers[operand] = f'{operand} = private unnamed_addr constant {kind} c"{_escaped(content)}\\00"'
        return operand

    def constant_data(self, kind: str, value: str, size: int) -> str:
        """Define a constant of ``size`` bytes, of LLVM's type ``kind``; return the operand that is its address."""
        if value in _ZEROS:
            kind, value = f"[{size} x i8]", "zeroinitializer"
        found = self._constants.get((kind, value))
        if found is None:
            found = self._constants[kind, value] = f"@constant.{len(self._constants)}"
            self.helpers[found] = f"{found} = private unnamed_addr constant {kind} {value}, align {_CODE_LINE}"
        return found

    def loop_metadata(self, innermost: bool) -> str:
        """Return the metadata of a new loop that tells LLVM to leave it as it is: schedules decide. Innermost loops are
        aligned to instruction cache lines: with their alignment left to chance, a product took a fifth longer while
        another thread was on the same core (a Zen 3, whose threads take turns at the cache of decoded instructions)."""
        number = len(self.metadata)
        aligned = ", !2" if innermost else ""
        self.metadata.append(f"!{number} = distinct !{{!{number}, !0, !1{aligned}}}")
        return f"!{number}"

    def text(self) -> str:
        """Return the text of the whole module."""
        parts = [*self.declarations.values(), "", *self.helpers.values(), *self.functions, *self.metadata]
        return "\n".join(parts) + "\n"


@functools.lru_cache(4096)
def _clean(hint: str) -> str:
    """Replace the characters of a hint that LLVM's names may not have."""
    cleaned = re.sub("[^A-Za-z0-9_]", "_", hint[:_LONGEST_HINT])
    return f"v{cleaned}" if cleaned[:1].isdigit() else cleaned  # %0.1 would be the value %0


class Scope(NamedTuple):
    """The knowledge of a builder in front of a scope, or of a copy of an unrolled body: the number of operands, and the
    keys that an enclosing copy forgets."""

    known: int
    of_copy: list[object]


class Builder:
    """Appends the instructions of one function.

    Every method returns the operand (``%t7`` or a constant) that holds the result.

    Attributes:
        makers: the statements that the lines are for, if the module is traced.
        known: the operands that may be used here, by their value: the text of a pure instruction, or what an emitter
            remembers (an expression). The last ones are forgotten at the end of a scope.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self.entry: list[str] = []  # stack slots: LLVM promotes those of the entry block
        self.lines: list[str] = []
        self.block = "entry"
        self.makers: Makers | None = {} if module.traced else None
        self._count = 0
        self.known: dict[object, str] = {}
        #: Keys that are forgotten at the end of the innermost copy of an unrolled body.
        self._of_copy: list[object] = []

    def fresh(self, hint: str = "t") -> str:
        """Return a new name for a value or a block, without its sigil."""
        self._count += 1
        return f"{_clean(hint)}.{self._count}"

    def emit(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def value(self, instruction: str, hint: str = "t") -> str:
        """Append an instruction whose result is computed anew each time (loads, calls with effects)."""
        self._count += 1
        name = f"%{_clean(hint)}.{self._count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def pure(self, instruction: str) -> str:
        """Append an instruction whose result depends only on its operands, or reuse an equal one that dominates this
        place."""
        found = self.known.get(instruction)
        if found is None:
            self._count += 1
            found = self.known[instruction] = f"%t.{self._count}"
            self.lines.append(f"  {found} = {instruction}")
        return found

    def keep_in_copy(self, what: object, operand: str) -> None:
        """Remember an operand that the next copy of an unrolled body computes anew."""
        self.known[what] = operand
        self._of_copy.append(what)

    def slot(self, type_text: str, alignment: int, hint: str = "slot", divisible: bool = False) -> str:
        """Allocate stack memory that lives as long as the function's frame; ``divisible``: LLVM can promote it to
        registers."""
        name = f"%{self.fresh(hint)}"
        self.entry.append(f"  {name} = alloca {type_text}, align {alignment}{DIVISIBLE if divisible else ''}")
        return name

    def label(self, name: str) -> None:
        """Start the basic block ``name``."""
        self.lines.append(f"{name}:")
        self.block = name

    def branch(self, target: str) -> None:
        """Branch to the block ``target``."""
        self.emit(f"br label %{target}")

    def branch_if(self, condition: str, then: str, otherwise: str, metadata: str = "") -> None:
        """Branch to one of two blocks."""
        note = f", !llvm.loop {metadata}" if metadata else ""
        self.emit(f"br i1 {condition}, label %{then}, label %{otherwise}{note}")

    def enter_scope(self) -> Scope:
        """Enter code that does not dominate what follows, or one copy of an unrolled body; return what
        :meth:`leave_scope` or :meth:`leave_copy` needs."""
        outer, self._of_copy = self._of_copy, []
        return Scope(len(self.known), outer)

    def leave_scope(self, scope: Scope) -> None:
        """Leave code that does not dominate what follows: its instructions are not reused."""
        forget_last = self.known.popitem
        for _ in range(len(self.known) - scope.known):
            forget_last()
        self._of_copy = scope.of_copy

    def leave_copy(self, scope: Scope) -> None:
        """Leave a copy of an unrolled body: the next one reuses its instructions, but not those of variables that each
        copy defines anew."""
        for thing in self._of_copy:
            del self.known[thing]
        self._of_copy = scope.of_copy

    def mark(self) -> Mark:
        """Return the current place."""
        return Mark(len(self.lines), self._count)

    def record(self, place: int, stmt: Stmt) -> None:
        """Record that the lines from ``place`` on are for ``stmt``, unless they are for a statement in it. Lines move
        when loops are finished, so that names tell them apart, not their places. Does nothing in a module that is not
        traced."""
        if self.makers is None:
            return
        for lines in self.lines[place:]:
            for line in lines.split("\n"):
                self.makers.setdefault(_key(line), stmt)

    def call(self, name: str, result: DataType, args: Sequence[tuple[str, str]]) -> str:
        """Emit a call of one of LLVM's pure intrinsics: ``args`` are pairs of type and operand."""
        kind = value_type(result)
        operand = self.module.declare(name, kind, [t for t, _ in args])
        return self.pure(f"call {kind} {operand}({', '.join([f'{t} {x}' for t, x in args])})")

    def splat(self, scalar: str, dtype: DataType) -> str:
        """Return a vector of type ``dtype`` with ``scalar`` in every lane."""
        if not scalar.startswith("%"):
            return uniform_vector(scalar, dtype)
        kind = value_type(dtype)
        first = self.pure(f"insertelement {kind} poison, {value_type(dtype.element)} {scalar}, i64 0")
        return self.pure(f"shufflevector {kind} {first}, {kind} poison, <{dtype.lanes} x i32> zeroinitializer")

    def element(self, vector: str, dtype: DataType, lane: int) -> str:
        """Return lane ``lane`` of a vector of type ``dtype``."""
        return self.pure(f"extractelement {value_type(dtype)} {vector}, i64 {lane}")

    def shuffle(self, vector: str, dtype: DataType, lanes: Sequence[int], other: str = "poison") -> str:
        """Return the chosen lanes of a vector of type ``dtype``, whose lanes are followed by those of ``other``."""
        kind = value_type(dtype)
        mask = constant_vector([str(lane) for lane in lanes], "i32")
        return self.pure(f"shufflevector {kind} {vector}, {kind} {other}, <{len(lanes)} x i32> {mask}")

    def select(self, condition: str, dtype: DataType, true: str, false: str, lanes: int | None = None) -> str:
        """Emit ``true if condition else false``; ``lanes`` are those of the condition where they differ from
        ``dtype``'s."""
        kind = value_type(dtype)
        bits = integer_type(1, dtype.lanes if lanes is None else lanes)
        return self.pure(f"select {bits} {condition}, {kind} {true}, {kind} {false}")

    def function(self, header: str) -> str:
        """Return the text of the finished function."""
        if self.makers is not None:
            self.module.makers[f"{header} {{"] = self.makers
        return "\n".join([f"{header} {{", "entry:", *self.entry, *self.lines, "}", ""])


def _key(line: str) -> str:
    """Return what tells a line from the others of its function: the name of its result, or all of it."""
    name, is_value, _ = line.partition(" = ")
    return name if is_value else line


def maker_of(line: str, makers: Makers) -> Stmt | None:
    """Return the statement that a line of a function was emitted for; None if it is for none. Names that the finish of
    loops derives from others (``%t.5.next``) belong to the same statement."""
    key = _key(line)
    while key not in makers and " = " in line and "." in key:
        key = key.rpartition(".")[0]
    return makers.get(key)
