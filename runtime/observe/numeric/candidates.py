"""Make smaller forms of a graph, each directly from the original graph.

A form (:class:`Form`) defines the results, which values are given instead of computed (cut), and which operators are
replaced by one of their arguments (bypassed). A value that is cut becomes a parameter of its type, so that any set of
operators may be left out and the rest still has types. A value that depends on no parameter becomes a constant, because
passes treat constants specially.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.analysis import called_names
from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.interpreter import evaluate_parts
from tilewright.graphir.module import IRModule
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.graphir.visitor import free_vars, post_order
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.stmt import PrimFunc

#: The replacements of a value that is cut.
PARAMETER, CONSTANT = "parameter", "constant"


@dataclasses.dataclass(frozen=True)
class Form:
    """A smaller form of a graph, in terms of the graph's own expressions.

    Attributes:
        roots: the results.
        cut: values that are given, each as a parameter or as a constant.
        bypassed: replacements of operators that are bypassed.
    """

    roots: tuple[Expr, ...]
    cut: Mapping[Expr, str] = dataclasses.field(default_factory=dict)
    bypassed: Mapping[Expr, Expr] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A form as a module.

    Attributes:
        module: the module; its ``main`` has the parameters that are needed.
        inputs: the values of the parameters in order, where values are known; else None.
        origin: for each expression of ``main`` the corresponding one of the graph.
    """

    module: IRModule
    inputs: tuple[Any, ...] | None
    origin: Mapping[Expr, Expr]


class Graph:
    """The ``main`` of a module, and the parts that may be left out of it.

    Args:
        mod: its ``main`` is a graph function.
        values: of the expressions in ``main`` that are computed outside of nested functions, if inputs are known.
    """

    def __init__(self, mod: IRModule, values: Mapping[Expr, Any] | None = None) -> None:
        main = mod["main"]
        assert isinstance(main, Function)
        self.mod = mod
        self.main = main
        self.order = post_order(main.body)
        self._inner = self._in_functions()
        self._varying = self._depending({*main.params, *self._inner})
        #: The operators that may be cut, in order of evaluation.
        self.operators = [node for node in self.order if is_operator(node) and self._is_cuttable(node)]
        #: All operators, including those of nested functions, which may be bypassed.
        self.everywhere = [node for node in self.order if is_operator(node)]
        self.has_inputs = values is not None
        self.values = self._constant_values() if values is None else values

    def _in_functions(self) -> set[Expr]:
        """List the expressions that depend on a variable bound inside of ``main``."""
        found: set[Expr] = set()
        for node in self.order:
            found.update(node.bound)
        for node in self.order:
            # A function, or a let, binds its own variables; expressions that depend on variables of an enclosing one
            # are inside that one and are found there.
            if not isinstance(node, (Function, Let)) and any(child in found for child in node.children):
                found.add(node)
        return found

    def _depending(self, sources: set[Expr]) -> set[Expr]:
        found = set(sources)
        for node in self.order:
            if any(child in found for child in node.children):
                found.add(node)
        return found

    def _is_cuttable(self, node: Expr) -> bool:
        return node not in self._inner and is_value_type(node.type)

    def _constant_values(self) -> dict[Expr, Any]:
        """Compute the values of the operators that depend on no parameter."""
        known = [node for node in self.operators if node not in self._varying]
        try:
            with np.errstate(all="ignore"):
                return evaluate_parts(Function((), Tuple(known)), (), self.mod) if known else {}
        except Exception:  # an operator's reference rejects its arguments: the values become parameters
            return {}

    def full(self) -> Form:
        """Return the whole graph as a form."""
        return Form((self.main.body,))

    def how_to_cut(self, node: Expr) -> str:
        """Return the replacement of ``node`` if it is cut: a constant where it depends on no parameter."""
        if isinstance(node, Constant) or node in self._varying or not isinstance(node.type, TensorType):
            return PARAMETER
        return CONSTANT if isinstance(self.values.get(node), np.ndarray) else PARAMETER

    def alternatives(self, node: Expr) -> list[Expr]:
        """List the parts of ``node`` that may replace it: those of its type."""
        parts: Iterable[Expr] = node.children
        if isinstance(node, Call):
            parts = node.args
        elif isinstance(node, If):
            parts = (node.then_branch, node.else_branch)
        elif isinstance(node, Loop):
            parts = (Tuple((*node.initial, *node.collect)),)
        return [part for part in dict.fromkeys(parts) if part.type is not None and part.type == node.type]

    def reached(self, form: Form) -> list[Expr]:
        """List the operators of a form, in order of evaluation."""
        nodes = post_order(*form.roots, children_of=lambda node: _children(node, form))
        return [node for node in nodes if is_operator(node) and node not in form.cut and node not in form.bypassed]

    def operands(self, node: Expr, form: Form) -> list[Expr]:
        """List the operators of a form whose results an operator takes and that may be results of the graph."""
        found: dict[Expr, None] = {}
        stack = list(_children(node, form))
        while stack:
            child = stack.pop()
            if is_operator(child) and child not in form.cut and child not in form.bypassed:
                if self._is_cuttable(child):
                    found[child] = None
            else:
                stack.extend(_children(child, form))
        return list(reversed(found))

    def reached_constants(self, form: Form) -> list[Expr]:
        """List the constants of a form with more than one element, without those of nested functions."""
        functions = [f for f in self.order if isinstance(f, Function)]
        inside = set(post_order(*(function.body for function in functions))) if functions else set()
        nodes = post_order(*form.roots, children_of=lambda node: _children(node, form))
        return [n for n in nodes if isinstance(n, Constant) and n.data.size > 1 and n not in inside]

    def unused(self, operators: Sequence[Expr]) -> list[Expr]:
        """List those of ``operators`` whose results none of them uses."""
        seen: set[Expr] = set()
        stack = [child for node in operators for child in node.children]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                if not is_operator(node):
                    stack.extend(node.children)
        return [node for node in operators if node not in seen]

    def build(self, form: Form) -> Candidate:
        """Make the module of a form.

        Raises:
            TilewrightError, TypeError, ValueError: the form has no types.
        """
        nodes = post_order(*form.roots, children_of=lambda node: _children(node, form))
        done: dict[Expr, Expr] = {}
        fresh: dict[Var, Any] = {}
        names = {param.name for param in self.main.params}
        for node in nodes:
            done[node] = self._rebuild(node, form, done, fresh, names)
        results = [done[root] for root in form.roots]
        body = results[0] if len(results) == 1 else Tuple(results)
        used = free_vars(body)
        old = [param for param in self.main.params if param in used]
        params = [*old, *(var for var in used if var not in old)]
        function = Function(params, body, attrs=self.main.attrs)
        inputs = None
        if self.has_inputs:
            inputs = tuple(fresh[param] if param in fresh else self.values[param] for param in params)
        module = with_main(self.mod, function)
        origin = {new: old for old, new in done.items() if not isinstance(new, Constant)}
        return Candidate(module, inputs, origin)

    def _rebuild(
        self, node: Expr, form: Form, done: Mapping[Expr, Expr], fresh: dict[Var, Any], names: set[str]
    ) -> Expr:
        how = form.cut.get(node)
        if how is None and isinstance(node, TupleGetItem) and node.value in form.cut:
            how = PARAMETER  # one tensor rather than the tuple
        if how == CONSTANT:
            return Constant(np.array(self.values[node], order="C"), node.span)
        if how == PARAMETER:
            name = next(name for number in range(len(names) + 1) if (name := f"value_{number}") not in names)
            names.add(name)
            variable = Var(name, node.type)
            fresh[variable] = self._value(node)
            return variable
        replaced = form.bypassed.get(node)
        if replaced is not None:
            return done[replaced]
        children = node.children
        new = [done[child] for child in children]
        if all(a is b for a, b in zip(new, children, strict=True)):
            return node
        return node.with_children(new)

    def _value(self, node: Expr) -> Any:
        if not self.has_inputs:
            return None
        if node in self.values:
            return self.values[node]
        if isinstance(node, TupleGetItem) and node.value in self.values:
            return self.values[node.value][node.index]
        if isinstance(node, Constant):
            return node.data
        raise VerifyError("the value of an operator in a branch that was not taken is not known")


