"""Judge many subjects, such as operators, modules and networks, one after the other, and keep the verdicts in a file.

A run that is stopped goes on where it was: the file holds the verdict of each subject that was judged, and of one whose
time ran out how many of its cases have been seen. ``--again`` judges anew what did not pass.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tilewright.tensorir.errors import TilewrightError

#: The cases of a subject: each call judges one and raises if it fails.
Cases = Iterator[Callable[[], None]]


class NotTracedError(Exception):
    """PyTorch makes no single functional graph of a case."""


class OutOfScopeError(Exception):
    """PyTorch itself does not compute a case, or says that its result is undefined."""


class FellBackError(Exception):
    """A case passes, but parts of it ran in PyTorch."""


class SplitError(Exception):
    """A case passes, but PyTorch makes several graphs of it."""


class CloserError(Exception):
    """A result differs from PyTorch's because it is closer to the exact one."""


class Fallbacks(logging.Handler):
    """Notes what runs in PyTorch, as the backend logs it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logger = logging.getLogger("tilewright.torch")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Note one line."""
        self.lines.append(record.getMessage().removeprefix("runs in PyTorch: "))

    def check(self) -> None:
        """Forget the lines.

        Raises:
            FellBackError: there were some.
        """
        lines, self.lines = self.lines, []
        if lines:
            raise FellBackError("; ".join(lines))


#: Outcomes of cases, the worst first: that of a subject is the worst of its cases.
OUTCOMES = (
    "wrong",
    "error",
    "unsupported",
    "not traced",
    "closer",
    "with fallback",
    "split by PyTorch",
    "passed",
    "out of scope",
)
#: Different reasons that are kept of each subject.
MOST_REASONS = 8


@dataclasses.dataclass
class Verdict:
    """How a subject fares.

    Attributes:
        outcome: the worst outcome of its cases; ``passed in part`` if those that were seen pass, and some were not.
        judged: how many cases were seen.
        failed: how many of them did not pass.
        complete: whether there are no more.
        reasons: for each different reason the first case that failed by it, and what it says.
        seconds: how long it took.
    """

    outcome: str = "out of scope"
    judged: int = 0
    failed: int = 0
    complete: bool = False
    reasons: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def see(self, outcome: str, reason: str) -> None:
        """Count a case."""
        worst = self.outcome if self.outcome in OUTCOMES else "passed"
        self.outcome = min(worst, outcome, key=OUTCOMES.index)
        if outcome not in ("passed", "out of scope"):
            self.failed += 1
            if len(self.reasons) < MOST_REASONS and _kind(reason) not in {_kind(known) for _, known in self.reasons}:
                self.reasons.append((self.judged, f"{outcome}: {reason}"))
        self.judged += 1


def _kind(reason: str) -> str:
    """Return what is the same in reasons that are alike: their words."""
    return re.sub(r"^[a-z ]+: |[\d.+-]+(e[+-]?\d+)?|'\w+'", "", reason)[:160]


def outcome_of(case: Callable[[], None]) -> tuple[str, str]:
    """Judge one case; return its outcome and the reason."""
    try:
        case()
    except NotTracedError as error:
        return "not traced", str(error)
    except OutOfScopeError as error:
        return "out of scope", str(error)
    except FellBackError as error:
        return "with fallback", str(error)
    except CloserError as error:
        return "closer", str(error)
    except SplitError as error:
        return "split by PyTorch", str(error)
    except AssertionError as error:
        return "wrong", str(error)
    except Exception as error:
        unsupported = _unsupported(error)
        if unsupported is not None:
            return "unsupported", unsupported
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, TilewrightError) else f" ({Path(place.filename).name}:{place.lineno})"
        return "error", "; ".join([f"{type(error).__name__}: {error}{where}", *getattr(error, "__notes__", ())])
    return "passed", ""


def _unsupported(error: BaseException | None) -> str | None:
    """Return what an error, or what caused it, says that is not supported."""
    while error is not None:
        if isinstance(error, TilewrightError):
            return str(error) if isinstance(error, NotImplementedError) else None
        error = getattr(error, "inner_exception", None) or error.__cause__
    return None


