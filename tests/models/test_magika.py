"""magika's network, which tells the types of files: imported, compiled once, and the same as in ONNX Runtime."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw

magika = pytest.importorskip("magika", reason="`make models` installs the package magika")
pytest.importorskip("onnx", reason="`make models` installs onnx")

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(sysconfig.get_path("stdlib"))


@pytest.fixture(scope="module")
def file_types(example: Callable[[str], ModuleType]) -> ModuleType:
    return example("magika/file_types")


@pytest.fixture(scope="module")
def network(file_types: ModuleType) -> tw.Executable:
    compiled: tw.Executable = file_types.compile_network()
    return compiled


@pytest.mark.parametrize("files", [1, 2, 7, 33])
def test_scores_are_those_of_onnx_runtime_for_any_number_of_files(
    network: tw.Executable, file_types: ModuleType, peer: Any, agree: Any, files: int
) -> None:
    contents = np.random.default_rng(files).integers(0, 257, (files, 2048)).astype(np.int32)
    agree(network(contents), peer(file_types.model_file())(contents))


def real_files() -> list[Path]:
    """Files of many kinds: of this repository, and of Python's library."""
    own = [path for folder in ("docs", "examples", "graphir", "tests") for path in (ROOT / folder).rglob("*.*")]
    top = [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", "LICENSE")]
    library = sorted(LIBRARY.glob("*.py")) + sorted(LIBRARY.glob("*/*.py"))
    own = sorted(path for path in own if path.is_file() and "__pycache__" not in path.parts)
    compiled = sorted((LIBRARY / "__pycache__").glob("*.pyc"))
    chosen = random.Random(0)
    return top + own[::4] + chosen.sample(library, 40) + chosen.sample(compiled, min(10, len(compiled)))


def test_real_files_have_the_types_that_the_package_says(network: tw.Executable, file_types: ModuleType) -> None:
    paths = real_files()
    short = [b"", b"x = 1\n", b"\xff\xfe\xfd", b" " * 5000, b"   \n#!/bin/sh\n" * 3, b"\x89PNG\r\n\x1a\n" + b"\0" * 9]
    contents = [*short, *[path.read_bytes() for path in paths]]
    answers = file_types.FileTyper(network).identify(contents)
    package = magika.Magika()
    expected = [package.identify_bytes(content) for content in contents]
    assert [answer.label for answer in answers] == [str(result.output.label) for result in expected]
    np.testing.assert_allclose([answer.score for answer in answers], [one.score for one in expected], atol=1e-4)
    kinds = {answer.label for answer in answers}
    assert {"python", "markdown", "makefile", "toml", "pythonbytecode", "empty"} <= kinds
