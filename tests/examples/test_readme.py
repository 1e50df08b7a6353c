"""The Python code in README.md and docs/ runs, and prints what the pages say that it prints."""

from __future__ import annotations

import code
import contextlib
import io
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.graphir import op as operators
from tilewright.graphir.frontend.onnx import importer
from tilewright.graphir.frontend.onnx import registry as converters
from tilewright.graphir.gradient import COMPOSITIONS, GRADIENTS
from tilewright.passes import config, registry
from tilewright.passes.schedule import rule

ROOT = Path(__file__).parents[2]
#: Tables that programs write and pages without code, and the commands, which tests/cli runs.
TABLES = {
    *("docs/cli.md", "docs/onnx.md", "docs/operators.md", "docs/performance.md", "docs/reliability.md"),
    *("docs/torch_overloads.md", "docs/extending.md", "docs/extending/compiled.md"),
}
#: Pages whose code needs a package that the tests do without.
NEEDED = {"docs/torch.md": "torch"}
PAGES = [
    "README.md",
    *sorted({page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")} - TABLES),
]
#: A block of code, and the block of text right after it, if there is one: what the code prints.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def write_classifier(path: Path) -> None:
    """An ONNX model that takes images of any size."""
    weights = np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype("f4")
    sides = ["batch", 3, "height", "width"]
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu1"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["scores"], "scores"),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, sides)],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["batch", 8])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)


def run_page(text: str, page: str, names: dict[str, object]) -> None:
    """Run the code of a page, in order and in one namespace.

    Raises:
        AssertionError: it prints something else than the page says.
    """
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        source, expected = block.groups()
        line = text[: block.start(1)].count("\n")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            # Errors show the line of the page, whose code is not under this module's __future__ statement.
            exec(compile("\n" * line + source, str(ROOT / page), "exec", dont_inherit=True), names)
        if expected is not None:
            assert printed.getvalue() == expected, f"{page}, line {line + 1}"


@pytest.fixture
def registries() -> Iterator[None]:
    """Restore the registries after an example."""
    importer._load_converters()  # by the first model that is imported, otherwise
    tables: list[Any] = [operators.OPERATORS, GRADIENTS, COMPOSITIONS]
    tables += [converters._CONVERTERS, registry._REGISTRY, config._OPTIONS, rule._RULES]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES)
def test_examples_run_as_they_stand(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page in NEEDED:
        pytest.importorskip(NEEDED[page], reason=f"{NEEDED[page]} is not installed: make {NEEDED[page]}")
    module = types.ModuleType("example_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    write_classifier(tmp_path / "classifier.onnx")
    monkeypatch.chdir(tmp_path)
    run_page((ROOT / page).read_text(encoding="utf-8"), page, names)
    if page == "README.md":
        assert np.asarray(names["y"]).shape == (3, 10)


def test_the_first_block_runs_when_it_is_pasted_into_a_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    monkeypatch.chdir(tmp_path)
    prompt = code.InteractiveConsole()
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
        for line in found.group(1).splitlines():
            prompt.push(line)
    assert errors.getvalue() == ""
    assert "FuseOps" in printed.getvalue()
    assert np.asarray(prompt.locals["y"]).shape == (3, 10)


def test_a_page_that_says_something_else_than_its_code_prints_is_found() -> None:
    page = "```python\nprint(1 + 1)\n```\n\n```text\n{}\n```\n"
    run_page(page.format(2), "page.md", {})
    with pytest.raises(AssertionError, match=r"page\.md, line 2"):
        run_page(page.format(3), "page.md", {})
