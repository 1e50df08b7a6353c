"""A build shows its progress on a terminal, and nothing elsewhere unless requested."""

from __future__ import annotations

import io
import re
import threading
import time
import types

import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime import progress as showing
from tilewright.runtime.progress import Progress, building, hidden


class Terminal(io.StringIO):
    """Keep everything that is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def await_text(self, text: str) -> None:
        """Return when ``text`` has been written."""
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), timeout=60), self.getvalue()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error by a terminal on which a build shows its progress at once."""
    made = Terminal()
    monkeypatch.setattr(showing, "sys", types.SimpleNamespace(stderr=made))  # pytest sets sys.stderr before each test
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("TILEWRIGHT_LOG", raising=False)
    monkeypatch.setattr(showing, "_SILENT_SECONDS", 0.001)
    monkeypatch.setattr(showing, "_LINE_SECONDS", 0.001)
    return made


def build_slowly(terminal: Terminal | None = None) -> None:
    """Build three kernels, each until the terminal shows it, or long enough for a line that must not come."""
    with building() as shown:
        shown.stage("lowered")
        shown.kernels(3)
        for number, found in enumerate((False, True, True), start=1):
            shown.done(found=found)
            if terminal is None:
                time.sleep(0.03)
            else:
                terminal.await_text(f"building: {number} of 3 kernels")


def test_a_line_on_the_terminal_comes_and_goes(terminal: Terminal) -> None:
    build_slowly(terminal)
    lines = re.sub(r", \d+ s", ", 0 s", terminal.getvalue()).split("\r")
    assert "building: 1 of 3 kernels, 0 s" in [line.strip() for line in lines]
    assert "building: 3 of 3 kernels, 2 of them found in the cache, 0 s" in lines
    assert lines[-2].strip() == "" and len(lines[-2]) >= max(map(len, lines)) and lines[-1] == ""


def test_it_goes_after_an_error_as_well(terminal: Terminal) -> None:
    with pytest.raises(ValueError, match="no"), building():
        terminal.await_text("building: ")
        raise ValueError("no")
    assert terminal.getvalue().startswith("\rbuilding: reading the graph") and terminal.getvalue().endswith(" \r")


def test_a_short_build_says_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "_SILENT_SECONDS", 30.0)
    build_slowly()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("where", ["pipe", "dumb terminal", "log", "closed"])
def test_nothing_is_written_elsewhere(where: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "pipe":
        monkeypatch.setattr(terminal, "isatty", lambda: False)
    elif where == "dumb terminal":
        monkeypatch.setenv("TERM", "dumb")
    elif where == "log":
        monkeypatch.setenv("TILEWRIGHT_LOG", "cache")
    else:
        monkeypatch.setattr(showing, "sys", types.SimpleNamespace(stderr=None))
    build_slowly()
    assert terminal.getvalue() == ""


def test_a_command_writes_lines_into_a_pipe(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    monkeypatch.setattr(showing, "_PIPE_SECONDS", 0.005)
    with building(lines=True) as shown:
        shown.kernels(3)
        shown.done()
        terminal.await_text("1 of 3 kernels")
    lines = re.sub(r", \d+ s", ", 0 s", terminal.getvalue()).splitlines()
    assert lines[-1] == "building: 1 of 3 kernels, 0 s" and "\r" not in terminal.getvalue()


def test_one_of_several_builds_has_the_line(terminal: Terminal) -> None:
    with building() as outer, building() as inner:
        assert inner is outer
    before = terminal.getvalue()  # this build writes something if the machine is slow
    showing._line.acquire()
    try:
        build_slowly()
    finally:
        showing._line.release()
    assert terminal.getvalue() == before


def test_a_build_shows_nothing_where_something_else_writes_to_the_terminal(terminal: Terminal) -> None:
    with hidden():
        build_slowly()
    assert terminal.getvalue() == ""
    build_slowly()
    assert terminal.getvalue() != ""


def test_lines_are_logged_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(showing, "_LOG_SECONDS", 0.0)
    x = gi.var("x", shape=(4, 8))
    model = gi.Function([x], gi.nn.softmax(gi.transpose(gi.nn.softmax(gi.exp(x)))))
    with caplog.at_level("DEBUG", "tilewright.build"):
        tw.build(model)
    told = [record.getMessage() for record in caplog.records if record.name == "tilewright.build"]
    assert [line.split(" in ")[0] for line in told if "kernels" not in line] == [
        "optimized",
        "tensor",
        "scheduled",
        "lowered",
        "code",
    ]
    assert told[-1].startswith("built in ") and "kernels" in told[-1]


def test_what_no_build_tells_is_seen_by_nobody() -> None:
    assert isinstance(showing.progress(), Progress)
    assert showing.progress() is not showing.progress()
