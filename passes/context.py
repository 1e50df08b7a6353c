"""``PassContext``: the level, passes, options and instruments of the passes that run in a ``with`` block.

The current context is a context variable: a new thread begins with a default context of its own, an asyncio task with
the context that was current at its creation, and neither affects others. (Functions that copy context variables into
another thread on purpose, such as ``asyncio.to_thread``, pass on the current context.)
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.graphir.base import Expr
from tilewright.graphir.printer import summary
from tilewright.passes import config as options
from tilewright.passes.diagnostics import Remark
from tilewright.passes.info import PassInfo
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.location import set_ir_function
from tilewright.tensorir import forking
from tilewright.tensorir.arith.facts import Findings
from tilewright.tensorir.errors import ArgumentTypeError, PassError, add_note

if TYPE_CHECKING:
    from types import TracebackType

    from tilewright.graphir.module import IRModule
    from tilewright.passes.base import Pass

#: ``trace(mod, info, is_before)``: called before and after each pass that runs.
Trace = Callable[["IRModule", PassInfo, bool], None]

#: The contexts entered and not left yet, innermost last; empty means the thread's default context.
_ENTERED: ContextVar[tuple[PassContext, ...]] = ContextVar("tilewright_pass_contexts", default=())


_DEFAULT_CONTEXT_REMARKS = 10_000

#: The level of contexts and of the command line that name none: the highest at which floats are rounded as the model
#: says, so that all tools give the same numbers; others, of level 3, are asked for explicitly.
DEFAULT_OPT_LEVEL = 2


class Running(threading.local):
    """The pass and function that this thread is running: passes are synchronous, so one record per thread is enough."""

    def __init__(self) -> None:
        self.info: PassInfo | None = None
        self.function: str | None = None
        #: The pass for which instruments are being called.
        self.watched: Pass | None = None
        #: The number of the part of a module's functions that passes run on; None: all.
        self.part: int | None = None
        #: The instruments that the environment requests (see :mod:`.environment`); None: not looked up yet.
        self.watchers: tuple[PassInstrument, ...] | None = None
        #: The instruments, and trace functions, whose methods are running; they do not see the passes that they run.
        self.asked: tuple[object, ...] = ()
        #: In this session: names of passes that an instrument vetoed, with the instrument's.
        self.vetoed: dict[str, str] = {}
        #: Names of the functions that function passes transform; None: all.
        self.chosen: AbstractSet[str] | None = None
        #: The passes of the pipelines that are running, by name.
        self.pipeline: Mapping[str, Pass] = {}
        self.default_context: PassContext | None = None
        #: The facts that analyzers have derived about the functions in a pipeline, by function name; None: passes share
        #: no facts.
        self.findings: dict[str, Findings] | None = None
        #: Lists that also collect the remarks of this thread, innermost last.
        self.collecting: list[list[Remark]] = []


RUNNING = Running()


def is_asked(instrument: object) -> bool:
    """Return whether a method of the instrument is running in this thread."""
    return any(instrument is asked for asked in RUNNING.asked)


@contextlib.contextmanager
def asking(instrument: object) -> Iterator[None]:
    """Mark the instrument inside the ``with`` block, which runs a method of it. Passes that run there do not meet it
    again: it would run passes for these as well, without end."""
    running = RUNNING
    outer, watched = running.asked, running.watched
    running.asked = (*outer, instrument)
    try:
        yield
    finally:
        running.asked, running.watched = outer, watched


@functools.cache
def _logger(family: str) -> logging.Logger:
    """Return the logger of a family of passes; ``logging`` takes a lock to look one up, and remarks are many."""
    return logging.getLogger(f"tilewright.{family}")


class PassContext:
    """Settings under which passes run; ``with`` makes them current.

    Args:
        opt_level: 0 runs only passes that correctness needs; 1 simplifies, folds and fuses; 2 also chooses layouts,
            tiles, vectors and memory; 3 also changes algorithms in ways that round differently.
        required_pass: names of passes that run at every level; instruments cannot veto them.
        disabled_pass: names of passes that a pipeline leaves out; overrides ``required_pass``.
        instruments: the instruments that run around each pass, in this order.
        config: options of passes, by their key: a mapping of fields, or an instance of the registered dataclass.
        trace: a function ``(mod, info, is_before)``, called right after the instruments' methods before and after a
            pass.

    A context may be entered again, also while it is entered: its instruments enter with the first ``with`` and exit
    with the last, and its remarks begin with the first.

    Raises:
        TypeError: an argument has the wrong type.
        UnknownConfigError, ConfigTypeError, ConfigValueError: ``config`` names no registered option, or a field has the
            wrong type or a value that it cannot have.
    """

    def __init__(
        self,
        opt_level: int = DEFAULT_OPT_LEVEL,
        required_pass: Iterable[str] | None = (),
        disabled_pass: Iterable[str] | None = (),
        instruments: Sequence[PassInstrument] | None = (),
        config: Mapping[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> None:
        if trace is not None and not callable(trace):
            raise ArgumentTypeError(f"trace is a function (mod, info, is_before); found {trace!r}")
        self.opt_level = _checked_level(opt_level)
        self.trace = trace
        self._required = _names(required_pass, "required_pass")
        self._disabled = _names(disabled_pass, "disabled_pass")
        self._instruments = _checked_instruments(instruments)
        self._config = options.make_config(config if config is not None else {})
        self._remarks: deque[Remark] = deque()
        self._times_entered = 0
        self._lock = forking.RLock()

    @property
    def required_pass(self) -> tuple[str, ...]:
        """Names of the passes that run at every level."""
        return self._required

    @property
    def disabled_pass(self) -> tuple[str, ...]:
        """Names of the passes that pipelines leave out."""
        return self._disabled

    @property
    def instruments(self) -> list[PassInstrument]:
        """The instruments, in order (a copy; ``override_instruments`` changes them)."""
        return list(self._instruments)

    @property
    def config(self) -> Mapping[str, Any]:
        """The options that this context sets: key to dataclass instance."""
        return MappingProxyType(self._config)

    @property
    def remarks(self) -> list[Remark]:
        """The remarks of passes, in order (a copy); of a thread's default context the last 10,000."""
        return list(self._remarks)

    @staticmethod
    def current() -> PassContext:
        """The innermost context entered here, else the default context of this thread; never None."""
        entered = _ENTERED.get()
        if entered:
            return entered[-1]
        default = RUNNING.default_context
        if default is None:
            default = RUNNING.default_context = PassContext()
            default._times_entered = 1  # it is active as long as its thread lives ...
            default._remarks = deque(maxlen=_DEFAULT_CONTEXT_REMARKS)  # ... so its remarks must not grow without limit
        return default

    @staticmethod
    def watched_pass() -> Pass | None:
        """Return, inside of an instrument's method, the pass that it is called for, whose ``info`` is its argument."""
        return RUNNING.watched

    @staticmethod
    def part() -> int | None:
        """Return, for instruments with ``in_parts``, the number of the part of the functions that passes run on now,
        from 0; None: the whole module."""
        return RUNNING.part

    @staticmethod
    def list_configs() -> dict[str, dict[str, dict[str, Any]]]:
        """Every registered option: ``{key: {field: {"type": str, "default": value, "doc": str}}}``."""
        return options.list_configs()

    def get_config(self, key: str) -> Any:
        """Return the options of ``key`` as its dataclass: those that this context sets, else the defaults.

        Raises:
            UnknownConfigError: no such key (also an AttributeError); the message lists the candidates.
        """
        value = self._config.get(key)
        return value if value is not None else options.default_config(key)

    @property
    def is_fast(self) -> bool:
        """Whether float arithmetic may be reordered or rewritten, which rounds differently: from level 3 on."""
        return self.opt_level >= 3

    def pass_enabled(self, info: PassInfo) -> bool:
        """Return whether a pipeline runs the pass: disabled wins, then required, then the level decides."""
        name = info.name
        if name in self._disabled:
            return False
        return name in self._required or self.opt_level >= info.opt_level

    def remark(self, message: str, kind: str = "note", place: object = None, function: str | None = None) -> None:
        """Report a change to the user (kind ``"applied"``), the lack of one (``"missed"``), or a finding (``"note"``).

        The running pass and function are filled in. ``place`` is the IR line that the remark is about, or a node, which
        is shown as one line; a module pass names the function that it is working on, if any, with ``function``.
        """
        info = RUNNING.info
        said = Remark(
            pass_name=info.name if info is not None else "",
            function=function if function is not None else RUNNING.function or "",
            kind=kind,
            message=message,
            place="" if place is None else summary(place) if isinstance(place, Expr) else str(place),
        )
        self.repeat([said])
        _logger(info.family if info is not None else "passes").debug("%s", said)

    def repeat(self, remarks: Iterable[Remark]) -> None:
        """Repeat remarks of passes that ran at another time, in another context."""
        for remark in remarks:
            self._remarks.append(remark)
            for instrument in self._instruments:
                if not is_asked(instrument):
                    with asking(instrument):
                        instrument.remark(remark)
            for collected in RUNNING.collecting:
                collected.append(remark)

    @staticmethod
    @contextlib.contextmanager
    def collecting_remarks() -> Iterator[list[Remark]]:
        """Collect the remarks that passes make in this thread inside the ``with`` block, in any context."""
        collected: list[Remark] = []
        RUNNING.collecting.append(collected)
        try:
            yield collected
        finally:
            RUNNING.collecting.pop()

    @contextlib.contextmanager
    def in_function(self, name: str) -> Iterator[None]:
        """Attribute remarks and errors of a module pass inside the ``with`` block to function ``name``."""
        before = RUNNING.function
        RUNNING.function = name
        try:
            yield
        except Exception as error:
            set_ir_function(error, name)
            raise
        finally:
            RUNNING.function = before

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Tell the instruments of what a build does inside the ``with`` block besides running passes."""
        entered: list[PassInstrument] = []
        failure: BaseException | None = None
        try:
            for instrument in self._instruments:
                if not is_asked(instrument):
                    with asking(instrument):
                        instrument.enter_step(name)
                    entered.append(instrument)
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            for instrument in entered:
                with asking(instrument):
                    instrument.exit_step(name, failure)

    @contextlib.contextmanager
    def at_level(self, opt_level: int, config: Mapping[str, Any] | None = None) -> Iterator[PassContext]:
        """Make this context with another level current inside the ``with`` block. Instruments, which have entered
        already, stay as they are, and remarks go to both.

        Args:
            opt_level: the level.
            config: options of passes that this context does not set itself.
        """
        made, before = copy.copy(self), self._instruments
        made.opt_level = _checked_level(opt_level)
        made._config = {**options.make_config(config if config is not None else {}), **self._config}
        _ENTERED.set((*_ENTERED.get(), made))
        try:
            yield made
        finally:
            _ENTERED.set(tuple(entered for entered in _ENTERED.get() if entered is not made))
            if made._instruments is not before:  # a pass has replaced them
                self._instruments = made._instruments

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Replace the instruments: the old ones exit, then the new ones enter.

        If either fails, the context is left without instruments and the error propagates. In a context that is not
        entered, nothing exits or enters: the new ones enter with the next ``with``.
        """
        new = _checked_instruments(instruments)
        with self._lock:
            if self._times_entered:
                self._exit_instruments()
            self._instruments = new
            if self._times_entered:
                self._enter_instruments()

    def __enter__(self) -> PassContext:
        with self._lock:
            if self._times_entered == 0:
                self._remarks.clear()
                self._enter_instruments()
            self._times_entered += 1
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entered = _ENTERED.get()
        # A generator that is closed late may leave its context when it is not the innermost one any more.
        position = next((i for i in reversed(range(len(entered))) if entered[i] is self), None)
        if position is None:
            raise PassError(f"{self!r} was exited but never entered")
        _ENTERED.set(entered[:position] + entered[position + 1 :])
        with self._lock:
            self._times_entered -= 1
            if self._times_entered == 0:
                self._exit_instruments()

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={list(self._required)}, "
            f"disabled_pass={list(self._disabled)}, instruments={list(self._instruments)}, config={self._config})"
        )

    def _enter_instruments(self) -> None:
        """Enter each instrument; after a failure those that had entered exit in reverse, and the list is emptied."""
        finished: list[PassInstrument] = []
        for instrument in self._instruments:
            try:
                instrument.enter_pass_ctx()
            except BaseException as error:
                add_note(error, f"instrument {instrument.name} failed to enter the pass context")
                self._instruments = ()
                _exit_after_failure(finished, error)
                raise
            finished.append(instrument)

    def _exit_instruments(self) -> None:
        """Exit each instrument; after a failure the rest do not exit, and the list is emptied."""
        for instrument in self._instruments:
            try:
                instrument.exit_pass_ctx()
            except BaseException as error:
                add_note(error, f"instrument {instrument.name} failed to exit the pass context")
                self._instruments = ()
                raise


