"""The Python code in README.md and docs/ runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
#: Tables that programs write; they hold no code.
TABLES = {"onnx.md", "operators.md"}
PAGES = [
    "README.md",
    *[f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in TABLES],
]


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_as_they_stand(page: str) -> None:
    rng = np.random.default_rng(0)
    names: dict[str, object] = {
        "weights": [rng.standard_normal(shape).astype("f4") for shape in ((512, 784), (512,), (10, 512))],
        "images": rng.standard_normal((3, 784)).astype("f4"),
    }
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    if page == "README.md":
        assert np.asarray(names["y"]).shape == (3, 10)
