"""Write loop nests by hand, for operators whose elements depend on each other (scans, scatters, sorting)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.tensorir.dtype import INT64, as_dtype
from tilewright.tensorir.expr import Buffer, Expr, ExprLike, Var, as_expr
from tilewright.tensorir.stmt import BufferStore, For, LetStmt, Stmt


def loop(extent: ExprLike, body: Callable[[Var], Stmt], name: str = "i", kind: str = "serial") -> Stmt:
    """Run ``body(i)`` for every ``i`` in ``[0, extent)``."""
    var = Var(name)
    return For(var, as_expr(0), as_expr(extent), kind, body(var))


def let(name: str, value: Expr, body: Callable[[Var], Stmt]) -> Stmt:
    """Run ``body(var)`` where ``var`` is ``value``, computed once."""
    var = Var(name, value.dtype)
    return LetStmt(var, value, body(var))


def nest(extents: Sequence[ExprLike], body: Callable[[list[Expr]], Stmt], parallel: bool = True) -> Stmt:
    """Run ``body`` at every place of a box, in row-major order; ``parallel``: the outermost loop's iterations are
    independent."""

    def level(place: list[Expr]) -> Stmt:
        number = len(place)
        if number == len(extents):
            return body(place)
        kind = "parallel" if parallel and number == 0 else "serial"
        return loop(extents[number], lambda var: level([*place, var]), f"i{number}", kind)

    return level([])


def register(name: str, dtype: object = INT64) -> Buffer:
    """Declare a scalar variable of the loops: a buffer of one element."""
    return Buffer(name, (as_expr(1),), as_dtype(dtype), "register")


def assign(register: Buffer, value: ExprLike) -> Stmt:
    """Assign ``value`` to ``register``."""
    return BufferStore(register, as_expr(value), (as_expr(0),))
