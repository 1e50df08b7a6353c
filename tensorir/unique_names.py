"""Find names that nothing has yet: of blocks, buffers and functions."""

from __future__ import annotations

from collections.abc import Container


def unique_name(wanted: str, used: Container[str]) -> str:
    """Return ``wanted``, with a number appended if it is in ``used``."""
    name, number = wanted, 0
    while name in used:
        number += 1
        name = f"{wanted}_{number}"
    return name
