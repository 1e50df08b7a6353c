"""What an analyzer has derived, by what it was asked."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ScopedCache(dict[K, V]):
    """What was derived inside one scope; :meth:`find` also knows what was derived in the scopes around.

    A scope only adds facts. What was derived before stays true; whoever adds a fact that says more of what was asked
    starts anew, with a cache of no outer scope.
    """

    __slots__ = ("outers",)

    def __init__(self, outer: ScopedCache[K, V] | None = None) -> None:
        #: Those of the scopes around that hold anything, the nearest first.
        self.outers: tuple[ScopedCache[K, V], ...] = ()
        if outer is not None:
            self.outers = (outer, *outer.outers) if outer else outer.outers

    def find(self, key: K) -> V | None:
        """What is known, None if nothing is."""
        found = self.get(key)
        if found is None:
            for outer in self.outers:
                found = outer.get(key)
                if found is not None:
                    self[key] = found
                    return found
        return found
