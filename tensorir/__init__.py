"""The loop-level IR: scalar expressions, buffers, statements, functions, and what works on them."""

from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    const,
)
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
    "Node",
    "PrimFunc",
    "Ramp",
    "Range",
    "Schedule",
    "Select",
    "SeqStmt",
    "Stmt",
    "UnaryOp",
    "Var",
    "as_dtype",
    "assert_structural_equal",
    "const",
    "interpret",
    "parse",
    "parse_all",
    "sequence",
    "structural_equal",
    "structural_hash",
    "to_text",
    "underline",
    "verify",
]
