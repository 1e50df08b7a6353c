"""Run LLVM IR in several threads on a simulated machine with as weak a memory ordering as LLVM's rules allow.

A processor of the x86 family keeps nearly all accesses in order, so that a test on it cannot find an ordering that is
too weak. Here each address keeps all values that were ever stored there, and a thread records for each address the
oldest of these values that it may still read: one that it has read or stored there itself, or one that another thread
had seen when it released a value that this one acquired. It reads that value or a later one, by chance. That is the
model of views of "A promising semantics for relaxed-memory concurrency" (Kang et al., 2017) without its promises: no
load sees a store that has not run yet. A plain access must have seen the last value that was stored, and a plain store
all plain loads before it; else there is a race.

The interpreter supports the instructions of teams. Functions outside of the module are Python functions.
"""

from __future__ import annotations

import collections
import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm

#: Between two accesses of a thread to memory others may run; true where it waits for them.
Steps = Generator[bool, None, int]
View = dict[int, float]
Foreign = Callable[..., Steps]

_WORD = (1 << 64) - 1


class ViolationError(Exception):
    """A violation: a race, or a failed check of the test that runs the code."""


@dataclass
class Stored:
    """A value in the modification order of its address; an acquiring load learns its ``view``."""

    time: float
    value: int
    view: View
    taken: bool = False  # by an atomic update, whose own value comes next for ever


