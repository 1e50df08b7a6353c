"""The trace of a schedule: the primitives that were applied, with symbolic handles. It prints as the Python code that
made the schedule, is saved as JSON, and is replayed on another function."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, ScheduleError, TilewrightError
from tilewright.tensorir.expr import Buffer, Expr, IntImm
from tilewright.tensorir.schedule.handles import BlockRef, LoopRef
from tilewright.tensorir.schedule.index_map import IndexMap, parse_expr
from tilewright.tensorir.stmt import PrimFunc

Handle = BlockRef | LoopRef


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A handle's name in the trace: ``b0`` for a block, ``l3`` for a loop."""

    name: str


@dataclasses.dataclass(frozen=True)
class Text:
    """An index expression (kind ``expr``) or an index map (kind ``index_map``), as its text."""

    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One applied primitive. Arguments are plain values, symbols and texts, or lists of them.

    Attributes:
        outputs: the symbols of the handles that it returned.
        is_list: whether it returned them in a list.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[str, ...] = ()
    is_list: bool = False

    def __str__(self) -> str:
        arguments = [_source(arg) for arg in self.args] + [f"{key}={_source(v)}" for key, v in self.kwargs.items()]
        call = f"sch.{self.name}({', '.join(arguments)})"
        if not self.outputs:
            return call
        target = ", ".join(self.outputs)
        return f"[{target}] = {call}" if self.is_list and len(self.outputs) == 1 else f"{target} = {call}"


class _Replayable(Protocol):
    @property
    def func(self) -> PrimFunc: ...

    def primitive(self, name: str) -> Callable[..., Any]:
        """The primitive of that name."""


class Trace:
    """The instructions of a schedule, in order."""

    def __init__(self, instructions: Sequence[Instruction] = ()) -> None:
        self._instructions = list(instructions)
        #: Calls behind the instructions, with copies of lists, and what they returned: they become instructions when
        #: these are asked for, which is never for most schedules.
        self._calls: list[tuple[str, Sequence[Any], Mapping[str, Any], tuple[Handle, ...], bool]] = []
        #: The handles that were returned.
        self._handles: set[Handle] = set()
        #: The names of those that instructions returned.
        self._symbols: dict[Handle, str] = {}
        self._counts = {"b": 0, "l": 0}

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions so far."""
        for name, args, kwargs, result, is_list in self._calls:
            encoded = tuple([self._encode(arg) for arg in args])
            named = {key: self._encode(value) for key, value in kwargs.items()}
            outputs = tuple([self._symbol(handle) for handle in result])
            self._instructions.append(Instruction(name, encoded, named, outputs, is_list))
        self._calls.clear()
        return self._instructions

    def __len__(self) -> int:
        return len(self._instructions) + len(self._calls)

    def __str__(self) -> str:
        return "\n".join(str(instruction) for instruction in self.instructions)

    def copy(self) -> Trace:
        """Return an independent copy, which can continue to record."""
        made = Trace(self._instructions)
        made._calls = list(self._calls)
        made._handles = set(self._handles)
        made._symbols = dict(self._symbols)
        made._counts = dict(self._counts)
        return made

    # -- recording -------------------------------------------------------------------------------------------------

    def record(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Append an instruction; handles among the arguments and in the result become symbols."""
        if args:
            args = [self._kept(arg) for arg in args]
        if kwargs:
            kwargs = {key: self._kept(value) for key, value in kwargs.items()}
        outputs: tuple[Handle, ...] = ()
        is_list = isinstance(result, (list, tuple))
        if is_list:
            outputs = tuple(result)
        elif isinstance(result, (BlockRef, LoopRef)):
            outputs = (result,)
        self._handles.update(outputs)
        self._calls.append((name, args, kwargs, outputs, is_list))

    def _kept(self, value: Any) -> Any:
        """Return ``value``, an argument, with lists copied.

        Raises:
            ScheduleError: it holds a handle that this schedule did not return.
        """
        if isinstance(value, (BlockRef, LoopRef)):
            if value not in self._handles:
                raise ScheduleError(f"{value} was not returned by this schedule")
        elif isinstance(value, (list, tuple)):
            return [self._kept(item) for item in value]
        return value

    def _symbol(self, handle: Handle) -> str:
        found = self._symbols.get(handle)
        if found is None:
            letter = "b" if isinstance(handle, BlockRef) else "l"
            found = self._symbols[handle] = f"{letter}{self._counts[letter]}"
            self._counts[letter] += 1
        return found

    def _encode(self, value: Any) -> Any:
        if isinstance(value, (BlockRef, LoopRef)):
            return Symbol(self._symbols[value])
        if isinstance(value, list):
            return [self._encode(item) for item in value]
        if isinstance(value, Buffer):
            return value.name
        if isinstance(value, IntImm):
            return value.value
        if isinstance(value, Expr):
            return Text("expr", str(value))
        if isinstance(value, IndexMap):
            return Text("index_map", str(value))
        return value

    # -- replaying -------------------------------------------------------------------------------------------------

    def apply(self, schedule: _Replayable) -> dict[str, Handle]:
        """Apply the instructions to another schedule: of the same function, or of one with other extents.

        Returns:
            the handles by their symbols.

        Raises:
            ScheduleError: an instruction is not legal there, or gives another number of handles.
        """
        handles: dict[str, Handle] = {}
        for instruction in self.instructions:
            function = schedule.primitive(instruction.name)
            args = [_decode(arg, handles, schedule.func) for arg in instruction.args]
            kwargs = {key: _decode(value, handles, schedule.func) for key, value in instruction.kwargs.items()}
            try:
                result = function(*args, **kwargs)
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                if isinstance(error, TilewrightError):
                    raise
                raise ScheduleError(f"replaying {instruction}: {error}") from error
            if not instruction.outputs:
                continue
            made = list(result) if isinstance(result, (list, tuple)) else [result]
            if len(made) != len(instruction.outputs):
                raise ScheduleError(
                    f"replaying {instruction}: expected {len(instruction.outputs)} handles, found {len(made)}"
                )
            handles.update(zip(instruction.outputs, made, strict=True))
        return handles

    # -- saving ----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The trace as JSON text."""
        return json.dumps([_instruction_to_plain(instruction) for instruction in self.instructions])

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """The trace that :meth:`to_json` wrote.

        Raises:
            ScheduleError: the text is not a trace.
        """
        try:
            return cls([_instruction_from_plain(plain) for plain in json.loads(text)])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ScheduleError(f"not a trace: {error}") from error


