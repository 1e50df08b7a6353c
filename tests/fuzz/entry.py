"""Declare the interface of an entry point that bad input is drawn for."""

from __future__ import annotations

import random
from typing import Any, ClassVar


class Entry:
    """An entry point. ``cost`` is how many times as long an input takes as one of the cheapest."""

    name: ClassVar[str]
    cost: ClassVar[int] = 1

    def draw(self, rng: random.Random) -> Any:
        """Return an input."""
        raise NotImplementedError

    def run(self, value: Any) -> None:
        """Hand an input in."""
        raise NotImplementedError
