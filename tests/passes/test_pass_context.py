"""``PassContext``: the current one in nested blocks, threads and tasks; the passes that it enables."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tilewright.passes import PassContext, PassInfo
from tilewright.tensorir.errors import PassError


def in_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_the_default_context_is_level_two_and_empty() -> None:
    ctx = in_new_thread(PassContext.current)
    assert ctx.opt_level == 2
    assert (ctx.required_pass, ctx.disabled_pass, ctx.instruments, dict(ctx.config)) == ((), (), [], {})
    assert ctx.trace is None


def test_outside_of_any_block_the_same_default_is_current_again_and_again() -> None:
    assert PassContext.current() is PassContext.current()


def test_with_makes_a_context_current_and_restores_the_one_before() -> None:
    before = PassContext.current()
    with PassContext(opt_level=3) as outer:
        assert PassContext.current() is outer
        with PassContext(opt_level=0) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
    assert PassContext.current() is before


def test_an_exception_in_the_block_also_restores_the_context_before() -> None:
    before = PassContext.current()
    with pytest.raises(KeyError), PassContext(opt_level=3):
        raise KeyError
    assert PassContext.current() is before


def test_each_thread_has_a_default_context_of_its_own() -> None:
    mine = PassContext.current()
    barrier = threading.Barrier(2)

    def current() -> PassContext:
        barrier.wait(120)  # both threads are alive at a time
        return PassContext.current()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: current(), range(2))
    assert len({id(mine), id(first), id(second)}) == 3


def test_a_new_thread_does_not_inherit_the_context_of_its_maker() -> None:
    with PassContext(opt_level=3) as ctx:
        seen: list[PassContext] = []
        thread = threading.Thread(target=lambda: seen.append(PassContext.current()))
        thread.start()
        thread.join()
        assert seen[0] is not ctx
        assert seen[0].opt_level == 2


def test_contexts_in_two_threads_do_not_see_each_other() -> None:
    barrier = threading.Barrier(2)

    def work(level: int) -> list[int]:
        levels = []
        with PassContext(opt_level=level):
            barrier.wait(120)  # both are inside their block now
            levels.append(PassContext.current().opt_level)
            barrier.wait(120)
        levels.append(PassContext.current().opt_level)
        return levels

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [0, 3])) == [[0, 2], [3, 2]]


def test_what_copies_context_variables_on_purpose_carries_the_context_into_a_thread() -> None:
    with PassContext(opt_level=3) as ctx:
        copied = contextvars.copy_context()
    assert in_new_thread(lambda: copied.run(PassContext.current)) is ctx


def test_a_task_begins_with_the_context_that_was_current_where_it_was_made() -> None:
    async def current() -> PassContext:
        return PassContext.current()

    async def main() -> None:
        with PassContext(opt_level=3) as ctx:
            task = asyncio.create_task(current())
        assert await task is ctx
        assert await asyncio.create_task(current()) is not ctx

    asyncio.run(main())


def test_tasks_that_interleave_keep_their_own_contexts() -> None:
    async def work(level: int, turns: list[int]) -> list[int]:
        levels = []
        with PassContext(opt_level=level):
            for _ in range(3):
                turns.append(level)
                await asyncio.sleep(0)
                levels.append(PassContext.current().opt_level)
        levels.append(PassContext.current().opt_level)
        return levels

    async def main() -> None:
        turns: list[int] = []
        with PassContext(opt_level=1):
            results = await asyncio.gather(work(0, turns), work(3, turns))
            assert results == [[0, 0, 0, 1], [3, 3, 3, 1]]
            assert PassContext.current().opt_level == 1
        assert turns == [0, 3] * 3  # they did interleave

    asyncio.run(main())


def test_a_task_does_not_leak_the_context_it_is_in() -> None:
    async def enter_and_wait(entered: asyncio.Event, leave: asyncio.Event) -> None:
        with PassContext(opt_level=3):
            entered.set()
            await leave.wait()

    async def main() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(enter_and_wait(entered, leave))
        await entered.wait()
        assert PassContext.current().opt_level == 2
        leave.set()
        await task

    asyncio.run(main())


def test_a_context_can_be_entered_while_it_is_entered() -> None:
    before = PassContext.current()
    ctx, other = PassContext(opt_level=3), PassContext(opt_level=1)
    with ctx, other, ctx:
        assert PassContext.current() is ctx
    with ctx:
        with other, ctx:
            pass
        assert PassContext.current() is ctx
    assert PassContext.current() is before


def test_instruments_enter_with_the_first_block_and_exit_with_the_last(recorder: Any, events: list[str]) -> None:
    ctx = PassContext(instruments=[recorder("a")])
    with ctx:
        with ctx:
            assert events == ["a.enter"]
        assert events == ["a.enter"]
    assert events == ["a.enter", "a.exit"]
    with ctx:
        pass
    assert events == ["a.enter", "a.exit"] * 2


def test_a_generator_closed_late_takes_only_its_own_context_away() -> None:
    def generator() -> Iterator[None]:
        with PassContext(opt_level=0):
            yield

    running = generator()
    next(running)
    with PassContext(opt_level=3) as ctx:
        running.close()
        assert PassContext.current() is ctx
    assert PassContext.current().opt_level == 2


def test_leaving_a_context_that_was_not_entered_is_an_error() -> None:
    with pytest.raises(PassError, match="never entered"):
        PassContext().__exit__(None, None, None)


@pytest.mark.parametrize(
    ("settings", "level", "enabled"),
    [
        ({"opt_level": 2}, 1, True),
        ({"opt_level": 2}, 2, True),
        ({"opt_level": 2}, 3, False),
        ({"opt_level": 0, "required_pass": ["P"]}, 3, True),
        ({"opt_level": 3, "disabled_pass": ["P"]}, 0, False),
        ({"opt_level": 3, "disabled_pass": ["P"], "required_pass": ["P"]}, 0, False),
        ({"opt_level": 1, "required_pass": ["Q"]}, 2, False),
    ],
)
def test_disabled_beats_required_beats_level(settings: dict[str, Any], level: int, enabled: bool) -> None:
    assert PassContext(**settings).pass_enabled(PassInfo("P", level)) is enabled


@pytest.mark.parametrize(
    "settings",
    [
        {"opt_level": "3"},
        {"opt_level": True},
        {"disabled_pass": "FoldConstant"},
        {"required_pass": [1]},
        {"instruments": [object()]},
        {"instruments": object()},
        {"trace": 3},
    ],
    ids=["level", "bool_level", "disabled", "required", "instruments", "instrument", "trace"],
)
def test_arguments_of_the_wrong_type_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        PassContext(**settings)


def test_an_instrument_class_instead_of_an_instance_is_explained(recorder: Any) -> None:
    with pytest.raises(TypeError, match=r"make an instance: Recorder\("):
        PassContext(instruments=[type(recorder("a"))])


def test_the_lists_that_a_context_gives_out_are_copies(recorder: Any) -> None:
    ctx = PassContext(instruments=[recorder("a")])
    ctx.instruments.clear()
    assert [instrument.name for instrument in ctx.instruments] == ["a"]


@pytest.mark.parametrize(("opt_level", "is_fast"), [(0, False), (2, False), (3, True), (4, True)])
def test_floats_are_reordered_from_level_3_on(opt_level, is_fast):
    assert PassContext(opt_level=opt_level).is_fast is is_fast
