"""Index maps: the indices in one layout as functions of those in another, as a user writes them in a lambda.

Maps and index expressions are kept as text in traces; reading that text back accepts integer arithmetic only and
evaluates nothing.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.tensorir.arith.iter_solver import Prover, inverse
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import Expr, Var, as_expr, binary
from tilewright.tensorir.formulas import index_parameters
from tilewright.tensorir.functor import substitute

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
}


@dataclasses.dataclass(frozen=True, eq=False)
class IndexMap:
    """``(variables) -> exprs``: the indices in the new layout of the element at ``variables`` in the old one."""

    variables: tuple[Var, ...]
    exprs: tuple[Expr, ...]

    @classmethod
    def of(cls, function: Callable[..., Any] | IndexMap, ndim: int) -> IndexMap:
        """Return the map that a function of ``ndim`` index variables computes.

        Raises:
            ScheduleError: the function takes another number of indices.
        """
        if isinstance(function, IndexMap):
            if len(function.variables) != ndim:
                raise ScheduleError(
                    f"the index map takes {len(function.variables)} indices; "
                    f"expected {ndim}, one per dimension of the buffer"
                )
            return function
        parameters = index_parameters(function)
        named = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        if named and len(parameters) != ndim:
            raise ScheduleError(
                f"the index map takes {len(parameters)} indices; expected {ndim}, one per dimension of the buffer"
            )
        names = [p.name for p in parameters] if named else [f"i{number}" for number in range(ndim)]
        variables = tuple(Var(name) for name in names)
        result = function(*variables)
        exprs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        return cls(variables, tuple(as_expr(expr) for expr in exprs))

    def __call__(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The new indices for old ones."""
        values = dict(zip(self.variables, indices, strict=True))
        return tuple(substitute(expr, values) for expr in self.exprs)

    def __str__(self) -> str:
        names = ", ".join(var.name for var in self.variables)
        exprs = ", ".join(str(expr) for expr in self.exprs)
        return f"lambda {names}: ({exprs}{',' if len(self.exprs) == 1 else ''})"

    @classmethod
    def parse(cls, text: str, known: Mapping[str, Var]) -> IndexMap:
        """The map that ``str(index_map)`` wrote; ``known`` are the function's symbolic dimensions.

        Raises:
            ScheduleError: the text is no map.
        """
        tree = _read(text)
        if not isinstance(tree, ast.Lambda) or not isinstance(tree.body, ast.Tuple):
            raise ScheduleError(f"expected an index map such as lambda i, j: (j, i), found {text!r}")
        variables = {arg.arg: Var(arg.arg) for arg in tree.args.args}
        names = {**known, **variables}
        exprs = tuple(_convert(item, names, text) for item in tree.body.elts)
        return cls(tuple(variables.values()), exprs)

    def inverse(self, shape: Sequence[Expr], places: Sequence[Expr], prover: Prover) -> tuple[Expr, ...] | None:
        """Return the old indices, given the new ones as ``places``; None if there is no closed form. At a place that
        holds no element of the old layout, some old index is negative or not less than its extent in ``shape``."""
        zero = as_expr(0)
        ranges = {var: (zero, extent) for var, extent in zip(self.variables, shape, strict=True)}
        found = inverse(self.exprs, places, ranges, prover)
        return None if found is None else tuple(found[var] for var in self.variables)


def _read(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ScheduleError(f"not an index expression: {text!r}: {error.msg}") from error


def parse_expr(text: str, known: Mapping[str, Var]) -> Expr:
    """Parse an integer expression over known variables.

    Raises:
        ScheduleError: the text is something else, or uses an unknown name.
    """
    return _convert(_read(text), known, text)


def _convert(tree: ast.expr, names: Mapping[str, Var], text: str) -> Expr:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return as_expr(tree.value)
    if isinstance(tree, ast.Name):
        if tree.id not in names:
            raise ScheduleError(f"unknown name {tree.id} in {text!r}; known are {', '.join(names) or 'none'}")
        return names[tree.id]
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        left, right = _convert(tree.left, names, text), _convert(tree.right, names, text)
        return binary(_OPERATORS[type(tree.op)], left, right)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return binary("sub", 0, _convert(tree.operand, names, text))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in ("min", "max"):
        first, second = (_convert(arg, names, text) for arg in tree.args)
        return binary(tree.func.id, first, second)
    raise ScheduleError(f"not an index expression: {ast.unparse(tree)!r} in {text!r}")
