"""Emit intrinsics: as instructions where there are any, else as calls of the C library lane by lane.

The pass ``LowerIntrin`` turns hot intrinsics (``exp``, ``tanh``) into arithmetic before code is generated. The
remaining ones are computed in float64 by the C library and rounded once to the type, whatever the type is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tilewright.codegen.llvm import arithmetic
from tilewright.codegen.llvm.arithmetic import Operand, like, narrow, widen
from tilewright.codegen.llvm.bounds import REPORT
from tilewright.codegen.llvm.expressions import GENERATOR, ExpressionEmitter
from tilewright.codegen.llvm.text import Builder, constant, global_name, integer_type, suffix, value_type
from tilewright.tensorir.dtype import FLOAT32, FLOAT64, DataType
from tilewright.tensorir.expr import BufferLoad, Call, IntImm
from tilewright.tensorir.intrinsics import CHECK_INDEX, INTERLEAVED, INTRINSICS, REDUCERS, find_intrinsic, lowers
from tilewright.tensorir.keys import CHECKED_ACCESSES

_Emitter = TypeVar("_Emitter", bound=Callable[[ExpressionEmitter, Call], str])

#: Intrinsics that are functions of the C library: its float64 versions have the same names.
LIBRARY_FUNCTIONS = tuple(name for name, found in INTRINSICS.items() if found.in_c_library)


def _emits(*names: str) -> Callable[[_Emitter], _Emitter]:
    return lowers(GENERATOR, *names)


def _double_call(b: Builder, name: str, dtype: DataType, args: list[str]) -> str:
    """Call the C library's function on float64 values of ``dtype``, lane by lane in a helper for vectors."""
    count = len(args)
    # For known functions LLVM would put others, which not every system has: sincos for a sine and a cosine.
    scalar = b.module.declare(name, "double", ["double"] * count, "nobuiltin nounwind willreturn memory(none)")
    if dtype.lanes == 1:
        return b.pure(f"call double {scalar}({', '.join(f'double {x}' for x in args)})")
    kind = value_type(dtype)
    helper = global_name(f"tilewright.{name}.v{dtype.lanes}")
    if helper not in b.module.helpers:
        inner = Builder(b.module)
        names = "abc"[:count]
        result = "poison"
        for lane in range(dtype.lanes):
            elements = [f"double {inner.element(f'%{x}', dtype, lane)}" for x in names]
            value = inner.value(f"call double {scalar}({', '.join(elements)})")
            result = inner.value(f"insertelement {kind} {result}, double {value}, i64 {lane}")
        inner.emit(f"ret {kind} {result}")
        params = ", ".join(f"{kind} %{x}" for x in names)
        b.module.helpers[helper] = inner.function(
            f"define internal {kind} {helper}({params}) noinline nounwind willreturn memory(none)"
        )
    return b.pure(f"call {kind} {helper}({', '.join(f'{kind} {x}' for x in args)})")


@_emits(*LIBRARY_FUNCTIONS)
def _library(e: ExpressionEmitter, call: Call) -> str:
    double = like(call.dtype, FLOAT64)
    args = [arithmetic.to_double(e.builder, arg.dtype, e.expr(arg)) for arg in call.args]
    result = _double_call(e.builder, call.name, double, args)
    return arithmetic.from_double(e.builder, call.dtype, result)


@_emits("sigmoid")
def _sigmoid(e: ExpressionEmitter, call: Call) -> str:
    b, double = e.builder, like(call.dtype, FLOAT64)
    kind, one = value_type(double), constant(1.0, double)
    x = arithmetic.to_double(b, call.dtype, e.expr(call.args[0]))
    power = _double_call(b, "exp", double, [b.pure(f"fneg {kind} {x}")])
    quotient = b.pure(f"fdiv {kind} {one}, {b.pure(f'fadd {kind} {one}, {power}')}")
    return arithmetic.from_double(b, call.dtype, quotient)


def _float_intrinsic(e: ExpressionEmitter, call: Call, name: str) -> str:
    """Emit an intrinsic of LLVM on floats, in float32 for the half types."""
    b = e.builder
    dtype = like(call.dtype, FLOAT32) if arithmetic.is_half(call.dtype) else call.dtype
    args = [(value_type(dtype), widen(b, arg.dtype, e.expr(arg))) for arg in call.args]
    return narrow(b, call.dtype, b.call(f"llvm.{name}.{suffix(dtype)}", dtype, args))


@_emits("sqrt", "floor", "ceil", "trunc", "copysign")
def _instruction(e: ExpressionEmitter, call: Call) -> str:
    return _float_intrinsic(e, call, call.name)


@_emits("round")
def _round(e: ExpressionEmitter, call: Call) -> str:
    return _float_intrinsic(e, call, "rint")


