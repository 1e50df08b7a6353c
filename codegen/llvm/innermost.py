"""Strength-reduce the addresses of innermost loops, and of the loops around them: hoist loop-invariant numbers, and
step pointers instead of recomputing addresses.

LLVM's strength reduction does the same, but treats each address as a sum of everything that enters it, and searches for
the parts to keep in registers: a third of the time that LLVM takes. Here the structure of the sums is known. (J. Cocke,
K. Kennedy: "An algorithm for reduction of operator strength", 1977.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: Loops of fewer lines are left as they are: LLVM has little to search there, and a loop around them may count in
#: steps. Loops over a pooling window have 10 lines and were a sixth slower.
_LEAST_LINES = 32
#: The weight in lines of a value carried from iteration to iteration: it occupies a register that addresses then cannot
#: have, and loops that carry more do more work.
_CARRIED_LINES = 2
#: More pointers than these would spill.
_MOST_POINTERS = 10
#: Instructions that are hoisted beside sums, products and addresses: quotients, selects, bounds. They are hoisted only
#: if each iteration computes them, as a condition may keep a divisor from being zero.
_OTHER = re.compile(
    r"(?:[us](?:div|rem) i64|icmp \w+ i64|select i1 \S+ i64|call i64 @llvm\.[su](?:min|max)\.i64\(i64) "
)
_OPERAND = re.compile(r"%[\w.]+")


class Mark(NamedTuple):
    """A place in a function.

    Attributes:
        line: the number of lines before it.
        names: the number of names given before it.
    """

    line: int
    names: int


class Counted(NamedTuple):
    """An emitted loop.

    Attributes:
        start: the place in front of the jump into the loop.
        variable: the operand that holds the induction variable.
        kind: the type of the variable.
        first: its first value.
        following: its next value.
        before: the preheader, which jumps into the loop.
        head: the place of the line of the variable's phi.
        increment: the place of the line that increments the variable, in the loop's last block.
        latch: the loop's last block.
        carried: the number of other values that the loop carries from iteration to iteration.
    """

    start: Mark
    variable: str
    kind: str
    first: str
    following: str
    before: str
    head: int
    increment: int
    latch: str
    carried: int


class _Sum(NamedTuple):
    """A sum of a constant and of multiples of operands; each operand occurs once."""

    terms: tuple[tuple[str, int], ...]
    constant: int

    def times(self, factor: int) -> _Sum:
        if factor == 0:
            return _NOTHING
        return _Sum(tuple([(operand, weight * factor) for operand, weight in self.terms]), self.constant * factor)

    def plus(self, other: _Sum) -> _Sum:
        constant = self.constant + other.constant
        if not self.terms or not other.terms:
            return _Sum(self.terms or other.terms, constant)
        weights = dict(self.terms)
        for operand, weight in other.terms:
            weights[operand] = weights.get(operand, 0) + weight
        return _Sum(tuple(sorted([term for term in weights.items() if term[1]])), constant)


_NOTHING = _Sum((), 0)


class _Linear(NamedTuple):
    """``fixed + variable * step`` of operands that are known before the loop."""

    fixed: _Sum
    step: _Sum


def _number(operand: str) -> int:
    """Return the number in a name that ``Builder.fresh`` made, or that was derived from one (``%t.7.sum``) when a loop
    inside was finished; -1 for other names and constants."""
    if not operand.startswith("%"):
        return -1
    parts = operand.split(".", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else -1


def _fixed(operand: str) -> _Linear:
    """Return an operand that is known before the loop, or a constant."""
    if operand.lstrip("-").isdecimal():
        return _Linear(_Sum((), int(operand)), _NOTHING)
    return _Linear(_Sum(((operand, 1),), 0), _NOTHING)


class _Pointer(NamedTuple):
    """An address in a loop that is linear in the induction variable: ``base`` plus ``offset`` elements of a type."""

    name: str
    element: str
    base: str
    offset: _Linear

    @property
    def shared(self) -> tuple[object, ...]:
        """The key that addresses share which differ by a constant."""
        return self.element, self.base, self.offset.fixed.terms, self.offset.step


class _Finisher:
    """The findings about a loop: about all of an innermost one, about the first block of one around it.

    Attributes:
        moved: loop-invariant numbers, by name.
        parts: the operands of such numbers.
        linear: the sums and products that are linear in the induction variable.
        pointers: the linear addresses, by the places of their lines.
        numbers: the places of the linear numbers that quotients, comparisons or selects use, by name.
        before: instructions that compute the start of pointers in front of the loop.
    """

    def __init__(self, lines: list[str], loop: Counted, innermost: bool = True) -> None:
        self.lines = lines
        self.innermost = innermost
        self.loop = loop
        self.moved: dict[str, str] = {}
        self.parts: set[str] = set()
        self.linear: dict[str, _Linear] = {loop.variable: _Linear(_NOTHING, _Sum((), 1))}
        self.pointers: dict[int, _Pointer] = {}
        self.numbers: dict[str, int] = {}
        self.before: list[str] = []
        self._made: dict[str, int] = {}
        self._always = True
        for place, line in enumerate(lines[loop.start.line :], loop.start.line):
            if line.endswith(":"):
                if place > loop.head:  # another block
                    if not innermost:
                        break
                    self._always = False
            elif "i64" in line:
                name, _, instruction = line.partition(" = ")
                look_at = _LOOKS.get(instruction[:4])
                if look_at is not None:
                    look_at(self, place, name[2:], instruction)

    def _sum(self, place: int, name: str, instruction: str) -> None:
        *_, type_text, a, b = instruction.split(" ")
        if type_text != "i64" or "<" in instruction:
            return  # narrower than an address, or a vector
        a = a[:-1]
        is_known_a, is_known_b = self._known(a), self._known(b)
        if is_known_a and is_known_b:
            self._move(place, name, instruction, (a, b))
            return
        x = _fixed(a) if is_known_a else self.linear.get(a)
        y = _fixed(b) if is_known_b else self.linear.get(b)
        made = None if x is None or y is None else self._combined(instruction[:4], x, y)
        if made is not None:
            self.linear[name] = made
            self._made[name] = place

    def _freeze(self, place: int, name: str, instruction: str) -> None:
        if not instruction.startswith("freeze i64 "):
            return
        operand = instruction[len("freeze i64 ") :]
        if self._known(operand):
            self._move(place, name, instruction, (operand,))
        elif operand in self.linear:
            self.linear[name] = self.linear[operand]

    def _other(self, place: int, name: str, instruction: str) -> None:
        if not self._always or not _OTHER.match(instruction):
            return
        operands = _OPERAND.findall(instruction)
        if all(self._known(operand) for operand in operands):
            self._move(place, name, instruction, operands)
            if instruction.startswith("icmp"):
                self.parts.add(name)  # a condition, no number
        else:
            for operand in operands:
                if operand in self._made and operand != self.loop.following:
                    self.numbers[operand] = self._made[operand]

    def _move(self, place: int, name: str, instruction: str, operands: Iterable[str]) -> None:
        self.moved[name] = instruction
        self.parts.update(operands)
        self.lines[place] = ""

    def _address(self, place: int, name: str, instruction: str) -> None:
        *_, element, _, base, index_type, index = instruction.split(" ")
        offset = self.linear.get(index)
        if offset is not None and index_type == "i64" and self._known(base[:-1]):
            self.pointers[place] = _Pointer(name, element[:-1], base[:-1], offset)

    def _known(self, operand: str) -> bool:
        """Return whether an operand is known before the loop, or will be."""
        return operand in self.moved or _number(operand) <= self.loop.start.names

    def _combined(self, operation: str, x: _Linear, y: _Linear) -> _Linear | None:
        if operation != "mul ":
            sign = 1 if operation == "add " else -1
            return _Linear(x.fixed.plus(y.fixed.times(sign)), x.step.plus(y.step.times(sign)))
        if x.step == _NOTHING:
            x, y = y, x
        if y.step != _NOTHING:
            return None
        if not y.fixed.terms:
            return _Linear(x.fixed.times(y.fixed.constant), x.step.times(y.fixed.constant))
        return _Linear(self._product(x.fixed, y.fixed), self._product(x.step, y.fixed))

    def _product(self, x: _Sum, y: _Sum) -> _Sum:
        """Return the product of two sums, as one operand unless one of them is a constant."""
        if not x.terms:
            return y.times(x.constant)
        if not y.terms:
            return x.times(y.constant)
        return _Sum(((self._write(f"mul i64 {self._operand(x)}, {self._operand(y)}"), 1),), 0)

    def _write(self, instruction: str) -> str:
        name = f"{self.loop.variable}.before{len(self.before)}"
        self.before.append(f"  {name} = {instruction}")
        return name

    def _operand(self, value: _Sum) -> str:
        """Emit a sum in front of the loop; return the operand that holds it."""
        made = ""
        for operand, weight in value.terms:
            term = operand if weight == 1 else self._write(f"mul i64 {operand}, {weight}")
            made = self._write(f"add i64 {made}, {term}") if made else term
        if made and value.constant:
            return self._write(f"add i64 {made}, {value.constant}")
        return made or str(value.constant)

    def move(self) -> None:
        """Move the findings in front of the loop."""
        loop, lines = self.loop, self.lines
        hoisted = []
        for name, instruction in self.moved.items():
            if name in self.parts or instruction.startswith("freeze"):
                hoisted.append(f"  {name} = {instruction}")
            else:
                hoisted += [f"  {name}.sum = {instruction}", f"  {name} = freeze i64 {name}.sum"]
        shared: dict[tuple[object, ...], list[int]] = {}
        for place, pointer in self.pointers.items():
            shared.setdefault(pointer.shared, []).append(place)
        if len(shared) + len(self.numbers) > _MOST_POINTERS:
            self.numbers = {}
        if len(shared) <= _MOST_POINTERS:
            self._step(list(shared.values()))
        if self.innermost:
            self._hide_variable()
        rest = filter(None, lines[loop.start.line :])
        lines[loop.start.line :] = [*hoisted, *self.before, *rest]

    def _step(self, shared: list[list[int]]) -> None:
        """Make a pointer for each group of addresses that differ by constants, and a stepped number for each of
        ``numbers``."""
        loop, lines = self.loop, self.lines
        first = _fixed(loop.first)
        phis, steps = [lines[loop.head]], []
        for places in shared:
            name, element, base, offset = self.pointers[places[0]]
            start = self._operand(offset.fixed.plus(self._product(offset.step, first.fixed)))
            address = self._write(f"getelementptr {element}, ptr {base}, i64 {start}")
            phis.append(f"  {name} = phi ptr [ {address}, %{loop.before} ], [ {name}.next, %{loop.latch} ]")
            steps.append(f"  {name}.step = getelementptr {element}, ptr {name}, i64 {self._operand(offset.step)}")
            steps.append(f"  {name}.next = freeze ptr {name}.step")
            lines[places[0]] = ""
            for place in places[1:]:
                other = self.pointers[place]
                distance = other.offset.fixed.constant - offset.fixed.constant
                lines[place] = f"  {other.name} = getelementptr {element}, ptr {name}, i64 {distance}"
        for name, place in self.numbers.items():
            value = self.linear[name]
            start = self._operand(value.fixed.plus(self._product(value.step, first.fixed)))
            phis.append(f"  {name} = phi i64 [ {start}, %{loop.before} ], [ {name}.next, %{loop.latch} ]")
            steps.append(f"  {name}.step = add i64 {name}, {self._operand(value.step)}")
            steps.append(f"  {name}.next = freeze i64 {name}.step")
            lines[place] = ""
        lines[loop.head] = "\n".join(phis)
        lines[loop.increment] = "\n".join([*steps, lines[loop.increment]])

    def _hide_variable(self) -> None:
        """Hide from LLVM that the loop's variable is an induction variable, so that it does not search for others."""
        line, following = self.lines[self.loop.increment], self.loop.following
        counted = line.replace(f"  {following} = ", f"  {following}.sum = ", 1)
        self.lines[self.loop.increment] = f"{counted}\n  {following} = freeze {self.loop.kind} {following}.sum"


#: How to look at an instruction with operands of type i64, by the first four characters of its opcode.
_LOOKS: dict[str, Callable[[_Finisher, int, str, str], None]] = {
    **dict.fromkeys(("add ", "sub ", "mul "), _Finisher._sum),
    **dict.fromkeys(("udiv", "urem", "sdiv", "srem", "icmp", "sele", "call"), _Finisher._other),
    "gete": _Finisher._address,
    "free": _Finisher._freeze,
}


def finish_innermost(lines: list[str], loop: Counted) -> None:
    """Hoist the loop-invariant numbers (int64) of an innermost loop, and turn its addresses that are linear in the
    induction variable into pointers.

    The loop sees them through ``freeze``, which is opaque, and so is the increment of its variable: LLVM finds
    addresses that are known before the loop or step from iteration to iteration, and has nothing to search.
    """
    if len(lines) - loop.start.line + loop.carried * _CARRIED_LINES >= _LEAST_LINES:
        _Finisher(lines, loop).move()


def finish_around(lines: list[str], loop: Counted) -> None:
    """Do the same for the first block of a loop around an innermost one: where the innermost loop walks a window or a
    block of channels it is short, and recomputing its start addresses takes as long as the loop."""
    _Finisher(lines, loop, innermost=False).move()
