"""Describe a target and this machine: code on disk, or from another process, is valid for these facts only."""

from __future__ import annotations

from typing import Any

from tilewright.tensorir.target import Target


def target_facts(target: Target) -> dict[str, Any]:
    """Return the properties of a target and of this machine that passes and code generators read, as plain data."""
    return {
        "kind": target.kind,
        "mtriple": target.mtriple,
        "mcpu": target.mcpu,
        "mattr": target.mattr,
        "num_threads": target.num_threads,
        "features": sorted(target.features),
        "is_host": target.is_host,
        "caches": [target.cache_bytes(level) for level in (1, 2, 3)],
    }
