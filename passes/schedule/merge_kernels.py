"""``MergeKernels``: merge kernels that differ only in some constants into one, which takes these as parameters.

Before::

    primfunc @scale(x: Buffer[(n, 12, 16), ..], y: ..) { for i in parallel(n * 12) .. y[..] = x[..] * 0.88 }
    primfunc @scale_1(x: Buffer[(n, 24, 16), ..], y: ..) { for i in parallel(n * 24) .. y[..] = x[..] * 0.93 }
    def @main(%x, %z) { %0 = @scale(%x); %1 = @scale_1(%z) .. }

After::

    primfunc @scale(x: Buffer[(n, count_0 * 12, 16), ..], scalar_0: Buffer[(), float32], y: .., count_0: int64)
        attrs {"sizes_from": (None, (0, 1, 12)), ..} {
      for i in parallel(n * (count_0 * 12)) .. y[..] = x[..] * scalar_0[()]
    }
    def @main(%x, %z) { %0 = @scale(%x, float32(0.88)); %1 = @scale(%z, float32(0.93)) .. }

Each remaining kernel goes through all later passes, code generation and LLVM once. :mod:`.kernel_patterns` decides
which constants may differ: those that do not make the machine code faster. Integers are derived from the sizes of a
call's arguments and results, which may be multiples of them; all other constants are passed. Functions that the user
wrote as loops keep their names and constants.

Finding a program of which two others are instances is called anti-unification (Plotkin: "A note on inductive
generalization", 1970); LLVM's MergeFunctions does so for functions that are equal altogether.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.origins import KernelOrigins
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.lower.parts import with_strides
from tilewright.passes.lower.primitive import flat_types
from tilewright.passes.operands import LEAST_OPERAND, known_bytes
from tilewright.passes.properties import BLOCKS, SCHEDULED
from tilewright.passes.registry import register_pass
from tilewright.passes.schedule.kernel_patterns import outline_of, parameters_of, pattern_of, with_constants
from tilewright.tensorir import expr as tir
from tilewright.tensorir.dtype import INT64, DataType
from tilewright.tensorir.keys import NUM_INPUTS, OPERATORS, SIZES_FROM, SMALL_BUFFERS
from tilewright.tensorir.stmt import PrimFunc

#: Maps the values that a quotient has in the kernels to the position of a size and its divisor.
_Sources = dict[tuple[int, ...], tuple[int, int, int]]

#: Maximum offset, such as padding adds, of a differing constant from a multiple of a size.
MAX_OFFSET = 8


@register_pass
@module_pass(opt_level=2, name="MergeKernels", requires={BLOCKS, SCHEDULED})
class MergeKernels(ModulePass):
    """Merge kernels that differ only in free constants."""

    family = "schedule"

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with kernels merged."""
        calls = _calls(mod)
        kernels = [
            (key, func, parameters_of(func))
            for key, func in mod.functions.items()
            if isinstance(func, PrimFunc) and key.name in calls and OPERATORS in func.attrs
        ]
        frequent = Counter([params for *_, params in kernels])
        alike: dict[tuple[Hashable, ...], list[tuple[GlobalVar, PrimFunc]]] = {}
        for key, func, params in kernels:
            if frequent[params] > 1:
                alike.setdefault((params, outline_of(func)), []).append((key, func))
        merged: dict[str, _Merged] = {}
        for similar in alike.values():
            for members in _groups(similar):
                made = _merge([_Member(*member, _sizes(calls[member[0].name])) for member in members])
                merged |= {member.key.name: made for member in made.members}
        if not merged:
            return mod
        for made in dict.fromkeys(merged.values()):
            names = ", ".join(member.key.name for member in made.members[1:])
            ctx.remark(f"merged {names} into {made.key.name}", kind="applied")
        return IRModule(_replaced(mod, merged))


#: A member of a group: the kernel's name, the kernel with the strides that the others have, and its free constants.
_Grouped = tuple[GlobalVar, PrimFunc, Sequence[tir.IntImm | tir.FloatImm]]


def _groups(kernels: Sequence[tuple[GlobalVar, PrimFunc]]) -> list[list[_Grouped]]:
    """Group kernels of one outline by their patterns, leaving out groups of one.

    Some kernels have results or arguments that are views of larger tensors, with explicit strides. Others access dense
    tensors, without strides: these get the strides of dense memory if that makes them match one of the former.
    """
    if len(kernels) < 2:
        return []
    strided = {
        number for _, func in kernels for number, buffer in enumerate(func.buffers) if buffer.strides and buffer.ndim
    }
    found: list[list[_Grouped]] = []
    for group in _by_pattern(kernels, strided):
        if len(group) > 1:
            members = [(key, func) for key, func in kernels if any(key is other for other, *_ in group)]
            needed = {number for number in strided if any(func.buffers[number].strides for _, func in members)}
            found += [group] if needed == strided else _by_pattern(members, needed)
    return [group for group in found if len(group) > 1]


