"""State the conditions that a model has for sizes, in words where they are simple."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graphir.dims import Dim, symbols_of
from tilewright.runtime.dims import compile_dims
from tilewright.tensorir.expr import Var

#: Sizes that a condition on one dimension is tried on, to say which ones fulfil it.
_TRIED = 512


class Condition:
    """A condition on the sizes of a model: two are equal, or one is not negative.

    Args:
        found: the size.
        expected: the size that it must equal; None: it must be at least ``least``.
        where: the place in the model, for messages.
    """

    def __init__(self, found: Dim, expected: Dim | None = None, where: str = "", least: int = 1) -> None:
        self.found, self.expected, self.where, self.least = found, expected, where, least
        dims = [found] if expected is None else [found, expected]
        self.symbols: tuple[Var, ...] = tuple(symbols_of(dims))
        self._evaluate = compile_dims(dims, self.symbols)

    def holds(self, sizes: Mapping[Var, int]) -> bool:
        """Return whether it holds for the sizes of all of its symbols."""
        try:
            values = self._evaluate(*(sizes[symbol] for symbol in self.symbols))
        except ZeroDivisionError:
            return False
        return values[0] >= self.least if self.expected is None else values[0] == values[1]

    def __str__(self) -> str:
        return f"{in_words(self)} ({self.where})" if self.where else in_words(self)


def in_words(condition: Condition) -> str:
    """Return a condition in words, as ``h must be a multiple of 32``; its formula where no such words fit. The words
    are those for sizes up to a few hundred."""
    if isinstance(condition.found, Var) and isinstance(condition.expected, Var):
        return f"{condition.found.name} must be {condition.expected.name}"
    if len(condition.symbols) == 1:
        (symbol,) = condition.symbols
        accepted = [size for size in range(1, _TRIED + 1) if condition.holds({symbol: size})]
        words = _pattern(accepted)
        if words:
            return f"{symbol.name} must be {words}"
    if condition.expected is None:
        return f"{condition.found!s} must be at least {condition.least}"
    return f"{condition.found!s} must be {condition.expected!s}"


def _pattern(accepted: Sequence[int]) -> str:
    """Return what sizes have in common, of those up to ``_TRIED``; empty if that is not simple."""
    if len(accepted) == 1:
        return str(accepted[0])
    if not accepted:
        return ""
    first, step = accepted[0], accepted[1] - accepted[0]
    if list(accepted) != list(range(first, accepted[-1] + 1, step)):
        return ""
    if accepted[-1] + step <= _TRIED:  # larger ones are not accepted
        return f"from {first} to {accepted[-1]}" if step == 1 else ""
    if step == 1:
        return f"at least {first}"
    if first % step == 0:
        return f"a multiple of {step}" + (f", at least {first}" if first > step else "")
    return f"a multiple of {step} plus {first % step}" + (f", at least {first}" if first > step else "")
