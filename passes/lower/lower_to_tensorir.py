"""``LowerToTensorIR``: lower every fused group to a loop-level function that the graph calls by name.

Before::

    def @main(%x) { %0 = fn (%p) primitive { relu(add(%p, 1)) }(%x); %0 }

After::

    primfunc @add_relu(p, relu) { ... }
    def @main(%x) { %0 = @add_relu(%x); %0 }

Functions that the module holds as loops already become kernels, too (:mod:`.adopt`).

Groups that are equal up to names, and to the formulas of their sizes (see :mod:`.generalize`), share one function. A
call of an operator outside a group is a group of its own. A kernel's attribute ``operators`` names the operators that
it computes; each call of the kernel names the operators of the graph that this call computes (``graphir.origins``).
Groups that only give a tensor another shape stay in the graph, as views of its memory (:mod:`.views`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.graphir.keys import IN_PLACE, KIND, PRIMITIVE, ROW_PADDING, VIEW
from tilewright.graphir.module import AnyFunction, IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.origins import KernelOrigins, Origin, operator_origins
from tilewright.graphir.structural import hash_text, structural_equal
from tilewright.graphir.types import TensorType, Type
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.graph.walk import as_group, is_primitive
from tilewright.passes.lower.adopt import adopt
from tilewright.passes.lower.generalize import SizeGeneralizer
from tilewright.passes.lower.guard_accesses import guard_accesses
from tilewright.passes.lower.inner_calls import check_inner_calls
from tilewright.passes.lower.overwrites import find_overwrites
from tilewright.passes.lower.parts import Excess, assemble, find_parts, with_strides
from tilewright.passes.lower.primitive import flat_types, lower_primitive
from tilewright.passes.lower.views import find_views
from tilewright.passes.properties import GROUPS, NEST, PLAIN_LAYOUTS, TYPED, UNFOLDED, UNGROUPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.keys import OPERATORS, OVERWRITES, SCHEDULE
from tilewright.tensorir.stmt import PrimFunc

#: A kernel is named after its operators, at most this many of them.
_MAX_NAMED = 6


@register_pass
@module_pass(
    opt_level=0,
    name="LowerToTensorIR",
    requires={TYPED},
    provides=NEST,
    invalidates={UNGROUPED, GROUPS, UNFOLDED, PLAIN_LAYOUTS},
)
class LowerToTensorIR(ModulePass):
    """Turn fused groups (functions with attribute ``Primitive``) and single operators into PrimFuncs."""

    essential = True

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with graph functions that call only PrimFuncs."""
        kernels = _Kernels(mod, ctx)
        lowered: dict[GlobalVar, AnyFunction] = {}
        for key, function in mod.functions.items():
            if isinstance(function, Function):
                lowered[key] = kernels.lower(function, is_model=key.name == "main")
            else:
                check_inner_calls(function, mod)
                lowered[key] = guard_accesses(adopt(function, key.name), ctx)
        return mod.with_functions({**lowered, **kernels.made})


