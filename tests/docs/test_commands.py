"""Commands and names in README.md and the documentation are those that there are: commands with their options, targets
of the Makefile, scripts, environment variables, names of the packages."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator

import click
import pytest
from pages import ROOT, blocks, inline_code, pages

import tilewright as tw
from tilewright.cli import cli
from tilewright.passes.environment import SWITCHES

PAGES = pages()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
PACKAGES = {"tw": tw, "gi": tw.graphir, "ti": tw.tensorir, "passes": tw.passes}
READ_BY_TESTS = [ROOT / "tests" / name for name in ("conftest.py", "fuzz/loop_programs.py")]
SOURCES = "".join(path.read_text(encoding="utf-8") for path in READ_BY_TESTS)
#: Switches of the installation and of the tests, beside those of the package.
OF_THE_PROJECT = {"TILEWRIGHT_MYPYC", *re.findall(r'environ\.get\("(TILEWRIGHT_[A-Z_]+)"', SOURCES)}
#: Settings of commands before their name.
SETTINGS = re.compile(r"^(?:[A-Z_]+=\S+ )+")
#: Code that names something without being a command.
LANGUAGES = {"", "sh", "console", "text"}


def commands(text: str) -> Iterator[str]:
    """The lines of blocks, and the code within sentences, that begin as a command does."""
    lines = [line for language, body in blocks(text) if language in LANGUAGES for line in body.splitlines()]
    for line in [*lines, *inline_code(text)]:
        plain = SETTINGS.sub("", line.strip().removeprefix("$ "))
        if re.match(r"(tilewright(?! as )|make|pip|python) ", plain):
            yield re.sub(r"\s#\s.*| {2,}.*", "", plain)


def wrong(line: str) -> str | None:
    """Return a description of the mistake in a command; None if there is none."""
    program, *words = shlex.split(line)
    if program == "make":
        named = [word for word in words if "=" not in word]
        return next((f"no target {word}" for word in named if word not in TARGETS), None)
    if program == "tilewright":
        return _wrong_command(words)
    if program == "python":
        return _wrong_script(words)
    if program == "pip" and words[0] != "install":
        return f"pip {words[0]}"
    return None


def _wrong_command(words: list[str]) -> str | None:
    command = cli.commands.get(words[0])
    if command is None:
        return None if words[0].startswith("-") else f"no command {words[0]}"
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= set(command.get_help_option_names(click.Context(command)))
    for word in words[1:]:
        if word.startswith("-") and word.partition("=")[0] not in known:
            return f"tilewright {words[0]} has no option {word}"
    return None


def _wrong_script(words: list[str]) -> str | None:
    if words[0] == "-m":
        ours = words[1].partition(".")[0] in ("tilewright", "bench")
        there = (ROOT / words[1].replace(".", "/")).exists() or not ours or importlib.util.find_spec(words[1])
        return None if there else f"no module {words[1]}"
    return None if words[0].startswith("-") or (ROOT / words[0]).exists() else f"no file {words[0]}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_exist(page: str) -> None:
    found = {line: wrong(line) for line in commands(PAGES[page])}
    assert {line: problem for line, problem in found.items() if problem is not None} == {}


@pytest.mark.parametrize("page", PAGES)
def test_environment_variables_exist(page: str) -> None:
    known = {switch.name for switch in SWITCHES} | OF_THE_PROJECT
    assert set(re.findall(r"TILEWRIGHT_[A-Z_]*[A-Z]", PAGES[page])) - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_names_of_the_packages_exist(page: str) -> None:
    made = set(re.findall(r"^class (\w+)", PAGES[page], re.MULTILINE))  # by the code of the page
    for code in inline_code(PAGES[page]):
        found = re.match(r"(tw|gi|ti|passes)((?:\.\w+)+)", code)
        if found is None or found.group(0).rpartition(".")[2] in made:
            continue
        value = PACKAGES[found.group(1)]
        for name in found.group(2)[1:].split("."):
            assert hasattr(value, name), code
            value = getattr(value, name)


@pytest.mark.parametrize(
    "line, problem",
    [
        ("make nothing", "no target nothing"),
        ("make -j test", "no target -j"),
        ("tilewright fly net.onnx", "no command fly"),
        ("tilewright run net.onnx --wings", "tilewright run has no option --wings"),
        ("tilewright run net.onnx --shape=batch=8", None),
        ("python bench/gone.py", "no file bench/gone.py"),
        ("python -m tilewright.gone", "no module tilewright.gone"),
        ("make PYTHON=/usr/bin/python3 run", None),
    ],
)
def test_wrong_commands_are_found(line: str, problem: str | None) -> None:
    assert wrong(line) == problem


def test_commands_are_found_in_blocks_tables_and_sentences() -> None:
    text = "```\nA=1 make x     # says\n```\n```python\nmake y\n```\n| `tilewright run\nnet` | `f(x)` |\n"
    assert list(commands(text)) == ["make x", "tilewright run net"]
