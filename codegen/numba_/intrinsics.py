"""Write calls of intrinsics as Python source: float64 functions of ``math`` and NumPy that numba knows, and helpers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilewright.codegen.numba_.expressions import GENERATOR, ExpressionWriter, bare, is_half, storage
from tilewright.tensorir.expr import Call, IntImm
from tilewright.tensorir.intrinsics import CHECK_INDEX, INTERLEAVED, INTRINSICS, REDUCERS, lowers
from tilewright.tensorir.keys import CHECKED_ACCESSES

_Writer = TypeVar("_Writer", bound=Callable[[ExpressionWriter, Call], str])

#: Intrinsics without a function of their name in ``math``, or for which another function is right.
_FROM_NUMPY = {"exp2": "np.exp2", "log2": "np.log2", "fmod": "np.fmod"}  # numba lacks ``math``'s
_FROM_NUMPY |= {"floor": "np.floor", "ceil": "np.ceil", "trunc": "np.trunc", "round": "np.rint"}

_FORMULAS = {
    "rsqrt": "(1.0 / math.sqrt({0}))",
    "sigmoid": "(1.0 / (1.0 + math.exp(-{0})))",
    "fma": "({0} * {1} + {2})",
}


def _writes(*names: str) -> Callable[[_Writer], _Writer]:
    return lowers(GENERATOR, *names)


def _arguments(w: ExpressionWriter, call: Call) -> list[str]:
    return [bare(w.expr(arg)) for arg in call.args]


@_writes(*{name for name, found in INTRINSICS.items() if found.in_c_library}.union(_FROM_NUMPY, ("sqrt", "copysign")))
def _function(w: ExpressionWriter, call: Call) -> str:
    args = _arguments(w, call)
    wide = [f"np.float64({arg})" if call.args[0].dtype.element != "float64" else arg for arg in args]
    return w.convert(call.dtype, f"{_FROM_NUMPY.get(call.name, f'math.{call.name}')}({', '.join(wide)})")


@_writes(*_FORMULAS)
def _formula(w: ExpressionWriter, call: Call) -> str:
    args = _arguments(w, call)
    wide = [f"np.float64({arg})" if call.args[0].dtype.element != "float64" else f"({arg})" for arg in args]
    return w.convert(call.dtype, _FORMULAS[call.name].format(*wide))


@_writes("isnan", "isinf", "isfinite")
def _classify(w: ExpressionWriter, call: Call) -> str:
    return f"math.{call.name}({bare(w.expr(call.args[0]))})"


@_writes("abs")
def _abs(w: ExpressionWriter, call: Call) -> str:
    x = bare(w.expr(call.args[0]))
    return x if call.dtype.is_uint else w.convert(call.dtype, f"abs({x})")


@_writes("popcount", "count_leading_zeros")
def _bit_count(w: ExpressionWriter, call: Call) -> str:
    return w.convert(call.dtype, f"{w.helper(call.name)}({bare(w.expr(call.args[0]))}, {call.dtype.bits})")


@_writes("reinterpret")
def _reinterpret(w: ExpressionWriter, call: Call) -> str:
    source, target = call.args[0].dtype, call.dtype
    if target.lanes != source.lanes:
        return _regroup(w, call)
    text = bare(w.expr(call.args[0]))
    # Numba asks for the type by its name where bits are seen as another one.
    bits = f"np.{storage(source)}({w.to_memory(source, text) if is_half(source) else text})"
    if storage(source) != storage(target):
        bits = f"{bits}.view(np.{storage(target)})"
    return w.from_memory(target, bits)


def _regroup(w: ExpressionWriter, call: Call) -> str:
    """Reinterpret bits as elements of another width."""
    source, target = call.args[0].dtype, call.dtype
    lanes = w.lanes(call.args[0])
    bits = w.names.fresh("bits")
    element = f"{lanes}[lane]"
    w.before += [f"{bits} = np.empty({source.lanes}, np.{storage(source)})"]
    w.before += [f"for lane in range({source.lanes}):"]
    w.before += [f"    {bits}[lane] = {w.to_memory(source, element) if is_half(source) else element}"]
    seen = w.names.fresh("seen")
    w.before += [f"{seen} = {bits}.view(np.{storage(target)})"]
    return w.from_memory(target, f"{seen}[{'lane' if target.lanes > 1 else 0}]")


@_writes("dot")
def _dot(w: ExpressionWriter, call: Call) -> str:
    total, left, right = call.args
    count = left.dtype.lanes // total.dtype.lanes
    wide = "np.float64" if total.dtype.is_float else "np.int64"
    a, b = w.lanes(left), w.lanes(right)
    first = f"lane * {count} + " if total.dtype.lanes > 1 else ""
    terms = [f"{wide}({a}[{first}{step}]) * {wide}({b}[{first}{step}])" for step in range(count)]
    return w.convert(call.dtype, " + ".join([f"{wide}({bare(w.expr(total))})", *terms]))


@_writes("interleave_low", "interleave_high")
def _interleave(w: ExpressionWriter, call: Call) -> str:
    a, b = map(w.lanes, call.args)
    first = 0 if call.name == "interleave_low" else call.dtype.lanes // 2
    at = f"lane // 2 + {first}" if first else "lane // 2"
    return f"({b}[{at}] if lane % 2 else {a}[{at}])"


@_writes(*(f"interleave_{count}" for count in INTERLEAVED))
def _interleave_part(w: ExpressionWriter, call: Call) -> str:
    *vectors, part = call.args
    count = len(vectors)
    assert isinstance(part, IntImm), "the part is a constant"
    place = f"(lane + {part.value * call.dtype.lanes})"
    first, *others = [f"{w.lanes(vector)}[{place} // {count}]" for vector in vectors]
    text = first
    for number, element in enumerate(others, 1):
        text = f"({element} if {place} % {count} == {number} else {text})"
    return text


@_writes(CHECK_INDEX)
def _check_index(w: ExpressionWriter, call: Call) -> str:
    number = call.args[3]
    assert isinstance(number, IntImm)
    text = w.root.attrs[CHECKED_ACCESSES][number.value]
    access = w.accesses.setdefault(text, f"ACCESS_{len(w.accesses)}")
    return f"{w.helper(call.name)}({', '.join([bare(w.expr(arg)) for arg in call.args[:3]])}, {access})"


@_writes(*REDUCERS.values())
def _reduction(w: ExpressionWriter, call: Call) -> str:
    return w.convert(call.dtype, f"{w.helper(call.name)}({w.lanes(call.args[0])})")
