"""Profile a program without changing its code: ``TILEWRIGHT_PROFILE=file``.

Every model that is built while the variable is set records its calls, and when the program ends their profiles are
written: one for each model and each combination of sizes of its symbolic dimensions with which it was called. The
format is ``docs/spans.schema.json`` or, if the name ends in ``.trace.json``, a trace for chrome://tracing and Perfetto.
``%p`` in the name is replaced by the process id, for programs that start others.

Models stay in memory until then. The overhead of the clock is unknown, as no call runs without it.
"""

from __future__ import annotations

import atexit
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewright.passes.environment import PROFILE
from tilewright.passes.span_report import reports_as_dict, reports_to_chrome_trace
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.observe.profile.measure import WARM_UP, report
from tilewright.runtime.observe.profile.profile import Profile
from tilewright.runtime.observe.profile.recording import Recording
from tilewright.tensorir import forking

#: The suffix of files that are written as traces.
TRACE = ".trace.json"

#: The recordings, by file name.
_recordings: dict[str, list[Recording]] = {}
_lock = forking.Lock()


def recording_of(built: BuiltModel) -> Recording:
    """Make a recording of a model's calls, for the file that the environment names."""
    name = os.environ[PROFILE]
    recording = Recording(built)
    with _lock:
        if not _recordings:
            # Register it after the threads of parallel loops were started: measuring the machine needs them again.
            atexit.register(_write_all, os.getpid())
        _recordings.setdefault(name, []).append(recording)
    return recording


def profiles(recordings: Sequence[Recording]) -> Iterator[Profile]:
    """List a profile for each model that was called, and for each combination of sizes, most frequent first."""
    measured = False
    for number, recording in enumerate(recordings):
        groups = [(calls, count) for calls, count in recording.recorded().values() if calls]
        for calls, count in sorted(groups, key=lambda group: -group[1]):
            # The very first calls warm caches and threads up; they are used only where there are no others.
            warm = calls[WARM_UP:] if len(calls) == count > WARM_UP else calls
            yield report(recording, warm, again=not measured, facts={"model": number, "count": count})
            measured = True


def write(name: str, recordings: Sequence[Recording]) -> None:
    """Write the profiles of ``recordings`` into the file of that name.

    Raises:
        OSError: the file cannot be written.
    """
    path = Path(name.replace("%p", str(os.getpid())))
    with path.open("a", encoding="utf-8"):
        pass  # check that the file can be written before anything is computed
    made = list(profiles(recordings))
    text = (
        reports_to_chrome_trace((_title(profile), profile) for profile in made)
        if path.name.endswith(TRACE)
        else json.dumps(reports_as_dict(made), indent=2)
    )
    path.write_text(text, encoding="utf-8")


def _title(profile: Profile) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in profile.facts["sizes"].items())
    return f"model {profile.facts['model']}: {profile.facts['signature']}" + (f" ({sizes})" if sizes else "")


def _write_all(process: int) -> None:
    if os.getpid() != process:
        return  # a forked process, which has made none of the calls
    for name, recordings in _recordings.items():
        try:
            write(name, recordings)
        except OSError as error:
            warnings.warn(f"{PROFILE}={name}: no profile is written: {error}", RuntimeWarning, stacklevel=1)
