"""Generalize kernels: replace sizes of a fused group that are formulas of the model's dimensions by plain variables.

Before, in a model over images of height ``h``::

    fn (%x: Tensor[(n, 16, (h + 3) // 4), float32]) { nn.relu(%x) }

After::

    fn (%x: Tensor[(n, 16, size_0), float32]) { nn.relu(%x) }

A call passes ``(h + 3) // 4`` as ``size_0``. The kernel's loop bounds, and all proofs about them, are then as short as
those over a plain dimension, however many strided operators precede it; and layers that differ only in such formulas
share one kernel.

Types are inferred again from the new parameters. A size that follows from another one in the group (the height of a
strided convolution's result, which a second argument has as well) stays a formula of that one. Where type inference
needs to know more about the model's dimensions than that two sizes are equal, those dimensions are counted in larger
units: if a result has height ``(h + 15) // 16`` and ``(h + 63) // 64`` tiles, the height becomes ``size_0`` and the
number of tiles ``(size_0 + 3) // 4``. If the dimensions are used in other ways, the group is left unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.graphir.dims import Dim, DimTable, simplify
from tilewright.graphir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.graphir.keys import SIZES
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import post_order
from tilewright.tensorir import expr as tir
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.functor import Mutator, free_vars, substitute


class SizeGeneralizer:
    """Generalize the groups of one module; equal groups over different sizes become structurally equal."""

    def __init__(self) -> None:
        self.table = DimTable()
        self._named: dict[str, tir.Var] = {}

    def generalize(self, group: Function) -> Function:
        """Return ``group`` over plain sizes; ``group`` itself if its sizes are plain already or cannot be replaced."""
        dims = [dim for param in group.params for dim in _dims_of(param.type)]
        if not any(_is_formula(dim) for dim in dims):
            return group
        taken = {var.name for dim in dims if isinstance(dim, tir.Expr) for var in free_vars(dim)}
        for attempt in (_Generalization, _InUnits):
            try:
                found = attempt(self, taken).run(group)
            except TypeInferenceError:  # the types hold for these sizes only
                continue
            if found is not None:
                return found
        return group

    def size(self, number: int, taken: set[str]) -> tir.Var:
        """Return the variable for the ``number``-th plain size of a group; its name is not in ``taken``."""
        name = f"size_{number}"
        while name in taken:
            name += "_"
        return self._named.setdefault(name, tir.Var(name))


class _Generalization:
    """The state while one group is rewritten: its new sizes, and the values that have been typed so far."""

    def __init__(self, sizes: SizeGeneralizer, taken: set[str]) -> None:
        self.sizes = sizes
        self.taken = taken
        #: The replacement of each dimension of the group, by its canonical form; and the formula of each new variable.
        self.known: dict[tir.Expr, Dim] = {}
        self.formulas: dict[tir.Var, tir.Expr] = {}
        self.done: dict[Expr, Expr] = {}

    def run(self, group: Function) -> Function | None:
        """Return the group over new sizes; None if its results would have other sizes."""
        for node in post_order(group.body):
            if not isinstance(node, Var):
                self.done[node] = self.node(node)
        params = [self.value(param) for param in group.params]
        body = self.value(group.body)
        if (
            not self.formulas
            or body.type is None
            or group.body.type is None
            or self.original(body.type) != group.body.type
        ):
            return None
        attrs = {**group.attrs, SIZES: tuple(self.formulas)}
        return Function(params, body, None, attrs, group.span)  # type: ignore[arg-type]

    def value(self, node: Expr) -> Expr:
        """Return the new form of ``node``. A parameter is typed at its first use: by then it is known which of its
        sizes follow from the others."""
        found = self.done.get(node)
        if found is None:
            assert isinstance(node, Var)
            found = self.done[node] = Var(node.name, _map_type(node.type, self.parameter_dim), node.span)
        return found

    def node(self, node: Expr) -> Expr:
        if isinstance(node, Constant):
            return node
        if isinstance(node, Tuple):
            return Tuple([self.value(field) for field in node.fields], node.span)
        if isinstance(node, TupleGetItem):
            return TupleGetItem(self.value(node.value), node.index, node.span)
        assert isinstance(node, Call)
        args = [self.value(arg) for arg in node.args]
        made = Call(node.op, args, self.attributes(node.attrs), None, node.span)
        for dim, new in zip(_dims_of(node.type), _dims_of(made.type), strict=True):
            if _is_formula(dim):
                self.known.setdefault(self.sizes.table.canonical(dim), new)  # type: ignore[arg-type]
        return made

    def parameter_dim(self, dim: Dim) -> Dim:
        """Return the size that replaces ``dim`` in a parameter: one that the group has already, or a new plain one."""
        if not _is_formula(dim):
            return dim
        assert isinstance(dim, tir.Expr)
        canonical = self.sizes.table.canonical(dim)
        found = self.known.get(canonical)
        if found is None:
            var = self.sizes.size(len(self.formulas), self.taken)
            self.formulas[var] = dim
            found = self.known[canonical] = var
        return found

    def attributes(self, value: Any) -> Any:
        """Return attributes in terms of the new sizes."""
        return _map_attributes(value, lambda dim: _Replacement(self).mutate(dim) if _is_formula(dim) else dim)

    def original(self, found: Type) -> Type:
        """Return a type of the new group in terms of the old sizes."""

        def dim_of(dim: Dim) -> Dim:
            return substitute(dim, self.formulas) if isinstance(dim, tir.Expr) else dim

        result = _map_type(found, dim_of)
        assert result is not None
        return result


class _InUnits:
    """Rewrite a group whose sizes are quotients of a dimension of the model, rounded up: the quotient with the least
    divisor becomes a plain size, and the others are quotients of that one, as
    ``ceil(ceil(h / a) / b) == ceil(h / (a * b))``."""

    def __init__(self, sizes: SizeGeneralizer, taken: set[str]) -> None:
        self.sizes = sizes
        self.taken = taken

    def run(self, group: Function) -> Function | None:
        """Return the group over new sizes; None if its sizes are of another kind, or do not follow from its tensors."""
        nodes = [node for node in post_order(group.body) if not isinstance(node, Constant)]
        units = _units(dim for node in (*group.params, *nodes) for dim in _all_dims(node))
        finer = {var: self.sizes.size(number, self.taken) for number, var in enumerate(units)}
        scaled: dict[tir.Var, tir.Expr] = {var: size * units[var] for var, size in finer.items()}
        coarse: dict[tir.Var, tir.Expr] = {size: (var + (units[var] - 1)) // units[var] for var, size in finer.items()}

        def new_dim(dim: Dim) -> Dim:
            return simplify(substitute(dim, scaled)) if isinstance(dim, tir.Expr) else dim

        def old_dim(dim: Dim) -> Dim:
            return substitute(dim, coarse) if isinstance(dim, tir.Expr) else dim

        done: dict[Expr, Expr] = {
            param: Var(param.name, _map_type(param.type, new_dim), param.span) for param in group.params
        }
        for node in nodes:
            if not isinstance(node, Var):
                done[node] = _rebuilt(node, done, lambda value: _map_attributes(value, new_dim))
        if any(_map_type(new.type, old_dim) != old.type for old, new in done.items()):
            return None
        params, body = [done[param] for param in group.params], done[group.body]
        told = {dim for node in (*params, body) for dim in _dims_of(node.type)}
        if not finer or not told.issuperset(finer.values()):
            return None
        attrs = {**group.attrs, SIZES: tuple(finer.values())}
        return Function(params, body, None, attrs, group.span)  # type: ignore[arg-type]


def _rebuilt(node: Expr, done: dict[Expr, Expr], attributes: Callable[[Any], Any]) -> Expr:
    """Return ``node`` with its operands replaced as ``done`` says, and its attributes by ``attributes``."""
    if isinstance(node, Tuple):
        return Tuple([done.get(field, field) for field in node.fields], node.span)
    if isinstance(node, TupleGetItem):
        return TupleGetItem(done.get(node.value, node.value), node.index, node.span)
    assert isinstance(node, Call)
    return Call(node.op, [done.get(arg, arg) for arg in node.args], attributes(node.attrs), None, node.span)


def _all_dims(node: Expr) -> list[tir.Expr]:
    """Return the dimension expressions in the type and in the attributes of a node."""
    found: list[tir.Expr] = [dim for dim in _dims_of(node.type) if isinstance(dim, tir.Expr)]
    if isinstance(node, Call):
        _map_attributes(node.attrs, lambda dim: found.append(dim) or dim)  # type: ignore[func-returns-value]
    return found


def _units(formulas: Iterable[tir.Expr]) -> dict[tir.Var, int]:
    """Find the variables that occur only divided and rounded up, by multiples of one number; and return that number."""
    divisors: dict[tir.Var, set[int]] = {}
    for formula in formulas:
        stack: list[Any] = [formula]
        while stack:
            part = stack.pop()
            if isinstance(part, tir.Var):
                divisors.setdefault(part, set()).add(1)
                continue
            quotient = _rounded_up(part)
            if quotient is None:
                stack.extend(part.parts())
            else:
                divisors.setdefault(quotient[0], set()).add(quotient[1])
    units = {var: min(own) for var, own in divisors.items()}
    return {var: unit for var, unit in units.items() if unit > 1 and all(own % unit == 0 for own in divisors[var])}


def _rounded_up(expr: Any) -> tuple[tir.Var, int] | None:
    """Match ``(v + d - 1) // d``: return ``v`` and ``d``, or None."""
    if not (isinstance(expr, tir.BinaryOp) and expr.op == "floordiv" and isinstance(expr.b, tir.IntImm)):
        return None
    whole, divisor = expr.a, expr.b.value
    if not (isinstance(whole, tir.BinaryOp) and whole.op == "add" and isinstance(whole.a, tir.Var)):
        return None
    exact = isinstance(whole.b, tir.IntImm) and whole.b.value == divisor - 1
    return (whole.a, divisor) if exact else None


