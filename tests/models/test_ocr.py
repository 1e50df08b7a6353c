"""The three networks of rapidocr-onnxruntime: each as in ONNX Runtime at all sizes, and together they read a page."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw

package = pytest.importorskip("rapidocr_onnxruntime", reason="`make models` installs the package rapidocr-onnxruntime")
pytest.importorskip("onnx", reason="`make models` installs onnx")

#: Sizes of calls of one compiled network: pages in whole steps of 32 pixels, as the detection takes them.
SIZES = {
    "detection": [(1, 3, 96, 160), (1, 3, 64, 64), (2, 3, 64, 224), (1, 3, 224, 96), (1, 3, 320, 640)],
    "direction": [(1, 3, 48, 192), (2, 3, 48, 192), (7, 3, 48, 192)],
    "recognition": [(1, 3, 48, 320), (2, 3, 48, 97), (6, 3, 48, 48), (1, 3, 48, 643)],
}


@pytest.fixture(scope="module")
def reader(example: Callable[[str], ModuleType]) -> ModuleType:
    return example("ocr/reader")


@pytest.fixture(scope="module")
def page(example: Callable[[str], ModuleType]) -> ModuleType:
    return example("ocr/page")


@pytest.fixture(scope="module")
def networks(reader: ModuleType) -> dict[str, tw.Executable]:
    return {name: reader.compile_network(name) for name in reader.NETWORKS}


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in SIZES.items() for shape in shapes])
def test_a_network_compiled_once_computes_what_onnx_runtime_does(
    networks: dict[str, tw.Executable],
    reader: ModuleType,
    page: ModuleType,
    peer: Any,
    agree: Any,
    name: str,
    shape: tuple[int, ...],
) -> None:
    """On parts of a page: without text all that is detected is noise near zero."""
    n, _, height, width = shape
    picture = page.draw_page()[60:, 60:].transpose(2, 0, 1).astype(np.float32) / 127.5 - 1
    parts = [picture[:, 10 * part : 10 * part + height, 20 * part : 20 * part + width] for part in range(n)]
    x = np.ascontiguousarray(np.stack(parts))
    assert x.shape == shape
    agree(networks[name](x), peer(reader.MODELS / reader.NETWORKS[name][0])(x))


def words(count: int) -> list[str]:
    """Words that are in no dictionary."""
    chosen = random.Random(3)
    return ["".join(chosen.choices("abcdefghkmnprstuvwxyz", k=chosen.randint(3, 8))) for _ in range(count)]


def read(networks: dict[str, tw.Executable], reader: ModuleType, picture: Any) -> list[str]:
    """The lines of ``picture``, which are those that ONNX Runtime's networks lead to."""
    found = reader.Reader(networks).read(picture)
    expected = package.RapidOCR()(picture)[0]
    assert [line.text for line in found] == [text for _, text, _ in expected]
    np.testing.assert_allclose([line.score for line in found], [float(one[2]) for one in expected], atol=1e-3)
    return [line.text.replace(" ", "") for line in found]


def test_a_drawn_page_is_read_back(networks: dict[str, tw.Executable], reader: ModuleType, page: ModuleType) -> None:
    made = words(12)
    lines = [*page.TEXT, *[" ".join(made[n : n + 4]) for n in range(0, len(made), 4)], "Total 1,024.50 in 2026"]
    assert read(networks, reader, page.draw_page(lines)) == [line.replace(" ", "") for line in lines]


def test_a_page_that_stands_on_its_head_is_read(
    networks: dict[str, tw.Executable], reader: ModuleType, page: ModuleType
) -> None:
    """All lines but one: of the first one's direction the network is not sure enough, in ONNX Runtime either."""
    picture = np.ascontiguousarray(page.draw_page()[::-1, ::-1])
    found = read(networks, reader, picture)[::-1]
    right = [text == line.replace(" ", "") for text, line in zip(found, page.TEXT, strict=True)]
    assert sum(right) == len(page.TEXT) - 1
