"""Check names of processors, features and triples against LLVM's own lists, before LLVM acts on them.

LLVM ends the process for some names: one that it does not know means a processor without 64-bit code on x86-64, and so
do the names of processors of 32 bits, and features such as ``32bit-mode``. One that it does not know as a feature is
ignored, with a line on standard error. It has no interface to its lists but the text that the processor ``help`` writes
to standard error. So a child process asks for that text and generates code for a small function.
"""

from __future__ import annotations

import difflib
import functools
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tilewright.tensorir.errors import TargetError
from tilewright.tensorir.processors import AARCH64, OTHER, X86_64, architecture_of, is_described, is_plain_feature

#: Seconds for the child; it needs a fifth of one.
_PATIENCE = 60

_CHILD = """
import sys
import llvmlite.binding as llvm

triple, processor, features = sys.argv[1:]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
try:
    target = llvm.Target.from_triple(triple)
except RuntimeError:
    sys.exit(3)
target.create_target_machine(cpu="help")
module = llvm.parse_assembly("define double @sum(double %a) { %b = fadd double %a, %a ret double %b }")
module.triple = triple
target.create_target_machine(cpu=processor, features=features).emit_object(module)
"""


class _Answer(NamedTuple):
    """The answer of LLVM about a triple, a processor and changes of its features.

    Attributes:
        has_triple: whether it generates code for the triple.
        processors, features: its names of them for the triple.
        generates: whether it generates code for the processor.
    """

    has_triple: bool
    processors: tuple[str, ...]
    features: tuple[str, ...]
    generates: bool


def check_names(mcpu: str, mtriple: str, changes: Sequence[str] = ()) -> None:
    """Check that LLVM generates code for a processor of a triple, with changes of its features such as ``+avx2``. Names
    that :mod:`.processors` describes need no child process; where none starts, the names are not checked.

    Raises:
        TargetError: LLVM does not know the triple, the processor or a feature; the message has the nearest names.
    """
    known = is_described(mcpu, mtriple) or (mcpu == "generic" and architecture_of(mtriple) is not OTHER)
    if known and all(is_plain_feature(change[1:], mtriple) for change in changes):
        return
    answer = ask(mcpu, mtriple, ",".join(changes))
    if answer is None:
        return
    if not answer.has_triple:
        first = mtriple.split("-")[0]
        near = _near(first, (*X86_64.names, *AARCH64.names))
        raise TargetError(
            f"mtriple: LLVM generates no code for {mtriple!r}{near or '; expected one as x86_64-linux-gnu'}"
        )
    if mcpu not in answer.processors:
        hint = _near(mcpu, answer.processors)
        raise TargetError(f"mcpu: LLVM has no processor {mcpu!r} for {mtriple}{hint or _listed(answer.processors)}")
    for change in changes:
        if change[1:] not in answer.features:
            hint = _near(change[1:], answer.features)
            raise TargetError(
                f"mattr: LLVM has no feature {change[1:]!r} for {mtriple}{hint or _listed(answer.features)}"
            )
    if not answer.generates and changes and ask(mcpu, mtriple).generates:  # type: ignore[union-attr]  # it answered
        raise TargetError(f"mattr: LLVM generates no code for {mtriple} with {','.join(changes)!r}")
    if not answer.generates:
        raise TargetError(f"mcpu: LLVM generates no code for {mtriple} on processor {mcpu!r}, such as one of 32 bits")


@functools.cache
def ask(mcpu: str, mtriple: str, mattr: str = "") -> _Answer | None:
    """Ask LLVM in a child process; None where no child process starts."""
    command = [sys.executable, "-c", _CHILD, mtriple, mcpu, mattr]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if child.returncode == 3:
        return _Answer(False, (), (), False)
    processors, _, features = child.stderr.partition("Available features for this target:")
    names = tuple(_names(processors))
    return _Answer(True, names, tuple(_names(features)), child.returncode == 0) if names else None


def _names(text: str) -> list[str]:
    """Return the names in a list as LLVM writes it: ``  znver4 - Select the znver4 processor.``"""
    rows = [line.split() for line in text.splitlines() if line.startswith("  ")]
    return [words[0] for words in rows if len(words) > 1 and words[1] == "-"]


def _near(name: str, names: tuple[str, ...]) -> str:
    found = difflib.get_close_matches(name.lower(), names, 3, 0.5)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def _listed(names: tuple[str, ...]) -> str:
    return f"; it has {', '.join(names)}"
