"""Run the notebooks of the tutorial: ``python build_support/notebooks.py [FILE ...]`` stores new outputs in them.

A test runs them as well, and compares. Outputs that differ from machine to machine, such as times, are in cells with
the tag ``varies``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TUTORIAL = Path(__file__).resolve().parents[1] / "docs" / "tutorial"
#: In seconds, for one cell.
TIMEOUT = 120


def executed(path: Path, folder: str) -> Any:
    """Return the notebook as a fresh kernel runs it, in ``folder``, which receives the files that it writes.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raises.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", record_timing=False)
    client.execute(cwd=folder)
    return stripped(notebook)


def stripped(notebook: Any) -> Any:
    """Drop what says nothing of the notebook: the version of Python that ran it, and where texts were cut in pieces."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def main(names: list[str]) -> None:
    for path in [Path(name) for name in names] or sorted(TUTORIAL.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, folder)
        nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
