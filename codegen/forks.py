"""Count the forks of a function: decide whether its threads should stay together for all of a call."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tilewright.tensorir.arith.analyzer import Analyzer
from tilewright.tensorir.expr import Call, Compare, Expr, IntImm, Var, as_expr, cast
from tilewright.tensorir.functor import free_vars, substitute
from tilewright.tensorir.keys import PARALLEL_IF
from tilewright.tensorir.stmt import Allocate, Evaluate, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt, sequence


def several_forks(func: PrimFunc, functions: Mapping[str, PrimFunc], least: int = 2) -> Expr:
    """Return the condition, over the parameters of ``func``, on which a call executes at least ``least`` parallel loops
    that are worth threads (several loops, or one repeatedly). Callees are looked up in ``functions``; unknown ones
    count for nothing."""
    found = _forks(func, functions, {})
    if len(found) < least and not any(repeated for _, repeated in found):
        return as_expr(False)
    return _any_of([condition for condition, _ in found])


def _any_of(conditions: Sequence[Expr]) -> Expr:
    """Return the disjunction of ``conditions``, for sizes of which none is zero: nothing forks for empty arrays. A
    network has a hundred conditions: those implied by that of the first loop with many iterations need no code."""
    analyzer = Analyzer()
    thresholds: dict[Expr, Compare] = {}
    others: dict[Expr, None] = {}
    for condition in conditions:
        if isinstance(condition, Compare) and condition.op == "ge" and isinstance(condition.b, IntImm):
            # Of several thresholds for one value the least decides.
            known = thresholds.setdefault(condition.a, condition)
            assert isinstance(known.b, IntImm)
            if condition.b.value < known.b.value:
                thresholds[condition.a] = condition
        elif isinstance(condition, IntImm) and condition.value:
            return as_expr(True)
        else:
            others[condition] = None
    for each in thresholds.values():
        for var in free_vars(each.a):
            if var not in analyzer.facts.intervals:
                analyzer.bind(var, 1)
        if analyzer.prove(each):
            return as_expr(True)
    return functools.reduce(lambda a, b: a | b, [*thresholds.values(), *others])


#: The conditions on which parallel loops fork, and whether each is nested in another loop.
_Forks = list[tuple[Expr, bool]]


def outline(func: PrimFunc) -> PrimFunc:
    """Return ``func``, which calls no others, with an empty body that keeps what the ``main`` of a model depends on:
    parameters, attributes, whether it does anything, and the conditions and repetition of its forks."""
    if isinstance(func.body, SeqStmt) and not func.body.stmts:
        return func
    nothing = SeqStmt(())
    loops: list[Stmt] = []
    for condition, repeated in reversed(_forks(func, {}, {})):  # found from the last one to the first
        fork = _loop("parallel", nothing, {PARALLEL_IF: condition})
        loops.append(_loop("serial", fork) if repeated else fork)
    return func.with_body(IfThenElse(as_expr(True), sequence(*loops)))


def _loop(kind: str, body: Stmt, annotations: Mapping[str, object] = MappingProxyType({})) -> For:
    return For(Var("i"), as_expr(0), as_expr(1), kind, body, annotations)


def _forks(func: PrimFunc, functions: Mapping[str, PrimFunc], known: dict[str, _Forks]) -> _Forks:
    found: _Forks = []
    variables = set(func.variables)

    def add(condition: Expr, repeated: bool) -> None:
        if not variables.issuperset(free_vars(condition)):
            condition = as_expr(True)
        if not (isinstance(condition, IntImm) and not condition.value):
            found.append((condition, repeated))

    stack: list[tuple[Stmt, bool]] = [(func.body, False)]
    while stack:
        stmt, repeated = stack.pop()
        if isinstance(stmt, For):
            if stmt.kind == "parallel":
                add(as_expr(stmt.annotations.get(PARALLEL_IF, True)), repeated)
            else:
                stack.append((stmt.body, True))
        elif isinstance(stmt, SeqStmt):
            stack.extend((part, repeated) for part in stmt.stmts)
        elif isinstance(stmt, IfThenElse):
            branches = (stmt.then_body, stmt.else_body)
            stack.extend((branch, repeated) for branch in branches if branch is not None)
        elif isinstance(stmt, (LetStmt, Allocate)):
            stack.append((stmt.body, repeated))
        elif isinstance(stmt, Evaluate) and isinstance(stmt.value, Call):
            callee = functions.get(stmt.value.name[1:]) if stmt.value.name.startswith("@") else None
            if callee is None:
                continue
            if callee.name not in known:
                known[callee.name] = []  # ends the recursion of a function that calls itself
                known[callee.name] = _forks(callee, functions, known)
            values = {
                param: cast(param.dtype, arg)
                for param, arg in zip(callee.params, stmt.value.args, strict=True)
                if isinstance(param, Var)
            }
            for condition, inner in known[callee.name]:
                add(substitute(condition, values), repeated or inner)
    return found
