"""Commands use builds that earlier commands kept, and say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tilewright.passes.context import PassContext
from tilewright.runtime.build_cache import open_cache
from tilewright.runtime.process_caches import fresh_caches


@pytest.mark.parametrize("again", [["run"], ["profile"], ["report", "-o", "page.html"], ["compile", "-o", "kept.tw"]])
def test_a_kept_build_is_used_and_said(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: list[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    with fresh_caches():
        first = command("run", "network.py:network")
    assert first.exit_code == 0 and "compiled in" in first.output and "found in the cache" not in first.output
    kept = open_cache(PassContext.current())
    assert kept is not None
    kept.wait()  # builds are written behind; another process would wait for this one's exit
    with fresh_caches():
        second = command(again[0], "network.py:network", *again[1:])
    assert second.exit_code == 0, second.output
    assert "found in the cache in" in second.output