@_emits("abs")
def _abs(e: ExpressionEmitter, call: Call) -> str:
    dtype, b = call.dtype, e.builder
    if dtype.is_float:
        return _float_intrinsic(e, call, "fabs")
    x = e.expr(call.args[0])
    if dtype.is_uint:
        return x
    return b.call(f"llvm.abs.{suffix(dtype)}", dtype, [(value_type(dtype), x), ("i1", "false")])


@_emits("rsqrt")
def _rsqrt(e: ExpressionEmitter, call: Call) -> str:
    b, dtype = e.builder, call.dtype
    # One rounding of the result: the reciprocal of a float32 root would have two.
    double = like(dtype, FLOAT64)
    x = arithmetic.to_double(b, dtype, e.expr(call.args[0]))
    root = b.call(f"llvm.sqrt.{suffix(double)}", double, [(value_type(double), x)])
    quotient = b.pure(f"fdiv {value_type(double)} {constant(1.0, double)}, {root}")
    return arithmetic.from_double(b, dtype, quotient)


@_emits("fma")
def _fma(e: ExpressionEmitter, call: Call) -> str:
    b, dtype = e.builder, call.dtype
    if not arithmetic.is_half(dtype):
        return _float_intrinsic(e, call, "fma")
    # In float64 the product is exact and the sum has digits to spare: rounding it is rounding the exact result.
    double = like(dtype, FLOAT64)
    args = [(value_type(double), arithmetic.to_double(b, dtype, e.expr(arg))) for arg in call.args]
    return arithmetic.from_double(b, dtype, b.call(f"llvm.fma.{suffix(double)}", double, args))


@_emits("isnan", "isinf", "isfinite")
def _classify(e: ExpressionEmitter, call: Call) -> str:
    b, argument = e.builder, call.args[0]
    x = widen(b, argument.dtype, e.expr(argument))
    dtype = like(argument.dtype, FLOAT32) if arithmetic.is_half(argument.dtype) else argument.dtype
    kind = value_type(dtype)
    if call.name == "isnan":
        return b.pure(f"fcmp uno {kind} {x}, {x}")
    magnitude = b.call(f"llvm.fabs.{suffix(dtype)}", dtype, [(kind, x)])
    condition = "oeq" if call.name == "isinf" else "one"
    return b.pure(f"fcmp {condition} {kind} {magnitude}, {constant(math.inf, dtype)}")


@_emits("reinterpret")
def _reinterpret(e: ExpressionEmitter, call: Call) -> str:
    source, target = call.args[0].dtype, call.dtype
    if source.bits * source.lanes != target.bits * target.lanes or source.is_bool or target.is_bool:
        e.error(call, f"reinterpret: {source!s} and {target!s} have different numbers of bits")
    x = e.expr(call.args[0])
    if value_type(source) == value_type(target):
        return x
    return e.builder.pure(f"bitcast {value_type(source)} {x} to {value_type(target)}")


@_emits("popcount")
def _popcount(e: ExpressionEmitter, call: Call) -> str:
    dtype = call.dtype
    return e.builder.call(f"llvm.ctpop.{suffix(dtype)}", dtype, [(value_type(dtype), e.expr(call.args[0]))])


@_emits("count_leading_zeros")
def _count_leading_zeros(e: ExpressionEmitter, call: Call) -> str:
    dtype = call.dtype
    args = [(value_type(dtype), e.expr(call.args[0])), ("i1", "false")]
    return e.builder.call(f"llvm.ctlz.{suffix(dtype)}", dtype, args)


@_emits(*REDUCERS.values())
def _reduce(e: ExpressionEmitter, call: Call) -> str:
    b, source = e.builder, call.args[0].dtype
    op = find_intrinsic(call.name).reduces
    assert op is not None
    x = widen(b, source, e.expr(call.args[0]))
    wide = like(source, FLOAT32) if arithmetic.is_half(source) else source

    def combine(dtype: DataType, low: str, high: str) -> str:
        return arithmetic.binary(b, op, dtype, Operand(low), Operand(high))

    return narrow(b, call.dtype, arithmetic.reduce_lanes(b, wide, x, combine))


@_emits("interleave_low", "interleave_high")
def _interleave(e: ExpressionEmitter, call: Call) -> str:
    dtype, half = call.dtype, call.dtype.lanes // 2
    first = 0 if call.name == "interleave_low" else half
    lanes = [lane for n in range(half) for lane in (first + n, dtype.lanes + first + n)]
    return e.builder.shuffle(e.expr(call.args[0]), dtype, lanes, e.expr(call.args[1]))


