"""Handles, by which users of a schedule name its blocks and loops."""

from __future__ import annotations

import dataclasses

from tilewright.tensorir.expr import Var


@dataclasses.dataclass(frozen=True)
class BlockRef:
    """A handle of a block: its name, so that it survives every edit that keeps the block."""

    name: str


@dataclasses.dataclass(frozen=True)
class LoopRef:
    """A handle of a loop: its variable, so that it survives every edit that keeps the loop."""

    var: Var

    @property
    def name(self) -> str:
        """The name of the loop's variable."""
        return self.var.name
