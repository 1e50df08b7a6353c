"""The names that users see, and imports from the folder of the repository."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright as tw
from tilewright import graphir, passes, tensorir
from tilewright.graphir.op import OPERATORS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("package", [tw, graphir, passes, tensorir])
def test_dir_is_the_public_interface(package: object) -> None:
    names = {name for name in dir(package) if not name.startswith("__")}
    listed = {name for name in package.__all__ if not name.startswith("__")}  # type: ignore[attr-defined]
    operators = {name.partition(".")[0] for name in OPERATORS} if package is graphir else set()
    assert listed <= names <= listed | operators
    for name in names:
        assert getattr(package, name) is not None


_CLONE = f"""
import sys

# As with a Python that has the libraries, but not this package.
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.path.insert(0, {str(ROOT)!r})
import tilewright as tw
from tilewright.graphir.types import TensorType
assert tw.__file__.startswith({str(ROOT)!r}), tw.__file__
print(tw.Target("llvm", mcpu="x86-64-v3", mtriple="x86_64-linux-gnu").vector_bits, len(tw.passes.__all__) > 0)
"""


def test_the_folder_of_the_repository_can_be_imported() -> None:
    found = subprocess.run([sys.executable, "-c", _CLONE], capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.stdout.strip() == "256 True", found.stderr


def test_the_folder_without_its_libraries_says_what_to_install() -> None:
    program = _CLONE.replace("import tilewright", "sys.modules['numba'] = None\nimport tilewright", 1)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "needs numba, which this Python lacks" in found.stderr and f"pip install -e {ROOT}" in found.stderr


def test_operators_have_signatures_and_docstrings() -> None:
    for operator in (graphir.nn.conv2d, graphir.nn.dense, graphir.concatenate, graphir.exp):
        shown = pydoc.render_doc(operator, renderer=pydoc.plaintext)
        assert f"{operator.name}{inspect.signature(operator)}" in shown and "infer_type" not in shown
        assert inspect.cleandoc(type(operator).__doc__ or "no text").splitlines()[0] in shown
        assert "args" not in inspect.signature(operator).parameters
    assert "padding: zeros around the image" in pydoc.render_doc(graphir.nn.conv2d, renderer=pydoc.plaintext)
    assert list(inspect.signature(graphir.nn.dense).parameters)[:2] == ["data", "weight"]
    with pytest.raises(TypeError, match="wrong"):
        graphir.nn.dense(graphir.var("x", shape=(2, 3)), graphir.var("w", shape=(4, 3)), wrong=3)
