"""The meaning of loop-level expressions as formulas of z3, and proofs that two expressions are equal.

Two readings. *Machine*: integers are bit-vectors of their type's width and wrap, which is how code runs. *Numbers*:
integers have no limits, which is what algebra on sizes and loop variables assumes (they count elements in memory, so
that they do not overflow 64 bits).

An operation without a value (a division by zero, a shift out of range) gives an unknown number: the same one for the
same operands, so that a rule that moves such an operation onto other operands is refuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3

from tilewright.tensorir.arith.pattern import Node, Number, Pattern, Variable
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import (
    BinaryOp,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    IntImm,
    Select,
    UnaryOp,
    Var,
    const,
)

_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")
_BOOL = DataType("bool")


class Meaning:
    """Translates expressions; the same variable becomes the same unknown.

    Args:
        unlimited: read integers as numbers without limits.
    """

    def __init__(self, unlimited: bool = False) -> None:
        self.unlimited = unlimited
        self._known: dict[Expr, Any] = {}

    def of(self, expr: Expr) -> Any:
        """The formula of ``expr``: a bool, a bit-vector or an integer.

        Raises:
            NotImplementedError: the reading has no formula for an operation.
        """
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._find(expr)
        return found

    def _unknown(self, name: str, dtype: DataType) -> Any:
        if dtype.is_bool:
            return z3.Bool(name)
        assert dtype.is_integer, f"{dtype!s} has no formula"
        return z3.Int(name) if self.unlimited else z3.BitVec(name, dtype.bits)

    def _find(self, expr: Expr) -> Any:
        dtype = expr.dtype
        if isinstance(expr, Var):
            return self._unknown(f"{expr.name}${len(self._known)}", dtype)
        if isinstance(expr, BufferLoad):  # memory does not change between two readings
            return self._unknown(f"{expr!s}${len(self._known)}", dtype)
        if isinstance(expr, IntImm):
            if dtype.is_bool:
                return z3.BoolVal(bool(expr.value))
            return z3.IntVal(expr.value) if self.unlimited else z3.BitVecVal(expr.value, dtype.bits)
        if isinstance(expr, Select):
            return z3.If(self.of(expr.condition), self.of(expr.true_value), self.of(expr.false_value))
        if isinstance(expr, Compare):
            return self._compare(expr.op, self.of(expr.a), self.of(expr.b), expr.a.dtype)
        if isinstance(expr, UnaryOp):
            a = self.of(expr.a)
            return {"neg": lambda: -a, "not": lambda: z3.Not(a), "bitnot": lambda: -a - 1}[expr.op]()
        if isinstance(expr, Call) and expr.name == "abs":
            a = self.of(expr.args[0])
            return z3.If(a < 0, -a, a) if dtype.is_int else a
        if isinstance(expr, Cast):
            return self._cast(self.of(expr.value), expr.value.dtype, dtype)
        assert isinstance(expr, BinaryOp), f"{type(expr).__name__} has no formula"
        a, b = self.of(expr.a), self.of(expr.b)
        if dtype.is_bool:
            return self._logic(expr.op, a, b)
        if expr.op in ("add", "sub", "mul"):
            return {"add": a + b, "sub": a - b, "mul": a * b}[expr.op]
        if expr.op in ("min", "max"):
            least = self._compare("le" if expr.op == "min" else "ge", a, b, dtype)
            return z3.If(least, a, b)
        if expr.op in ("floordiv", "floormod", "truncdiv", "truncmod"):
            return self._division(expr.op, a, b, dtype)
        if self.unlimited:
            raise NotImplementedError(f"{expr.op} of numbers without limits")
        return self._bits(expr.op, a, b, dtype)

    def _compare(self, op: str, a: Any, b: Any, dtype: DataType) -> Any:
        if op in ("eq", "ne"):
            return a == b if op == "eq" else a != b
        if dtype.is_bool:
            a, b = z3.If(a, 1, 0), z3.If(b, 1, 0)
        elif dtype.is_uint and not self.unlimited:
            return {"lt": z3.ULT, "le": z3.ULE, "gt": z3.UGT, "ge": z3.UGE}[op](a, b)
        return {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op]

    @staticmethod
    def _logic(op: str, a: Any, b: Any) -> Any:
        if op in ("and", "bitand", "min", "mul"):
            return z3.And(a, b)
        return z3.Or(a, b) if op in ("or", "bitor", "max") else z3.Xor(a, b)

    def _division(self, op: str, a: Any, b: Any, dtype: DataType) -> Any:
        undefined = z3.Function(f"{op}_by_zero_{a.sort()}", a.sort(), a.sort())(a)
        if self.unlimited:
            # Of z3: the remainder is never negative. So the quotient by a positive number is rounded down.
            floor = z3.If(b > 0, a / b, (-a) / (-b))
            trunc = z3.If((a >= 0) == (b >= 0), z3.If(b > 0, a, -a) / z3.If(b > 0, b, -b), -(-a / b))
            trunc = z3.If(z3.And(a < 0, b < 0), (-a) / (-b), z3.If(z3.And(a >= 0, b < 0), -(a / -b), trunc))
        elif dtype.is_uint:
            floor = trunc = z3.UDiv(a, b)
        else:
            trunc = a / b
            inexact = z3.And(z3.SRem(a, b) != 0, (a < 0) != (b < 0))
            floor = z3.If(inexact, trunc - 1, trunc)
        quotient = floor if op.startswith("floor") else trunc
        return z3.If(b == 0, undefined, quotient if op.endswith("div") else a - quotient * b)

    @staticmethod
    def _bits(op: str, a: Any, b: Any, dtype: DataType) -> Any:
        if op in ("bitand", "bitor", "bitxor"):
            return {"bitand": a & b, "bitor": a | b, "bitxor": a ^ b}[op]
        shifted = a << b if op == "shl" else (a >> b if dtype.is_int else z3.LShR(a, b))
        undefined = z3.Function(f"{op}_out_of_range_{a.sort()}", a.sort(), a.sort(), a.sort())(a, b)
        return z3.If(z3.ULT(b, dtype.bits), shifted, undefined)

    def _cast(self, value: Any, source: DataType, target: DataType) -> Any:
        if target.is_bool:
            return value if source.is_bool else value != 0
        if source.is_bool:
            return z3.If(value, z3.BitVecVal(1, target.bits), z3.BitVecVal(0, target.bits))
        if self.unlimited:
            raise NotImplementedError("conversions of numbers without limits")
        if target.bits <= source.bits:
            return z3.Extract(target.bits - 1, 0, value)
        added = target.bits - source.bits
        return z3.SignExt(added, value) if source.is_int else z3.ZeroExt(added, value)


def counterexample(claim: Any, assumptions: Sequence[Any] = (), seconds: float = 60.0) -> str | None:
    """Return values for which ``claim`` is false; None if z3 proves that there are none.

    Raises:
        TimeoutError: z3 finds neither.
    """
    solver = z3.Solver()
    solver.set("timeout", int(seconds * 1000))
    solver.add(*assumptions, z3.Not(claim))
    found = solver.check()
    if found == z3.unknown:
        raise TimeoutError(solver.reason_unknown())
    return str(solver.model()) if found == z3.sat else None


def stated(pattern: Pattern, dtype: DataType, variables: dict[str, Var]) -> Expr:
    """The expression that a side of a rule states, nothing folded; its variables, those for constants included, become
    the ``variables`` of their names, which are made where they are missing."""
    if isinstance(pattern, Variable):
        return variables.setdefault(pattern.name, Var(pattern.name, dtype))
    if isinstance(pattern, Number):
        if isinstance(pattern.value, bool):
            return const(pattern.value, "bool")
        return const(pattern.value, dtype)
    assert isinstance(pattern, Node)
    if pattern.name == "select":
        condition, *values = pattern.operands
        return Select(stated(condition, _BOOL, variables), *[stated(value, dtype, variables) for value in values])
    operands = tuple(stated(operand, dtype, variables) for operand in pattern.operands)
    if pattern.name.startswith("@"):
        return Call(pattern.name[1:], operands, operands[0].dtype)
    if pattern.name in ("neg", "not", "bitnot"):
        return UnaryOp(pattern.name, *operands)
    return (Compare if pattern.name in _COMPARES else BinaryOp)(pattern.name, *operands)