def _source(value: Any) -> str:
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Text):
        return value.text
    if isinstance(value, list):
        return "[" + ", ".join(_source(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _decode(value: Any, handles: Mapping[str, Handle], func: PrimFunc) -> Any:
    if isinstance(value, Symbol):
        if value.name not in handles:
            raise ScheduleError(f"the trace uses {value.name} before any instruction returns it")
        return handles[value.name]
    if isinstance(value, list):
        return [_decode(item, handles, func) for item in value]
    if isinstance(value, Text):
        known = {var.name: var for var in func.variables}
        if value.kind == "index_map":
            return IndexMap.parse(value.text, known)
        return parse_expr(value.text, known)
    return value


def _to_plain(value: Any) -> Any:
    if isinstance(value, Symbol):
        return {"handle": value.name}
    if isinstance(value, Text):
        return {value.kind: value.text}
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ScheduleError(f"a trace cannot save {value!r}")


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(item) for item in value]
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if not isinstance(content, str):
            raise ArgumentTypeError(f"{kind}: expected a text, found {content!r:.80}")
        if kind == "handle":
            return Symbol(content)
        if kind == "float":
            return float(content)
        if kind in ("expr", "index_map"):
            return Text(kind, content)
        raise ArgumentValueError(f"unknown kind of argument {kind!r}")
    return value


def _instruction_to_plain(instruction: Instruction) -> dict[str, Any]:
    return {
        "name": instruction.name,
        "args": [_to_plain(arg) for arg in instruction.args],
        "kwargs": {key: _to_plain(value) for key, value in instruction.kwargs.items()},
        "outputs": list(instruction.outputs),
        "is_list": instruction.is_list,
    }


def _instruction_from_plain(plain: Mapping[str, Any]) -> Instruction:
    names = [plain["name"], *plain["outputs"]]
    if not all(isinstance(name, str) for name in names):
        raise ArgumentTypeError(f"expected the name of a primitive and of its handles, found {names!r:.80}")
    return Instruction(
        plain["name"],
        tuple(_from_plain(arg) for arg in plain["args"]),
        {key: _from_plain(value) for key, value in plain["kwargs"].items()},
        tuple(plain["outputs"]),
        bool(plain["is_list"]),
    )


F = TypeVar("F", bound=Callable[..., Any])

#: The names of a schedule's primitives.
PRIMITIVES: set[str] = set()


def recorded(method: F) -> F:
    """Decorate a method of a schedule: a call that succeeds is recorded in the trace, and one that fails leaves the
    schedule as it was."""
    name = method.__name__.lstrip("_")
    PRIMITIVES.add(name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self._state
        try:
            result = method(self, *args, **kwargs)
            self.trace.record(name, args, kwargs, result)
        except BaseException:
            self._state = before
            raise
        return result

    return cast(F, call)
