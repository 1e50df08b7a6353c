"""Choose Python names for the IR's variables, buffers and functions."""

from __future__ import annotations

import builtins
import keyword
import re

from tilewright.codegen.numba_.prologue import HELPERS

_RESERVED = frozenset({"np", "math", "numba", "lane", *HELPERS, *keyword.kwlist, *dir(builtins)})

#: LLVM, behind numba, cuts names off after 1,024 characters, also where they differ behind these.
_LONGEST = 200


class Names:
    """Chooses names that are not yet taken."""

    def __init__(self) -> None:
        self._taken: set[str] = set(_RESERVED)

    def fresh(self, wanted: str) -> str:
        """Return ``wanted`` as an identifier, with a number appended if it is taken."""
        base = re.sub(r"\W", "_", wanted[:_LONGEST], flags=re.ASCII) or "v"
        base = f"v{base}" if base[0].isdigit() else base
        name, count = base, 1
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name
