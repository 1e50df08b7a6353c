"""``RemoveUnusedFunctions``: drop the functions that no entry point reaches.

Before: ``@main`` calls ``@f``; ``@g`` is called by nothing. After: ``@main`` and ``@f``. Functions of both IRs count.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graphir.module import IRModule
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.graph.call_graph import reachable
from tilewright.passes.registry import register_pass


@register_pass
@module_pass(opt_level=1, name="RemoveUnusedFunctions")
class RemoveUnusedFunctions(ModulePass):
    """Keep the functions that ``entries`` call, directly or through others.

    Args:
        entries: names of functions; a module that has none of them stays as it is.
    """

    def __init__(self, entries: Sequence[str] = ("main",)) -> None:
        self.entries = tuple(entries)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` without unreachable functions."""
        used = reachable(mod, self.entries)
        unused = [gv.name for gv in mod if gv.name not in used]
        if not used or not unused:
            return mod
        ctx.remark(f"removed {', '.join(f'@{name}' for name in unused)}", "applied")
        return mod.without(unused)