def judge(cases: Cases, verdict: Verdict | None = None, seconds: float = float("inf")) -> Verdict:
    """Judge cases until there are no more, or the time is over.

    Args:
        cases: the cases.
        verdict: the verdict on the first of them, which are not judged again.
        seconds: how long to go on.
    """
    verdict = verdict or Verdict()
    start = time.perf_counter()
    seen = verdict.judged
    for number, case in enumerate(cases):
        if number < seen:
            continue
        if time.perf_counter() - start > seconds:
            break
        verdict.see(*outcome_of(case))
    else:
        verdict.complete = True
    if not verdict.complete and verdict.outcome == "passed":
        verdict.outcome = "passed in part"
    elif verdict.complete and verdict.outcome == "passed in part":
        verdict.outcome = "passed"
    verdict.seconds += time.perf_counter() - start
    return verdict


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser for the arguments that all judges take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="subjects to judge (default: all)")
    parser.add_argument("--json", type=Path, help="read the verdicts there, add to them, and keep them there")
    parser.add_argument("--again", action="store_true", help="judge again what did not pass")
    parser.add_argument("--part", default="0/1", help="judge every n-th subject: number/n")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="judge each subject for so long, about")
    return parser


def run(
    options: argparse.Namespace, subjects: Mapping[str, Callable[[], Cases]], aliases: Mapping[str, str] | None = None
) -> None:
    """Judge subjects as the arguments say, print each verdict and the summary.

    Args:
        options: the arguments.
        subjects: for each name what yields its cases.
        aliases: other names, by which the arguments may name several subjects.
    """
    number, parts = map(int, options.part.split("/"))
    verdicts = _read(options.json)
    for name in list(subjects)[number::parts]:
        if options.names and not {name, (aliases or {}).get(name, name)} & set(options.names):
            continue
        known = verdicts.get(name)
        if known is not None and options.again and known.outcome not in ("passed", "passed in part", "out of scope"):
            known = None
        if known is not None and (known.complete or (not options.names and known.failed)):
            continue
        verdict = verdicts[name] = judge(subjects[name](), known, options.seconds)
        print(f"{name}: {_line(verdict)}", flush=True)
        _write(options.json, verdicts)
    print(*summary(verdicts), sep="\n")


def _line(verdict: Verdict) -> str:
    of = "" if verdict.complete else " or more"
    counts = f"{verdict.failed} of {verdict.judged}{of} failed" if verdict.failed else f"{verdict.judged}{of}"
    reasons = "".join(f"\n    {number}: {' '.join(text.split())[:400]}" for number, text in verdict.reasons)
    return f"{verdict.outcome} [{counts}; {verdict.seconds:.1f} s]{reasons}"


def _read(path: Path | None) -> dict[str, Verdict]:
    if path is None or not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {name: Verdict(**fields) for name, fields in found.items()}


def _write(path: Path | None, verdicts: Mapping[str, Verdict]) -> None:
    if path is not None:
        fields = {name: dataclasses.asdict(verdict) for name, verdict in verdicts.items()}
        new = path.with_name(f"{path.name}.new")
        new.write_text(json.dumps(fields, indent=1), encoding="utf-8")
        new.replace(path)


def summary(verdicts: Mapping[str, Verdict]) -> Iterable[str]:
    """Yield the missing overloads by the number of subjects that need them, and the counts of outcomes."""
    missing = collections.Counter(
        overload
        for verdict in verdicts.values()
        for overload in {found for _, reason in verdict.reasons for found in re.findall(r"([\w.]+) \(nodes:", reason)}
    )
    yield from (f"{overload}: {count}" for overload, count in missing.most_common())
    counts = collections.Counter(verdict.outcome for verdict in verdicts.values())
    judged = sum(verdict.judged for verdict in verdicts.values())
    yield f"{len(verdicts)} subjects, {judged} cases: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
