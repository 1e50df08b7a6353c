"""Addresses of innermost loops, and of the loops around them: what does not change stands before the loop, and what
changes by steps is a pointer.

LLVM's strength reduction does the same, but takes each address for a sum of all that it is made of and tries which
parts to keep in registers: a third of the time that LLVM takes. Here is known what the sums are made of. (J. Cocke, K.
Kennedy: "An algorithm for reduction of operator strength", 1977.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

#: Loops of fewer lines are left as they are: there is little to try, and what a loop around them counts in steps may
#: matter. Those over a window of a pooling have 10, and were a sixth slower.
_LEAST_LINES = 32
#: So many lines is a value worth that is carried from iteration to iteration: it takes a register that addresses then
#: can't have, and the more of them, the more a loop works.
_CARRIED_LINES = 2
#: More pointers than these would not stay in registers.
_MOST_POINTERS = 10
#: Sums and products, by their first letters.
_SUMS = frozenset({"add ", "sub ", "mul "})
#: What else is hoisted: quotients, choices, bounds. They stand before the loop only if each iteration computes them, as
#: a condition may keep a divisor from being zero.
_OTHERS = frozenset({"udiv", "urem", "sdiv", "srem", "icmp", "sele", "call"})
_OTHER = re.compile(
    r"(?:[us](?:div|rem) i64|icmp \w+ i64|select i1 \S+ i64|call i64 @llvm\.[su](?:min|max)\.i64\(i64) "
)
_OPERAND = re.compile(r"%[\w.]+")


class Mark(NamedTuple):
    """A place in a function.

    Attributes:
        line: the number of lines before.
        names: the number of names before.
    """

    line: int
    names: int


class Counted(NamedTuple):
    """A loop that is written.

    Attributes:
        start: the place in front of the jump into it.
        variable: the operand that holds its variable.
        kind: the type of it.
        first: the first value of it.
        following: its next value.
        before: the block that jumps into the loop.
        head: the place of the line that is the variable's phi.
        increment: the place of the line that counts, in the loop's last block.
        latch: the loop's last block.
        carried: how many other values the loop carries from iteration to iteration.
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
    """A sum of products of operands and constants, and of a constant; each operand stands in it once."""

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
    """The number of a name that ``Builder.fresh`` made; -1 for parameters and constants."""
    number = operand.rpartition(".")[2]
    return int(number) if operand.startswith("%") and number.isdecimal() else -1


def _is_constant(operand: str) -> bool:
    return operand.lstrip("-").isdecimal()


class _Pointer(NamedTuple):
    """An address in a loop that is linear in its variable: ``base`` and so many elements of a type."""

    name: str
    element: str
    base: str
    offset: _Linear

    @property
    def shared(self) -> tuple[object, ...]:
        """What addresses have in common that are constants apart."""
        return self.element, self.base, self.offset.fixed.terms, self.offset.step


