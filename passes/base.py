"""Passes: functions from module to module that carry a ``PassInfo`` and run under the context's instruments.

Every pass is called as ``new_mod = some_pass(mod)`` or ``some_pass(mod, ctx)``. A pass that is called directly always
runs (unless an instrument vetoes it); only a ``Sequential`` asks the context whether its passes are enabled.
"""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.collector import pause_collector, resume_collector
from tilewright.passes.context import RUNNING, PassContext, asking, is_asked
from tilewright.passes.diagnostics import note_pass_failure
from tilewright.passes.environment import session
from tilewright.passes.info import PassInfo
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.tables import format_seconds
from tilewright.tensorir.errors import PassTypeError, add_note
from tilewright.tensorir.nesting import check_extent
from tilewright.tensorir.stmt import PrimFunc

Answer = TypeVar("Answer")

_LOG = logging.getLogger("tilewright.passes")

#: A function with this attribute (and a true value) is left untouched by function passes.
SKIP_OPTIMIZATION = "SkipOptimization"


class Pass(abc.ABC):
    """Base of all passes. A pass never changes the module that it is given: it returns another one, or the same.

    Attributes:
        info: name, level and required passes; of the class, or of the instance.
    """

    info: PassInfo

    #: Whether code generation needs the pass. An essential function pass also runs on functions with SkipOptimization.
    #: The decorators copy it to ``info``.
    essential: ClassVar[bool] = False

    #: The logger that gets the pass's messages is ``tilewright.<family>``. The decorators copy it to ``info``.
    family: ClassVar[str] = "passes"

    #: Whether it is a ``Sequential``, which a build asks some hundred times: ``isinstance`` takes longer for classes
    #: with abstract methods.
    _is_pipeline: ClassVar[bool] = False

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        """Run on ``mod`` under ``ctx`` (the current context if None), with the context's instruments around.

        Raises:
            PassTypeError: ``mod`` is no module, or the pass returned something else than a module (function).
            NestingError, BudgetError: a function is nested too deeply, or too large.
            Exception: whatever the pass or an instrument raises, with a note that names pass, function and IR line.
        """
        if ctx is None:
            ctx = PassContext.current()
        if not isinstance(mod, IRModule):
            raise PassTypeError(f"pass {self.info.name}: expected an IRModule, found {type(mod).__name__}")
        if RUNNING.watchers is None:  # the outermost running pass, outside of a build
            what = f"pass {self.info.name}"
            for func in mod._functions.values():
                if func.__class__ is PrimFunc:
                    check_extent(what, (func,), chains=True)
            with session(what):  # calling itself again here would make small passes slower
                watched = ctx._instruments or RUNNING.watchers or ctx.trace is not None
                return self._run_instrumented(mod, ctx) if watched else self._run(mod, ctx)
        if ctx._instruments or RUNNING.watchers or ctx.trace is not None:
            return self._run_instrumented(mod, ctx)
        return self._run(mod, ctx)

    @abc.abstractmethod
    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Transform ``mod`` as this kind of pass does; the caller runs instruments and adds notes to errors."""

    def _run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        running = RUNNING
        outer_info, outer_function = running.info, running.function
        running.info, running.function = self.info, None
        logged = _LOG.isEnabledFor(logging.DEBUG)
        start = time.perf_counter() if logged else 0.0
        if outer_info is None:  # a pass around this one has paused the collector
            pause_collector()
        try:
            result = self._transform(mod, ctx)
            if not isinstance(result, IRModule):
                raise PassTypeError(
                    f"pass {self.info.name}: expected an IRModule to be returned, found {_describe(result)}"
                )
            if logged:
                _log_run(self.info, mod, result, time.perf_counter() - start)
            return result
        except Exception as error:
            note_pass_failure(error, self.info, running.function, mod)
            raise
        finally:
            if outer_info is None:
                resume_collector()
            running.info, running.function = outer_info, outer_function

    def _run_instrumented(self, mod: IRModule, ctx: PassContext) -> IRModule:
        info = self.info
        own, others = ctx._instruments, RUNNING.watchers or ()
        instruments = (*own, *others)
        if RUNNING.asked:
            instruments = tuple(each for each in instruments if not is_asked(each))
        RUNNING.watched = self
        if info.name not in ctx._required:
            # After a veto the others are asked too: an instrument may count passes in should_run.
            vetoes = [each.name for each in instruments if not _ask(each.should_run, each, mod, info)]
            if vetoes:
                RUNNING.vetoed[info.name] = vetoes[0]
                return mod
        begun = ended = 0
        try:
            for instrument in instruments:
                _ask(instrument.run_before_pass, instrument, mod, info)
                begun += 1
            _trace(ctx, mod, info, True)
            result = self._run(mod, ctx)
            RUNNING.watched = self  # inner passes have replaced it
            for instrument in instruments:
                # Where the pass has replaced the instruments, those that have exited are done.
                if ctx._instruments is own or any(still is instrument for still in (*ctx._instruments, *others)):
                    _ask(instrument.run_after_pass, instrument, result, info)
                ended += 1
            _trace(ctx, result, info, False)
            return result
        except BaseException as error:
            RUNNING.watched = self
            for instrument in reversed(instruments[ended:begun]):
                _tell_failure(instrument, mod, info, error)
            raise

    def __repr__(self) -> str:
        kind = next(base.__name__ for base in type(self).__mro__ if base.__module__ == __name__)
        return f"<{kind} {self.info.name}, opt_level {self.info.opt_level}>"


class ModulePass(Pass):
    """A pass that sees the whole module and may add and remove functions. Subclasses define ``transform_module``."""

    @abc.abstractmethod
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the transformed module; ``mod`` itself if there was nothing to do."""

    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.transform_module(mod, ctx)


