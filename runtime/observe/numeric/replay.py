"""Run passes on a module again, and compare the results before and after."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tilewright.graphir.module import IRModule
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.runtime.observe.numeric.compare import Mismatch, ToleranceLike
from tilewright.runtime.observe.numeric.evaluate import GRAPH, Evaluator, GraphFacts, Inputs, kind_of
from tilewright.runtime.observe.numeric.reference import make_reference
from tilewright.tensorir.errors import CodegenError, TilewrightError, UnsupportedOperatorError
from tilewright.tensorir.target import Target

#: The problem that a pass causes: a wrong element, or an error when the module after it runs.
Problem = Mismatch | Exception

#: Errors that mean that a module cannot be run here, not that it is wrong.
CANNOT_RUN = (UnsupportedOperatorError, NotImplementedError, CodegenError)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings that passes run under.

    Attributes:
        opt_level, required, disabled, config: as in :class:`PassContext`.
        target: as in ``with target:``.
    """

    opt_level: int
    required: tuple[str, ...]
    disabled: tuple[str, ...]
    config: dict[str, Any]
    target: Target

    @classmethod
    def current(cls) -> Settings:
        """Take the settings of the current context."""
        ctx = PassContext.current()
        return cls(ctx.opt_level, ctx.required_pass, ctx.disabled_pass, dict(ctx.config), Target.current())

    def run(self, passes: Sequence[Pass], mod: IRModule) -> tuple[IRModule, GraphFacts | None]:
        """Return the module after ``passes``, and the facts of its last graph."""
        facts = facts_of(mod)
        # Use a copy of the target: the target itself may be entered already.
        with Target(self.target), PassContext(self.opt_level, self.required, self.disabled, config=self.config):
            for step in passes:
                mod = step(mod)
                facts = facts_of(mod) or facts
        return mod, facts


def facts_of(mod: IRModule) -> GraphFacts | None:
    """Derive the facts of a graph that its loop nests lack; None if ``mod`` is not a graph, or has no types yet."""
    try:
        return GraphFacts.of(mod) if kind_of(mod) != "lowered" else None
    except TilewrightError:  # its types are not known yet
        return None


@dataclasses.dataclass(frozen=True)
class Replay:
    """Test whether passes change the results of modules.

    Attributes:
        settings: the settings that the passes run under.
        evaluator: runs modules.
        tolerance: the user's, if there is one.
        wide: whether to compare with double precision, rather than with the module in its own types.
    """

    settings: Settings
    evaluator: Evaluator
    tolerance: ToleranceLike | None
    wide: bool

    def problem(self, mod: IRModule, inputs: Inputs, passes: Sequence[Pass]) -> Problem | None:
        """Return the problem of the results of ``mod`` on ``inputs`` after ``passes``; None without one.

        Raises:
            Exception: a pass fails, or ``mod`` itself does not run.
        """
        wide = "float64" if self.wide and kind_of(mod) == GRAPH else "original"
        reference = make_reference(mod, inputs, self.evaluator, wide, self.tolerance)
        made, facts = self.settings.run(passes, mod)
        try:
            return reference.mismatch(self.evaluator.run(made, inputs, facts))
        except CANNOT_RUN:
            raise
        except Exception as error:
            return error


def same_kind(a: Problem, b: Problem | None) -> bool:
    """Return whether two problems are of the same kind: a wrong element, or the same type of error."""
    return type(a) is type(b)
