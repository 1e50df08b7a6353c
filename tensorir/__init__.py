"""The loop-level IR: scalar expressions, buffers, statements, functions, and the tools that work on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.tensorir.dtype import DataType, as_dtype
    from tilewright.tensorir.expr import (
        BinaryOp,
        Broadcast,
        Buffer,
        BufferLoad,
        Call,
        Cast,
        Choose,
        Compare,
        Expr,
        FloatImm,
        IntImm,
        Ramp,
        Select,
        UnaryOp,
        Var,
        call,
        cast,
        choose,
        const,
        maximum,
        minimum,
        select,
    )
    from tilewright.tensorir.functor import Mutator, Visitor, substitute, walk
    from tilewright.tensorir.interpreter import interpret
    from tilewright.tensorir.node import Node
    from tilewright.tensorir.parser import parse, parse_all
    from tilewright.tensorir.printer import to_text, underline
    from tilewright.tensorir.schedule import Schedule
    from tilewright.tensorir.stmt import (
        Allocate,
        Block,
        BufferRegion,
        BufferStore,
        Evaluate,
        For,
        IfThenElse,
        IterVar,
        LetStmt,
        PrimFunc,
        Range,
        SeqStmt,
        Stmt,
        sequence,
    )
    from tilewright.tensorir.structural import assert_structural_equal, structural_equal, structural_hash
    from tilewright.tensorir.tensor import Tensor, compute, create_prim_func, extern, placeholder, reduce_axis
    from tilewright.tensorir.verify import verify

__all__ = [
    "Allocate",
    "BinaryOp",
    "Block",
    "Broadcast",
    "Buffer",
    "BufferLoad",
    "BufferRegion",
    "BufferStore",
    "Call",
    "Cast",
    "Choose",
    "Compare",
    "DataType",
    "Evaluate",
    "Expr",
    "FloatImm",
    "For",
    "IfThenElse",
    "IntImm",
    "IterVar",
    "LetStmt",
    "Mutator",
    "Node",
    "PrimFunc",
    "Ramp",
    "Range",
    "Schedule",
    "Select",
    "SeqStmt",
    "Stmt",
    "Tensor",
    "UnaryOp",
    "Var",
    "Visitor",
    "as_dtype",
    "assert_structural_equal",
    "call",
    "cast",
    "choose",
    "compute",
    "const",
    "create_prim_func",
    "extern",
    "interpret",
    "maximum",
    "minimum",
    "parse",
    "parse_all",
    "placeholder",
    "reduce_axis",
    "select",
    "sequence",
    "structural_equal",
    "structural_hash",
    "substitute",
    "to_text",
    "underline",
    "verify",
    "walk",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
