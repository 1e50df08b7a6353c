"""Without PyTorch the import says what to install."""

from __future__ import annotations

import sys

import pytest

import tilewright as tw


def test_without_pytorch_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tilewright.graphir.frontend.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install tilewright\[torch\]"):
        tw.from_exported(None)  # type: ignore[arg-type]