class _Kernels:
    """The PrimFuncs made so far, looked up by the structure of the groups that they were made of."""

    def __init__(self, mod: IRModule, ctx: PassContext) -> None:
        self._ctx = ctx
        self.made: dict[GlobalVar, PrimFunc] = {}
        self._names = {key.name for key in mod.functions}
        #: By wanted name, the last number that made it unique: thousands of kernels may want the same.
        self._numbers = dict[str, int]()
        self._sizes = SizeGeneralizer()
        #: By what is quickly told of a group (:func:`_looks`): most that differ, differ in this.
        self._known: dict[object, list[tuple[Function, list[Excess | None] | None, GlobalVar]]] = {}
        self._parts: dict[Expr, Excess] = {}
        self._views = set[Expr]()

    def lower(self, function: Function, is_model: bool) -> Function:
        self._parts = find_parts(function)
        self._views = find_views(function, is_model, self._parts, self._ctx)
        groups: dict[Expr, Expr] = {
            node: node for node in post_order(function) if type(node) is Function and is_primitive(node)
        }
        return function.with_body(rewrite(function.body, self._replace, groups))

    def _replace(self, old: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call) or not isinstance(old, Call):
            return new
        if old in self._views:
            return _view(new)
        if isinstance(new.op, Function) and new.op.attrs.get(PRIMITIVE):
            return self._call(new, new.op, new.args, self._strides(old, old.args))
        if isinstance(new.op, Operator):
            group, places = as_group(new)
            args = [new.args[place] for place in places]
            strides = self._strides(old, [old.args[place] for place in places])
            return self._call(new, group, args, strides)
        return new

    def _call(self, computed: Call, group: Function, args: Sequence[Expr], strides: list[Excess | None] | None) -> Call:
        """Replace ``computed``, a call of ``group`` with ``args``, by a call of the group's kernel."""
        origins = operator_origins(group)
        key = self._kernel(group, strides, origins)
        return Call(key, args, KernelOrigins(origins), computed.type, computed.span)

    def _strides(self, call: Expr, args: Sequence[Expr]) -> list[Excess | None] | None:
        """Return the excess of the memory of each argument and result of a call; None if none has any."""
        values = (*args, call)
        if not any(value in self._parts for value in values):
            return None
        found: list[Excess | None] = []
        for value in values:
            found += [self._parts[value]] if value in self._parts else [None] * len(flat_types(value.type))
        return found

    def _kernel(self, group: Function, strides: list[Excess | None] | None, origins: Sequence[Origin]) -> GlobalVar:
        general = self._sizes.generalize(group)
        # A kernel that is generalized over sizes does not have the type of one of its calls.
        found, group = group.type if general is group else None, general
        operators = tuple([origin.operator for origin in origins])
        candidates = self._known.setdefault((operators, _looks(group)), [])
        for known, others, key in candidates:
            if others == strides and structural_equal(known, group):
                return key
        name = self._unique(_kernel_name(operators))
        key = GlobalVar(name, found)
        made = assemble(group, name) if IN_PLACE in group.attrs else lower_primitive(group, name)
        attrs: dict[str, Any] = {}
        if strides is not None:
            made = with_strides(made, strides)
            if ROW_PADDING in group.attrs:
                attrs[ROW_PADDING] = group.attrs[ROW_PADDING]
        elif overwritten := find_overwrites(made):
            attrs[OVERWRITES] = overwritten
        attrs.update({setting: value for setting, value in group.attrs.items() if setting.startswith(SCHEDULE)})
        attrs[OPERATORS] = operators
        self.made[key] = PrimFunc(name, made.params, made.body, {**made.attrs, **attrs})
        candidates.append((group, strides, key))
        return key

    def _unique(self, wanted: str) -> str:
        name, number = wanted, self._numbers.get(wanted, 0)
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._numbers[wanted] = number
        self._names.add(name)
        return name


def _looks(group: Function) -> tuple[object, ...]:
    """Return what equal types share of those of a group's parameters and of its result."""
    return tuple([_look(value.type) for value in (*group.params, group.body)])


def _look(found: Type | None) -> object:
    if not isinstance(found, TensorType):
        return hash_text(found)
    return (found.dtype, *[dim if type(dim) is int else None for dim in found.shape])


def _view(call: Call) -> Call:
    """Return a call of a group, or of an operator, as a view of its argument's memory."""
    group = call.op
    if isinstance(group, Operator):  # not `as_group`, which would take a constant of one element into the group
        param = Var("x", call.args[0].type)
        body = Call(group, (param,), call.attrs, call.type, call.span)
        group = Function([param], body, attrs={PRIMITIVE: True, KIND: group.kind})
    assert isinstance(group, Function)
    marked = Function(group.params, group.body, attrs={**group.attrs, VIEW: True})
    return Call(marked, call.args, None, call.type, call.span)


def _kernel_name(operators: Sequence[str]) -> str:
    names = [operator.rpartition(".")[2] for operator in operators]
    if len(names) > _MAX_NAMED:
        names = [*names[: _MAX_NAMED - 1], f"{len(names) - _MAX_NAMED + 1}_more"]
    return "_".join(names) or "copy"
