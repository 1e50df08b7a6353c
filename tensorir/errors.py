"""The errors that Tilewright raises: each says what was expected, what was found, and where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class TilewrightError(Exception):
    """Base of every error that Tilewright raises on purpose.

    Errors that NumPy users expect as built-in types (a wrong argument type, a bad value) inherit from both this
    class and the built-in one, so that ``except ValueError`` keeps working.
    """


class ArgumentTypeError(TilewrightError, TypeError):
    """An argument of a function or constructor has the wrong type: the message says expected and found."""


class ArgumentValueError(TilewrightError, ValueError):
    """An argument has the right type, but a value that it cannot have: the message says expected and found."""


class ArgumentIndexError(TilewrightError, IndexError):
    """An index of a tensor or a tuple is outside of it, or has too many parts."""


class NestingError(TilewrightError, RecursionError):
    """A program is nested too deeply: expressions, statements or loops within each other."""


class BudgetError(TilewrightError):
    """Legal work is too much to be begun: the message says the budget, and what would be needed."""


class TypeInferenceError(TilewrightError, TypeError):
    """An expression has no type: the message names operator, argument, expected and found."""


class ShapeError(TilewrightError, ValueError):
    """A shape is invalid: a size is negative, or the tensor has more bytes than memory has addresses."""


class VerifyError(TilewrightError):
    """A program breaks a rule of its IR: an undefined variable, a wrong type, an index out of bounds."""


class ParseError(TilewrightError, ValueError):
    """Text is not IR: the message shows the line with the offending place underlined."""


class BuilderError(TilewrightError, ValueError):
    """A builder of loops was used in a way that makes no function: the message says what was open, or missing."""


class ScheduleError(TilewrightError):
    """A schedule step would change what is computed; the message shows the IR with the place underlined.

    Rules try steps that may fail and continue without them, so the IR is only printed when the message is read.

    Args:
        message: what is wrong, and what was expected.
        place: returns the text that shows the place.
    """

    def __init__(self, message: str, place: Callable[[], str] | None = None) -> None:
        super().__init__(message)
        self._place = place

    @property
    def summary(self) -> str:
        """The first line of the message."""
        return str(self.args[0]).splitlines()[0]

    def __str__(self) -> str:
        if self._place is not None:
            self.args, self._place = (f"{self.args[0]}\n{self._place()}",), None
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),)


class UnsupportedOperatorError(TilewrightError, NotImplementedError):
    """A model needs operators that are not implemented; the message names all of them."""


class PassError(TilewrightError):
    """A pipeline is invalid: a cycle of required passes, a pass that did not return a module."""


class PassTypeError(PassError, TypeError):
    """A pass took or returned something of the wrong type: the message names pass, function, expected and found."""


class UnknownPassError(PassError, KeyError):
    """No pass has that name: the message suggests the closest known ones."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # KeyError would show the quoted repr of the message


class UnknownConfigError(PassError, AttributeError):
    """A key or a field of the pass configuration does not exist: the message lists the candidates, nearest first."""


class ConfigTypeError(PassError, TypeError):
    """A value of the pass configuration has the wrong type: the message names key, field, expected and found."""


class ConfigValueError(PassError, ValueError):
    """A value of the pass configuration has the right type but is invalid: the message names key, field and value."""


class SettingError(TilewrightError, ValueError):
    """An environment variable has an invalid value: the message names it, expected and found."""


class EncodingError(TilewrightError):
    """A function holds data that cannot be encoded, or its text cannot be decoded."""


class TargetError(TilewrightError, ValueError):
    """A target does not exist: its kind, an option, a processor or a system; the message has the nearest names."""


class CodegenError(TilewrightError):
    """The program holds a construct that the target cannot express."""


class ExecutionError(TilewrightError):
    """A compiled model was called wrongly or could not run."""


class InputError(ExecutionError, TypeError, ValueError):
    """An input does not match the signature: the message names the input, expected and found."""


class OutOfBoundsError(ExecutionError, IndexError):
    """A program accessed a buffer outside its shape: the message shows the access, the index and the extent."""


class UndefinedOperationError(ExecutionError, ZeroDivisionError):
    """A program divided an integer by zero or shifted by more bits than there are."""


class LinearAlgebraError(ExecutionError, ValueError):
    """A matrix cannot be inverted or factorized: the message names the operation, and what it found, where. (NumPy's
    ``LinAlgError`` is a ``ValueError``, too.)"""


class ArtifactError(TilewrightError, ValueError):
    """A file is not an artifact that this version and machine can use: the message says expected and found."""


def add_note(error: BaseException, note: str) -> None:
    """Attach ``note`` to ``error`` as PEP 678 does; also on Python 3.10, which has no ``add_note``."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        notes = list(getattr(error, "__notes__", ()))
        notes.append(note)
        error.__notes__ = notes  # type: ignore[attr-defined]
