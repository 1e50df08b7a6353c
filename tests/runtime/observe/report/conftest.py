"""Provide the report of a model, made once."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections.abc import Iterator
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


def builds_of(path: Path) -> list[dict[str, Any]]:
    """Return the data of each build in a page."""
    found = re.search(r'id="data">([^<]*)<', path.read_text(encoding="utf-8"))
    assert found is not None
    builds: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(found.group(1))))["builds"]
    return builds


def data_of(path: Path) -> dict[str, Any]:
    """Return the data of the only build in a page."""
    (build,) = builds_of(path)
    return build


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of ``network`` at level 3."""
    with tw.PassContext(opt_level=3):
        model = tw.build(network())
    path = tmp_path_factory.mktemp("report") / "report.html"
    inputs = np.random.default_rng(1).standard_normal((16, 32)).astype("f4")
    return tw.report(model, path, [inputs], repeat=3, title="Two <i>layers</i>")


@pytest.fixture(scope="session")
def compared_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of ``network`` at level 1, which has no vectors, beside level 3."""
    builds = []
    for level in (1, 3):
        with tw.PassContext(opt_level=level):
            builds.append(tw.build(network()))
    path = tmp_path_factory.mktemp("compared") / "report.html"
    inputs = np.random.default_rng(1).standard_normal((16, 32)).astype("f4")
    return tw.report(builds, path, [inputs], repeat=3, title="Two levels")


@pytest.fixture(scope="session")
def data(page: Path) -> dict[str, Any]:
    """Return the data of that page."""
    return data_of(page)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_MISSING = "make browser installs playwright and Chromium"


def opened(browser: Any, address: str, errors: list[str], **options: Any) -> Any:
    """Open a page; everything that appears in the console, and every request for something else, is an error."""
    view = browser.new_page(**({"viewport": {"width": 1280, "height": 900}} | options))
    view.on("console", lambda message: errors.append(message.text))
    view.on("pageerror", lambda error: errors.append(str(error)))
    view.on("request", lambda request: None if request.url.startswith("file:") else errors.append(request.url))
    view.goto(address)
    view.wait_for_selector("body[data-ready]")
    return view


def texts(view: Any, selector: str) -> list[str]:
    """Return the texts of the elements that are found."""
    return [str(text) for text in view.locator(selector).all_inner_texts()]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Start Chromium; skip the test where it, or playwright, is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason=_MISSING)
    if CHROMIUM is None:
        pytest.skip(_MISSING)
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture
def shown(browser: Any, page: Path) -> Iterator[Any]:
    """Open the page; the console must be empty when the test is over."""
    errors: list[str] = []
    view = opened(browser, page.as_uri(), errors)
    yield view
    view.close()
    assert errors == []


@pytest.fixture
def compared(browser: Any, compared_page: Path) -> Iterator[Any]:
    """Open the page of two builds; the console must be empty when the test is over."""
    errors: list[str] = []
    view = opened(browser, compared_page.as_uri(), errors)
    yield view
    view.close()
    assert errors == []
