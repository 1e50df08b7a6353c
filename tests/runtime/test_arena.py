"""Memory of calls is aligned, large enough, exclusive, and reused."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime import results
from tilewright.runtime.arena import ArenaPool
from tilewright.runtime.build_settings import BuildSettings
from tilewright.runtime.built_model import BuiltModel, GivenSource
from tilewright.runtime.executable import Executable
from tilewright.runtime.results import SMALLEST, ResultPool
from tilewright.runtime.signature import Argument, Signature
from tilewright.runtime.steps import _REMEMBERED_SIZES, Array, Step
from tilewright.tensorir.aligned import aligned_bytes
from tilewright.tensorir.errors import ExecutionError
from tilewright.tensorir.target import CACHE_LINE


def address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def test_memory_begins_at_a_cache_line() -> None:
    kept = [aligned_bytes(size) for size in range(0, 3000, 37)]
    assert [address(memory) % CACHE_LINE for memory in kept if memory.size] == [0] * (len(kept) - 1)
    assert [memory.size for memory in kept] == list(range(0, 3000, 37))


def test_block_has_the_address_of_its_memory() -> None:
    where, memory = ArenaPool().take(1000)
    assert where == address(memory)
    assert where % CACHE_LINE == 0
    assert memory.size >= 1000


def test_block_of_no_bytes_has_an_address() -> None:
    assert ArenaPool().take(0)[0] != 0


def test_blocks_in_use_are_apart() -> None:
    pool = ArenaPool()
    pool.give_back(pool.take(1000))
    (first, memory), (second, _) = pool.take(1000), pool.take(1000)
    assert abs(first - second) >= 1000
    assert memory.size >= 1000


def test_block_is_taken_again_by_calls_that_need_no_more() -> None:
    pool = ArenaPool()
    block = pool.take(1000)
    pool.give_back(block)
    again = pool.take(500)
    assert again[1] is block[1]
    pool.give_back(again)
    assert pool.take(1000)[1] is block[1]


def test_block_that_is_too_small_is_replaced() -> None:
    pool = ArenaPool()
    pool.give_back(pool.take(100))
    pool.give_back(pool.take(5000))
    where, memory = pool.take(3000)
    assert memory.size >= 5000
    assert where == address(memory)


class Model:
    """An executable of ``[n, m] -> [n]`` whose code records its arguments, and fails on request."""

    def __init__(self) -> None:
        n, m = gi.symbol("n"), gi.symbol("m")
        signature = Signature(
            [Argument("x", gi.TensorType((n, m), "float32"))],
            gi.TupleType([gi.TensorType((n,), "float32"), gi.TensorType((2,), "float32")]),
        )
        self.fails = False
        self.blocks: list[tuple[int, Array]] = []
        self.bytes: list[int] = []
        step = Step(signature.symbols, signature.outputs, n * 64 + m * 4096, self.run)
        settings = BuildSettings.of(tw.PassContext())
        source = GivenSource(tw.IRModule(), [])
        self.executable = Executable(step, BuiltModel(source, tw.Target("llvm"), settings, {}, signature, []))

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array], arena: tuple[int, Array], size: int, _: Sequence[int]
    ) -> None:
        self.blocks.append(arena)
        self.bytes.append(size)
        if self.fails:
            raise ArithmeticError

    def call(self, n: int, m: int) -> tuple[Array, Array]:
        found: tuple[Array, Array] = self.executable(np.zeros((n, m), "f4"))
        return found


def test_call_gets_the_memory_that_its_sizes_need() -> None:
    model = Model()
    for n, m in ((3, 1), (1, 3), (3, 1), (0, 0)):
        model.call(n, m)
        assert model.bytes[-1] == n * 64 + m * 4096
        assert model.blocks[-1][1].size >= model.bytes[-1]


def test_call_that_fails_gives_its_memory_back() -> None:
    model = Model()
    model.fails = True
    for _ in range(3):
        with pytest.raises(ArithmeticError):
            model.call(3, 1)
    assert model.blocks[0][1] is model.blocks[1][1] is model.blocks[2][1]


def test_shapes_of_so_many_sizes_are_remembered_and_no_more() -> None:
    model = Model()
    for n in range(2 * _REMEMBERED_SIZES + 10):
        first, second = model.call(n, 0)
        assert (first.shape, second.shape) == ((n,), (2,))
        assert len(model.executable._step._shapes) <= _REMEMBERED_SIZES


def test_arena_bytes_takes_the_sizes_by_name() -> None:
    executable = Model().executable
    assert executable.arena_bytes(n=3, m=1) == executable.arena_bytes(m=1, n=3) == 3 * 64 + 4096


@pytest.mark.parametrize("sizes", [{}, {"n": 1}, {"n": 1, "m": 1, "k": 1}, {"n": 1, "k": 1}])
def test_arena_bytes_of_other_sizes_is_an_error(sizes: dict[str, int]) -> None:
    with pytest.raises(ExecutionError, match="expected the sizes of n, m"):
        Model().executable.arena_bytes(**sizes)


def test_large_result_of_a_model_takes_the_memory_of_a_dropped_one() -> None:
    model = Model()
    count = SMALLEST // 4  # float32 elements: just large enough
    large, small = model.call(count, 0)
    where = address(large)
    del large
    gc.collect()
    assert address(model.call(count, 0)[0]) == where
    assert small.base is None  # from NumPy's own allocator


def test_small_results_are_not_kept() -> None:
    model = Model()
    model.call(10, 0)
    gc.collect()
    assert model.executable._step._results._free == []


def empty(pool: ResultPool, count: int = SMALLEST) -> Array:
    return pool.empty((count,), np.dtype("u1"), count)


def test_two_results_never_share_the_memory_of_a_dropped_one() -> None:
    pool = ResultPool()
    dropped = empty(pool)
    del dropped
    first, second = empty(pool), empty(pool)
    assert abs(address(first) - address(second)) >= SMALLEST


def test_pool_keeps_so_many_bytes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MOST_KEPT", 2 * SMALLEST)
    pool = ResultPool()
    kept = [empty(pool) for _ in range(3)]
    del kept
    gc.collect()
    assert len(pool._free) == 2


def test_what_is_taken_from_the_pool_makes_room_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_MOST_KEPT", SMALLEST)
    pool = ResultPool()
    places = set()
    for _ in range(4):
        result = empty(pool)
        places.add(address(result))
        del result
        gc.collect()
        assert len(pool._free) == 1
    assert len(places) == 1
