"""``build``: options of builds that belong to no pass. They change the speed of a build, not its result."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field

from tilewright.passes.config import register_config_option
from tilewright.tensorir.errors import ArgumentValueError

BUILD = "build"


@register_config_option(BUILD)
@dataclass(frozen=True)
class BuildConfig:
    """Options of a build.

    Attributes:
        workers: the number of processes that compile kernels, this one included, or an executor of
            ``concurrent.futures``; None: as many as the target has threads. Processes start only for enough work.
    """

    workers: int | Executor | None = field(
        default=None, metadata={"doc": "processes that compile kernels, or an executor; None: the target's threads"}
    )

    def __post_init__(self) -> None:
        if isinstance(self.workers, int) and self.workers < 1:
            raise ArgumentValueError(f"workers must be at least 1, found {self.workers}")
