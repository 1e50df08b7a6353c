"""State the conditions that a model has for sizes, in words where they are simple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.graphir.dims import Dim, symbols_of
from tilewright.runtime.dims import compile_dims
from tilewright.tensorir.expr import Var

#: Sizes that a condition on one dimension is tried on, to say which ones fulfil it.
_TRIED = 512
#: So many sizes are listed one by one; so many groups of neighbours show how they repeat.
_FEW, _FEWEST_GROUPS = 4, 4


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
        words = _pattern(_accepted(condition.symbols[0], [condition], {}))
        if words:
            return f"{condition.symbols[0].name} must be {words}"
    if condition.expected is None:
        return f"{condition.found!s} must be at least {condition.least}"
    return f"{condition.found!s} must be {condition.expected!s}"


def words_for(failed: Condition, conditions: Iterable[Condition], sizes: Mapping[Var, int]) -> str:
    """Return which sizes would do instead of those that do not fulfil a condition.

    Conditions on the same dimensions are taken together: of the layers of a network that halves an image five times
    and doubles it again, each has a condition of its own, and all of them ask for a multiple of 32.

    Args:
        failed: the condition that the sizes do not fulfil.
        conditions: all conditions of the model.
        sizes: the sizes of the dimensions, at least those that ``failed`` is about.
    """
    if isinstance(failed.found, Var) and isinstance(failed.expected, Var):
        return in_words(failed)
    about = [condition for condition in conditions if set(condition.symbols) <= set(failed.symbols)]
    for symbol in failed.symbols:
        accepted = _accepted(symbol, [failed, *about], sizes)
        others = ", ".join(f"{other.name}={sizes[other]}" for other in failed.symbols if other is not symbol)
        where = f" where {others}" if others else ""
        words = _pattern(accepted)
        if words:
            return f"{symbol.name} must be {words}{where}"
        size = sizes[symbol]
        near = [*[each for each in accepted if each < size][-1:], *[each for each in accepted if each > size][:1]]
        if near:
            return f"the nearest {symbol.name} that fits{where} is {' or '.join(map(str, near))}"
    return in_words(failed)


def _accepted(symbol: Var, conditions: Sequence[Condition], sizes: Mapping[Var, int]) -> list[int]:
    """Return the sizes of a dimension that fulfil all conditions, where the other ones have these sizes."""
    found = []
    for size in range(1, _TRIED + 1):
        tried = {**sizes, symbol: size}
        if all(condition.holds(tried) for condition in conditions):
            found.append(size)
    return found


def _pattern(accepted: Sequence[int]) -> str:
    """Return what sizes have in common, of those up to ``_TRIED``; empty if that is not simple."""
    if len(accepted) == 1:
        return str(accepted[0])
    if not accepted:
        return ""
    first, step = accepted[0], accepted[1] - accepted[0]
    if list(accepted) != list(range(first, accepted[-1] + 1, step)):
        return _periodic(accepted) or _listed(accepted)
    if accepted[-1] + step <= _TRIED:  # larger ones are not accepted
        return f"from {first} to {accepted[-1]}" if step == 1 else _listed(accepted)
    if step == 1:
        return f"at least {first}"
    if first % step == 0:
        return f"a multiple of {step}" + (f", at least {first}" if first > step else "")
    return f"a multiple of {step} plus {first % step}" + (f", at least {first}" if first > step else "")


def _listed(accepted: Sequence[int]) -> str:
    """Return a few sizes that are all that are accepted; empty if there are more than a few."""
    return " or ".join(map(str, accepted)) if len(accepted) <= _FEW else ""


def _periodic(accepted: Sequence[int]) -> str:
    """Return the words for sizes that come in groups: ``a multiple of 32 (or up to 3 less)``. Small sizes may be
    accepted besides, as where a dimension of 1 is broadcast. Empty for others."""
    runs: list[list[int]] = []  # first and last of each group of neighbours
    for size in accepted:
        if runs and runs[-1][1] == size - 1:
            runs[-1][1] = size
        else:
            runs.append([size, size])
    if len(runs) < _FEWEST_GROUPS:
        return ""
    (first, last), step = runs[-2], runs[-2][0] - runs[-3][0]
    if runs[-1][0] != first + step or runs[-1][1] != min(last + step, _TRIED):
        return ""
    head = len(runs) - 2
    while head and runs[head - 1] == [first - step, last - step]:
        head, first, last = head - 1, first - step, last - step
    if head > 1 or len(runs) - head < _FEWEST_GROUPS - 1 or (head and runs[0][0] != 1):
        return ""
    many = last - first
    if last % step == 0:
        words = f"a multiple of {step}" + (f" (or {'up to ' if many > 1 else ''}{many} less)" if many else "")
    elif first % step == 0:
        words = f"a multiple of {step}" + (f" (or {'up to ' if many > 1 else ''}{many} more)" if many else "")
    elif many == 0:
        words = f"a multiple of {step} plus {first % step}"
    else:
        return ""
    if first > step:
        words += f", at least {first}"
    if head:
        words += ", or 1" if runs[0][1] == 1 else f", or at most {runs[0][1]}"
    return words