def _exit_after_failure(instruments: list[PassInstrument], error: BaseException) -> None:
    """Exit all instruments in reverse; note further failures on ``error``, which the caller raises."""
    for instrument in reversed(instruments):
        try:
            instrument.exit_pass_ctx()
        except Exception as second:
            add_note(error, f"then instrument {instrument.name} failed to exit: {type(second).__name__}: {second}")


def _checked_level(opt_level: int) -> int:
    if isinstance(opt_level, bool) or not isinstance(opt_level, int):
        raise ArgumentTypeError(f"opt_level is an integer; found {opt_level!r}")
    return opt_level


def _names(names: Iterable[str] | None, what: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if isinstance(names, (str, bytes)) or not isinstance(names, (list, tuple, AbstractSet)):
        raise ArgumentTypeError(f"{what} is a list of pass names; found {type(names).__name__}: {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{what} holds names of passes; found {type(name).__name__}: {name!r}")
    return tuple(names)


def _checked_instruments(instruments: Sequence[PassInstrument] | None) -> tuple[PassInstrument, ...]:
    if instruments is None:
        return ()
    if not isinstance(instruments, (list, tuple)):
        raise ArgumentTypeError(f"instruments is a list; found {type(instruments).__name__}: {instruments!r}")
    for instrument in instruments:
        if not isinstance(instrument, PassInstrument):
            hint = (
                f"; {instrument.__name__} is a class, make an instance: {instrument.__name__}(...)"
                if isinstance(instrument, type)
                else "; subclass PassInstrument or decorate its class with pass_instrument"
            )
            raise ArgumentTypeError(f"instruments holds {instrument!r}, which is no PassInstrument{hint}")
    return tuple(instruments)