class _Replacement(Mutator):
    """Replace, from the top down, every subexpression that has a new size."""

    def __init__(self, owner: _Generalization) -> None:
        self.owner = owner

    def mutate(self, node: Any) -> Any:
        if _is_formula(node):
            found = self.owner.known.get(self.owner.sizes.table.canonical(node))
            if found is not None:
                return tir.as_expr(found)
        return super().mutate(node)


def _is_formula(dim: object) -> bool:
    return isinstance(dim, tir.Expr) and not isinstance(dim, (tir.Var, tir.IntImm))


def _dims_of(found: Type | None) -> list[Dim]:
    if isinstance(found, TensorType):
        return list(found.shape)
    if isinstance(found, TupleType):
        return [dim for field in found.fields for dim in _dims_of(field)]
    raise TypeInferenceError(f"expected tensors, found {found}")


def _map_attributes(value: Any, dim_of: Callable[[tir.Expr], Dim]) -> Any:
    """Return attributes with every dimension expression replaced."""
    if isinstance(value, tir.Expr):
        return dim_of(value)
    if isinstance(value, tuple):
        return tuple(_map_attributes(item, dim_of) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in dataclasses.fields(value)
            if (new := _map_attributes(old := getattr(value, field.name), dim_of)) is not old and new != old
        }
        return dataclasses.replace(value, **changed) if changed else value
    return value


def _map_type(found: Type | None, dim_of: Callable[[Dim], Dim]) -> Type | None:
    if isinstance(found, TensorType):
        return TensorType([dim_of(dim) for dim in found.shape], found.dtype)
    if isinstance(found, TupleType):
        return TupleType([field for part in found.fields if (field := _map_type(part, dim_of)) is not None])
    return found