def _children(node: Expr, form: Form) -> Sequence[Expr]:
    if node in form.cut or (isinstance(node, TupleGetItem) and node.value in form.cut):
        return ()
    replaced = form.bypassed.get(node)
    return node.children if replaced is None else (replaced,)


def is_operator(node: Expr) -> bool:
    """Return whether an expression counts when a graph is minimized: it computes something or controls what is
    computed."""
    return isinstance(node, (Call, If, Loop, Let))


def is_value_type(found: Type | None) -> bool:
    """Return whether ``found`` is a type of tensors, which a parameter may have."""
    if isinstance(found, TupleType):
        return all(map(is_value_type, found.fields))
    return isinstance(found, TensorType)


def with_main(mod: IRModule, main: Function) -> IRModule:
    """Replace the ``main`` of ``mod``, and drop functions that are no longer needed."""
    key = mod.get_global_var("main")
    needed = {key.name}
    pending: list[Any] = [main]
    while pending:
        function = pending.pop()
        if isinstance(function, PrimFunc):
            called = [name for name in called_names(function.body) if name not in needed and name in mod]
            needed.update(called)
            pending.extend(mod[name] for name in called)
            continue
        for node in post_order(function):
            named = node.op if isinstance(node, Call) else node
            if isinstance(named, GlobalVar) and named.name not in needed and named in mod:
                needed.add(named.name)
                pending.append(mod[named])
    unneeded = [other for other in mod.functions if other.name not in needed]
    return mod.without(unneeded).with_functions({key: main})
