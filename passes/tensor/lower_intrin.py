"""``LowerIntrin``: expand transcendental functions of float32 into vectorizable arithmetic::

    b[i] = tanh(a[i])          ->       let absolute: float32 = abs(a[i])
                                        let square: float32 = absolute * absolute
                                        ...
                                        b[i] = copysign(select(absolute < 0.6, ...), a[i])

The results are within 2 units in the last place of the exact value (4 from opt_level 3 on, where that is cheaper),
subnormal results included, and correct for infinities, zeros and NaN. Intermediate values of a call are bound before
its statement; they never trap, so that they may be computed where the call would not have been. Functions of float64
stay calls. The arithmetic of float16 and bfloat16 becomes float32 arithmetic, rounded after each operation. Floor
divisions whose operands are never negative become truncating ones. The forms are final: no float algebra may follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.graphir.module import IRModule
from tilewright.passes.base import PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import primfunc_pass
from tilewright.passes.properties import EFFECTIVE, FORMULAS, STATEMENTS, TILES
from tilewright.passes.registry import register_pass
from tilewright.passes.tensor.intrin import EXPANSIONS, Emitter
from tilewright.passes.tensor.scoped import ScopedMutator
from tilewright.passes.tensor.vector_arith import vector_cast
from tilewright.tensorir.dtype import FLOAT32, INT64, DataType
from tilewright.tensorir.expr import BinaryOp, Call, Cast, Compare, Expr, IntImm, UnaryOp, Var
from tilewright.tensorir.functor import CALLS, DIVISIONS, HALVES, INTEGER_DIVISIONS, kinds
from tilewright.tensorir.intrinsics import INTRINSICS
from tilewright.tensorir.stmt import BufferStore, Evaluate, For, IfThenElse, LetStmt, PrimFunc, Stmt
from tilewright.tensorir.target import Target

#: Longer chains of bindings before a statement are split: visitors of programs recurse over their depth.
_MAX_CHAIN = 100

#: Functions without any of these are not changed.
_LOWERED_KINDS: Final = CALLS | DIVISIONS | HALVES

#: Operations that give no negative number of numbers that are not.
_OF_NATURALS = frozenset({"add", "mul", "min", "max"})

_TRUNCATING = {"floordiv": "truncdiv", "floormod": "truncmod"}


def is_half(dtype: DataType) -> bool:
    """Return whether it is a 16-bit float, which has no arithmetic of its own."""
    return dtype.is_half


class _IntrinLowerer(ScopedMutator):
    """Expand the expressions of each statement, and bind intermediate values before it."""

    def __init__(self, func: PrimFunc, target: Target, is_fast: bool) -> None:
        super().__init__(func)
        self.has_fma, self.is_fast = target.has_fma, is_fast
        self.emitter = Emitter(self.has_fma, self.is_fast)
        #: For each visited expression with calls, whether any part of it has an expansion.
        self._expands: dict[Expr, bool] = {}
        #: Divisions whose operands are never negative.
        self._truncated: set[Expr] = set()
        #: Variables in scope that are never negative, and whether that is so for visited expressions of them.
        self._natural_vars = {var for var in func.variables if var.dtype is INT64}
        self._natural: dict[Expr, bool] = {}
        #: Results of expressions that are the same at every place, and whether that of the present one is valid at this
        #: place only, because it depends on facts that hold here or on bindings before the statement.
        self._lowered: dict[Expr, Expr] = {}
        self._is_of_place = False

    def mutate(self, node: Any) -> Any:
        occurring = kinds(node)
        if not occurring & _LOWERED_KINDS:
            return node
        if not isinstance(node, Expr):
            return super().mutate(node)
        if occurring & _LOWERED_KINDS == CALLS and not self._has_expansion(node):
            return node
        found = self._lowered.get(node)
        if found is None:
            outer, self._is_of_place = self._is_of_place, bool(occurring & CALLS)
            found = super().mutate(node)
            if not self._is_of_place:
                self._lowered[node] = found
            self._is_of_place = outer or self._is_of_place
        return found

    def _has_expansion(self, expr: Expr) -> bool:
        """Return whether any call in ``expr`` has an expansion."""
        if not kinds(expr) & CALLS:
            return False
        found = self._expands.get(expr)
        if found is None:
            found = self._expands[expr] = (isinstance(expr, Call) and expr.name in EXPANSIONS) or any(
                map(self._has_expansion, expr.parts())
            )
        return found

    # Statements.

    def _with_prelude(self, make: Callable[[], Stmt]) -> Stmt:
        """Return the statement that ``make`` builds, after the bindings of its own expressions."""
        outer, self.emitter = self.emitter, Emitter(self.has_fma, self.is_fast)
        stmt = make()
        result = self.emitter.wrap(stmt)
        self.emitter = outer
        return result

    def mutate_BufferStore(self, op: BufferStore) -> Stmt:
        return self._with_prelude(lambda: self.generic_mutate(op))

    def mutate_Evaluate(self, op: Evaluate) -> Stmt:
        return self._with_prelude(lambda: self.generic_mutate(op))

    def mutate_For(self, loop: For) -> Stmt:
        if self._is_natural(loop.min):
            self._natural_vars.add(loop.var)
        return self._with_prelude(lambda: ScopedMutator.mutate_For(self, loop))

    def mutate_IfThenElse(self, op: IfThenElse) -> Stmt:
        return self._with_prelude(lambda: ScopedMutator.mutate_IfThenElse(self, op))

    def mutate_LetStmt(self, op: LetStmt) -> Stmt:
        if op.var.dtype is INT64 and self._is_natural(op.value):
            self._natural_vars.add(op.var)
        return self._with_prelude(lambda: ScopedMutator.mutate_LetStmt(self, op))

    # Expressions.

    def mutate_Call(self, op: Call) -> Expr:
        found = self.emitter.known.get(op)
        if found is None:
            found = self.emitter.known[op] = self._mutate_new_call(op)
        return found

    def _mutate_new_call(self, op: Call) -> Expr:
        args = self.mutate_all(op.args)
        if args and is_half(args[0].dtype) and op.name in INTRINSICS and INTRINSICS[op.name].operands != "any":
            wide = tuple(vector_cast(FLOAT32, arg) for arg in args)
            result = INTRINSICS[op.name].result_type(wide)
            lowered = self._call(op.name, wide, result)
            return vector_cast(op.dtype, lowered) if result.is_float else lowered
        return self._call(op.name, args, op.dtype, op)

    def _call(self, name: str, args: tuple[Expr, ...], dtype: DataType, unchanged: Call | None = None) -> Expr:
        expansion = EXPANSIONS.get(name)
        if expansion is not None and dtype.element is FLOAT32:
            emitter = self.emitter
            bound = [emitter.let("argument", arg) for arg in args]
            if len(emitter.items) < _MAX_CHAIN:
                return emitter.let(name, expansion(emitter, *bound))
            inner = Emitter(self.has_fma, self.is_fast)
            return emitter.enclose(inner, name, expansion(inner, *bound))
        if unchanged is not None and unchanged.args is args:
            return unchanged
        return Call(name, args, dtype)

    def mutate_BinaryOp(self, op: BinaryOp) -> Expr:
        a, b = self.mutate(op.a), self.mutate(op.b)
        if is_half(a.dtype):
            return vector_cast(op.dtype, BinaryOp(op.op, vector_cast(FLOAT32, a), vector_cast(FLOAT32, b)))
        name = _TRUNCATING[op.op] if op.op in _TRUNCATING and self._may_truncate(op) else op.op
        if a is op.a and b is op.b and name is op.op:
            return op
        return BinaryOp(name, a, b)

    def _may_truncate(self, division: BinaryOp) -> bool:
        """Return whether neither operand of a division is ever negative."""
        if division.dtype is not INT64:
            return False
        if division in self._truncated:
            return True
        if self._is_natural(division.b) and self._is_natural(division.a):
            self._truncated.add(division)
            return True
        operands = (division.b, division.a)
        conditions = [each >= 0 for each in operands if not self._is_natural(each)]
        if all(self.range_analyzer.prove(condition) for condition in conditions):
            self._truncated.add(division)  # at every place
            return True
        self._is_of_place = True
        return all(self.analyzer.prove(condition) for condition in conditions)

    def _is_natural(self, expr: Expr) -> bool:
        """Return whether an integer is not negative because no part of it is, as for most indices: no ranges have to be
        derived then."""
        if isinstance(expr, IntImm):
            return expr.value >= 0
        if isinstance(expr, Var):
            return expr in self._natural_vars
        if not isinstance(expr, BinaryOp) or expr.dtype is not INT64:
            return False
        found = self._natural.get(expr)
        if found is None:
            divides = expr.op in INTEGER_DIVISIONS and isinstance(expr.b, IntImm) and expr.b.value > 0
            known = divides or (expr.op in _OF_NATURALS and self._is_natural(expr.b))
            found = self._natural[expr] = known and self._is_natural(expr.a)
        return found

    def mutate_UnaryOp(self, op: UnaryOp) -> Expr:
        a = self.mutate(op.a)
        if is_half(a.dtype):
            return vector_cast(op.dtype, UnaryOp(op.op, vector_cast(FLOAT32, a)))
        return op if a is op.a else UnaryOp(op.op, a)

    def mutate_Compare(self, op: Compare) -> Expr:
        a, b = self.mutate(op.a), self.mutate(op.b)
        if is_half(a.dtype):
            return Compare(op.op, vector_cast(FLOAT32, a), vector_cast(FLOAT32, b))
        return op if a is op.a and b is op.b else Compare(op.op, a, b)

    def mutate_Cast(self, op: Cast) -> Expr:
        value = self.mutate(op.value)
        if is_half(value.dtype) and op.dtype.element is not FLOAT32:
            return vector_cast(op.dtype, vector_cast(FLOAT32, value))  # exact, then as a conversion from float32
        return op if value is op.value else Cast(op.dtype, value)


def lower_intrinsics(func: PrimFunc, target: Target | None = None, *, is_fast: bool = False) -> PrimFunc:
    """Return ``func`` without calls of transcendental functions of float32 that have an expansion."""
    lowerer = _IntrinLowerer(func, target if target is not None else Target.current(), is_fast)
    return func.with_body(lowerer.mutate(func.body))


@register_pass
@primfunc_pass(opt_level=0, name="LowerIntrin", requires={STATEMENTS, TILES}, invalidates={FORMULAS, EFFECTIVE})
class LowerIntrin(PrimFuncPass):
    """See the module. ``target``: default :meth:`Target.current`."""

    essential = True

    def __init__(self, target: Target | None = None) -> None:
        self.target = target

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        """Return ``func`` without calls of transcendental functions of float32 that have an expansion."""
        return lower_intrinsics(func, self.target, is_fast=ctx.is_fast)
