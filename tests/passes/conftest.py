"""Share fixtures of the tests of the pass infrastructure: small modules, an instrument that records, a writable
registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Pass, PassInstrument, config, module_pass, registry
from tilewright.tensorir.expr import const
from tilewright.tensorir.stmt import Evaluate, PrimFunc


@pytest.fixture
def graph_function() -> gi.Function:
    """A graph function that returns its argument."""
    x = gi.var("x", shape=(4,), dtype="float32")
    return gi.Function([x], x)


@pytest.fixture
def mod(graph_function: gi.Function) -> IRModule:
    """A module of one graph function, ``main``."""
    return IRModule({"main": graph_function})


@pytest.fixture
def mixed_mod(graph_function: gi.Function) -> IRModule:
    """A module of two graph functions, ``main`` and ``other``, and a loop-level one, ``kernel``."""
    y = gi.var("y", shape=(2, 3), dtype="float32")
    return IRModule(
        {
            "main": graph_function,
            "other": gi.Function([y], y),
            "kernel": PrimFunc("kernel", (), Evaluate(const(0, "int32"))),
        }
    )


class Recorder(PassInstrument):
    """Appends each call to a list that several recorders share, and raises where it is told to."""

    def __init__(self, name: str, events: list[str], fails_in: str = "", vetoes: tuple[str, ...] = ()) -> None:
        self.name = name
        self.events = events
        self.fails_in = fails_in
        self.vetoes = vetoes

    def _record(self, what: str, info: Any = None) -> None:
        self.events.append(f"{self.name}.{what}" + (f" {info.name}" if info is not None else ""))
        if self.fails_in == what:
            raise ValueError(f"{self.name} {what}")

    def enter_pass_ctx(self) -> None:
        self._record("enter")

    def exit_pass_ctx(self) -> None:
        self._record("exit")

    def should_run(self, mod: IRModule, info: Any) -> bool:
        self._record("should", info)
        return info.name not in self.vetoes

    def run_before_pass(self, mod: IRModule, info: Any) -> None:
        self._record("before", info)

    def run_after_pass(self, mod: IRModule, info: Any) -> None:
        self._record("after", info)


@pytest.fixture
def events() -> list[str]:
    """Return the events, in order."""
    return []


@pytest.fixture
def make_pass(events: list[str]) -> Callable[..., Pass]:
    """Makes passes that record that they run, and raise if told to."""

    def make(name: str, fails: bool = False, **options: Any) -> Pass:
        def transform(mod: Any, ctx: Any) -> Any:
            events.append(f"run {name}")
            if fails:
                raise ZeroDivisionError(name)
            return IRModule(mod.functions)

        return module_pass(transform, opt_level=0, name=name, **options)

    return make


@pytest.fixture
def recorder(events: list[str]) -> Callable[..., Recorder]:
    """Makes recorders that write to ``events``."""
    return lambda name, **options: Recorder(name, events, **options)


@pytest.fixture
def scratch_registry() -> Iterator[None]:
    """The test may register passes and options; they are forgotten afterwards."""
    passes, options = set(registry._REGISTRY), set(config._OPTIONS)
    yield
    for name in set(registry._REGISTRY) - passes:
        del registry._REGISTRY[name]
    for key in set(config._OPTIONS) - options:
        del config._OPTIONS[key]
