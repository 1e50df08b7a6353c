"""Select the names that an instrument observes: exact names, or patterns with ``*``, ``?`` and ``[...]``."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from tilewright.tensorir.errors import ArgumentTypeError

#: A name or pattern, or several of them; None: all names.
Names = str | Sequence[str] | None


class NameFilter:
    """A set of names, given as names and patterns.

    Args:
        names: a name or pattern as of :mod:`fnmatch` (case-sensitive), a list or tuple of such, or None for all names.
        what: the name of the argument in errors.

    Raises:
        TypeError: ``names`` is something else.
    """

    def __init__(self, names: Names, what: str) -> None:
        given = [names] if isinstance(names, str) else names
        if given is not None and (
            not isinstance(given, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in given)
        ):
            raise ArgumentTypeError(f"{what}: expected a name or pattern, or a list of them, found {names!r}")
        self._names = None if given is None else frozenset(given)

    @property
    def takes_all(self) -> bool:
        """Whether every name matches."""
        return self._names is None

    def __call__(self, name: str) -> bool:
        """Return whether ``name`` matches."""
        return (
            self._names is None
            or name in self._names
            or any(fnmatch.fnmatchcase(name, pattern) for pattern in self._names)
        )
