"""Differentiate a graph in reverse mode: carry cotangents from results back to variables.

A *cotangent* of an expression is the derivative of the differentiated result by that expression. It has the
expression's type. Beginning at the result, each expression gives every part its share by the rule of its operator
(``graphir/gradient.py``). An expression that is used several times passes on the sum of what its uses gave it, once
(Griewank and Walther, "Evaluating Derivatives", 2008). Expressions that do not depend on the variables, or are of
integers or bools, are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from tilewright.graphir.dims import shape_equal
from tilewright.graphir.expr import Call, Expr, GlobalVar, If, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.gradient import COMPOSITIONS, GRADIENTS
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.scopes import Scope, find_scopes
from tilewright.passes.graph.unrolled_loop import unrolled
from tilewright.passes.graph.walk import always, children_outside_groups, is_atom, place, rewrite_graph
from tilewright.tensorir.errors import TypeInferenceError, UnsupportedOperatorError


def is_smooth(found: Type | None) -> bool:
    """Return whether a value of that type has derivatives: it is a tensor of floats, or a tuple or function with one as
    its result."""
    if isinstance(found, FuncType):
        return is_smooth(found.result)
    if isinstance(found, TupleType):
        return any(is_smooth(field) for field in found.fields)
    return isinstance(found, TensorType) and found.dtype.is_float


def dependent(order: Iterable[Expr], variables: Iterable[Var]) -> set[Expr]:
    """Return the expressions among ``order``, a post order, that depend smoothly on ``variables``."""
    found: set[Expr] = set(variables)
    for node in order:
        if node not in found and is_smooth(node.type) and any(part in found for part in children_outside_groups(node)):
            found.add(node)
    return found


def expand_compositions(body: Expr, variables: Sequence[Var]) -> Expr:
    """Return ``body`` with lets replaced by their values, and with what depends on ``variables`` and has no rule of its
    own written in the operators that it is composed of; loops with a known number of iterations are unrolled."""
    depends: set[Expr] = set(variables)
    return rewrite_graph(body, functools.partial(_expand, depends), always)


def _expand(depends: set[Expr], node: Expr) -> Expr:
    if not (is_smooth(node.type) and any(part in depends for part in children_outside_groups(node))):
        return node
    if type(node) is TupleGetItem and type(node.value) is Tuple:
        return node.value.fields[node.index]
    depends.add(node)
    if type(node) is Loop:
        steps = unrolled(node)
        return node if steps is None else rewrite_graph(steps, functools.partial(_expand, depends), always)
    if type(node) is not Call or not isinstance(node.op, Operator) or node.op.name in GRADIENTS:
        return node
    form = COMPOSITIONS.get(node.op.name)
    if form is not None:
        made = form(node)
    elif node.op.decompose is not None:
        made = node.op.decompose(list(node.args), node.attrs)
    else:
        return node
    known: dict[Expr, Expr] = {arg: arg for arg in node.args}
    return rewrite_graph(made, functools.partial(_expand, depends), always, known)


def zeros(found: Type | None) -> Expr:
    """Return zeros of a type; zero is false for bools."""
    if isinstance(found, TupleType):
        return Tuple([zeros(field) for field in found.fields])
    assert isinstance(found, TensorType)
    return get_operator("zeros")(shape=found.shape, dtype=found.dtype)


def field_of(value: Expr, index: int) -> Expr:
    """Return a field of a tuple; directly, if the tuple is made here."""
    return value.fields[index] if isinstance(value, Tuple) else TupleGetItem(value, index)


class Cotangent:
    """The sum of what the uses of an expression give it, as a whole or to fields of a tuple."""

    __slots__ = ("fields", "terms")

    def __init__(self) -> None:
        self.terms: list[Expr] = []
        self.fields: dict[int, Cotangent] = {}

    def at(self, index: int) -> Cotangent:
        """Return the cotangent of a field."""
        return self.fields.setdefault(index, Cotangent())

    def field(self, index: int) -> Cotangent | None:
        """Return all that a field was given, by itself and with the tuple; None: nothing."""
        found = Cotangent()
        part = self.fields.get(index)
        if part is not None:
            found.terms.extend(part.terms)
            found.fields.update(part.fields)
        found.terms.extend(field_of(term, index) for term in self.terms)
        return found if found.terms or found.fields else None

    def total(self, of: Type | None) -> Expr:
        """Return the sum, for an expression of type ``of``."""
        if isinstance(of, TupleType):
            parts = [self.field(index) for index in range(len(of.fields))]
            return Tuple(
                [
                    zeros(found) if part is None else part.total(found)
                    for part, found in zip(parts, of.fields, strict=True)
                ]
            )
        result = self.terms[0] if self.terms else zeros(of)
        for term in self.terms[1:]:
            result = get_operator("add")(result, term)
        return result


#: What expressions were given so far.
Given = dict[Expr, Cotangent]


class ReverseMode:
    """Carries cotangents through one graph.

    Args:
        body: the graph, without lets.
        roots: the expressions in ``body`` that are differentiated.
        variables: what they are differentiated by.

    Raises:
        UnsupportedOperatorError: something on the way has no gradient; the message lists all of it.
    """

    def __init__(self, body: Expr, roots: Sequence[Expr], variables: Sequence[Var]) -> None:
        order = post_order(body, children_of=children_outside_groups)
        self.active = dependent(order, variables)
        wanted = set(post_order(*roots, children_of=children_outside_groups))
        check_rules([node for node in order if node in self.active and node in wanted])
        self.top = Scope()
        scopes, self.opened = find_scopes(order, body, self.top)
        self.members: dict[Scope, list[Expr]] = {}
        for node in reversed(order):
            self.members.setdefault(scopes[node], []).append(node)
        #: The expressions of the graph, then those made by rules, each with its number in this order.
        self.made: dict[Expr, int] = {node: number for number, node in enumerate(order)}

    def run(self, given: Given) -> Given:
        """Return what the variables are given, if the roots are given ``given``."""
        self._through(self.top, given)
        return given

    def _through(self, scope: Scope, given: Given) -> None:
        """Carry what the expressions of ``scope`` are given to those outside of it."""
        for node in self.members.get(scope, ()):
            if node in self.active and node in given and not isinstance(node, Var):
                self._share(node, given.pop(node), given)

    def _share(self, node: Expr, sum: Cotangent, given: Given) -> None:
        if isinstance(node, Tuple):
            for index, part in enumerate(node.fields):
                found = sum.field(index)
                if found is not None:
                    self._give(part, found.total(part.type), given)
        elif isinstance(node, TupleGetItem):
            if node.value in self.active:
                field = given.setdefault(node.value, Cotangent()).at(node.index)
                field.terms.append(sum.total(node.type))
        elif isinstance(node, If):
            self._branch(node, sum.total(node.type), given)
        elif isinstance(node, Call) and isinstance(node.op, Operator):
            for arg, cotangent in zip(node.args, self._rule(node, node.op, sum.total(node.type)), strict=True):
                if cotangent is not None:
                    self._give(arg, cotangent, given)

    def _give(self, part: Expr, cotangent: Expr, given: Given) -> None:
        if part in self.active:
            given.setdefault(part, Cotangent()).terms.append(cotangent)

    def _rule(self, node: Call, op: Operator, cotangent: Expr) -> Sequence[Expr | None]:
        """Apply the rule of an operator, and check what it returns."""
        found = list(GRADIENTS[op.name](node, cotangent))
        if len(found) != len(node.args):
            raise TypeInferenceError(
                f"gradient of {op.name}: expected a cotangent or None for each of {len(node.args)} arguments, found "
                f"{len(found)}"
            )
        for number, (arg, made) in enumerate(zip(node.args, found, strict=True)):
            if made is not None and arg in self.active and not _has_type(made, arg.type):
                raise TypeInferenceError(
                    f"gradient of {op.name}: {op.argument_name(number)}: expected a cotangent of {arg.type}, found "
                    f"{made.type if isinstance(made, Expr) else made!r}"
                )
        results = [made for made in found if made is not None and made not in self.made]
        if node.span is not None:
            for made in results:
                place(made, node.span, self.made)
        for new in post_order(*results, known=self.made):
            self.made[new] = len(self.made)
        return found

    def _branch(self, node: If, cotangent: Expr, given: Given) -> None:
        """Carry a cotangent through the branch that is taken, to what is computed outside of the branches."""
        inner: list[Given] = []
        before = len(self.made)
        for scope, branch in zip(self.opened[node], (node.then_branch, node.else_branch), strict=True):
            found: Given = {}
            self._give(branch, cotangent, found)
            self._through(scope, found)
            inner.append(found)
        outside = list(dict.fromkeys(part for found in inner for part in found))
        if not outside:
            return
        totals = []
        for scope, found in zip(self.opened[node], inner, strict=True):
            total = Tuple([found[part].total(part.type) if part in found else zeros(part.type) for part in outside])
            totals.append(self._computed_again(total, scope, before))
        chosen = If(node.condition, totals[0], totals[1], node.span)
        for index, part in enumerate(outside):
            self._give(part, TupleGetItem(chosen, index), given)

    def _computed_again(self, total: Expr, scope: Scope, before: int) -> Expr:
        """Return ``total`` with copies of the branch's own expressions: what two branches share would be computed
        before both, whether they are taken or not. So the branch of the backward step computes again what it needs."""
        own = self._members_within(scope)
        known = _Outside(self.made, own, before)
        if total in known:
            return total
        done: dict[Expr, Expr] = {}
        for node in post_order(total, known=known, children_of=children_outside_groups):
            parts = node.children
            new = [done.get(part, part) for part in parts]
            changed = any(a is not b for a, b in zip(parts, new, strict=True))
            copied = node in own and bool(parts) and not is_atom(node)
            done[node] = node.with_children(new) if changed or copied else node
        return done[total]

    def _members_within(self, scope: Scope) -> set[Expr]:
        """Return the expressions of a scope and of those inside of it."""
        found: set[Expr] = set()
        waiting = [scope]
        while waiting:
            for node in self.members.get(waiting.pop(), ()):
                found.add(node)
                waiting.extend(self.opened.get(node, ()))
        return found


class _Outside:
    """The expressions that were made before a branch, but for the branch's own."""

    def __init__(self, made: Mapping[Expr, int], own: set[Expr], before: int) -> None:
        self._made, self._own, self._before = made, own, before

    def __contains__(self, node: object) -> bool:
        return node not in self._own and self._made.get(node, self._before) < self._before  # type: ignore[call-overload]


