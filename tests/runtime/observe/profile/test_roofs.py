"""The peak rates of a machine, measured on one whose clock goes as its probes run: the rates are known."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tilewright.runtime.observe.profile import roofs
from tilewright.runtime.observe.profile.roofs import Roof, Roofs
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType

INT8 = DataType("int8")
THREADS = 2
CACHES = {1: 32 << 10, 2: 1 << 20, 3: 16 << 20}
OPERATIONS = {FLOAT32: 1e11, FLOAT64: 5e10}
#: Bytes per second from the smallest level that holds so many bytes: the first two are each core's own.
BANDWIDTHS = [(THREADS * CACHES[1], 4e11), (THREADS * CACHES[2], 2e11), (CACHES[3], 1e11), (1 << 40, 2e10)]


class PacedMachine:
    """A machine whose probes take as long as the rates above say, times ``slowness``, which changes with each run."""

    def __init__(self) -> None:
        self.target = SimpleNamespace(cache_bytes=CACHES.__getitem__)
        self.now = 0.0
        self.slowness = [1.0]
        self.durations: list[float] = []

    def _probe(self, amount: float, rate: float) -> tuple[Callable[[], None], float]:
        def run() -> None:
            self.slowness.append(self.slowness.pop(0))
            self.durations.append(amount / rate * self.slowness[0])
            self.now += self.durations[-1]

        return run, amount

    def arithmetic(self, dtype: DataType, amount: float) -> tuple[Callable[[], None], float] | None:
        return self._probe(amount, OPERATIONS[dtype]) if dtype in OPERATIONS else None

    def read(self, size: int, passes: int) -> tuple[Callable[[], None], float]:
        return self._probe(float(size * passes), next(rate for limit, rate in BANDWIDTHS if size <= limit))


@pytest.fixture
def paced(monkeypatch: pytest.MonkeyPatch) -> PacedMachine:
    found = PacedMachine()
    monkeypatch.setattr(roofs, "machine", lambda threads: found)
    monkeypatch.setattr(roofs, "time", SimpleNamespace(perf_counter=lambda: found.now))
    monkeypatch.setattr(roofs, "_best_rates", {})
    monkeypatch.setattr(roofs, "_RUNS", 3)
    return found


def test_rates_are_those_of_the_machine(paced: PacedMachine) -> None:
    found = Roofs(THREADS, [FLOAT64]).as_dict()
    assert found["threads"] == THREADS
    assert found["float32_operations_per_second"] == pytest.approx(1e11)
    expected = {"L1": 4e11, "L2": 2e11, "L3": 1e11, "memory": 2e10}
    assert found["bytes_per_second"] == pytest.approx(expected)
    assert Roofs(THREADS, [FLOAT64]).operations(FLOAT64) == pytest.approx(5e10)


def test_a_type_without_instructions_has_the_rate_of_float32(paced: PacedMachine) -> None:
    assert Roofs(THREADS, [INT8]).operations(INT8) == pytest.approx(1e11)


def test_runs_of_arithmetic_are_long_enough_for_the_clock(paced: PacedMachine) -> None:
    roofs._measure_operations(THREADS, FLOAT32)
    assert paced.durations[-1] > 5e-4


def test_the_best_of_several_disturbed_runs_counts(paced: PacedMachine) -> None:
    paced.slowness = [3.0, 1.0, 2.0]
    found = Roofs(THREADS).as_dict()
    assert found["float32_operations_per_second"] == pytest.approx(1e11)
    assert found["bytes_per_second"] == pytest.approx({"L1": 4e11, "L2": 2e11, "L3": 1e11, "memory": 2e10})


def test_a_slower_measurement_leaves_the_rate_and_a_faster_one_raises_it(paced: PacedMachine) -> None:
    for slowness, operations, bandwidth in [(2.0, 5e10, 1e10), (1.0, 1e11, 2e10), (4.0, 1e11, 2e10)]:
        paced.slowness = [slowness]
        found = Roofs(THREADS)
        assert found.operations(FLOAT32) == pytest.approx(operations)
        assert found.bandwidth(1 << 30) == pytest.approx(bandwidth)


def test_what_is_measured_is_measured_again_on_request_only(paced: PacedMachine) -> None:
    Roofs(THREADS)
    runs = len(paced.durations)
    Roofs(THREADS, again=False)
    assert len(paced.durations) == runs
    Roofs(THREADS, [FLOAT64], again=False)
    assert len(paced.durations) > runs


@pytest.mark.parametrize(
    ("size", "level"),
    [(64 << 10, "L1"), ((64 << 10) + 1, "L2"), (2 << 20, "L2"), ((2 << 20) + 1, "L3"), ((16 << 20) + 1, "memory")],
)
def test_a_working_set_lies_in_the_smallest_level_that_holds_it(paced: PacedMachine, size: int, level: str) -> None:
    found = Roofs(THREADS)
    assert found.level(size) == level
    assert found.bandwidth(size) == found.as_dict()["bytes_per_second"][level]  # type: ignore[index]


@pytest.mark.parametrize(
    ("operations", "size", "seconds", "bound"),
    [
        (10**9, 20 << 20, 1e-2, "compute"),
        (10**6, 10**9, 5e-2, "memory"),
        (0, 10**9, 5e-2, "memory"),
        (10**9, 0, 1e-2, "compute"),
        (0, 0, 0.0, "compute"),
    ],
)
def test_a_kernel_is_bound_by_what_takes_longer(
    paced: PacedMachine, operations: int, size: int, seconds: float, bound: str
) -> None:
    roof = Roofs(THREADS).roof(operations, FLOAT32, size)
    assert roof == Roof(pytest.approx(seconds), bound)
