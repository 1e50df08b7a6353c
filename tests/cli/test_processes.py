"""Run the command line as a process: in pipes, on terminals, and interrupted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def process(*args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilewright", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_what_is_piped_has_no_colours_and_progress(models: Path) -> None:
    found = process("bench", models / "network.tw", "-r", 3, "-d", "batch=1")
    assert found.returncode == 0 and found.stderr == ""
    assert "\x1b" not in found.stdout and "tilewright" in found.stdout
    for line in found.stdout.splitlines():
        assert line == line.rstrip()


def test_errors_of_a_process_are_a_line_without_a_traceback(models: Path, tmp_path: Path) -> None:
    content = bytearray((models / "network.tw").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "net.tw").write_bytes(content)
    found = process("inspect", tmp_path / "net.tw")
    assert found.returncode == 1 and found.stdout == ""
    assert found.stderr.startswith("error: ArtifactError: ") and "Traceback" not in found.stderr
    assert "Traceback" in process("inspect", "--debug", tmp_path / "net.tw").stderr
    assert "Traceback" in process("--debug", "inspect", tmp_path / "net.tw").stderr


#: Interrupts itself after so many seconds; a callback that is interrupted would print the error and go on.
_INTERRUPTED = """
import os, signal, sys, threading

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in the background of a script
from tilewright import __main__ as command

command.GRACE = min(command.GRACE, float(os.environ.get("GRACE", "inf")))
program = sys.argv.pop(1)
if program != "callback":
    timer = threading.Timer(float(program), os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
command.main()
"""


@pytest.mark.parametrize("seconds", [0.02, 0.1, 0.3, 0.6, 1.0, 2.0])
def test_a_command_that_is_interrupted_at_any_moment_says_so_and_ends_with_130(tmp_path: Path, seconds: float) -> None:
    # A call takes milliseconds: the most calls that a benchmark makes take minutes.
    (tmp_path / "slow.py").write_text(
        "from tilewright import graphir as gi\n\nx = gi.var('x', shape=(512, 512))\n"
        "product = gi.Function([x], gi.matmul(x, x))\n"
    )
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            _INTERRUPTED,
            *(str(seconds), "bench", str(tmp_path / "slow.py:product"), "--seconds", "60"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [line for line in found.stderr.splitlines() if not line.startswith("sizes that nothing gives")]
    assert (found.returncode, lines, found.stdout) == (130, ["interrupted"], "")


def test_an_interrupt_in_a_callback_ends_the_command_too(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\n\nclass Left:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(1)\n\ndef model():\n    Left()\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", _INTERRUPTED, "callback", "run", str(tmp_path / "slow.py:model")]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("then", ["time.sleep(60)", "lock.acquire(); lock.acquire()"])
def test_an_interrupt_that_is_lost_ends_the_command_soon(tmp_path: Path, then: str) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal, threading, time\n\nlock = threading.Lock()\n\ndef model():\n    try:\n"
        f"        os.kill(os.getpid(), signal.SIGINT)\n    except KeyboardInterrupt:\n        {then}\n"
    )
    command = [sys.executable, "-c", _INTERRUPTED, "callback", "run", str(tmp_path / "slow.py:model")]
    environment = {**os.environ, "GRACE": "0.2"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=environment)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")


def test_an_interrupt_that_comes_out_as_another_error_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal\n\ndef model():\n    try:\n        os.kill(os.getpid(), signal.SIGINT)\n"
        "    except BaseException as error:\n        raise RuntimeError('wrapped') from error\n"
    )
    command = [sys.executable, "-c", _INTERRUPTED, "callback", "run", str(tmp_path / "slow.py:model")]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (found.returncode, found.stderr) == (130, "interrupted\n")


def on_terminal(command: list[str], **variables: str) -> bytes:
    """Run a command whose standard error is a terminal; return what it writes there."""
    pty = pytest.importorskip("pty")
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", **variables}
    subprocess.run([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=side, check=False, env=environment)
    os.close(side)
    output = b""
    try:
        while piece := os.read(main, 4096):
            output += piece
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(main)
    return output


def test_no_colour_is_respected_on_terminals(models: Path) -> None:
    for variables, coloured in ({}, True), ({"NO_COLOR": "1"}, False):
        command = ["-m", "tilewright", "-q", "inspect", str(models / "digests.ir")]
        output = on_terminal(command, **variables)
        assert b"error:" in output and (b"\x1b[31m" in output) is coloured


@pytest.mark.parametrize("quiet", [False, True])
def test_a_build_updates_one_line_of_a_terminal(models: Path, quiet: bool) -> None:
    soon = (
        "from tilewright.runtime import progress; progress._SILENT_SECONDS = progress._LINE_SECONDS = 0.001; "
        "from tilewright.cli.group import main; main()"
    )
    options = ["-d", "batch=1"] + ["-q"] * quiet
    output = on_terminal(["-c", soon, "run", f"{models / 'network.py'}:network", *options], TILEWRIGHT_CACHE="off")
    if quiet:
        assert output == b""
    else:
        assert output.count(b"building: ") > 1
        assert b"\n" not in output[output.index(b"building: ") : output.rindex(b"building: ")]
