"""Settings of a build: the part of a ``PassContext`` that decides the result of the build."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.passes.build_config import BUILD
from tilewright.passes.context import PassContext
from tilewright.passes.instrument import PassInstrument


@dataclasses.dataclass(frozen=True)
class BuildSettings:
    """Level, required and disabled passes, and configuration, without instruments and traces."""

    opt_level: int
    required_pass: tuple[str, ...]
    disabled_pass: tuple[str, ...]
    config: Mapping[str, Any]

    @classmethod
    def of(cls, context: PassContext) -> BuildSettings:
        """Take the settings of ``context``."""
        config = {key: value for key, value in context.config.items() if key != BUILD}
        return cls(context.opt_level, context.required_pass, context.disabled_pass, config)

    def context(self, instruments: Sequence[PassInstrument] = ()) -> PassContext:
        """Make a context with these settings."""
        return PassContext(self.opt_level, self.required_pass, self.disabled_pass, instruments, self.config)
