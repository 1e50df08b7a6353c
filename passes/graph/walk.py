"""Walk and rewrite graphs with their let variables and the functions inside a function, for graph passes."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

import numpy as np

from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Var
from tilewright.graphir.keys import KIND, PRIMITIVE
from tilewright.graphir.op import Operator
from tilewright.graphir.visitor import is_recursive, post_order, recursion
from tilewright.tensorir.errors import VerifyError

Transform = Callable[[Expr], Expr]


def never(_: Expr) -> bool:
    """Keep every let: an ``inline`` argument of ``rewrite_graph``."""
    return False


def always(_: Expr) -> bool:
    """Replace every let variable by its value, shared by its users: an ``inline`` argument of ``rewrite_graph``."""
    return True


def rewrite_graph(
    root: Expr,
    transform: Transform,
    inline: Callable[[Expr], bool] = never,
    done: dict[Expr, Expr] | None = None,
) -> Expr:
    """Rebuild ``root`` bottom-up, nested functions included, in linear time and without recursion.

    The expressions that ``transform`` makes take over the source span of the expression that they replace.

    Args:
        transform: called once for each expression except variables, with its operands rewritten already; returns the
            replacement.
        inline: called with the rewritten value of each ``Let``: whether to replace the variable by it everywhere.
        done: expressions that are rewritten already, with their replacements; they are not entered.

    Raises:
        VerifyError: a let is recursive.
    """
    done = {} if done is None else done
    return done[root] if root in done else _rewrite(root, post_order(root, known=done), transform, inline, done)


def rewrite_body(
    function: Function,
    transform: Transform,
    inline: Callable[[Expr], bool] = never,
    done: dict[Expr, Expr] | None = None,
) -> Function:
    """Rebuild the body of ``function`` as :func:`rewrite_graph` does; return ``function`` itself if nothing changes."""
    if done:
        return function.with_body(rewrite_graph(function.body, transform, inline, done))
    order = post_order(function)  # which is kept with the function
    order.pop()
    return function.with_body(_rewrite(function.body, order, transform, inline, {}))


def _rewrite(
    root: Expr, order: list[Expr], transform: Transform, inline: Callable[[Expr], bool], done: dict[Expr, Expr]
) -> Expr:
    lets = {node.var: node for node in order if type(node) is Let} if Let in map(type, order) else {}
    settled: set[Expr] = {*done, *done.values()}  # expressions that transform has not just made,
    settled_nodes = 0  # those of so many in `order` included
    inlined: set[Expr] = set()  # variables; the value of one may be a variable, too
    changed = bool(done)  # until something is, there are no operands to replace
    rest = enumerate(order)
    if not changed and not lets:  # most passes change few functions
        for number, node in rest:
            if type(node) is Var:
                continue
            made = transform(node)
            if made is not node:
                same = order[:number]
                done.update(zip(same, same, strict=True))
                done[node] = made
                changed = True
                if node.span is not None:
                    settled.update(same)
                    settled_nodes = number
                    place(made, node.span, settled)
                break
        else:
            return root
    for number, node in rest:
        kind = type(node)
        if kind is Var:
            done[node] = node
            let = lets.get(node)  # type: ignore[call-overload]  # it is a Var
            if let is None:
                continue
            value = done.get(let.value)
            if value is None:
                if is_recursive(let):
                    raise VerifyError(recursion(let))
            elif inline(value):
                done[node] = value
                inlined.add(node)
                changed = True
            continue
        new = node
        if changed:
            if kind is Let and node.var in inlined:  # type: ignore[attr-defined]  # it is a Let
                done[node] = done[node.body]  # type: ignore[attr-defined]
                continue
            children = node.children
            for child in children:
                if done[child] is not child:
                    new = node.with_children([done[part] for part in children])
                    break
        made = done[node] = transform(new)
        if made is not new:
            changed = True
            if node.span is not None:
                for other in order[settled_nodes:number]:
                    settled.update((other, done[other]))
                settled_nodes = number
                place(made, node.span, settled)
    return done[root]


def place(made: Expr, span: str, settled: Container[Expr]) -> None:
    """Set ``span`` on the new expressions in ``made``; do not enter expressions in ``settled``."""
    for new in post_order(made, known=settled) if made not in settled else ():
        if new.span is None and not is_atom(new):
            object.__setattr__(new, "span", span)


def is_atom(node: Expr) -> bool:
    """Return whether an expression computes nothing."""
    return isinstance(node, (Var, Constant, GlobalVar))


def is_primitive(node: object) -> bool:
    """Return whether ``node`` is a fused group of operators."""
    return isinstance(node, Function) and bool(node.attrs.get(PRIMITIVE))


def children_outside_groups(node: Expr) -> tuple[Expr, ...]:
    """The operands of an expression; none for a fused group, which is not entered."""
    return () if isinstance(node, Function) and node.attrs.get(PRIMITIVE) else node.children


def order_outside_groups(function: Function) -> list[Expr]:
    """Return the expressions below the body of ``function`` in post order; fused groups are not entered. Parameters
    that nothing uses may be among them."""
    whole = post_order(function)  # which is kept with the function
    whole.pop()
    if {*map(type, whole)}.isdisjoint((Function, If, Loop, Let)):
        return whole
    return post_order(function.body, children_of=children_outside_groups)


def has_control_flow(order: Sequence[Expr]) -> bool:
    """Return whether ``order``, walked by :func:`children_outside_groups`, holds branches, loops, lets or calls of
    functions: then the linearization decides where each value is computed."""
    kinds = {*map(type, order)}
    if kinds.isdisjoint((If, Loop, Let)):
        return Function in kinds and any(type(node) is Function and not is_primitive(node) for node in order)
    return True


def is_operator_call(node: Expr) -> bool:
    """Return whether ``node`` calls an operator (rather than a function)."""
    return isinstance(node, Call) and isinstance(node.op, Operator)


def with_effects(order: Iterable[Expr], functions: bool = False) -> set[Expr]:
    """Return the expressions in ``order``, a post order, that contain a call of an impure operator.

    Args:
        functions: whether to count every call of a function of the module as impure; such functions are not entered.
    """
    found: set[Expr] = set()
    for node in order:
        effect = isinstance(node, Call) and isinstance(node.op, Operator) and not node.op.pure
        effect = effect or (functions and isinstance(node, Call) and isinstance(node.op, GlobalVar))
        if effect or (found and any(child in found for child in node.children)):
            found.add(node)
    return found


def nested_functions(root: Function) -> list[Function]:
    """Return the functions inside ``root`` except fused groups, inner ones first, and ``root`` last."""
    below = post_order(root)
    below.pop()
    if Function not in map(type, below):
        return [root]
    functions = [node for node in below if type(node) is Function]
    if not any(map(is_primitive, functions)):
        return [*functions, root]

    def children(node: Expr) -> Iterable[Expr]:
        return () if node is not root and is_primitive(node) else node.children

    order = post_order(root, children_of=children)
    return [node for node in order if isinstance(node, Function) and (node is root or not is_primitive(node))]


def map_functions(root: Function, transform: Callable[[Function], Function]) -> Function:
    """Apply ``transform`` to each function inside ``root`` except fused groups, inner ones first, then to ``root``.

    ``transform`` sees functions whose nested functions are transformed already and need not enter those.
    """
    replaced: dict[Expr, Expr] = {}
    for function in nested_functions(root):
        rebuilt = rewrite_graph(function, identity, done=dict(replaced)) if replaced else function
        assert isinstance(rebuilt, Function)
        replaced[function] = transform(rebuilt)
    result = replaced[root]
    assert isinstance(result, Function)
    return result


def identity(node: Expr) -> Expr:
    """Return ``node``: a ``transform`` for ``rewrite_graph`` by which only ``done`` expressions change."""
    return node


def inner_constant(arg: Expr, op: Operator) -> Expr | None:
    """Return the expression for an argument of ``op`` inside of a fused group: a constant of one element itself, and
    ``full`` for one that repeats an element, where the operator reads each element a few times only; None: the argument
    is a parameter of the group."""
    if not isinstance(arg, Constant):
        return None
    if arg.size == 1:
        return arg
    element = arg.splat
    if element is None or op.kind in ("contraction", "opaque"):
        return None
    fill = element.item()
    # As attributes these numbers are equal to others, or not to themselves.
    if fill != fill or (fill == 0 and np.signbit(float(fill))):
        return None
    return Call("full", (), {"shape": arg.type.shape, "fill": fill, "dtype": arg.dtype})


def as_group(call: Call) -> tuple[Function, Sequence[int]]:
    """Wrap an operator call in a group: return the function, and the positions of the arguments that it takes."""
    assert isinstance(call.op, Operator)
    params: list[Var] = []
    args: list[Expr] = []
    places: list[int] = []
    inner: list[Expr] = []
    for number, arg in enumerate(call.args):
        constant = inner_constant(arg, call.op)
        if constant is not None:
            inner.append(constant)
            continue
        if arg in args:
            inner.append(params[args.index(arg)])
            continue
        places.append(number)
        param = Var(call.op.argument_name(number).replace("[", "_").replace("]", ""), arg.type)
        params.append(param)
        args.append(arg)
        inner.append(param)
    body = Call(call.op, inner, call.attrs, call.type, call.span)
    return Function(params, body, attrs={PRIMITIVE: True, KIND: call.op.kind}), places
