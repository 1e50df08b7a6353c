"""Provide the report of a model, made once."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi


def network() -> gi.IRModule:
    """Build two layers, the second of which adds its input; the first operator has a label."""
    random = np.random.default_rng(0)
    x = gi.var("x", shape=("n", 32))
    weights = [gi.const(random.standard_normal((32, 32)).astype("f4")) for _ in range(2)]
    first = gi.nn.relu(gi.Call("nn.dense", (x, weights[0]), span="first <b>layer</b>"))
    return gi.IRModule.from_expr(gi.Function([x], gi.nn.softmax(gi.nn.dense(first, weights[1]) + x)))


def data_of(path: Path) -> dict[str, Any]:
    """Return the data in a page."""
    found = re.search(r'id="data">([^<]*)<', path.read_text(encoding="utf-8"))
    assert found is not None
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(found.group(1))))
    return data


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of ``network`` at level 3."""
    with tw.PassContext(opt_level=3):
        model = tw.build(network())
    path = tmp_path_factory.mktemp("report") / "report.html"
    inputs = np.random.default_rng(1).standard_normal((16, 32)).astype("f4")
    return tw.report(model, path, [inputs], repeat=3, title="Two <i>layers</i>")


@pytest.fixture(scope="session")
def data(page: Path) -> dict[str, Any]:
    """Return the data of that page."""
    return data_of(page)
