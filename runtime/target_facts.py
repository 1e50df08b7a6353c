"""What a kernel that is kept, or made by another process, depends on of its target and machine."""

from __future__ import annotations

from typing import Any

from tilewright.tensorir.target import Target


def target_facts(target: Target) -> dict[str, Any]:
    """What of a target, and of this machine, passes and code generators ask about; plain data."""
    return {
        "kind": target.kind,
        "mtriple": target.mtriple,
        "mcpu": target.mcpu,
        "num_threads": target.num_threads,
        "features": sorted(target.features),
        "is_host": target.is_host,
        "caches": [target.cache_bytes(level) for level in (1, 2, 3)],
    }
