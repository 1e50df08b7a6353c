"""Test the environment variables: logs, dumps and verification, in programs that do not mention them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext, PassCounter, Sequential, function_pass, module_pass
from tilewright.passes.environment import FAMILIES, SWITCHES, configure_logging, is_watched, markdown_table
from tilewright.passes.graph import FuseOps
from tilewright.runtime import build_cache
from tilewright.runtime.disk_cache import DiskCache
from tilewright.runtime.process_caches import fresh_caches
from tilewright.tensorir.errors import SettingError, VerifyError
from tilewright.tensorir.stmt import PrimFunc

ROOT = Path(__file__).parents[2]
ROOMS = ("tensorir", "graphir", "passes", "codegen", "runtime", "tilewright")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for switch in SWITCHES:
        if not switch.name.startswith("TILEWRIGHT_CACHE"):
            monkeypatch.delenv(switch.name, raising=False)
    yield
    monkeypatch.delenv("TILEWRIGHT_LOG", raising=False)
    configure_logging()


@pytest.fixture
def model() -> IRModule:
    x = gi.var("x", shape=(8, 16))
    hidden = gi.Call("matmul", [x, gi.const(np.ones((16, 16), "f4"))], span="product")
    return IRModule.from_expr(gi.Function([x], gi.nn.relu(hidden)))


@pytest.fixture
def mark() -> Any:
    return function_pass(
        lambda func, mod, ctx: func.with_attr("n", func.attrs.get("n", 0) + 1), opt_level=0, name="Mark"
    )


def test_every_variable_in_the_source_is_in_the_table() -> None:
    texts = [path.read_text(encoding="utf-8") for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    found = {name for text in texts for name in re.findall(r"TILEWRIGHT_[A-Z_]+", text)}
    assert found == {switch.name for switch in SWITCHES}


def test_the_readme_shows_the_table() -> None:
    assert f"\n{markdown_table()}\n" in (ROOT / "README.md").read_text(encoding="utf-8")


# Dumps.


def test_each_build_is_dumped_into_a_numbered_folder(
    model: IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "dumps"))
    for _ in range(2):
        tw.build(model)
    folders = sorted((tmp_path / "dumps").iterdir())
    assert [folder.name for folder in folders] == ["000", "001"]
    for folder in folders:
        files = sorted(path.name for path in folder.iterdir())
        assert files[0] == "000_input.ir"
        assert files[-2].endswith("_PlanMemory.ir")
        assert files[-1] == "index.txt"
        assert sum("input" in name for name in files) == 1


def test_passes_outside_of_a_build_are_dumped_in_the_default_context_too(
    mod: IRModule, mark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    Sequential([mark, mark])(mod)
    with PassContext(opt_level=3):
        mark(mod)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.ir"))
    assert files == ["000/000_input.ir", "000/001_Mark.ir", "000/002_Mark.ir", "001/000_input.ir", "001/001_Mark.ir"]


def test_dumps_go_together_with_instruments_of_the_program(
    mod: IRModule, mark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    counter = PassCounter()
    with PassContext(instruments=[counter]) as ctx:
        mark(mod)
        assert ctx.instruments == [counter]
    assert counter.total == 1
    assert (tmp_path / "000" / "001_Mark.ir").exists()


# Verification.


@function_pass(opt_level=0, name="Breaks")
def breaks(func: gi.Function, mod: Any, ctx: Any) -> gi.Function:
    body = func.body
    assert isinstance(body, gi.Call)
    return gi.Function(func.params, gi.Call(body.op, body.args, body.attrs, gi.TensorType((1,), "float32")))


@pytest.mark.parametrize("value", ["1", "on", "mutation"])
def test_a_pass_that_breaks_a_rule_is_named(model: IRModule, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", value)
    with pytest.raises(VerifyError, match="pass Breaks"):
        tw.build(model, passes={"graph": breaks})
    with pytest.raises(VerifyError, match="pass Breaks"):
        breaks(model)


def test_a_pass_that_changes_its_input_is_found_where_asked(model: IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(mod: IRModule, ctx: Any) -> IRModule:
        object.__setattr__(mod["main"].body, "op", gi.get_operator("tanh"))
        return mod

    monkeypatch.setenv("TILEWRIGHT_VERIFY", "mutation")
    with pytest.raises(VerifyError, match=r"pass Spoil .* changed the function @main"):
        module_pass(spoil, opt_level=0, name="Spoil")(model)


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_verification_may_be_off(model: IRModule, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", value)
    assert isinstance(breaks(model)["main"], gi.Function)


def test_another_value_is_an_error(mod: IRModule, mark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "all")
    with pytest.raises(SettingError, match="TILEWRIGHT_VERIFY: expected 1, mutation or off, found 'all'"):
        mark(mod)
    monkeypatch.delenv("TILEWRIGHT_VERIFY")
    assert mark(mod)["main"].attrs["n"] == 1


# Logs.


def test_a_log_goes_to_standard_error(model: IRModule, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "fusion")
    with PassContext(opt_level=1):
        FuseOps()(model)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("[tilewright.fusion] FuseOps @main: applied: fused 2 operators")
    assert "[tilewright.passes]" not in captured.err


def test_passes_are_logged_with_their_time(model: IRModule, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "passes")
    keep = module_pass(lambda mod, ctx: mod, opt_level=0, name="Keep")
    keep(model)
    assert re.fullmatch(
        r"\[tilewright\.passes\] Keep on 1 functions: [\d.]+ (us|ms|s), changed nothing\n", capsys.readouterr().err
    )


def test_every_family_is_heard_of_in_builds(
    model: IRModule, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "all")
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build_cache, "source_version", lambda: "a version")
    with fresh_caches():
        tw.build(model)
    err = capsys.readouterr().err
    assert {family for family in FAMILIES if f"[tilewright.{family}]" in err} == set(FAMILIES)
    assert "[tilewright.cache] miss: no build " in err


def test_a_kept_build_is_found_with_logs_on_and_said_to_be(
    model: IRModule, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build_cache, "source_version", lambda: "a version")
    tw.build(model)
    folder = build_cache.open_cache(PassContext())
    assert isinstance(folder, DiskCache)
    folder.wait()
    monkeypatch.setenv("TILEWRIGHT_LOG", "cache,passes")
    tw.build(model)
    err = capsys.readouterr().err
    assert "[tilewright.cache] hit: build " in err
    assert "LowerToTensorIR" not in err
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "1")
    tw.build(model)
    assert "LowerToTensorIR" in capsys.readouterr().err


def test_an_unknown_family_is_an_error_that_lists_them(
    mod: IRModule, mark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "passes,fussion")
    with pytest.raises(
        SettingError, match="expected some of build, passes, fusion, schedule, cache, codegen, or all; found 'fuss"
    ):
        mark(mod)


def test_without_the_switch_loggers_are_as_the_program_has_them(
    model: IRModule, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    monkeypatch.setenv("TILEWRIGHT_LOG", "fusion")
    FuseOps()(model)
    capsys.readouterr()
    monkeypatch.delenv("TILEWRIGHT_LOG")
    FuseOps()(model)
    assert capsys.readouterr().err == ""
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, logger="tilewright.fusion"), PassContext(opt_level=1):
        FuseOps()(model)
    assert [record.name for record in caplog.records] == ["tilewright.fusion"]


def test_a_program_whose_environment_is_silent_is_not_watched(model: IRModule) -> None:
    seen: list[bool] = []

    @module_pass(opt_level=0, name="Look")
    def look(mod: IRModule, ctx: PassContext) -> IRModule:
        seen.append(is_watched(ctx))
        return mod

    look(model)
    with PassContext(instruments=[PassCounter()]):
        look(model)
    assert seen == [False, True]


def test_kernels_go_through_the_passes_together_where_these_are_dumped(
    model: IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path))
    tw.build(model)
    lowered = gi.parse(next((tmp_path / "000").glob("*_PlanMemory.ir")).read_text())
    assert all(isinstance(function, PrimFunc) for function in lowered.functions.values())
