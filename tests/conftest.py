"""Define options and fixtures of all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# Passes run in all tests, and in processes that they start; tests of cached builds set a folder of their own.
os.environ["TILEWRIGHT_CACHE"] = "off"
# NumPy multiplies small matrices here, which takes several threads of BLAS seven times as much processor time as one:
# they wait for each other in loops. Read when NumPy is imported, here and in processes that tests start.
for _library in ("OPENBLAS", "MKL", "BLIS"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
# Importing and collecting makes a million objects that stay: with its usual settings the garbage collector searches
# them again and again, a sixth of the time.
gc.set_threshold(100_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--all-combinations``, for tests that are too slow for every run."""
    parser.addoption(
        "--all-combinations",
        action="store_true",
        help="also what takes minutes: operators through numba with every element type in every case, rather than each "
        "type and each case once, all of numba's code optimized, and tests marked exhaustive",
    )
    parser.addoption(
        "--exhaustive-part",
        action="store_true",
        help="with --all-combinations: only the tests that do more by it, and of those only what they do more, to run "
        "behind those that run without it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of tests."""
    config.addinivalue_line("markers", "exhaustive: takes a minute or more; runs with --all-combinations")
    config.addinivalue_line("markers", "combinations: has more cases with --all-combinations")
    config.addinivalue_line("markers", "optimized: a file in which numba optimizes what it compiles, as for users")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave exhaustive tests out of runs that did not request them, and others out of the exhaustive part."""
    if not config.getoption("--all-combinations"):
        left_out = [item for item in items if item.get_closest_marker("exhaustive")]
    elif config.getoption("--exhaustive-part"):
        left_out = [item for item in items if not _does_more(item)]
    else:
        return
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        missing = set(left_out)
        items[:] = [item for item in items if item not in missing]
    if config.getoption("--all-combinations"):
        items.sort(key=lambda item: _waiting_place(item.path.name))


#: Files whose exhaustive tests take minutes however many cores are free: they wait for small processes that they stop,
#: kill and interrupt one after another. Those of a line run in one worker, after one another, and workers begin with
#: them. The ten minutes of test_soak.py give way to all others.
_WAITING = (("test_team_recovery.py", "test_damaged_files.py", "test_forks.py"), ("test_soak.py", "test_interrupts.py"))
#: The cases of ONNX's test-suite that one worker runs together.
_CASES_TOGETHER = 100


def _waiting_place(name: str) -> tuple[int, int]:
    """Return where a file stands in :data:`_WAITING`; other files come behind."""
    places = {name: (row, column) for row, names in enumerate(_WAITING) for column, name in enumerate(names)}
    return places.get(name, (len(_WAITING), 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let workers take files, but for the waiting ones, which stay together, and ONNX's test-suite, which is divided.
    (``--dist loadgroup`` of pytest-xdist 3.8 finds no groups with pytest 9.2.)"""
    if not config.getoption("--all-combinations"):
        return None
    from xdist.scheduler import LoadScopeScheduling  # here: it may not be installed

    class Grouped(LoadScopeScheduling):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(config, log)
            self.groups: dict[str, str] = {}
            self.cases = 0

        def _split_scope(self, nodeid: str) -> str:
            if nodeid not in self.groups:
                file = nodeid.partition("::")[0]
                row, _ = _waiting_place(file.rpartition("/")[2])
                if row < len(_WAITING):
                    file = f"waiting {row}"
                elif file == "tests/onnx/test_suite.py":
                    file = f"{file} {self.cases // _CASES_TOGETHER}"
                    self.cases += 1
                self.groups[nodeid] = file
            return self.groups[nodeid]

    return Grouped()


def _does_more(item: pytest.Item) -> bool:
    """Whether a test runs only, or does more, with ``--all-combinations``: numba compiles every case of an operator."""
    marked = any(item.get_closest_marker(name) for name in ("exhaustive", "combinations"))
    return marked or "checker" in getattr(item, "fixturenames", ())


@pytest.fixture(autouse=True, scope="session")
def _new_entries_compiled() -> Iterator[None]:
    """Let numba compile an entry point of a model immediately if its form is new."""
    from compiled_entries import new_entries_compiled  # here, so that collecting tests does not import its dependencies

    with new_entries_compiled():
        yield


@pytest.fixture(autouse=True, scope="session")
def _passes_verified() -> Iterator[None]:
    """Verify what every pass returns. TILEWRIGHT_TEST_VERIFY=0 leaves it out, to measure what it takes."""
    if os.environ.get("TILEWRIGHT_TEST_VERIFY") == "0":
        yield
        return
    from verified_passes import passes_verified  # here: as above

    with passes_verified():
        yield


@pytest.fixture(autouse=True, scope="session")
def _accesses_checked() -> Iterator[None]:
    """With TILEWRIGHT_TEST_CHECK_BOUNDS=1, all kernels check the indices of their accesses, unless a test decides."""
    if os.environ.get("TILEWRIGHT_TEST_CHECK_BOUNDS") != "1":
        yield
        return
    from tilewright.passes.tensor.check_bounds import CheckBoundsConfig  # here: as above

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckBoundsConfig.__init__, "__defaults__", (True,))
        yield


