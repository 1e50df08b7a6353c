"""Change programs slightly, in ways that a test should notice: mutation testing (R. DeMillo, R. Lipton, F. Sayward,
"Hints on test data selection", 1978).

Mutants are made of the syntax tree. Only code within functions is changed, as the code of a mutant is put into
functions that exist already (:func:`put_in`). Annotations, defaults of parameters, docstrings, strings and the
arguments of errors stay, as no test should depend on their words alone.
"""

from __future__ import annotations

import ast
import gc
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One changed program.

    Attributes:
        index: number of the change in the order in which :func:`sites` meets them.
        kind: comparison, arithmetic, boolean, constant, condition, return or statement.
        lines: first and last line of the changed statement; of one that contains others, those before these.
        before, after: the changed part as source.
    """

    index: int
    kind: str
    lines: tuple[int, int]
    before: str
    after: str


@dataclass(frozen=True)
class Site:
    """A place that can be changed: ``change`` does it, within the tree that ``part`` is in; ``part`` shows it."""

    kind: str
    statement: ast.stmt
    part: ast.AST
    change: Callable[[], None]


def places(source: str) -> int:
    """Return the number of mutants of a module."""
    return sum(1 for _ in sites(ast.parse(source)))


def mutate(source: str, index: int) -> tuple[Mutant, ast.Module]:
    """Return the mutant of number ``index``, and its tree, whose lines are numbered as in ``source``."""
    tree = ast.parse(source)
    site = next(site for number, site in enumerate(sites(tree)) if number == index)
    lines, before = _lines(site.statement), _shown(site.part)
    site.change()
    after = {"statement": "pass", "return": "return None"}.get(site.kind) or _shown(site.part)
    if site.kind == "condition":
        after = f"not ({before})"
    return Mutant(index, site.kind, lines, before, after), ast.fix_missing_locations(tree)


def sites(tree: ast.Module) -> Iterator[Site]:
    """Yield the places of a module that can be changed, in the order of the source."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for item in node.body:
                if isinstance(item, FUNCTIONS):
                    yield from _sites_of_block(item.body)


def _sites_of_block(block: list[ast.stmt]) -> Iterator[Site]:
    for number, statement in enumerate(block):
        if isinstance(statement, FUNCTIONS):
            yield from _sites_of_block(statement.body)
        elif not isinstance(statement, (ast.ClassDef, ast.Assert, ast.Import, ast.ImportFrom)):
            yield from _sites_of_statement(block, number)


def _sites_of_statement(block: list[ast.stmt], number: int) -> Iterator[Site]:
    statement = block[number]
    if _can_be_left_out(statement):
        yield Site("statement", statement, statement, lambda: block.__setitem__(number, _nothing(statement)))
    if isinstance(statement, ast.Return) and _is_value(statement.value):
        nothing = ast.Constant(None)
        yield Site("return", statement, statement, lambda: setattr(statement, "value", nothing))
    if isinstance(statement, (ast.If, ast.While)):
        negated = ast.UnaryOp(ast.Not(), statement.test)
        kept = statement.test
        yield Site("condition", statement, kept, lambda: setattr(statement, "test", negated))
    if not isinstance(statement, ast.Raise):
        for field in statement._fields:
            if field != "annotation":
                yield from _sites_below(statement, getattr(statement, field))


def _sites_below(statement: ast.stmt, value: Any) -> Iterator[Site]:
    """Yield the places in a field of ``statement``, and in what is below it."""
    if isinstance(value, list):
        if value and isinstance(value[0], ast.stmt):
            yield from _sites_of_block(value)
        else:
            for item in value:
                yield from _sites_below(statement, item)
    elif isinstance(value, (ast.ExceptHandler, ast.match_case)):
        yield from _sites_of_block(value.body)
    elif isinstance(value, ast.expr):
        yield from _sites_of_expression(statement, value)
        if not isinstance(value, ast.JoinedStr):
            for field in value._fields:
                yield from _sites_below(statement, getattr(value, field))
    elif isinstance(value, (ast.comprehension, ast.keyword, ast.withitem)):
        for field in value._fields:
            yield from _sites_below(statement, getattr(value, field))


def _sites_of_expression(statement: ast.stmt, node: ast.expr) -> Iterator[Site]:
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            other = COMPARISONS[type(operator)]()
            yield Site("comparison", statement, node, lambda n=number, o=other: node.ops.__setitem__(n, o))
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        opposite = ARITHMETIC[type(node.op)]()
        yield Site("arithmetic", statement, node, lambda: setattr(node, "op", opposite))
    elif isinstance(node, ast.BoolOp):
        connective = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield Site("boolean", statement, node, lambda: setattr(node, "op", connective))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        again = ast.UnaryOp(ast.Not(), node.operand)
        yield Site("boolean", statement, node, lambda: setattr(node, "operand", again))
    elif isinstance(node, ast.IfExp):
        negated = ast.UnaryOp(ast.Not(), node.test)
        yield Site("condition", statement, node, lambda: setattr(node, "test", negated))
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        other_value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield Site("constant", statement, node, lambda: setattr(node, "value", other_value))


def _can_be_left_out(statement: ast.stmt) -> bool:
    """Return whether the rest of a function makes sense without a statement: it has an effect, and names nothing."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, (ast.Call, ast.Yield, ast.YieldFrom))
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in statement.targets)
    return isinstance(statement, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def _nothing(statement: ast.stmt) -> ast.stmt:
    """Return a statement without effect. What was a generator stays one."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, (ast.Yield, ast.YieldFrom)):
        never = ast.If(ast.Constant(False), [statement], [])
        return ast.copy_location(never, statement)
    return ast.copy_location(ast.Pass(), statement)


def _is_value(value: ast.expr | None) -> bool:
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def put_in(path: str, tree: ast.Module) -> int:
    """Put the code of a changed module into the functions that the unchanged one made; return how many changed.
    ``path`` is the file of both. Functions that a function makes are changed with it."""
    module = compile(tree, path, "exec", dont_inherit=True)
    codes = {(code.co_name, code.co_firstlineno): code for code in _codes(module)}
    changed = 0
    for function in [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]:
        old = function.__code__
        new = codes.get((old.co_name, old.co_firstlineno)) if old.co_filename == path else None
        if new is not None and new != old and new.co_freevars == old.co_freevars:
            function.__code__ = new
            changed += 1
    return changed


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes(constant)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    last = statement.end_lineno or statement.lineno
    if isinstance(body, list):
        first = body[0].body[0] if isinstance(body[0], ast.match_case) else body[0]
        last = max(statement.lineno, first.lineno - 1)
    return statement.lineno, last


def _shown(part: ast.AST) -> str:
    text = " ".join(ast.unparse(part).split())
    return text if len(text) <= 160 else text[:157] + "..."
