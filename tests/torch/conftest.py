"""Fixtures of the tests of the backend of ``torch.compile``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget what PyTorch compiled, before and after the test; draw the same numbers in every run."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The modules that the backend builds from now on."""
    from tilewright.runtime.torch import compiled

    found: list[Any] = []
    original = compiled.build

    def counted(mod: Any, *args: Any, **options: Any) -> Any:
        found.append(mod)
        return original(mod, *args, **options)

    monkeypatch.setattr(compiled, "build", counted)
    return found