@pytest.fixture(autouse=True, scope="session")
def _short_probes() -> Iterator[None]:
    """Shorten the measurement of the machine's peak rates, which takes each profile half a second of processor time. No
    test depends on the true rates."""
    from tilewright.runtime.observe.profile import roofs  # here: as above

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roofs, "_RUNS", 2)
        patch.setattr(roofs, "_LEAST_BYTES", 4 << 20)
        yield


#: Where tests compile many small kernels, to see that they compute the right numbers.
_KERNELS_RUN_ONCE = frozenset({"fuzz", "graphir", "onnx", "passes", "runtime", "tensorir"})


@pytest.fixture(autouse=True, scope="module")
def _quickly_compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let numba compile equal ones once, without optimizations, and LLVM generate equal ones once."""
    room = request.path.relative_to(request.config.rootpath).parts[1]
    if room not in _KERNELS_RUN_ONCE:
        yield
        return
    from kept_code import code_kept  # here: as above
    from kept_numba import numba_kept
    from quick_numba import compiled_without_optimizations

    all_combinations = request.config.getoption("--all-combinations")
    optimized = bool(all_combinations or request.node.get_closest_marker("optimized"))
    with (
        numba_kept(optimized),
        contextlib.nullcontext() if all_combinations else code_kept(),
        contextlib.nullcontext() if optimized else compiled_without_optimizations(),
    ):
        yield


@pytest.fixture(autouse=True, scope="module")
def _named_for_coverage(request: pytest.FixtureRequest) -> None:
    """While coverage is measured, record which file's tests run each line (build_support/run_mutants.py reads it)."""
    measuring = sys.modules.get("coverage")
    current = measuring.Coverage.current() if measuring is not None else None
    if current is not None:
        current.switch_context(request.path.relative_to(request.config.rootpath).as_posix())


@pytest.fixture(autouse=True, scope="module")
def _settled() -> Iterator[None]:
    """Freeze the objects that the tests of a file leave (code that numba never drops), so that the garbage collector
    does not scan them again."""
    yield
    gc.collect()
    gc.freeze()


#: The states in which random generators of test modules, by module, were when all modules had been imported.
_GENERATORS = pytest.StashKey[dict[object, list[tuple[Any, Any]]]]()


def _begin_anew(item: pytest.Item) -> None:
    """Let the random generators of a test's module begin anew, so that its numbers do not depend on earlier tests."""
    for generator, state in item.session.stash[_GENERATORS].get(getattr(item, "module", None), ()):
        generator.state = state


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give fixtures the same numbers in each order of tests."""
    _begin_anew(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Give a test the same numbers, whether or not its fixtures exist already."""
    _begin_anew(item)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the objects that exist before the first test (thousands of tests, and all modules), so that the garbage
    collector does not scan them. A build makes some hundred thousand nodes, few of which are cyclic garbage: the
    collector runs more rarely than by default, where it takes a tenth of the time."""
    import numpy as np  # here, so that it reads the number of threads that is set above

    generators = session.stash[_GENERATORS] = {}
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        found = [value.bit_generator for value in vars(module).values() if isinstance(value, np.random.Generator)]
        generators[module] = [(generator, generator.state) for generator in found]
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
