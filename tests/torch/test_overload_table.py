"""``docs/torch_overloads.md`` is the table of the overloads that are converted."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tilewright.graphir.frontend.torch.overload_table import missing_overloads, overload_table  # noqa: E402

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "torch_overloads.md"


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the page is for the overloads of PyTorch 2.13")
def test_the_document_is_current() -> None:
    if DOCUMENT.read_text(encoding="utf-8") != overload_table():
        pytest.fail("run: python -m tilewright.graphir.frontend.torch.overload_table > docs/torch_overloads.md")


def test_random_numbers_run_in_pytorch() -> None:
    assert "aten.rand.default" in missing_overloads()
    assert "aten.add.Tensor" not in missing_overloads()