class Memory:
    """All memory, by address. Addresses are allocated once and never reused."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        #: The values of each place, in order; the first one is zero.
        self.places: dict[int, list[Stored]] = collections.defaultdict(lambda: [Stored(0.0, 0, {})])
        #: When each thread last loaded from a place without order, by its own count, which views hold under its number.
        self.loads: dict[int, dict[int, float]] = {}
        self._free = 1 << 20

    def allocate(self, size: int) -> int:
        """Return the address of ``size`` bytes, all zero."""
        address, self._free = self._free, self._free + (size + 63) // 64 * 64
        return address


@dataclass
class Thread:
    """One thread of the machine: its view of memory."""

    memory: Memory
    view: View = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number = self.memory.allocate(8)

    def load(self, address: int, ordering: str) -> int:
        """Return a value that the thread may read. Plain loads have the empty ordering."""
        stored = self.memory.places[address]
        if not ordering:
            self._check_race(address, "load")
            count = self.view[self.number] = self.view.get(self.number, 0) + 1
            self.memory.loads.setdefault(address, {})[self.number] = count
            return stored[-1].value
        allowed = [one for one in stored if one.time >= self.view.get(address, 0)]
        return self._read(address, self.memory.chance.choice(allowed), ordering)

    def _read(self, address: int, found: Stored, ordering: str) -> int:
        self.view[address] = found.time
        if ordering in ("acquire", "acq_rel", "seq_cst"):
            self.learn(found.view)
        return found.value

    def learn(self, view: View) -> None:
        """Merge the view of another thread."""
        for address, time in view.items():
            self.view[address] = max(self.view.get(address, 0), time)

    def _check_race(self, address: int, what: str) -> None:
        if self.view.get(address, 0) < self.memory.places[address][-1].time:
            raise ViolationError(f"a plain {what} races with another thread's store")

    def store(self, address: int, value: int, ordering: str) -> None:
        """Store ``value`` anywhere after the values in the thread's view; nothing comes between a read-modify-write and
        the value that it read."""
        stored = self.memory.places[address]
        if not ordering:
            self._check_race(address, "store")
            for reader, count in self.memory.loads.pop(address, {}).items():
                if self.view.get(reader, 0) < count:
                    raise ViolationError("a plain store races with another thread's load")
        known = self.view.get(address, 0)
        after = [i for i, one in enumerate(stored) if one.time >= known and not one.taken]
        self._insert(address, self.memory.chance.choice(after), value, ordering, {})

    def _insert(self, address: int, position: int, value: int, ordering: str, inherited: View) -> None:
        stored = self.memory.places[address]
        before = stored[position].time
        following = stored[position + 1].time if position + 1 < len(stored) else before + 2
        time = (before + following) / 2
        self.view[address] = time
        view = dict(self.view) if ordering in ("release", "acq_rel", "seq_cst") else {address: time}
        for place, seen in inherited.items():
            view[place] = max(view.get(place, 0), seen)
        stored.insert(position + 1, Stored(time, value, view))

    def update(self, address: int, ordering: str, change: Callable[[int], int | None]) -> int:
        """Read a value that no read-modify-write has taken yet, and store the result of ``change``, if any, right after
        it."""
        stored = self.memory.places[address]
        known = self.view.get(address, 0)
        position = self.memory.chance.choice([i for i, one in enumerate(stored) if one.time >= known and not one.taken])
        found = stored[position]
        new = change(found.value)
        self._read(address, found, ordering)
        if new is not None:
            found.taken = True
            self._insert(address, position, new & _WORD, ordering, found.view)
        return found.value


@dataclass(frozen=True)
class Instruction:
    """A parsed instruction of LLVM.

    Attributes:
        result: the name of its value, or nothing.
        name: what it calls or compares by.
        ordering: of an access of memory; nothing for plain ones.
        operands: names and numbers; of a jump with a condition, that. Of ``phi`` the values.
        labels: of ``phi`` where the values come from; of jumps where to.
    """

    result: str
    opcode: str
    name: str = ""
    ordering: str = ""
    operands: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def _parse_instruction(code: str) -> Instruction:
    match = re.fullmatch(r"(?:(%[\w.]+) = )?(?:tail )?(\w+) (.*)", code)
    assert match is not None, code
    result, opcode, rest = match[1] or "", match[2], match[3]
    if opcode == "phi":
        ways = re.findall(r"\[ (\S+), %([\w.]+) \]", rest)
        return Instruction(result, opcode, operands=tuple(v for v, _ in ways), labels=tuple(way for _, way in ways))
    if opcode == "br":
        condition = re.match(r"i1 (\S+),", rest)
        labels = tuple(re.findall(r"label %([\w.]+)", rest))
        return Instruction(result, opcode, operands=(condition[1],) if condition else (), labels=labels)
    if opcode == "call":
        called = re.match(r"\w+ ([@%][\w.]+)\((.*?)\)(?: #\d+)?$", rest)
        assert called is not None, code
        args = tuple(arg.split()[-1] for arg in called[2].split(", ")) if called[2] else ()
        return Instruction(result, opcode, called[1].removeprefix("@"), operands=args)
    if opcode == "getelementptr":
        kind, *places = rest.split(", ")
        return Instruction(result, f"{opcode} {kind}", operands=tuple(part.split()[1] for part in places))
    if opcode == "alloca":
        size = re.search(r"i64 (\S+),", rest)
        return Instruction(result, opcode, operands=(size[1] if size else "64",))
    words = rest.removeprefix("atomic ").split(", ")
    if opcode in ("load", "store", "cmpxchg", "atomicrmw"):
        ordering = re.search(r" (monotonic|acquire|release|acq_rel|seq_cst)", rest)
        operands = [re.findall(r"[%@]?[\w.-]+", word) for word in words if not word.startswith("align")]
        texts = tuple(parts[2 if parts[0] == "add" else 1] for parts in operands if len(parts) > 1)
        return Instruction(result, opcode, ordering=ordering[1] if ordering else "", operands=texts)
    name = words[0].split()[0] if opcode == "icmp" else ""
    if opcode == "extractvalue":  # whether a cmpxchg has taken place
        words = re.findall(r"%[\w.]+", rest)
    elif opcode == "zext":
        words = [rest.split(" to ")[0]]
    elif rest == "void":
        words = []
    return Instruction(result, opcode, name, operands=tuple(word.split()[-1] for word in words))


@dataclass
class Function:
    """The instructions of each block, and the names of parameters."""

    params: list[str]
    blocks: dict[str, list[Instruction]]


def parse_functions(text: str) -> dict[str, Function]:
    """Parse the functions of a module."""
    found: dict[str, Function] = {}
    # LLVM writes one instruction a line.
    written = str(llvm.parse_assembly(text, llvm.create_context()))
    for match in re.finditer(r"^define [^@]*@(\w+)\((.*?)\)[^\n]*\{\n(.*?)^\}", written, re.MULTILINE | re.DOTALL):
        label, blocks = "", dict[str, list[Instruction]]()
        for line in match[3].splitlines():
            code = line.split(";")[0].strip()
            if code.endswith(":"):
                label = code[:-1]
            elif code and "{ ptr," not in code:  # what the layer is told of a loop without a team
                blocks.setdefault(label, []).append(_parse_instruction(code))
        found[match[1]] = Function(re.findall(r"%[\w.]+", match[2]), blocks)
    return found


class Machine:
    """Runs functions in threads whose turns are random. ``foreign`` are the functions that Python implements, by their
    names or addresses."""

    def __init__(self, functions: Mapping[str, Function], foreign: Mapping[str | int, Foreign], seed: int) -> None:
        self.functions = functions
        self.foreign = foreign
        self.chance = random.Random(seed)
        self.memory = Memory(self.chance)
        self._running: list[Generator[bool, None, Any]] = []

    def run(self, steps: Generator[bool, None, Any], most: int) -> None:
        """Run a thread, and those that it starts, to their ends.

        Raises:
            ViolationError: they have not ended after ``most`` accesses of memory.
        """
        left = self._running = [steps]
        now = steps
        for _ in range(most):
            waits = True
            try:
                waits = next(now)
            except StopIteration:
                left.remove(now)
                if not left:
                    return
            if waits or self.chance.random() < 0.1:
                now = self.chance.choice(left)
        raise ViolationError("the threads do not come to an end")

    def start(self, steps: Generator[bool, None, Any]) -> None:
        """Add a thread."""
        self._running.append(steps)

    def call(self, thread: Thread, name: str | int, args: Sequence[int]) -> Steps:
        """Run a function in a thread."""
        foreign = self.foreign.get(name)
        if foreign is not None:
            return (yield from foreign(thread, *args))
        function = self.functions[str(name)]
        values = dict(zip(function.params, args, strict=True))
        label, before = next(iter(function.blocks)), ""
        while True:
            chosen = {}
            for code in function.blocks[label]:
                if code.opcode == "phi":
                    chosen[code.result] = _value(values, code.operands[code.labels.index(before)])
                    continue
                values.update(chosen)  # all at once
                chosen.clear()
                operands = [_value(values, text) for text in code.operands]
                if code.opcode == "ret":
                    return operands[0] if operands else 0
                if code.opcode == "br":
                    before, label = label, code.labels[0 if not operands or operands[0] else 1]
                elif code.opcode == "call":
                    called = values[code.name] if code.name.startswith("%") else code.name
                    if called not in self.foreign and called not in self.functions:
                        raise ViolationError(f"a call of {called}, which is no function")
                    values[code.result] = yield from self.call(thread, called, operands)
                elif code.opcode in ("load", "store", "atomicrmw", "cmpxchg"):
                    yield False
                    values[code.result] = _access(thread, code, operands)
                    if code.opcode == "cmpxchg":
                        values[f"{code.result}.done"] = int(values[code.result] == operands[1])
                elif code.opcode == "extractvalue":
                    values[code.result] = values[f"{code.operands[0]}.done"]
                elif code.opcode == "alloca":
                    values[code.result] = self.memory.allocate(operands[0])
                elif code.opcode == "icmp":
                    values[code.result] = int(_COMPARE[code.name](*operands))
                else:
                    values[code.result] = _OPERATIONS[code.opcode](*operands) & _WORD


def _access(thread: Thread, code: Instruction, operands: list[int]) -> int:
    """Execute a memory access; return the loaded value, for a read-modify-write the old one."""
    if code.opcode == "load":
        return thread.load(operands[0], code.ordering)
    if code.opcode == "store":
        thread.store(operands[1], operands[0], code.ordering)
        return 0
    if code.opcode == "atomicrmw":
        return thread.update(operands[0], code.ordering, lambda old: old + operands[1])
    return thread.update(operands[0], code.ordering, lambda old: operands[2] if old == operands[1] else None)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "ult": lambda a, b: a < b,
    "uge": lambda a, b: a >= b,
    "sle": lambda a, b: _signed(a) <= _signed(b),
    "sgt": lambda a, b: _signed(a) > _signed(b),
}
_OPERATIONS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "udiv": lambda a, b: a // b,
    "sdiv": lambda a, b: a // b,  # of what is not negative
    "shl": lambda a, b: a << b,
    "lshr": lambda a, b: a >> b,
    "or": lambda a, b: a | b,
    "and": lambda a, b: a & b,
    "select": lambda condition, a, b: a if condition else b,
    "zext": lambda a: a,
    "getelementptr i8": lambda address, count: address + count,
    "getelementptr i64": lambda address, count: address + 8 * count,
}


def _value(values: dict[str, int], text: str) -> int:
    """Return the value of a name or a number; functions of the module have none."""
    if text.startswith("%"):
        return values[text]
    return {"null": 0, "true": 1, "false": 0}.get(text, 0) if not text.lstrip("-").isdigit() else int(text) & _WORD
