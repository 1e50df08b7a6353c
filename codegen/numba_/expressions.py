"""Write expressions as Python source that numba compiles to the numbers that the loop IR defines.

numba computes integers in 64 bits, so that narrower results are converted back; half types are kept as float32 values
and rounded after each operation. A vector expression is written for one lane, whose number is ``lane``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.codegen.analysis import unique_nodes
from tilewright.codegen.numba_.names import Names
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.errors import CodegenError
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
)
from tilewright.tensorir.intrinsics import find_intrinsic
from tilewright.tensorir.node import Node
from tilewright.tensorir.printer import underline
from tilewright.tensorir.stmt import PrimFunc, Stmt

HALF_TYPES = ("float16", "bfloat16")
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^"}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_DIVISIONS = {"floordiv": "floor_div", "floormod": "floor_mod", "truncdiv": "trunc_div", "truncmod": "trunc_mod"}

#: Source that is as short as a name: an element at a place that is computed once, a name, a constant.
_SIMPLE = re.compile(r"[\w.]+|\w+\[[\w, ()]*\]|np\.float32\(-?[\w.]+\)")

#: The name of this code generator in the declarations of intrinsics; :mod:`.intrinsics` registers a writer for each.
GENERATOR = "numba"


def storage(dtype: DataType) -> str:
    """Return the NumPy type of an element in memory: half types and types that are only stored are kept as their
    bits."""
    if dtype.element in HALF_TYPES:
        return "uint16"
    if dtype.kind == "storage":
        return "uint8"
    return "bool_" if dtype.is_bool else str(dtype.element)


def is_half(dtype: DataType) -> bool:
    """Return whether values of ``dtype`` are kept as float32 values that fit 16 bits."""
    return dtype.element in HALF_TYPES


class ExpressionWriter:
    """Writes the expressions of one function.

    Attributes:
        before: lines of code that must run before the current statement.
        inside: lines that must run for each lane before it.
        helpers: names of the helper functions in use.
        accesses: the names of the checked accesses' descriptions, by these.
    """

    def __init__(self, root: PrimFunc, helpers: set[str], accesses: dict[str, str]) -> None:
        self.root = root
        self.helpers = helpers
        self.accesses = accesses
        self.names = Names()
        self.variables: dict[Var, str] = {}
        self.buffers: dict[Buffer, str] = {}
        #: Buffers without dimensions that have the name of an array with one.
        self.single: set[Buffer] = set()
        self.before: list[str] = []
        self.inside: list[str] = []
        self._shared: set[Expr] = set()
        self._known: dict[Expr, str] = {}

    def error(self, node: Node, message: str) -> NoReturn:
        """Raise an error about ``node`` that shows its place."""
        raise CodegenError(f"{self.root.name}: {message}\n{underline(self.root, node)}")

    def begin_statement(self, stmt: Stmt, parts: list[Expr]) -> None:
        """Find the operands that several expressions of a statement share; they are computed once."""
        self.before, self.inside = [], []
        self._known = {}
        counts: dict[Expr, int] = {}
        sizes: dict[Expr, int] = {}
        for node in dict.fromkeys(node for part in parts for node in unique_nodes(part)):
            for child in _operands(node):
                counts[child] = counts.get(child, 0) + 1
        self._shared = {node for node, count in counts.items() if count > 1 and _size(node, sizes) > 3}

    def helper(self, name: str) -> str:
        """Note that the helper function ``name`` must stand at the top of the source; return its name."""
        self.helpers.add(name)
        return name

    def expr(self, expr: Expr) -> str:
        """Return the source of ``expr``; for a vector, of one lane."""
        found = self._known.get(expr)
        if found is not None:
            return found
        writer = _WRITERS.get(type(expr))
        if writer is None:
            self.error(expr, f"cannot generate code for expressions of class {type(expr).__name__}")
        text = writer(self, expr)
        if expr in self._shared and expr.dtype not in ("handle", "void"):
            return self._name(expr, text)
        return text

    def index(self, expr: Expr) -> str:
        """Return the source of an index as a signed integer, without enclosing parentheses."""
        text = self.expr(expr)
        if expr.dtype.element != "int64":
            return f"np.int64({bare(text)})"
        return bare(text)

    def element(self, access: Any) -> str:
        """Return ``buffer[indices]``; a buffer with strides is an array of one dimension."""
        name = self.buffers.get(access.buffer)
        if name is None:
            self.error(access, f"buffer {access.buffer.name} is neither a parameter nor allocated here")
        indices = [self.index(index) for index in access.indices]
        if access.buffer.strides:
            terms = zip(indices, access.buffer.strides, strict=True)
            return f"{name}[{' + '.join(f'({index}) * {self.expr(stride)}' for index, stride in terms)}]"
        if not indices:
            return f"{name}[0]" if access.buffer in self.single else f"{name}[()]"
        return f"{name}[{', '.join(indices)}]"

    def convert(self, dtype: DataType, text: str) -> str:
        """Convert the result of an operation, for which numba infers too wide a type, to ``dtype``."""
        element = str(dtype.element)
        if is_half(dtype):
            to_bits, to_float = self.helper(f"to_{element}_bits"), self.helper(f"{element}_to_float32")
            return f"{to_float}({to_bits}({bare(text)}))"
        if element in ("int64", "float64", "bool"):
            return text
        return f"np.{element}({bare(text)})"

    def from_memory(self, dtype: DataType, text: str) -> str:
        """Convert an element in memory to a value."""
        return f"{self.helper(f'{dtype.element!s}_to_float32')}({text})" if is_half(dtype) else text

    def to_memory(self, dtype: DataType, text: str) -> str:
        """Convert a value to an element in memory."""
        return f"{self.helper(f'to_{dtype.element!s}_bits')}({text})" if is_half(dtype) else bare(text)

    # One method for each class of expression.

    def _var(self, expr: Var) -> str:
        name = self.variables.get(expr)
        if name is None:
            self.error(expr, f"variable {expr.name} is not defined here")
        return name if expr.dtype.lanes == 1 else f"{name}[lane]"

    def _integer(self, expr: IntImm) -> str:
        if expr.dtype.is_bool:
            return str(bool(expr.value))
        return f"np.uint64({expr.value})" if expr.dtype == "uint64" else str(expr.value)

    def _float(self, expr: FloatImm) -> str:
        value = expr.value
        text = (
            "np.nan" if math.isnan(value) else f"{'-' if value < 0 else ''}np.inf" if math.isinf(value) else repr(value)
        )
        return text if expr.dtype == "float64" else f"np.float32({text})"

    def _binary(self, expr: BinaryOp) -> str:
        op, dtype = expr.op, expr.dtype
        if op in ("min", "max") and dtype.is_float:
            return self._float_extreme(">" if op == "max" else "<", expr)
        a, b = self.expr(expr.a), self.expr(expr.b)
        if op in ("and", "or"):
            return f"({a} {op} {b})"
        if dtype.is_bool:
            symbol = {"min": "and", "max": "or", "bitand": "and", "bitor": "or", "bitxor": "!="}[op]
            return f"({a} {symbol} {b})"
        if op in ("min", "max"):
            return self.convert(dtype, f"{op}({bare(a)}, {bare(b)})")
        if op in ("shl", "shr"):
            return self._shift(expr, a, b)
        if op in _DIVISIONS:
            return self._division(expr, a, b)
        text = f"({a} {_SYMBOLS[op]} {b})"
        return text if dtype.element == "float32" else self.convert(dtype, text)

    def _float_extreme(self, better: str, expr: BinaryOp) -> str:
        """Return the operand that is ``better``, and NaN if any is. ``np.maximum`` of numba 0.68 names its operands so
        often that LLVM 22 takes hours for an unrolled loop of 128. Of half types it is one of the operands: nothing
        rounds."""
        a, b = self._named(expr.a), self._named(expr.b)
        return f"({a} if {a} {better} {b} or {a} != {a} else {b})"

    def _named(self, expr: Expr) -> str:
        """Return source for ``expr`` that may be repeated: a name, where it is more than a constant or an element."""
        text = self.expr(expr)
        return text if _SIMPLE.fullmatch(text) else self._name(expr, text)

    def _name(self, expr: Expr, text: str) -> str:
        """Write ``expr``, whose source is ``text``, before the statement, and return its name."""
        name = self._known[expr] = self.names.fresh("t")
        (self.before if expr.dtype.lanes == 1 else self.inside).append(f"{name} = {bare(text)}")
        return name

    def _division(self, expr: BinaryOp, a: str, b: str) -> str:
        divisor = expr.b.value if isinstance(expr.b, Broadcast) else expr.b
        positive = isinstance(divisor, IntImm) and divisor.value > 0
        if positive and (expr.op.startswith("floor") or expr.dtype.is_uint):
            return self.convert(expr.dtype, f"({a} {'//' if expr.op.endswith('div') else '%'} {b})")
        if expr.dtype.is_uint:
            name = "unsigned_div" if expr.op.endswith("div") else "unsigned_mod"
        else:
            name = _DIVISIONS[expr.op]
        return self.convert(expr.dtype, f"{self.helper(name)}({bare(a)}, {bare(b)})")

    def _shift(self, expr: BinaryOp, a: str, b: str) -> str:
        amount, bits = expr.b.value if isinstance(expr.b, Broadcast) else expr.b, expr.dtype.bits
        symbol = "<<" if expr.op == "shl" else ">>"
        if isinstance(amount, IntImm) and 0 <= amount.value < bits:
            return self.convert(expr.dtype, f"({a} {symbol} {b})")
        name = "shift_left" if expr.op == "shl" else "shift_right"
        if name == "shift_right" and expr.dtype.is_uint:
            name = "shift_right_unsigned"
        return self.convert(expr.dtype, f"{self.helper(name)}({bare(a)}, {bare(b)}, {bits})")

    def _unary(self, expr: UnaryOp) -> str:
        a = self.expr(expr.a)
        if expr.op == "not":
            return f"(not {a})"
        text = f"({'-' if expr.op == 'neg' else '~'}{a})"
        return text if expr.dtype.is_float else self.convert(expr.dtype, text)

    def _compare(self, expr: Compare) -> str:
        return f"({self.expr(expr.a)} {_COMPARISONS[expr.op]} {self.expr(expr.b)})"

    def _select(self, expr: Select) -> str:
        chosen, condition = self.expr(expr.true_value), _condition(self.expr(expr.condition))
        text = f"({chosen} if {condition} else {self.expr(expr.false_value)})"
        return text if expr.dtype.is_float else self.convert(expr.dtype, text)

    def _cast(self, expr: Cast) -> str:
        source, target, text = expr.value.dtype, expr.dtype, self.expr(expr.value)
        if source is target:
            return text
        if target.is_bool:
            return f"({text} != 0)"
        if source.is_float and target.is_integer:
            return f"{self.helper(f'to_{target.element!s}')}({bare(text)})"
        if is_half(target):
            if source.is_integer and target.element == "bfloat16":
                text = f"np.float32({bare(text)})"
            elif not source.is_float:
                text = f"np.float64({bare(text)})"
            return self.convert(target, text)
        return f"np.{target.element!s}({bare(text)})"

    def _ramp(self, expr: Ramp) -> str:
        base, stride = self.expr(expr.base), self.expr(expr.stride)
        step = "lane" if isinstance(expr.stride, IntImm) and expr.stride.value == 1 else f"lane * {stride}"
        if isinstance(expr.base, IntImm) and expr.base.value == 0:
            return step if step == "lane" else f"({step})"
        return self.convert(expr.dtype, f"({base} + {step})")

    def _broadcast(self, expr: Broadcast) -> str:
        return self.expr(expr.value)

    def _load(self, expr: BufferLoad) -> str:
        text = self.from_memory(expr.dtype, self.element(expr))
        if expr.predicate is None:
            return text
        zero = (
            "False"
            if expr.dtype.is_bool
            else "np.float32(0)"
            if is_half(expr.dtype)
            else f"np.{expr.dtype.element!s}(0)"
        )
        return f"({text} if {_condition(self.expr(expr.predicate))} else {zero})"

    def _call(self, expr: Call) -> str:
        if expr.name.startswith("@"):
            self.error(expr, f"{expr.name} has no value")
        intrinsic = find_intrinsic(expr.name)
        write = intrinsic.lowerings.get(GENERATOR)
        if write is None:
            problem = (
                f"{expr.name} has no value"
                if intrinsic.addressing
                else f"cannot generate code for the intrinsic {expr.name}"
            )
            self.error(expr, problem)
        text: str = write(self, expr)
        return text

    def lanes(self, operand: Expr) -> str:
        """Write the lanes of a vector into an array; return its name."""
        outer, self.inside = self.inside, []
        known = dict(self._known)
        text = self.expr(operand)
        lines, self.inside, self._known = self.inside, outer, known
        name = self.names.fresh("lanes")
        kind = "float32" if is_half(operand.dtype) else storage(operand.dtype)
        self.before += [f"{name} = np.empty({operand.dtype.lanes}, np.{kind})"]
        self.before += [f"for lane in range({operand.dtype.lanes}):", *[f"    {line}" for line in lines]]
        self.before += [f"    {name}[lane] = {bare(text)}"]
        return name


def bare(text: str) -> str:
    """Strip the parentheses that enclose the whole of ``text``."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


