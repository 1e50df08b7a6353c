"""``VerifyInstrument``: verify the module after every pass, and that the pass did not change its input."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tilewright.graphir.expr import Function
from tilewright.graphir.module import AnyFunction
from tilewright.graphir.structural import structural_hash
from tilewright.graphir.verify import problems_of
from tilewright.passes.instrument import PassInstrument
from tilewright.passes.location import set_ir_function
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.structural import structural_hash as loop_level_hash

if TYPE_CHECKING:
    from tilewright.graphir.expr import GlobalVar
    from tilewright.graphir.module import IRModule
    from tilewright.passes.info import PassInfo

_MAX_SHOWN = 20


class VerifyInstrument(PassInstrument):
    """Verify the module after every pass; errors name the pass that broke a rule, the function and the line.

    A module that no pass returned is verified before the first pass that gets it, so that a wrong input is not
    attributed to a pass. Functions that a pass did not change are not verified again.

    A pass must not change its input. That the input still has the same functions is always checked.

    Args:
        check_mutation: also check by hashes that no node and no constant's data in the input's functions has changed.
            That takes longer than most passes.

    Raises:
        VerifyError: (when a pass runs) a rule is broken, or a pass changed its input.
    """

    def __init__(self, check_mutation: bool = False) -> None:
        self._check_mutation = check_mutation
        self._open = _Open()
        #: Functions that were verified: those of the last module.
        self._good: dict[GlobalVar, AnyFunction] = {}
        self._hashes: dict[AnyFunction, int] = {}

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._verify(mod, f"the input module of pass {info.name} breaks rules of the IR (no earlier pass returned it)")
        functions = mod.functions
        hashes: dict[AnyFunction, int] = {}
        if self._check_mutation:
            # Functions hashed after the previous pass (see below) need not be hashed again.
            hashes = {
                function: self._hashes[function] if function in self._hashes else _hash(function)
                for function in functions.values()
            }
        self._open.inputs.append((mod, functions, hashes))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        given, functions, hashes = self._open.inputs[-1]
        who = f"pass {info.name} (opt_level {info.opt_level})"
        _check_functions(given, functions, who)
        self._hashes = {function: _hash(function) for function in hashes}
        changed = [
            key.name for key, function in functions.items() if self._hashes.get(function) != hashes.get(function)
        ]
        if changed:
            raise _error(f"{who} changed the function @{changed[0]} of its input module", changed[0])
        self._verify(mod, f"{who} returned a module that breaks rules of the IR")
        self._open.inputs.pop()

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        self._open.inputs.pop()

    def _verify(self, mod: IRModule, what: str) -> None:
        functions = mod.functions
        if functions == self._good:
            return
        problems: list[tuple[str, str]] = []
        for key, function in functions.items():
            # A graph function is verified again, as the functions that it calls may have changed.
            if isinstance(function, Function) or self._good.get(key) is not function:
                problems.extend((key.name, problem) for problem in problems_of(mod, key))
        if problems:
            shown = [f"@{name}: {problem}" for name, problem in problems[:_MAX_SHOWN]]
            if len(problems) > _MAX_SHOWN:
                shown.append(f"... and {len(problems) - _MAX_SHOWN} more")
            raise _error("\n".join([f"{what}:", *shown]), problems[0][0])
        self._good = functions


class _Open(threading.local):
    """For each pass that is running on this thread: its input module, the functions in it, and their hashes."""

    def __init__(self) -> None:
        self.inputs: list[tuple[IRModule, dict[GlobalVar, AnyFunction], dict[AnyFunction, int]]] = []


def _check_functions(mod: IRModule, before: dict[GlobalVar, AnyFunction], who: str) -> None:
    """Check that a pass did not add, remove or replace functions of its input module."""
    old, new = ({key.name: function for key, function in known.items()} for known in (before, mod.functions))
    for name in [*old, *new]:
        if old.get(name) is not new.get(name):
            what = "added" if name not in old else "removed" if name not in new else "replaced"
            raise _error(f"{who} {what} the function @{name} of its input module", name)


def _hash(function: AnyFunction) -> int:
    return structural_hash(function) if isinstance(function, Function) else loop_level_hash(function)


def _error(message: str, function: str) -> VerifyError:
    error = VerifyError(message)
    set_ir_function(error, function)
    return error