class _EachFunctionPass(Pass):
    """Base of function passes of both IRs: one call for each function of their kind; none is added or removed."""

    function_type: ClassVar[type[Any]]

    @abc.abstractmethod
    def transform_function(self, func: Any, mod: IRModule, ctx: PassContext) -> Any:
        """The transformed function; ``func`` itself if there was nothing to do."""

    def _transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        running = RUNNING
        kind, chosen = self.function_type, running.chosen
        updates: dict[Any, Any] = {}
        given = dict(mod._functions)
        for gv, func in given.items():
            if not isinstance(func, kind) or (not self.essential and func.attrs.get(SKIP_OPTIMIZATION)):
                continue
            if chosen is not None and gv.name not in chosen:
                continue
            running.function = gv.name
            result = self.transform_function(func, mod, ctx)
            if result is func:
                continue
            if not isinstance(result, kind):
                raise PassTypeError(
                    f"pass {self.info.name} on function @{gv.name}: expected {_type_name(kind)} to be returned, "
                    f"found {_describe(result)}"
                )
            updates[gv] = result
        running.function = None
        if mod._functions != given:
            raise self._changed_module(mod, given)
        return mod.with_functions(updates) if updates else mod

    def _changed_module(self, mod: IRModule, given: Mapping[Any, Any]) -> PassTypeError:
        """Make the error for a pass that changed ``mod``, whose functions were ``given``."""
        now = mod.functions
        names = sorted({gv.name for gv in (*now, *given) if now.get(gv) is not given.get(gv)})
        return PassTypeError(
            f"pass {self.info.name} has changed the module that it was given (@{', @'.join(names)}); a function pass "
            "returns one function for each: what adds or replaces others is a module_pass, which returns a new module"
        )


class FunctionPass(_EachFunctionPass):
    """A pass over each graph-level ``Function`` of a module. Subclasses define ``transform_function``."""

    function_type = Function

    @abc.abstractmethod
    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """The transformed function; ``func`` itself if there was nothing to do."""


class PrimFuncPass(_EachFunctionPass):
    """A pass over each loop-level ``PrimFunc`` of a module. Subclasses define ``transform_function``."""

    function_type = PrimFunc

    @abc.abstractmethod
    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """The transformed function; ``func`` itself if there was nothing to do."""


def _ask(
    method: Callable[[IRModule, PassInfo], Answer], instrument: PassInstrument, mod: IRModule, info: PassInfo
) -> Answer:
    """Call a method of an instrument; note on its errors the instrument, the method and the pass."""
    try:
        with asking(instrument):
            return method(mod, info)
    except Exception as error:
        add_note(error, f"in instrument {instrument.name}.{getattr(method, '__name__', method)}, pass {info.name}")
        raise


def _log_run(info: PassInfo, before: IRModule, after: IRModule, seconds: float) -> None:
    changed = "" if after is not before else ", changed nothing"
    _LOG.debug("%s on %d functions: %s%s", info.name, len(before), format_seconds(seconds), changed)


def _trace(ctx: PassContext, mod: IRModule, info: PassInfo, is_before: bool) -> None:
    if ctx.trace is None or is_asked(ctx.trace):
        return
    try:
        with asking(ctx.trace):
            ctx.trace(mod, info, is_before)
    except Exception as error:
        add_note(error, f"in the trace function {'before' if is_before else 'after'} pass {info.name}")
        raise


def _tell_failure(instrument: PassInstrument, mod: IRModule, info: PassInfo, error: BaseException) -> None:
    try:
        with asking(instrument):
            instrument.pass_failed(mod, info, error)
    except Exception as second:  # the first error is the one to show; a note reports the second
        add_note(error, f"then instrument {instrument.name}.pass_failed: {type(second).__name__}: {second}")


def _type_name(cls: type[Any]) -> str:
    return f"a {cls.__module__.split('.')[1]} {cls.__name__}" if "." in cls.__module__ else cls.__name__


def _describe(value: object) -> str:
    hint = " (does it lack a return statement?)" if value is None else ""
    return f"{type(value).__name__}{hint}"
