"""Find the smallest graph for which a predicate holds: delta debugging over the graph-level IR.

The graph is halved before single operators are tried: first from its end (a prefix of its operators, in order of
evaluation, whose unused values are the results), then chunk by chunk of the rest, from all of it to single operators
(ddmin, Zeller and Hildebrandt 2002: Simplifying and Isolating Failure-Inducing Input). A chunk is left out by turning
its values into parameters or constants, or by replacing its operators by their arguments; a single operator also by
turning its operands into results. Finally constants become parameters, and the sizes of dimensions are reduced.

If one operator among ``n`` suffices, this takes about ``log2(n)`` evaluations of the predicate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.expr import Expr, Function
from tilewright.graphir.interpreter import evaluate_parts
from tilewright.graphir.module import IRModule
from tilewright.graphir.structural import structural_hash
from tilewright.graphir.verify import verify
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.passes.first_wrong import first_wrong
from tilewright.passes.graph import InferType, InlineFunctions, ToGraphNormalForm
from tilewright.runtime.observe.numeric.candidates import PARAMETER, Candidate, Form, Graph, is_value_type, with_main
from tilewright.runtime.observe.numeric.shrink import smaller_sizes
from tilewright.tensorir.errors import TilewrightError

#: Whether a module, run on the values of its parameters in order (None if they are not known), is interesting.
Question = Callable[[IRModule, "tuple[Any, ...] | None"], bool]


class MinimizeError(TilewrightError):
    """The predicate does not hold for the module, or the module cannot be made smaller."""


@dataclasses.dataclass(frozen=True)
class Minimized:
    """The smallest graph that was found.

    Attributes:
        module: the smallest module.
        inputs: the values of its parameters by name; None if none were given.
        questions: number of evaluations of the predicate.
        origin: for each operator of ``main`` the corresponding one of ``whole``; empty if sizes were reduced.
        whole: the given module after initial simplifications: functions inlined, lets resolved.
    """

    module: IRModule
    inputs: dict[str, Any] | None
    questions: int
    origin: Mapping[Expr, Expr]
    whole: IRModule


def minimize(mod: IRModule | Function, predicate: Callable[[IRModule], Any], *, shapes: bool = True) -> IRModule:
    """Find the smallest form of ``mod``, in operators, for which ``predicate`` still holds.

    ::

        small = tw.minimize(mod, lambda mod: "nn.softmax" in str(FuseOps()(mod)))

    Args:
        mod: a module with a graph function ``main``, or the function. Calls of loop-level functions count as
            operators; in place of a ``main`` of loop nests, minimize the graph that it was lowered from.
        predicate: called with smaller modules, which have types and pass :func:`graphir.verify`. An exception counts as
            false. It must return the same for equal modules.
        shapes: whether to make dimensions and constants smaller, too.

    Returns:
        a module for which ``predicate`` was true. Operators that were left out may have become parameters, so the
        parameters of ``main`` may differ; :func:`minimize_with_inputs` also returns values for them.

    Raises:
        MinimizeError: ``predicate`` is false for ``mod``, or ``mod`` has no graph function ``main``.
        Exception: what ``predicate`` raises for ``mod`` itself.
    """
    return minimize_values(mod, lambda module, _: bool(predicate(module)), None, {}, shapes).module


def minimize_with_inputs(
    mod: IRModule | Function,
    predicate: Callable[[IRModule, dict[str, Any]], Any],
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    sizes: Mapping[str, int] | None = None,
    shapes: bool = True,
) -> Minimized:
    """Minimize as :func:`minimize` does, with inputs for every smaller module: a value that is no longer computed is a
    parameter, whose input is the value that it had.

    Args:
        predicate: called with a module and the inputs of its ``main`` by name.
        inputs: the inputs of ``mod``, by name or in order.
        sizes: sizes of symbolic dimensions that no parameter determines.

    Raises:
        MinimizeError, Exception: as :func:`minimize`.
        InputError: the inputs do not fit.
    """

    def question(module: IRModule, values: tuple[Any, ...] | None) -> bool:
        return bool(predicate(module, named_inputs(module, values or ())))

    given = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    main = _main(given)
    values = [inputs[p.name] for p in main.params] if isinstance(inputs, Mapping) else list(inputs)
    return minimize_values(given, question, tuple(values), sizes or {}, shapes)


def named_inputs(module: IRModule, values: Sequence[Any]) -> dict[str, Any]:
    """Return the values of ``main``'s parameters by name."""
    return {param.name: value for param, value in zip(_main(module).params, values, strict=True)}


