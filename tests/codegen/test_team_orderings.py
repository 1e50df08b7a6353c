"""Check that the accesses of a team to its memory are ordered as strongly as necessary, and no more strongly.

The functions of a team run on a machine in which a thread may see old values for as long as LLVM's rules allow
(:mod:`tests.codegen.weak_memory`), with turns and values by chance: three threads do five loops of a few iterations.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence

import pytest

from tests.codegen.weak_memory import Function, Machine, Steps, Thread, ViolationError, parse_functions
from tilewright.codegen.llvm.clock import PROFILE_FUNCTIONS
from tilewright.codegen.llvm.team_ir import FORK, RUN_TEAM, team_ir
from tilewright.tensorir.profiling import BUSY

#: Iterations of each loop, an item of work each: more than in the loop before, and fewer.
LOOPS = (2, 5, 3, 2, 4)
THREADS = 3
#: Runs of each test, which differ in their random choices.
RUNS = 150

PROGRAM, FIRST_TASK = 1, 100
#: The function that a profiled program calls before a loop.
BEGIN_CALL = PROFILE_FUNCTIONS["profile_begin"]
#: More accesses of memory than any run needs.
MOST = 100_000


@functools.cache
def team_text(profiling: bool = False) -> str:
    """Return the functions of teams, without a pause for a waiting thread."""
    return team_ir("", yields=False, profiling=profiling, counter=True)


class Run:
    """Loops in which each item adds one to a number of its own and reads the loop's captured value, without atomics."""

    def __init__(self, functions: Mapping[str, Function], loops: Sequence[int], seed: int) -> None:
        self.loops = loops
        foreign = {
            "allowed": lambda thread, threads: _value(threads),
            "llvm.memset.p0.i64": lambda thread, *args: _value(0),
            "llvm.smax.i64": lambda thread, a, b: _value(max(a, b)),
            "llvm.smin.i64": lambda thread, a, b: _value(min(a, b)),
            "wait": self.wait,
            "now": lambda thread: _value(0),
            "layer": self.layer,
            PROGRAM: self.program,
            **{FIRST_TASK + number: functools.partial(self.task, number) for number in range(len(loops))},
        }
        self.machine = Machine(functions, foreign, seed)
        self.numbers = [self.machine.memory.allocate(8) for _ in range(max(loops))]
        self.captured = self.machine.memory.allocate(8)
        #: The profile's record of each loop.
        self.records = [self.machine.memory.allocate(8 * (BUSY + THREADS)) for _ in loops]
        self.loop = -1
        self.done: set[int] = set()

    def result(self) -> list[int]:
        """Return the number of times each item was done, as seen by the thread that called for the team."""
        thread = Thread(self.machine.memory)
        self.machine.run(self.machine.call(thread, RUN_TEAM, [PROGRAM, 0, THREADS]), MOST)
        return [thread.load(number, "") for number in self.numbers]

    def layer(self, thread: Thread, task: int, team: int, items: int, threads: int) -> Steps:
        """Distribute the items among new threads, by chance several to one; wait for all."""
        borders = [0, *(border for border in range(1, items) if self.machine.chance.random() < 0.8), items]
        joined = []
        for first, last in itertools.pairwise(borders):
            count = self.machine.memory.allocate(8)
            thread.store(count, last - first, "")
            new = Thread(self.machine.memory, dict(thread.view))
            self.machine.start(self._join(new, count, team, joined))
        while len(joined) < len(borders) - 1:
            yield True
        for one in joined:
            thread.learn(one.view)
        return 0

    def _join(self, thread: Thread, count: int, team: int, joined: list[Thread]) -> Steps:
        yield from self.machine.call(thread, "join", [0, count, 0, team])
        joined.append(thread)
        return 0

    def wait(self, thread: Thread, looks: int) -> Steps:
        yield True
        return looks

    def program(self, thread: Thread, args: int, team: int) -> Steps:
        for number, items in enumerate(self.loops):
            self.loop, self.done = number, set()
            thread.store(self.captured, number, "")
            if BEGIN_CALL in self.machine.functions:
                yield from self.machine.call(thread, BEGIN_CALL, [team, self.records[number], 1])
            task = FIRST_TASK + number
            yield from self.machine.call(thread, FORK, [team, task, self.captured, number, items, 1, THREADS])
            if len(self.done) != items:
                raise ViolationError("the program goes on before all items are done")
            for worker in range(THREADS):
                thread.load(self.records[number] + 8 * (BUSY + worker), "")
        return 0

    def task(self, number: int, thread: Thread, begin: int, end: int, data: int) -> Steps:
        if number != self.loop:
            raise ViolationError("an item of a loop that is over")
        for item in range(begin - number, end - number):
            if not 0 <= item < self.loops[number] or item in self.done:
                raise ViolationError("an item that is not to be done")
            if thread.load(data, "") != number:
                raise ViolationError("what another loop captured")
            yield False
            place = self.numbers[item]
            thread.store(place, thread.load(place, "") + 1, "")
            self.done.add(item)
        return 0


def _value(value: int) -> Steps:
    """Return a value without taking a step."""
    return value
    yield False


def violation(text: str, loops: Sequence[int] = LOOPS) -> str | None:
    """Return the first violation of :data:`RUNS` runs, if any."""
    functions = parse_functions(text)
    expected = [sum(item < items for items in loops) for item in range(max(loops))]
    for seed in range(RUNS):
        try:
            assert Run(functions, loops, seed).result() == expected
        except ViolationError as error:
            return f"{error}, in the run of seed {seed}"
    return None


@pytest.mark.parametrize("profiling", [False, True])
def test_items_are_done_once_each_and_seen_by_who_comes_next(profiling: bool) -> None:
    assert not violation(team_text(profiling))


def orderings() -> list[str]:
    """Return the instructions with an ordering stronger than monotonic."""
    return re.findall(r"^  (.* (?:acquire|release|acq_rel|seq_cst)\b.*)$", team_text(), re.MULTILINE)


@pytest.mark.parametrize("instruction", orderings())
def test_no_ordering_is_stronger_than_it_must_be(instruction: str) -> None:
    weak = re.sub(r"\b(acquire|release|acq_rel|seq_cst)\b", "monotonic", instruction)
    assert team_text().count(instruction) == 1
    assert violation(team_text().replace(instruction, weak))


def test_late_thread_is_told_by_the_epoch_in_a_queue() -> None:
    exact = "%next = sub i64 %word, %high"
    assert exact in team_text()
    assert violation(team_text().replace(exact, "%next = and i64 %word, 16777215"))


def test_queues_move_on_before_the_number_of_items_changes() -> None:
    text = team_text()
    store = "  store atomic i64 %items, ptr %items.place release, align 8\n"
    before = "  br label %share\nshare:\n  %number = phi"
    assert text.count(store) == text.count(before) == 1
    assert violation(text.replace(store, "").replace(before, store + before))


def test_loop_has_no_more_items_than_a_queue_counts() -> None:
    """With two bits for an item's number instead of 24."""
    text, loops = team_text(), (2, 16, 3, 16)
    for usual, small in (("shl i64 %epoch, 24", "shl i64 %epoch, 2"), ("lshr i64 %extent, 23", "lshr i64 %extent, 1")):
        assert usual in text
        text = text.replace(usual, small)
    assert not violation(text, loops)
    larger = "%least = add i64 %huge, 1"
    assert larger in text
    assert violation(text.replace(larger, "%least = add i64 0, 1"), loops)