class _Finisher:
    """What is found in a loop: in all of an innermost one, in the first block of one around it.

    Attributes:
        moved: numbers that the loop does not change, by name.
        parts: those of them that others are made of.
        linear: the sums and products that are linear in the loop's variable.
        pointers: the linear addresses, by the places of their lines.
        numbers: the linear numbers that are divided, compared or chosen from, by name; the places of their lines.
        before: what is computed before the loop for the pointers' sake.
        inside: what the first block of a loop around others defines; what was moved there has no number in its name.
    """

    def __init__(self, lines: list[str], loop: Counted, innermost: bool = True) -> None:
        self.lines = lines
        self.innermost = innermost
        self.inside: set[str] = set()
        self.loop = loop
        self.moved: dict[str, str] = {}
        self.parts: set[str] = set()
        self.linear: dict[str, _Linear] = {loop.variable: _Linear(_NOTHING, _Sum((), 1))}
        self.pointers: dict[int, _Pointer] = {}
        self.numbers: dict[str, int] = {}
        self.before: list[str] = []
        self._made: dict[str, int] = {}
        always = True
        for place in range(loop.start.line, len(lines)):
            name, _, instruction = lines[place].partition(" = ")
            kind = instruction[:4]
            if not innermost:
                if place > loop.head and not instruction and name.endswith(":"):
                    break
                self.inside.add(name[2:])
            if kind in _SUMS:
                self._sum(place, name[2:], instruction)
            elif kind == "gete":
                self._address(place, name[2:], instruction)
            elif kind in _OTHERS:
                if always and _OTHER.match(instruction):
                    self._other(place, name[2:], instruction)
            elif kind == "free":
                self._freeze(place, name[2:], instruction)
            elif not instruction and place > loop.head:
                always = always and not name.endswith(":")

    def _sum(self, place: int, name: str, instruction: str) -> None:
        *_, type_text, a, b = instruction.split(" ")
        if type_text != "i64" or "<" in instruction:
            return  # narrower than an address, or a vector
        a = a[:-1]
        if self._known(a) and self._known(b):
            self._move(place, name, instruction, (a, b))
            return
        x, y = self._value(a), self._value(b)
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
        operands = _OPERAND.findall(instruction)
        if all(self._known(operand) for operand in operands):
            self._move(place, name, instruction, operands)
            if instruction.startswith("icmp"):
                self.parts.add(name)  # no number
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
        """Whether an operand is known before the loop, or will be."""
        return operand in self.moved or (_number(operand) <= self.loop.start.names and operand not in self.inside)

    def _value(self, operand: str) -> _Linear | None:
        """What an operand is as a linear function of the loop's variable, if it is one."""
        if _is_constant(operand):
            return _Linear(_Sum((), int(operand)), _NOTHING)
        if self._known(operand):
            return _Linear(_Sum(((operand, 1),), 0), _NOTHING)
        return self.linear.get(operand)

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
        """The product of two sums, as one operand unless one of them is a constant."""
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
        """The operand that holds a sum before the loop."""
        made = ""
        for operand, weight in value.terms:
            term = operand if weight == 1 else self._write(f"mul i64 {operand}, {weight}")
            made = self._write(f"add i64 {made}, {term}") if made else term
        if made and value.constant:
            return self._write(f"add i64 {made}, {value.constant}")
        return made or str(value.constant)

    def move(self) -> None:
        """Move what was found in front of the loop."""
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
        rest = [line for line in lines[loop.start.line :] if line]
        lines[loop.start.line :] = hoisted + self.before + rest

    def _step(self, shared: list[list[int]]) -> None:
        """Make a pointer for each group of addresses that are constants apart, and a number that steps of each of
        ``numbers``."""
        loop, lines = self.loop, self.lines
        first = self._value(loop.first)
        assert first is not None
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
        """Hide from LLVM that the loop's variable counts, so that it does not look for what else may do so."""
        line, following = self.lines[self.loop.increment], self.loop.following
        counted = line.replace(f"  {following} = ", f"  {following}.sum = ", 1)
        self.lines[self.loop.increment] = f"{counted}\n  {following} = freeze {self.loop.kind} {following}.sum"


def finish_innermost(lines: list[str], loop: Counted) -> None:
    """Compute the numbers (int64) that are the same in all iterations of an innermost loop in front of it, and make
    pointers of the addresses in it that are linear in its variable.

    What the loop uses of them becomes opaque (``freeze``), and so does how its variable counts: LLVM sees addresses
    that are known before the loop, or that step from iteration to iteration, and has nothing to try.
    """
    if len(lines) - loop.start.line + loop.carried * _CARRIED_LINES >= _LEAST_LINES:
        _Finisher(lines, loop).move()


def finish_around(lines: list[str], loop: Counted) -> None:
    """Do the same in a loop around an innermost one for the addresses that the latter begins with: where it walks a
    window or a block of channels it is short, and takes as long as computing them anew."""
    _Finisher(lines, loop, innermost=False).move()