def _main(mod: IRModule) -> Function:
    main = mod["main"]
    if not isinstance(main, Function):
        raise MinimizeError("main is a function of loop nests; make the graph smaller that it was made of")
    return main


def minimize_values(
    mod: IRModule | Function,
    question: Question,
    values: tuple[Any, ...] | None,
    sizes: Mapping[str, int],
    shapes: bool,
) -> Minimized:
    """Minimize as :func:`minimize_with_inputs` does, with inputs in order, or without inputs (None)."""
    if isinstance(mod, Function):
        mod = IRModule.from_expr(mod)
    main = _main(mod)
    asked = _Asked(question, _is_valid(mod))
    if not question(mod, values):
        raise MinimizeError("the predicate is false for the given module already, so nothing smaller can be looked for")
    best = Candidate(with_main(mod, main), values, {})
    if len(best.module) != len(mod) and not asked(best):
        best = Candidate(mod, values, {})
    for step in (InferType(), InlineFunctions(), ToGraphNormalForm()):
        best = _simplified(best, step, asked)
    whole = best.module
    best = _Reduction(best, sizes, asked).run()
    if shapes:
        module, given = smaller_sizes(best.module, best.inputs, lambda m, v: asked(Candidate(m, v, {})))
        best = Candidate(module, given, best.origin if module is best.module else {})
    inputs = None if best.inputs is None else named_inputs(best.module, best.inputs)
    return Minimized(best.module, inputs, asked.count, best.origin, whole)


def _is_valid(mod: IRModule) -> bool:
    try:
        verify(mod)
    except TilewrightError:
        return False
    return True


def _simplified(best: Candidate, step: Pass, asked: _Asked) -> Candidate:
    """Run a pass on the module, and keep the result if the predicate still holds."""
    try:
        with PassContext(opt_level=0):
            module = step(best.module)
    except TilewrightError:
        return best
    made = Candidate(module, best.inputs, {})
    return made if module is not best.module and len(_main(module).params) and asked(made) else best


class _Asked:
    """Evaluate the predicate, once for each module."""

    def __init__(self, question: Question, valid: bool) -> None:
        self._question = question
        self._valid = valid
        self._denied: set[int] = set()
        self.count = 1

    def __call__(self, candidate: Candidate) -> bool:
        module = candidate.module
        if self._valid and not _is_valid(module):
            return False
        key = structural_hash(module)
        if key in self._denied:
            return False
        self.count += 1
        try:
            found = self._question(module, candidate.inputs)
        except Exception:  # a problem of the reduced module, other than the one that is searched for
            found = False
        if not found:
            self._denied.add(key)
        return found


