"""Only what changed: filters of the printing instruments, ``PrintChanged``, and the files of ``DumpIR``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import (
    DumpIR,
    Pass,
    PassContext,
    PassInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintChanged,
    Sequential,
    module_pass,
)
from tilewright.passes.instruments import module_texts


def marking(pass_name: str, *functions: str) -> Pass:
    """A pass that changes the text of some functions, and makes new objects of the others."""

    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        return IRModule(
            {
                key: function.with_attr(pass_name, True) if key.name in functions else function.with_attr("again", 1)
                for key, function in mod.functions.items()
            }
        )

    return module_pass(transform, opt_level=0, name=pass_name)


AGAIN = marking("Again")
MAIN, OTHER = marking("MarkMain", "main"), marking("MarkOther", "other")
REMOVE = module_pass(lambda mod, ctx: mod.without(["other"]), opt_level=0, name="Remove")
FAIL = module_pass(lambda mod, ctx: 1 / 0, opt_level=0, name="Fail")


def titles(stream: io.StringIO) -> list[str]:
    return [line for line in stream.getvalue().splitlines() if line.startswith(("Before pass", "After pass", "# @"))]


def run(mod: IRModule, instrument: PassInstrument, *passes: Pass) -> None:
    with PassContext(instruments=[instrument]):
        Sequential(passes, name="pipeline")(mod)


@pytest.mark.parametrize("kind", [PrintBeforeAll, PrintAfterAll])
def test_printing_may_be_limited_to_passes_by_name_or_pattern(kind: Any, mod: IRModule) -> None:
    stream = io.StringIO()
    run(mod, kind(stream, passes=["Mark?a*", "pipeline"]), MAIN, OTHER)
    assert [title.split()[-1] for title in titles(stream)] in (["pipeline", "MarkMain"], ["MarkMain", "pipeline"])


@pytest.mark.parametrize("kind", [PrintBeforeAll, PrintAfterAll])
def test_printing_may_be_limited_to_functions(kind: Any, mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    with PassContext(instruments=[kind(stream, functions="oth*")]):
        result = AGAIN(mixed_mod)
    seen = mixed_mod if kind is PrintBeforeAll else result
    assert stream.getvalue().split("\n", 1)[1] == f"{IRModule({'other': seen['other']})}\n"


def test_printing_of_functions_that_a_module_lacks_prints_nothing(mod: IRModule) -> None:
    stream = io.StringIO()
    run(mod, PrintBeforeAll(stream, functions="kernel"), MAIN)
    assert stream.getvalue() == ""


def test_after_a_pass_only_the_functions_that_it_changed_are_printed(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    run(AGAIN(mixed_mod), PrintAfterAll(stream, only_changed=True), AGAIN, OTHER, AGAIN, REMOVE)
    assert titles(stream) == ["After pass: MarkOther", "After pass: Remove", "# @other was removed"]
    assert "@main" not in stream.getvalue()


def test_before_a_pass_only_the_functions_that_are_new_are_printed(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    run(AGAIN(mixed_mod), PrintBeforeAll(stream, only_changed=True), AGAIN, OTHER, AGAIN)
    assert titles(stream) == ["Before pass: Again", "Before pass: Again"]
    assert stream.getvalue().count("@main") == 1
    assert stream.getvalue().count("@other") == 2


def test_a_change_is_a_unified_diff_of_the_function(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    run(AGAIN(mixed_mod), PrintChanged(stream=stream), AGAIN, OTHER)
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["--- @other before MarkOther", "+++ @other after MarkOther"]
    assert lines[3].startswith("-def @other(") and lines[4].startswith("+def @other(")
    assert '"MarkOther": True' in lines[4]
    assert lines[5:] == ["   %y", " }"]


def test_a_function_that_is_gone_is_all_minus_and_a_new_one_all_plus(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    add = module_pass(lambda mod, ctx: IRModule({**mod.functions, "new": mod["main"]}), opt_level=0, name="Add")
    run(mixed_mod, PrintChanged(stream=stream), REMOVE, add)
    lines = stream.getvalue().splitlines()
    assert [line[0] for line in lines if not line.startswith(("---", "+++", "@@"))] == ["-"] * 3 + ["+"] * 3


def test_changes_may_be_limited_to_passes_and_functions(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    both = marking("MarkBoth", "main", "other")
    run(AGAIN(mixed_mod), PrintChanged(passes="MarkB*", functions="other", stream=stream), MAIN, both)
    assert [line for line in stream.getvalue().splitlines() if line.startswith("---")] == ["--- @other before MarkBoth"]


def test_what_a_pipeline_changes_is_shown_if_it_is_named(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    run(AGAIN(mixed_mod), PrintChanged(passes="pipeline", stream=stream), MAIN, OTHER)
    heads = [line for line in stream.getvalue().splitlines() if line.startswith("---")]
    assert heads == ["--- @main before pipeline", "--- @other before pipeline"]


def test_lines_around_a_change_are_as_many_as_wanted(mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    run(AGAIN(mixed_mod), PrintChanged(stream=stream, context_lines=0), OTHER)
    assert len(stream.getvalue().splitlines()) == 2 + 1 + 2
    with pytest.raises(ValueError, match="context_lines"):
        PrintChanged(context_lines=-1)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "color", "colored"),
    [(io.StringIO, None, False), (io.StringIO, True, True), (Terminal, None, True), (Terminal, False, False)],
)
def test_colours_are_for_terminals_unless_told(stream: Any, color: bool | None, colored: bool, mod: IRModule) -> None:
    made = stream()
    run(mod, PrintChanged(stream=made, color=color), MAIN)
    assert ("\x1b[32m+def @main" in made.getvalue()) is colored
    assert ("\x1b" in made.getvalue()) is colored


def test_without_a_stream_changes_go_to_standard_output(mod: IRModule, capsys: Any) -> None:
    run(mod, PrintChanged(), MAIN)
    assert "+++ @main after MarkMain" in capsys.readouterr().out


@pytest.mark.parametrize("make", [PrintChanged, lambda stream: PrintAfterAll(stream, only_changed=True)])
def test_after_a_pass_that_failed_changes_are_those_of_each_pass(make: Any, mixed_mod: IRModule) -> None:
    stream = io.StringIO()
    instrument = PrintChanged(stream=stream) if make is PrintChanged else make(stream)
    again = AGAIN(mixed_mod)
    with PassContext(instruments=[instrument]):
        with pytest.raises(ZeroDivisionError):
            Sequential([MAIN, FAIL])(again)
        first = stream.getvalue()
        OTHER(again)
    assert "@other" in stream.getvalue()[len(first) :]
    assert "@main" not in stream.getvalue()[len(first) :]


def test_text_is_made_of_functions_that_are_new_objects_only(
    mixed_mod: IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    make = module_texts.to_text

    def counting(mod: Any) -> str:
        printed.extend(key.name for key in mod.functions)
        return make(mod)

    monkeypatch.setattr(module_texts, "to_text", counting)
    touch = module_pass(
        lambda mod, ctx: mod.with_functions({mod.get_global_var("main"): mod["main"].with_attr("n", len(printed))}),
        opt_level=0,
        name="Touch",
    )
    run(mixed_mod, PrintChanged(stream=io.StringIO()), touch, touch, touch)
    assert printed == ["main"] * 4


def test_dumps_may_be_limited_to_passes_and_functions(mixed_mod: IRModule, tmp_path: Path) -> None:
    run(AGAIN(mixed_mod), DumpIR(tmp_path, passes=["MarkOther", "MarkMain"], functions="other"), AGAIN, MAIN, OTHER)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["000_before_MarkMain.ir", "001_MarkOther.ir"]
    assert all("@main" not in path.read_text() for path in tmp_path.iterdir())


def test_each_build_in_a_context_begins_with_its_input(mod: IRModule, mixed_mod: IRModule, tmp_path: Path) -> None:
    with PassContext(instruments=[DumpIR(tmp_path, index=True)]):
        for given in (mod, mixed_mod):
            Sequential([MAIN, OTHER], name="first")(given)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000_input.ir",
        "001_MarkMain.ir",
        "002_MarkOther.ir",
        "003_input.ir",
        "004_MarkMain.ir",
        "005_MarkOther.ir",
        "index.txt",
    ]
    index = (tmp_path / "index.txt").read_text().splitlines()
    assert [line.split()[0] for line in index] == sorted(path.name for path in tmp_path.iterdir())[:-1]
    assert index[3] == "003_input.ir  @main, @other, @kernel"


def test_a_dump_has_the_whole_module_also_where_one_function_changed(mixed_mod: IRModule, tmp_path: Path) -> None:
    touch = module_pass(
        lambda mod, ctx: mod.with_functions({mod.get_global_var("main"): mod["main"].with_attr("n", 1)}),
        opt_level=0,
        name="Touch",
    )
    with PassContext(instruments=[DumpIR(tmp_path)]):
        result = touch(mixed_mod)
    assert (tmp_path / "001_Touch.ir").read_text() == f"{result}\n"


def test_a_stream_that_fails_ends_what_was_open_once(mod: IRModule) -> None:
    stream = io.StringIO()
    stream.close()
    with pytest.raises(ValueError, match="closed file") as caught:
        run(mod, PrintChanged(stream=stream, color=False), MAIN)
    assert not any("then instrument" in note for note in getattr(caught.value, "__notes__", ()))
