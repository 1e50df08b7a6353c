"""Make a counted loop that ends early of loops that only count.

Loop-level IR has no loop that ends on a condition, and a loop of which every iteration asks the condition takes all of
its iterations, which may be 2**63. So the iterations are grouped, 256 to a group and 256 groups to a greater one, and
each group asks before it starts: when the condition fails, what remains of each of the eight loops is counted, at most
2048 iterations without work.

Before::

    for iteration in range(n): if alive: body(iteration)

After, with two loops of the eight::

    for group in range(n // 256 rounded up):
        if alive:
            for member in range(min(256, n - 256 * group)):
                if alive: body(256 * group + member)
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.tensorir.expr import Expr, Var, as_expr, maximum, minimum
from tilewright.tensorir.stmt import For, IfThenElse, Stmt

#: Iterations of a group, and the loops that count to 2**63 so.
_GROUP, _LOOPS = 256, 8


def loop_while(alive: Expr, count: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    """Return a loop that runs ``body`` for 0, 1, ... below ``count`` until ``alive`` is false, which the body changes.

    Args:
        alive: the condition, which reads memory.
        count: the greatest number of iterations, int64.
        body: returns the statement for the number of an iteration.
    """
    number: Expr = as_expr(0)
    total = maximum(count, 0)
    variables: list[tuple[Var, Expr]] = []
    for level in reversed(range(_LOOPS)):
        groups = (total - 1) // _GROUP**level + 1 if level else total  # rounded up, and 0 for 0
        var = Var("iteration" if level == 0 else f"group_{level}")
        before = number * _GROUP
        variables.append((var, groups if level == _LOOPS - 1 else minimum(groups - before, _GROUP)))
        number = before + var
    statement = body(number)
    for var, extent in reversed(variables):
        statement = For(var, as_expr(0), extent, "serial", IfThenElse(alive, statement))
    return statement
