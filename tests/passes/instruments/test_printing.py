"""Test the display of the module between passes: printing instruments, ``PrintIR`` and ``DumpIR``."""

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
    PassPrintingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintIR,
    Sequential,
    function_pass,
    get_pass,
    module_pass,
)


@pytest.fixture
def mark() -> Pass:
    """A pass that changes the text of the module."""

    @function_pass(opt_level=0)
    def Mark(func: Any, mod: Any, ctx: Any) -> Any:
        return func.with_attr("marked", True)

    return Mark


@pytest.fixture
def same() -> Pass:
    """A pass that returns a new module with the same text."""
    return module_pass(lambda mod, ctx: IRModule(mod.functions), opt_level=0, name="Same")


def test_print_before_all_shows_the_module_that_each_pass_gets(mod: IRModule, mark: Pass, same: Pass) -> None:
    stream = io.StringIO()
    with PassContext(instruments=[PrintBeforeAll(stream)]):
        marked = mark(mod)
        same(marked)
    assert stream.getvalue() == f"Before pass: Mark\n{mod}\nBefore pass: Same\n{marked}\n"


def test_print_after_all_shows_the_module_that_each_pass_made(mod: IRModule, mark: Pass, same: Pass) -> None:
    stream = io.StringIO()
    with PassContext(instruments=[PrintAfterAll(stream)]):
        marked = mark(mod)
        same(marked)
    assert stream.getvalue() == f"After pass: Mark\n{marked}\nAfter pass: Same\n{marked}\n"
    assert str(marked) != str(mod)


def test_printing_by_name_shows_only_those(mod: IRModule, mark: Pass, same: Pass) -> None:
    stream = io.StringIO()
    printing = PassPrintingInstrument(["Same"], ["Mark"], stream=stream)
    with PassContext(instruments=[printing]):
        marked = mark(mod)
        same(marked)
    assert stream.getvalue() == f"After pass: Mark\n{marked}\nBefore pass: Same\n{marked}\n"


def test_a_lone_name_is_refused() -> None:
    with pytest.raises(TypeError, match="print_before_pass_names"):
        PassPrintingInstrument("Mark")


def test_without_a_stream_it_goes_to_standard_output(mod: IRModule, same: Pass, capsys: Any) -> None:
    with PassContext(instruments=[PrintBeforeAll()]):
        same(mod)
    assert capsys.readouterr().out == f"Before pass: Same\n{mod}\n"


def test_print_ir_is_a_pass_that_prints_the_module_and_returns_it(mod: IRModule, capsys: Any) -> None:
    assert PrintIR()(mod) is mod
    assert capsys.readouterr().out == f"PrintIR:\n{mod}\n"


def test_print_ir_shows_its_header_and_what_the_pass_before_it_made(mod: IRModule, mark: Pass) -> None:
    stream = io.StringIO()
    result = Sequential([mark, PrintIR("after Mark", stream)])(mod)
    assert stream.getvalue() == f"PrintIR (after Mark):\n{result}\n"


def test_print_ir_is_registered_and_of_level_zero() -> None:
    assert isinstance(get_pass("PrintIR"), PrintIR)
    assert PrintIR.info.opt_level == 0


def test_dump_ir_writes_the_input_and_one_file_for_each_change(
    mod: IRModule, mark: Pass, same: Pass, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "dump"
    rename = module_pass(
        lambda mod, ctx: IRModule({f"{gv.name}_2": func for gv, func in mod.functions.items()}),
        opt_level=0,
        name="re/name",
    )
    with PassContext(instruments=[DumpIR(folder)]):
        marked = mark(mod)
        renamed = Sequential([same, rename], name="S")(marked)
    files = {path.name: path.read_text(encoding="utf-8").rstrip("\n") for path in folder.iterdir()}
    assert files == {
        "000_input.ir": str(mod).rstrip("\n"),
        "001_Mark.ir": str(marked).rstrip("\n"),
        "002_re_name.ir": str(renamed).rstrip("\n"),
    }


def test_dump_ir_makes_no_folder_before_there_is_something_to_write(tmp_path: Path) -> None:
    with PassContext(instruments=[DumpIR(tmp_path / "dump")]):
        pass
    assert list(tmp_path.iterdir()) == []
