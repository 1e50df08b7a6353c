"""Name the passes that were left out of a build that could not do without them.

Any pass can be left out, by ``disabled_pass``, by a level below its own or by the veto of an instrument, and what other
passes find then is mended or refused where they find it: an error about a block, or about a call, says nothing of the
cause. Here the error of a build gets the names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.passes.base import Pass
from tilewright.passes.context import RUNNING, PassContext
from tilewright.passes.pipelines import STAGES
from tilewright.passes.sequential import Sequential
from tilewright.tensorir.errors import CodegenError, VerifyError
from tilewright.tensorir.target import Target


@contextlib.contextmanager
def naming_left_out(context: PassContext, target: Target) -> Iterator[None]:
    """Add the essential passes that did not run to an error of the compiler inside the ``with`` block.

    Raises:
        CodegenError: the build failed, and passes were left out that it cannot do without.
    """
    try:
        yield
    except (CodegenError, VerifyError, AssertionError) as error:
        missing = left_out(context, target)
        if not missing:
            raise
        passes = "; ".join(f"{', '.join(names)}, as {reason}" for reason, names in missing.items())
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise CodegenError(f"{first}; passes were left out that a build cannot do without: {passes}") from error


def left_out(context: PassContext, target: Target) -> dict[str, list[str]]:
    """List the essential passes of a build that ``context`` left out, or an instrument in it, by the reason."""
    found: dict[str, list[str]] = {}

    def look(each: Pass, outer: str) -> None:
        reason = outer or _reason(context, each)
        if isinstance(each, Sequential):
            for child in each.passes:
                look(child, reason)
        elif each.info.essential and reason:
            found.setdefault(reason, []).append(each.info.name)

    for pipeline in STAGES.values():
        stage = pipeline(target)  # a build runs it itself, so that the context is not asked
        outer = _veto(stage.info.name)
        for child in stage.passes:
            look(child, outer)
    return {reason: list(dict.fromkeys(names)) for reason, names in found.items()}


def _reason(context: PassContext, each: Pass) -> str:
    info = each.info
    if info.name in context.disabled_pass:
        return f"disabled_pass names {info.name}"
    if not context.pass_enabled(info):
        return f"opt_level {info.opt_level} is above the context's {context.opt_level}"
    return _veto(info.name)


def _veto(name: str) -> str:
    instrument = RUNNING.vetoed.get(name)
    return f"instrument {instrument} vetoed {name}" if instrument is not None else ""