def _has_type(made: object, expected: Type | None) -> bool:
    if not isinstance(made, Expr):
        return False
    found = made.type
    if isinstance(found, TensorType) and isinstance(expected, TensorType):
        return found.dtype is expected.dtype and shape_equal(found.shape, expected.shape)
    return found == expected


def check_rules(order: Iterable[Expr]) -> None:
    """Check that each expression that cotangents pass has a gradient.

    Raises:
        UnsupportedOperatorError: some have none; the message lists them, and where they come from.
    """
    missing: dict[str, list[str]] = {}
    for node in order:
        what = _without_rule(node)
        if what is not None:
            places = missing.setdefault(what, [])
            place = node.span or summary(node)
            if place not in places:
                places.append(place)
    if missing:
        raise UnsupportedOperatorError(f"no gradient of {'; '.join(_listed(what, missing) for what in missing)}")


#: The number of places that an error lists for one operator.
_MOST_PLACES = 4


def _listed(what: str, missing: Mapping[str, Sequence[str]]) -> str:
    places = missing[what]
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return f"{what} (in {', '.join(places[:_MOST_PLACES])}{more})"


def _without_rule(node: Expr) -> str | None:
    """Return what about an expression has no gradient; None: it has one."""
    if isinstance(node, Call):
        if isinstance(node.op, Operator):
            return None if node.op.name in GRADIENTS else node.op.name
        return f"a call of {f'@{node.op.name}' if isinstance(node.op, GlobalVar) else 'a function'}"
    return "a loop" if isinstance(node, Loop) else None  # a function is its user's matter