class _Reduction:
    """Search for the smallest form of one graph."""

    def __init__(self, given: Candidate, sizes: Mapping[str, int], asked: _Asked) -> None:
        self.asked = asked
        self.best = given
        self.graph = Graph(given.module, _values(given, sizes))
        self.cuttable = set(self.graph.operators)
        self.form = self.graph.full()

    def run(self) -> Candidate:
        """Return the smallest candidate."""
        body = self.graph.main.body
        if is_value_type(body.type) and self.try_(Form((body,), {body: PARAMETER})):
            return self.best  # the predicate holds for any graph
        self.shorter()
        self.fewer_roots()
        before, left = -1, len(self.graph.reached(self.form))
        while left != before:
            self.leave_out()
            self.fewer_roots()
            self.detach()
            before, left = left, len(self.graph.reached(self.form))
        self.constants()
        return self.best

    def try_(self, form: Form) -> bool:
        """Evaluate the predicate for a form; if it holds, the form becomes the best so far."""
        try:
            candidate = self.graph.build(form)
        except (TilewrightError, TypeError, ValueError):
            return False
        if not self.asked(candidate):
            return False
        self.form, self.best = form, candidate
        return True

    # From the end.

    def shorter(self) -> None:
        """Find the shortest prefix of the operators."""
        count = len(self.graph.operators)
        if count and self.try_(self.prefix(count)):
            first_wrong(count, lambda shorter: self.try_(self.prefix(shorter)) or None, True)

    def prefix(self, count: int) -> Form:
        """Return the form of the first ``count`` operators; its results are the values that none of them uses."""
        return Form(tuple(self.graph.unused(self.graph.operators[:count])))

    def fewer_roots(self) -> None:
        """Keep a single result, the last if that suffices, or a few."""
        roots = self.form.roots
        if len(roots) == 1:
            return
        for root in reversed(roots):
            if self.try_(dataclasses.replace(self.form, roots=(root,))):
                return
        for root in roots:
            left = tuple(other for other in self.form.roots if other is not root)
            if left:
                self.try_(dataclasses.replace(self.form, roots=left))

    # From the beginning, and in between.

    def cut(self, form: Form, nodes: Sequence[Expr], how: str | None = None) -> Form:
        """Replace ``nodes`` in ``form`` by given values, and drop everything that is no longer needed."""
        chosen = {node: how or self.graph.how_to_cut(node) for node in nodes if node not in form.roots}
        return dataclasses.replace(form, cut={**form.cut, **chosen})

    def leave_out(self) -> None:
        """Leave out chunks of operators, from large ones to single ones."""
        size = len(self.graph.reached(self.form))
        while size >= 1:
            left = self.graph.reached(self.form)
            for end in range(len(left), 0, -size):  # from the end: operators that only the chunk needs go, too
                present = set(self.graph.reached(self.form))
                chunk = [node for node in left[max(0, end - size) : end] if node in present]
                if chunk and not self.cut_chunk(chunk):
                    self.bypass_chunk(chunk)
            size //= 2

    def cut_chunk(self, chunk: Sequence[Expr]) -> bool:
        """Replace the operators of a chunk by their values."""
        chunk = [node for node in chunk if node in self.cuttable and node not in self.form.roots]
        if not chunk:
            return False
        if self.try_(self.cut(self.form, chunk)):
            return True
        constant = any(self.graph.how_to_cut(node) != PARAMETER for node in chunk)
        return constant and self.try_(self.cut(self.form, chunk, PARAMETER))

    def bypass_chunk(self, chunk: Sequence[Expr]) -> bool:
        """Replace the operators of a chunk by their arguments."""
        choices = {node: found for node in chunk if (found := self.graph.alternatives(node))}
        if not choices or (len(chunk) > 1 and len(choices) < 2):
            return False
        count = max(map(len, choices.values())) if len(choices) == 1 else 1
        for number in range(count):
            taken = {node: found[number] for node, found in choices.items()}
            roots = tuple(_followed(root, {**self.form.bypassed, **taken}) for root in self.form.roots)
            if self.try_(Form(roots, self.form.cut, {**self.form.bypassed, **taken})):
                return True
        return False

    def detach(self) -> None:
        """Leave out single operators between needed ones: their operands become results."""
        for node in reversed(self.graph.reached(self.form)):
            roots = self.form.roots
            operands = [operand for operand in self.graph.operands(node, self.form) if operand not in roots]
            if node in roots:
                others = (*(root for root in roots if root is not node), *operands)
                if others:
                    self.try_(dataclasses.replace(self.form, roots=others))
            elif operands and node in self.cuttable and node in self.graph.reached(self.form):
                self.try_(self.cut(dataclasses.replace(self.form, roots=(*roots, *operands)), [node]))

    def constants(self) -> None:
        """Turn long constants into parameters."""
        left = self.graph.reached_constants(self.form)
        if left and not self.try_(self.cut(self.form, left)):
            for node in left:
                self.try_(self.cut(self.form, [node]))


def _followed(node: Expr, bypassed: Mapping[Expr, Expr]) -> Expr:
    while node in bypassed:
        node = bypassed[node]
    return node


def _values(given: Candidate, sizes: Mapping[str, int]) -> Mapping[Expr, Any] | None:
    """Compute the values of all expressions of a module on its inputs, if it has inputs."""
    if given.inputs is None:
        return None
    with np.errstate(all="ignore"):
        return evaluate_parts(_main(given.module), given.inputs, given.module, None, sizes)
