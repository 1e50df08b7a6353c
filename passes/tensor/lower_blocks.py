"""``LowerBlocks``: turn blocks into plain statements inside their loops.

Each iteration variable of a block becomes its binding, the predicate becomes a condition around the block, and the init
of a reduction runs where all reduction bindings have their least value::

    for i in range(4):                              for i in range(4):
        for k in range(8):                              for k in range(8):
            block s(vi = i, vk = k):           ->           if k == 0:
                init: b[vi] = 0                                 b[i] = 0
                b[vi] = b[vi] + a[vi, vk]                   b[i] = b[i] + a[i, k]

A block whose reduction was decomposed has no init, and leaves no condition. Formulas that are chosen by an index become
selections, ``choose(y, a, b, c)`` to ``select(y == 0, a, select(y == 1, b, c))``; schedules have decided which loops
are unrolled for them. ``CompactBuffer``, which follows, places the intermediate buffers and shrinks them to the
elements that are accessed there.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import BLOCKS, STATEMENTS
from tilewright.passes.registry import register_pass
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.expr import Choose, Expr, IntImm, Var, all_of, compare
from tilewright.tensorir.functor import CHOICES, Mutator, kinds, substitute
from tilewright.tensorir.schedule.nests import walk_nests
from tilewright.tensorir.stmt import Allocate, Block, For, IfThenElse, PrimFunc, SeqStmt, Stmt, sequence


class _BlockLowerer(Mutator):
    """Replace blocks from the outside in: the bindings of an inner block may use the variables of an outer one."""

    def mutate_Block(self, block: Block) -> Stmt:
        values: dict[Var, Expr] = {item.var: item.value for item in block.iters}
        body: Stmt = self.lowered(substitute(block.body, values), block.body)
        if block.init is not None:
            first = all_of(*(compare("eq", it.value, it.min) for it in block.iters if it.kind == "reduction"))
            init: Stmt = self.lowered(substitute(block.init, values), block.init)
            body = sequence(_guarded(first, init), body)
        if block.predicate is None:
            return body
        return _guarded(substitute(block.predicate, values), body)

    def lowered(self, stmt: Stmt, before: Stmt) -> Stmt:
        """Lower a part of a block whose variables have been replaced in ``before``."""
        lowerer = _ChoiceLowerer() if kinds(before) & CHOICES else self
        lowered: Stmt = lowerer.mutate(stmt)
        return lowered


class _ChoiceLowerer(_BlockLowerer):
    """Replace choices of formulas, too."""

    def mutate(self, node: Any) -> Any:
        if isinstance(node, Expr) and not kinds(node) & CHOICES:
            return node
        return super().mutate(node)

    def mutate_Choose(self, expr: Choose) -> Expr:
        made: Choose = self.generic_mutate(expr)
        return made.as_selections()


def _guarded(condition: Expr, body: Stmt) -> Stmt:
    if isinstance(condition, IntImm) and condition.value:
        return body
    return IfThenElse(condition, body)


def lower_blocks(func: PrimFunc) -> PrimFunc:
    """Return ``func`` without blocks."""
    lowerer = _ChoiceLowerer() if any(map(_chooses, walk_nests(func.body))) else _BlockLowerer()
    return func.with_body(lowerer.mutate(func.body))


def _chooses(stmt: Stmt) -> bool:
    """Return whether ``stmt``, one of those around the blocks, chooses a formula itself. Whether a block does, its own
    lowering finds out: most statements are blocks and loops around them."""
    if isinstance(stmt, For):
        return bool((kinds(stmt.min) | kinds(stmt.extent)) & CHOICES)
    return not isinstance(stmt, (Block, SeqStmt, Allocate)) and bool(kinds(stmt) & CHOICES)


def refuse_block(block: Block) -> NoReturn:
    """Refuse a block, for passes that would change what is in it and not what it states.

    Raises:
        VerifyError: always.
    """
    raise VerifyError(f"found block {block.name}; run LowerBlocks first")


@register_pass
@primfunc_pass(opt_level=0, name="LowerBlocks", requires={BLOCKS}, provides={STATEMENTS}, invalidates={BLOCKS})
class LowerBlocks(PrimFuncPass):
    """See the module."""

    essential = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without blocks."""
        return lower_blocks(func)
