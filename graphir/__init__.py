"""Build and inspect the graph IR: types, expressions, modules and operators.

Every operator is a function here (``add``, ``tanh``, ``matmul``); those of neural networks are under ``nn``.
"""

from __future__ import annotations

import types as _types
from typing import TYPE_CHECKING

from tilewright.graphir.op import ALIASES, OPERATORS, Operator, get_operator, list_operators, register_operator
from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.graphir import _nn as nn
    from tilewright.graphir._operators import *  # noqa: F403
    from tilewright.graphir.dims import dim_equal, symbol
    from tilewright.graphir.expr import (
        Call,
        Constant,
        Expr,
        Function,
        GlobalVar,
        If,
        Let,
        Loop,
        Tuple,
        TupleGetItem,
        Var,
        const,
        var,
    )
    from tilewright.graphir.gradient import register_composition, register_gradient
    from tilewright.graphir.interpreter import evaluate
    from tilewright.graphir.module import IRModule
    from tilewright.graphir.parser import parse
    from tilewright.graphir.printer import large_constants, to_text
    from tilewright.graphir.structural import assert_structural_equal, structural_equal, structural_hash
    from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
    from tilewright.graphir.verify import verify
    from tilewright.graphir.visitor import call_nodes, post_order, rewrite, substitute

__all__ = [
    "Call",
    "Constant",
    "Expr",
    "FuncType",
    "Function",
    "GlobalVar",
    "IRModule",
    "If",
    "Let",
    "Loop",
    "Operator",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "Var",
    "assert_structural_equal",
    "call_nodes",
    "const",
    "dim_equal",
    "evaluate",
    "get_operator",
    "large_constants",
    "list_operators",
    "parse",
    "post_order",
    "register_composition",
    "register_gradient",
    "register_operator",
    "rewrite",
    "structural_equal",
    "structural_hash",
    "substitute",
    "symbol",
    "to_text",
    "var",
    "verify",
]


class _Operators(_types.ModuleType):
    """A namespace of operators: ``nn.conv2d`` is the operator registered under that name."""

    def __init__(self, prefix: str) -> None:
        super().__init__(f"{__name__}.{prefix.rstrip('.')}", f"The operators whose name starts with ``{prefix}``.")
        self._prefix = prefix

    def __getattr__(self, name: str) -> Operator:
        return _operator(self._prefix + name, self.__name__)

    def __dir__(self) -> list[str]:
        return sorted(name[len(self._prefix) :] for name in OPERATORS if name.startswith(self._prefix))


def _operator(name: str, module: str) -> Operator:
    OPERATORS.load()
    try:
        return OPERATORS[name] if name in OPERATORS else ALIASES[name]
    except KeyError:
        raise AttributeError(f"module {module!r} has no operator {name!r}") from None


if not TYPE_CHECKING:  # checkers read the stubs `_operators.pyi` and `_nn.pyi`, which `operator_stubs` writes
    nn = _Operators("nn.")
    __getattr__, _ = lazy_exports(__name__, lambda name: _operator(name, __name__))


def __dir__() -> list[str]:
    return sorted({*__all__, "nn", *(name for name in OPERATORS if "." not in name)})
