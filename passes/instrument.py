"""Instruments: code that a ``PassContext`` runs around passes, without any change to the passes or their order.

An instrument has five methods, all of which may be left out:

* ``enter_pass_ctx()`` and ``exit_pass_ctx()`` -- its context is entered and left;
* ``should_run(mod, info)`` -- false keeps a pass from running; not asked about a pass in the context's
  ``required_pass``;
* ``run_before_pass(mod, info)`` and ``run_after_pass(mod, info)`` -- right before and right after a pass that runs.

The order of one run is: every ``should_run`` (each instrument is asked, also after a veto), every ``run_before_pass``,
the pass, every ``run_after_pass``; always in the order of the context's list.

Passes that an instrument runs inside of one of its methods do not meet that instrument, but the others.

Four more are for instruments that need them:

* ``pass_failed(mod, info, error)`` -- a pass whose ``run_before_pass`` this instrument has completed ends by an
  exception, from the pass or from a ``run_after_pass``; for instruments that keep state between before and after;
* ``enter_step(name)`` and ``exit_step(name, error)`` -- a build begins and ends something that is no pass (the build
  itself, code generation, linking);
* ``remark(remark)`` -- a pass has said what it did, or why it did not (``PassContext.remark``).
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tilewright.tensorir.errors import ArgumentTypeError

if TYPE_CHECKING:
    from tilewright.graphir.module import IRModule
    from tilewright.passes.diagnostics import Remark
    from tilewright.passes.info import PassInfo

C = TypeVar("C")


class PassInstrument:
    """Base of all instruments; every method does nothing (and lets every pass run) until a subclass defines it."""

    #: Whether this instrument accepts passes over loop nests that run on a few functions of the module at a time, while
    #: code is generated for earlier ones (``PassContext.part``). For others, each pass runs on all functions.
    in_parts: bool = False

    _name: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the names of the methods of a new class.

        Raises:
            TypeError: one is nearly that of a method that is called, and would never be.
        """
        super().__init_subclass__(**kwargs)
        _check_methods(cls)

    @property
    def name(self) -> str:
        """The instrument's name in notes on errors: that of its class, unless set."""
        return self._name if self._name is not None else type(self).__name__

    @name.setter
    def name(self, value: str) -> None:
        self._name = value

    def enter_pass_ctx(self) -> None:
        """The context is being entered; passes have not run yet."""

    def exit_pass_ctx(self) -> None:
        """The context has been left, or this instrument is being replaced."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Return whether the pass may run on ``mod``."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass is about to run on ``mod``."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass has made ``mod``."""

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        """The pass that began on ``mod`` has failed: ``error`` is propagating."""

    def enter_step(self, name: str) -> None:
        """A build begins the step ``name``, which is no pass; passes may run in it."""

    def exit_step(self, name: str, error: BaseException | None) -> None:
        """The step has ended, by ``error`` if there is one."""

    def remark(self, remark: Remark) -> None:
        """A pass that runs in this instrument's context has made a remark."""

    def __repr__(self) -> str:
        return f"<pass instrument {self.name}>"


#: What is called, by its name without underscores.
_CALLED = {
    name.replace("_", ""): name
    for name, value in vars(PassInstrument).items()
    if isinstance(value, types.FunctionType) and not name.startswith("_")
}

#: How like one of these a name must be to be taken for a mistake: ``run_before``, ``runBeforePass``, ``before_pass``.
_LIKENESS = 0.77


def _check_methods(cls: type[Any]) -> None:
    for base in cls.__mro__[: cls.__mro__.index(PassInstrument)]:
        for name, value in vars(base).items():
            if name.startswith("_") or not isinstance(value, types.FunctionType) or name in _CALLED.values():
                continue
            plain = name.replace("_", "").lower()
            nearest = difflib.get_close_matches(plain, _CALLED, 2, _LIKENESS)
            if nearest and plain != "remarks":
                meant = " or ".join(_CALLED[near] for near in nearest)
                raise ArgumentTypeError(
                    f"instrument {cls.__name__}: nothing calls a method {name}; did you mean {meant}? "
                    f"(A method of your own may be called _{name}.)"
                )


def _instrument_class(cls: type[Any]) -> type[Any]:
    if not isinstance(cls, type):
        raise ArgumentTypeError(f"pass_instrument decorates a class; found {cls!r}")
    if issubclass(cls, PassInstrument):
        return cls
    return type(
        cls.__name__,
        (cls, PassInstrument),
        {"__doc__": cls.__doc__, "__module__": cls.__module__, "__qualname__": cls.__qualname__},
    )


@overload
def pass_instrument(cls: type[C]) -> type[C]: ...
@overload
def pass_instrument(cls: None = None) -> Callable[[type[C]], type[C]]: ...
def pass_instrument(cls: type[Any] | None = None) -> Any:
    """Class decorator: make instances of ``cls`` instruments.

    The class keeps its constructor, attributes and methods and may define any subset of an instrument's methods::

        @pass_instrument
        class SkipPass:
            def __init__(self, name):
                self.skipped = name

            def should_run(self, mod, info):
                return info.name != self.skipped

        with PassContext(instruments=[SkipPass("FuseOps")]):
            ...

    Raises:
        TypeError: ``cls`` is not a class, or has a method whose name is nearly that of one that is called.
    """
    return _instrument_class if cls is None else _instrument_class(cls)