def _condition(text: str) -> str:
    """Return ``text`` as the condition of a conditional expression, which keeps its parentheses if it is one itself."""
    return text if " if " in text else bare(text)


def _operands(node: Node) -> list[Expr]:
    found: list[Expr] = []
    for name, role in node.node_fields:
        value = getattr(node, name)
        if role == "children":
            found.extend(value)
        elif role == "child" and value is not None:
            found.append(value)
    return found


def _size(expr: Expr, known: dict[Expr, int]) -> int:
    """Count the operations of ``expr``, shared ones each time."""
    found = known.get(expr)
    if found is None:
        found = known[expr] = 1 + sum(_size(child, known) for child in _operands(expr))
    return found


_WRITERS: dict[type[Node], Callable[[ExpressionWriter, Any], str]] = {
    Var: ExpressionWriter._var,
    IntImm: ExpressionWriter._integer,
    FloatImm: ExpressionWriter._float,
    BinaryOp: ExpressionWriter._binary,
    UnaryOp: ExpressionWriter._unary,
    Compare: ExpressionWriter._compare,
    Select: ExpressionWriter._select,
    Cast: ExpressionWriter._cast,
    Ramp: ExpressionWriter._ramp,
    Broadcast: ExpressionWriter._broadcast,
    BufferLoad: ExpressionWriter._load,
    Call: ExpressionWriter._call,
}
