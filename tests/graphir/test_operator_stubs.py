"""Checkers and editors know the operators by stubs, which are those of the operators that there are."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import graphir as gi
from tilewright.graphir.operator_stubs import operator_stubs

ROOT = Path(__file__).resolve().parents[2]

#: Lines that a checker must refuse say so.
PROGRAM = """
import numpy as np
from tilewright import graphir as gi

x = gi.var("x", shape=("n", 8), dtype="float32")
w = gi.const(np.ones((4, 8), "f4"))
dense = gi.nn.dense(x, w, out_dtype="float32")
named = gi.nn.dense(data=x, weight=w) + dense * 2.0
parts = gi.concatenate([x, x], 1), gi.concatenate(x, x, axis=0), gi.stack((x, x), axis=0)
behind = gi.reshape(x, (2, 4)), gi.clip(x, 0, 1.5), gi.tanh(np.ones(3)), gi.full((2,), fill=1.0)
alias = gi.strided_slice(x, begin=(0,), end=(4,))
left_out = gi.gemm(x, w, transpose_b=True), gi.nn.conv2d(x, w, (1, 1), padding=1)
facts = gi.nn.dense.name, gi.add.kind
gi.nn.dense(x, w, wrong=3)  # refused
gi.nn.densse(x, w)  # refused
gi.tanhh(x)  # refused
gi.nn.conv2d(x, w, groups="two")  # refused
gi.add(x)  # refused
gi.concatenate(x, axes=1)  # refused
gi.stft(x, None, 4, 8)  # refused
"""
REFUSED = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")]


@pytest.mark.parametrize("file", ["_nn.pyi", "_operators.pyi"])
def test_the_stubs_are_current(file: str) -> None:
    if (ROOT / "graphir" / file).read_text(encoding="utf-8") != operator_stubs()[file]:
        pytest.fail("run: python -m tilewright.graphir.operator_stubs graphir")


def test_every_operator_is_declared() -> None:
    declared = set()
    for file, prefix in ("_nn.pyi", "nn."), ("_operators.pyi", ""):
        tree = ast.parse((ROOT / "graphir" / file).read_text(encoding="utf-8"))
        declared |= {
            f"{prefix}{statement.target.id}"
            for statement in tree.body
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            if not statement.target.id.startswith("_")
        }
    own = {f"nn.{name}" for name in dir(gi.nn)} | {
        name for name in dir(gi) if isinstance(getattr(gi, name), gi.Operator)
    }
    assert declared - {"strided_slice"} == own


def test_mypy_refuses_what_operators_do_not_take(tmp_path: Path) -> None:
    """The rest of the package is declared in a few lines: reading it takes mypy minutes."""
    package = tmp_path / "tilewright"
    for folder in package, package / "graphir", package / "tensorir":
        folder.mkdir()
        (folder / "__init__.pyi").write_text("")
    declarations = {
        "graphir/expr.pyi": "class Expr:\n    def __add__(self, other: object) -> Expr: ...\n"
        "    def __mul__(self, other: object) -> Expr: ...\nclass Call(Expr): ...\n"
        "def var(name: str, shape: object, dtype: str) -> Expr: ...\ndef const(value: object) -> Expr: ...\n",
        "graphir/op.pyi": "from typing import Any\nclass Operator:\n    name: str\n    kind: str\n"
        "    def __call__(self, *args: Any, **attrs: Any) -> Any: ...\n",
        "graphir/__init__.pyi": "from tilewright.graphir import _nn as nn\n"
        "from tilewright.graphir._operators import *\nfrom tilewright.graphir.expr import const as const, var as var\n",
        "tensorir/dtype.pyi": "class DataType: ...\n",
        **{f"graphir/{file}": text for file, text in operator_stubs().items()},
    }
    for file, text in declarations.items():
        (package / file).write_text(text)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "program.py"]
    environment = {**os.environ, "MYPYPATH": str(tmp_path)}
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert sorted(map(int, set(re.findall(r"^program\.py:(\d+): error", found.stdout, re.MULTILINE)))) == REFUSED


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="needs the extra types")
def test_pyright_refuses_what_operators_do_not_take(tmp_path: Path) -> None:
    package = tmp_path / "tilewright"
    package.mkdir()
    for path in (ROOT / "tilewright").iterdir():
        (package / path.name).symlink_to(path)
    for name in "graphir", "tensorir", "passes", "codegen", "runtime":
        (package / name).symlink_to(ROOT / name)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    lines = {each["range"]["start"]["line"] + 1 for each in json.loads(found.stdout)["generalDiagnostics"]}
    assert sorted(lines) == REFUSED