def _by_pattern(kernels: Sequence[tuple[GlobalVar, PrimFunc]], strided: set[int]) -> list[list[_Grouped]]:
    """Group kernels by their patterns after giving strides to the buffers whose numbers are in ``strided``."""
    groups: dict[tuple[Hashable, ...], list[_Grouped]] = {}
    for key, func in kernels:
        dense = [
            (0,) * buffer.ndim if number in strided and not buffer.strides else None
            for number, buffer in enumerate(func.buffers)
        ]
        func = with_strides(func, dense) if any(dense) else func
        found = pattern_of(func)
        groups.setdefault(found.key, []).append((key, func, found.constants))
    return list(groups.values())


@dataclasses.dataclass(frozen=True)
class _Member:
    """A kernel that may be merged.

    Attributes:
        constants: its free constants.
        sizes: sizes of the arguments and results of its calls, by tensor and axis, without those that are not constant
            or differ between calls.
    """

    key: GlobalVar
    func: PrimFunc
    constants: Sequence[tir.IntImm | tir.FloatImm]
    sizes: Mapping[tuple[int, int], int]


@dataclasses.dataclass(frozen=True, eq=False)
class _Merged:
    """One kernel in place of several, and the constants that calls of each pass to it after their own arguments."""

    key: GlobalVar
    func: PrimFunc
    members: Sequence[_Member]
    passed: Mapping[str, Sequence[Constant]]


def _calls(mod: IRModule) -> dict[str, list[Call]]:
    """Return the calls of each kernel that is only called by graph functions, with known types."""
    found: dict[str, list[Call]] = {}
    for function in mod.functions.values():
        if not isinstance(function, Function):
            continue
        for node in post_order(function.body):
            if isinstance(node, Call) and isinstance(node.op, GlobalVar):
                found.setdefault(node.op.name, []).append(node)
    return found


def _sizes(calls: Sequence[Call]) -> dict[tuple[int, int], int]:
    """Return the constant sizes of arguments and results that are the same in all calls, by tensor and axis."""
    found: list[dict[tuple[int, int], int]] = []
    for call in calls:
        tensors = [part for each in (*call.args, call) for part in flat_types(each.type)]
        sizes = {(number, axis): dim for number, part in enumerate(tensors) for axis, dim in enumerate(part.shape)}
        found.append({place: dim for place, dim in sizes.items() if isinstance(dim, int)})
    return {place: dim for place, dim in found[0].items() if all(other.get(place) == dim for other in found)}


def _merge(members: Sequence[_Member]) -> _Merged:
    """Merge the members of one pattern into one kernel."""
    counts = _Counts(members)
    values: list[tir.Expr] = []
    scalars: dict[tuple[float, ...], tir.Buffer] = {}
    for number, first in enumerate(members[0].constants):
        column = [member.constants[number].value for member in members]
        if all(value == first.value for value in column) and len({math.copysign(1, value) for value in column}) == 1:
            values.append(first)
        elif isinstance(first, tir.FloatImm):
            name = f"scalar_{len(scalars)}"
            buffer = scalars.setdefault(tuple(column), tir.Buffer(name, (), first.dtype))
            values.append(tir.BufferLoad(buffer, ()))
        else:
            values.append(counts.expression([int(value) for value in column]))
    first_member = members[0]
    made = with_constants(first_member.func, values)
    func = _with_parameters(made, list(scalars.values()), counts)
    func = _with_small(func, [member.func for member in members])
    passed = {
        member.key.name: [
            *(_constant(column[place], buffer.dtype) for column, buffer in scalars.items()),
            *(_constant(column[place], INT64) for column in counts.passed),
        ]
        for place, member in enumerate(members)
    }
    return _Merged(GlobalVar(first_member.key.name), func, members, passed)


def _constant(value: float, dtype: DataType) -> Constant:
    return Constant(np.array(value, dtype.numpy))