@_emits(*(f"interleave_{count}" for count in INTERLEAVED))
def _interleave_part(e: ExpressionEmitter, call: Call) -> str:
    *vectors, part = call.args
    dtype, count = call.dtype, len(vectors)
    assert isinstance(part, IntImm), "the part is a constant"
    places = [divmod(part.value * dtype.lanes + lane, count) for lane in range(dtype.lanes)]
    result = e.expr(vectors[0])
    # A processor shuffles two vectors at a time: lanes of the vectors so far stay, except at first, and one is added.
    for number in range(1, count):
        lanes = [
            dtype.lanes + row if source == number else row if number == 1 else lane
            for lane, (row, source) in enumerate(places)
        ]
        result = e.builder.shuffle(result, dtype, lanes, e.expr(vectors[number]))
    return result


@_emits("dot")
def _dot(e: ExpressionEmitter, call: Call) -> str:
    b, dtype = e.builder, call.dtype
    total, left, right = (e.expr(arg) for arg in call.args)
    kinds = (call.args[1].dtype, call.args[2].dtype)
    count = kinds[0].lanes // dtype.lanes
    found = e.target.dot_product(*kinds, dtype) if dtype.lanes > 1 else None
    if found is not None and found.products == count:
        if kinds[0].element != found.left:
            left, right, kinds = right, left, kinds[::-1]
        element, lanes = found.factor
        factor = f"<{dtype.lanes * lanes} x {element}>"
        args = [
            b.pure(f"bitcast {value_type(kind)} {x} to {factor}") for kind, x in zip(kinds, (left, right), strict=True)
        ]
        return b.call(
            f"{found.instruction}.{dtype.lanes * dtype.bits}",
            dtype,
            [(value_type(dtype), total), *((factor, x) for x in args)],
        )
    for step in range(count):
        factors = []
        for kind, x in zip(kinds, (left, right), strict=True):
            places = range(step, kind.lanes, count)
            part = b.shuffle(x, kind, places) if dtype.lanes > 1 else b.element(x, kind, step)
            factors.append(Operand(arithmetic.cast(b, like(dtype, kind.element), dtype, part)))
        term = arithmetic.binary(b, "mul", dtype, factors[0], factors[1])
        total = arithmetic.binary(b, "add", dtype, Operand(total), Operand(term))
    return total


@_emits(CHECK_INDEX)
def _check_index(e: ExpressionEmitter, call: Call) -> str:
    """Emit the comparison, and a branch that is taken where a lane is outside: it reports the first such lane."""
    b, dtype = e.builder, call.args[0].dtype
    index, extent, happens = (e.expr(arg) for arg in call.args[:3])
    number = call.args[3]
    assert isinstance(number, IntImm)
    kind, bits, lanes = value_type(dtype), integer_type(1, dtype.lanes), dtype.lanes
    # An extent is no negative number: without sign, a negative index is greater than each.
    inside = b.pure(f"icmp ult {kind} {index}, {extent}")
    outside = b.pure(f"and {bits} {happens}, {b.pure(f'xor {bits} {inside}, {constant(1, call.dtype)}')}")
    some = outside
    if lanes > 1:
        outside = b.pure(f"bitcast {bits} {outside} to i{lanes}")
        some = b.pure(f"icmp ne i{lanes} {outside}, 0")
    report, go_on = b.fresh("outside"), b.fresh("inside")
    b.branch_if(some, report, go_on)
    b.label(report)
    if lanes > 1:
        count = b.module.declare(f"llvm.cttz.i{lanes}", f"i{lanes}", [f"i{lanes}", "i1"])
        lane = b.value(f"call i{lanes} {count}(i{lanes} {outside}, i1 true)")
        index = b.value(f"extractelement {kind} {index}, i{lanes} {lane}")
        extent = b.value(f"extractelement {kind} {extent}, i{lanes} {lane}")
    operand = b.module.declare(REPORT, "void", ["ptr", "i64", "i64"], "cold nounwind")
    where = b.module.c_string(e.root.attrs[CHECKED_ACCESSES][number.value])
    b.emit(f"call void {operand}(ptr {where}, i64 {index}, i64 {extent})")
    b.branch(go_on)
    b.label(go_on)
    return b.pure(f"and {bits} {happens}, {inside}")


@_emits("address_of")
def _address_of(e: ExpressionEmitter, call: Call) -> str:
    access = call.args[0]
    if not isinstance(access, BufferLoad):
        e.error(call, "address_of: expected an element of a buffer")
    return e.memory.address(access)


@_emits("prefetch")
def _prefetch(e: ExpressionEmitter, call: Call) -> str:
    access, b = call.args[0], e.builder
    if not isinstance(access, BufferLoad):
        e.error(call, "prefetch: expected an element of a buffer")
    operand = b.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    b.emit(f"call void {operand}(ptr {e.memory.address(access)}, i32 0, i32 3, i32 1)")
    return ""
