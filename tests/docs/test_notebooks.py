"""The notebooks of the tutorial run, and print what is stored in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import notebooks
import pytest
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = sorted(notebooks.TUTORIAL.glob("*.ipynb"))


def fixed(notebook: Any) -> list[tuple[str, list[Any]]]:
    """Source and outputs of the cells whose outputs are the same on every machine."""
    return [
        (cell.source, [output.get("text") or output.data for output in cell.outputs])
        for cell in notebook.cells
        if cell.cell_type == "code" and "varies" not in cell.metadata.get("tags", ())
    ]


def test_the_tutorial_has_four_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["1_first_model", "2_own_pass", "3_own_kernel", "4_own_operator"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_in_it(path: Path, tmp_path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    found = notebooks.executed(path, str(tmp_path))
    assert fixed(found) == fixed(stored), "run: python build_support/notebooks.py"
    for old, new in zip(stored.cells, found.cells, strict=True):
        if old.cell_type == "code":
            assert bool(old.outputs) == bool(new.outputs), old.source


def test_a_cell_that_raises_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1)\n1 / 0")]), path)
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        notebooks.executed(path, str(tmp_path))
