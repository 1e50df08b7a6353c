"""``build``: options of builds that are no pass's own. They change how fast a model is made, and nothing in it."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field

from tilewright.passes.config import register_config_option

BUILD = "build"


@register_config_option(BUILD)
@dataclass(frozen=True)
class BuildConfig:
    """Options of a build.

    Attributes:
        workers: in how many processes kernels are made, this one included, or an executor of ``concurrent.futures``
            that makes them; None: as many as the target has threads. Processes start where there is enough to do.
    """

    workers: int | Executor | None = field(
        default=None, metadata={"doc": "processes that make kernels, or an executor; None: the target's threads"}
    )

    def __post_init__(self) -> None:
        if isinstance(self.workers, int) and self.workers < 1:
            raise ValueError(f"workers must be at least 1, found {self.workers}")