class _Counts:
    """Collect the integer parameters of a merged kernel and the sizes of a call's tensors that determine them."""

    def __init__(self, members: Sequence[_Member]) -> None:
        inputs = int(members[0].func.attrs[NUM_INPUTS])
        #: For each column of values that equals a size of the calls divided by some number: the position of the size,
        #: and the divisor. Sizes of arguments come before those of results.
        self._sources: tuple[_Sources, _Sources] = ({}, {})
        for place in members[0].sizes:
            column = [member.sizes.get(place, 0) for member in members]
            divisor = math.gcd(*column)
            if min(column) > 0 and len(set(column)) > 1:
                sources = self._sources[place[0] >= inputs]
                sources.setdefault(tuple([size // divisor for size in column]), (*place, divisor))
        self._taken = {var.name for member in members for var in member.func.variables}
        self._numbers = itertools.count()
        self._vars: dict[tuple[int, ...], tuple[tir.Var, tuple[int, ...]]] = {}
        #: The values in each member of the parameters that calls pass because no size determines them.
        self.passed: list[tuple[int, ...]] = []

    @property
    def variables(self) -> list[tir.Var]:
        """Return the variables that expressions have used so far."""
        return [var for var, _ in self._vars.values()]

    @property
    def sources(self) -> list[tuple[int, ...]]:
        """Return the source of each variable; see ``primitive.SIZES_FROM``."""
        return [source for _, source in self._vars.values()]

    def expression(self, column: Sequence[int]) -> tir.Expr:
        """Return an expression that equals ``column[k]`` in the ``k``-th member."""
        scale = math.gcd(*column)
        multiple = tuple([value // scale for value in column]) if scale else tuple(column)
        for sources in self._sources:
            if multiple in sources:
                return self._scaled(multiple, sources[multiple], scale)
            for unit in sources:
                low = min(range(len(unit)), key=lambda k: unit[k])
                high = max(range(len(unit)), key=lambda k: unit[k])
                slope = (column[high] - column[low]) // (unit[high] - unit[low])
                offset = column[low] - slope * unit[low]
                fits = all(value == slope * size + offset for value, size in zip(column, unit, strict=True))
                if slope > 0 and fits and abs(offset) <= MAX_OFFSET:
                    scaled = self._scaled(unit, sources[unit], slope)
                    return tir.binary("add" if offset >= 0 else "sub", scaled, tir.const(abs(offset), "int64"))
        if min(column) < 1:  # analyzers assume that parameters are positive
            shift = 1 - min(column)
            moved = self.expression([value + shift for value in column])
            return tir.binary("sub", moved, tir.const(shift, "int64"))
        if multiple not in self._vars:
            self.passed.append(multiple)
        return self._scaled(multiple, (self.passed.index(multiple),), scale)

    def _scaled(self, unit: tuple[int, ...], source: tuple[int, ...], scale: int) -> tir.Expr:
        """Return ``scale`` times the variable that equals ``unit[k]`` in the ``k``-th member."""
        if unit not in self._vars:
            name = f"count_{next(self._numbers)}"
            while name in self._taken:
                name = f"count_{next(self._numbers)}"
            self._vars[unit] = tir.Var(name), source
        return tir.binary("mul", self._vars[unit][0], tir.const(scale, "int64"))


def _with_parameters(func: PrimFunc, scalars: Sequence[tir.Buffer], counts: _Counts) -> PrimFunc:
    """Return ``func`` with more inputs, after the others, and more integers, at the end."""
    count = int(func.attrs[NUM_INPUTS])
    params = (*func.params[:count], *scalars, *func.params[count:], *counts.variables)
    attrs = {**func.attrs, NUM_INPUTS: count + len(scalars)}
    sources = (*func.attrs.get(SIZES_FROM, (None,) * len(func.variables)), *counts.sources)
    if any(source is not None for source in sources):
        attrs[SIZES_FROM] = tuple([_behind(source, count, len(scalars)) for source in sources])
    return PrimFunc(func.name, params, func.body, attrs)


def _with_small(func: PrimFunc, originals: Sequence[PrimFunc]) -> PrimFunc:
    """Return ``func`` with an attribute that lists the buffers that are small in each of the ``originals``, as their
    sizes no longer show it. A buffer that is large in some is prefetched (``PrefetchPanels``), which costs little where
    it is small."""
    names = [buffer.name for buffer in originals[0].buffers]
    small = {
        name
        for number, name in enumerate(names)
        if all(0 < known_bytes(original.buffers[number]) < LEAST_OPERAND for original in originals)
    }
    hidden = [number for number, buffer in enumerate(func.buffers) if buffer.name in small and not known_bytes(buffer)]
    return func.with_attr(SMALL_BUFFERS, tuple(hidden)) if hidden else func


def _behind(source: tuple[int, ...] | None, inputs: int, more: int) -> tuple[int, ...] | None:
    """Adjust the position of a tensor of a call for ``more`` arguments inserted after the ``inputs`` first ones."""
    is_tensor = source is not None and len(source) > 1 and source[0] >= inputs
    return (source[0] + more, *source[1:]) if source is not None and is_tensor else source


def _replaced(mod: IRModule, merged: Mapping[str, _Merged]) -> dict[GlobalVar, AnyFunction]:
    """Return the functions of a module, with calls of merged kernels."""

    def transform(old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(new.op, GlobalVar) or new.op.name not in merged:
            return new
        made = merged[new.op.name]
        origins = new.attrs.origins if isinstance(new.attrs, KernelOrigins) else ()
        attrs = KernelOrigins(origins, new.op.name)
        return Call(made.key, (*new.args, *made.passed[new.op.name]), attrs, old.type, new.span)

    functions: dict[GlobalVar, AnyFunction] = {}
    for key, function in mod.functions.items():
        made = merged.get(key.name)
        if isinstance(function, Function):
            functions[key] = function.with_body(rewrite(function.body, transform))
        elif made is None:
            functions[key] = function
        elif made.key.name == key.name:
            functions[made.key] = made.func
    return functions
