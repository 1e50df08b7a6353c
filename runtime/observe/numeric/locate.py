"""Find the operator, the element and the smallest graph that show the failure of a pass.

The search minimizes the last graph whose operators are not fused yet, together with the passes that ran on it since.
Where there are kernels both before and after the pass, the faulty one is found first: each kernel of the module after
the pass gets the inputs that the same call read before the pass. The graph is then cut around the operators of this
kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.expr import Call, Expr, Function, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.printer import summary
from tilewright.graphir.visitor import call_nodes
from tilewright.passes.base import Pass
from tilewright.runtime.observe.numeric.candidates import Form, Graph, is_operator
from tilewright.runtime.observe.numeric.compare import Mismatch, Tolerance, default_tolerance, mismatch
from tilewright.runtime.observe.numeric.evaluate import (
    GRAPH,
    KERNELS,
    Array,
    Evaluator,
    GraphFacts,
    Inputs,
    kind_of,
    random_inputs,
)
from tilewright.runtime.observe.numeric.failure import Failure
from tilewright.runtime.observe.numeric.minimize import Minimized, minimize_values, named_inputs
from tilewright.runtime.observe.numeric.program import Step
from tilewright.runtime.observe.numeric.reference import make_reference
from tilewright.runtime.observe.numeric.replay import Problem, Replay, same_kind
from tilewright.runtime.observe.numeric.shrink import smaller_sizes
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.stmt import PrimFunc

#: Seeds to try for inputs that show the failure too, so that the file need not hold the model's own.
_SEEDS = 8

#: Maximum number of input elements for which the interpreter of loop nests is run.
_INTERPRETED = 4096


@dataclasses.dataclass(frozen=True)
class Suspect:
    """A pass after which a module is wrong.

    Attributes:
        step: the pass, if it is available.
        name: name of the pass.
        before: the pass's input module.
        after: the pass's output module.
        problem: the problem of ``after``.
        inputs: the inputs of both modules.
        facts: facts about the graph that they were lowered from.
        flat: the last graph without fused groups: ``before`` or an earlier one.
        since: the passes that changed the module from ``flat`` to ``before``.
        wrong: the names of passes up to ``before`` that are wrong themselves; then there is no ``flat``.
    """

    step: Pass | None
    name: str
    before: IRModule
    after: IRModule
    problem: Problem
    inputs: Inputs
    facts: GraphFacts | None
    flat: IRModule | None
    since: tuple[Pass, ...]
    wrong: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Shown:
    """The smallest module that shows a failure.

    Attributes:
        module, inputs: the module, and the values of its parameters.
        passes: the passes that make it wrong.
        seed: seed of :func:`random_inputs` if random inputs show the failure, too.
    """

    module: IRModule
    inputs: Inputs
    passes: tuple[Pass, ...]
    seed: int | None


def locate(suspect: Suspect, replay: Replay, make_smaller: bool = True) -> tuple[Failure, Shown | None]:
    """Describe the failure, and find the smallest module that shows it, if there is one.

    Args:
        make_smaller: whether to search for the smallest module.
    """
    problem = suspect.problem
    found = Failure(
        suspect.name,
        result=problem if isinstance(problem, Mismatch) else None,
        error=None if isinstance(problem, Mismatch) else f"{type(problem).__name__}: {problem}".partition("\n")[0],
    )
    step = wrong_kernel(suspect, replay)
    if step is not None:
        number, off = step
        made = number.origins
        text = ", ".join(f"{o.operator}{f' ({o.label})' if o.label else ''}" for o in made)
        found = dataclasses.replace(found, function=number.kernel, element=off, operator=text)
    if not make_smaller or suspect.step is None:
        return found, None
    if suspect.flat is None and kind_of(suspect.before) != GRAPH:
        note = "no smaller graph is looked for: the graph that it was made of is not known"
        if suspect.wrong:
            note = f"no smaller graph is looked for: passes before it are wrong too ({', '.join(suspect.wrong)})"
        return dataclasses.replace(found, note=note), None
    reasons: list[str] = []
    smaller = _smaller(suspect, replay, None if step is None else step[0], reasons)
    if smaller is None:
        note = "the failure does not show again where the passes run a second time"
        note = "; ".join([note, *dict.fromkeys(reasons)])
        return dataclasses.replace(found, note=note), None
    whole, small, passes = smaller
    found = _named(found, small, whole, passes, replay)
    shown = _shown(small, passes, replay, suspect.problem)
    found = dataclasses.replace(found, minimized=shown.module, inputs=_by_name(shown))
    innocent = other_culprit(shown, replay)
    if innocent is not None:
        note = (
            f"found after pass {suspect.name}, whose loop nests the interpreter finds right; {innocent} made code of it"
        )
        found = dataclasses.replace(found, pass_name=innocent, note=note)
    return found, shown


def _by_name(shown: Shown) -> dict[str, Any]:
    return named_inputs(shown.module, shown.inputs.values)


# The kernel.


def wrong_kernel(suspect: Suspect, replay: Replay) -> tuple[Step, Mismatch] | None:
    """Find the first call of a kernel that gives other results after the pass than before it for the same arguments,
    and its worst element; None where there are no such kernels."""
    kinds = {kind_of(suspect.before), kind_of(suspect.after)}
    if kinds != {KERNELS}:
        return None
    evaluator = replay.evaluator
    try:
        _, before = evaluator.run_kernels(suspect.before, suspect.inputs)
        _, after = evaluator.run_kernels(suspect.after, suspect.inputs, before)
    except TilewrightError:  # the error names the kernel that does not run
        return None
    if [step.kernel for step in before] != [step.kernel for step in after]:
        return None
    for right, wrong in zip(before, after, strict=True):
        for number, (expected, made) in enumerate(zip(right.outputs, wrong.outputs, strict=True)):
            off = mismatch(number, made, expected, value_tolerance(expected))
            if off is not None:
                return wrong, off
    return None


def value_tolerance(expected: Array) -> Tolerance:
    """Return the tolerance for two computations of one value."""
    return default_tolerance(expected, expected, terms=256.0)


# Necessary passes and the code generator.


def other_culprit(shown: Shown, replay: Replay) -> str | None:
    """Find the culprit where the kernels are correct after the pass by the loop interpreter: one of the necessary
    passes, or the code generator. None if it is the pass, or if the search would take too long."""
    size = sum(array.size for array in shown.inputs.flat())
    if replay.evaluator.engine == "interpreter" or size > _INTERPRETED:
        return None
    made, facts = replay.settings.run(shown.passes, shown.module)
    if kind_of(made) != KERNELS:
        return None
    judge = Evaluator(replay.evaluator.target, "interpreter")
    reference = make_reference(shown.module, shown.inputs, judge, "float64", replay.tolerance)

    def is_right(mod: IRModule) -> bool:
        try:
            return reference.mismatch(judge.run(mod, shown.inputs, facts)) is None
        except TilewrightError:
            return False

    if not is_right(made):
        return None
    compiled = replay.evaluator.compiled
    for step in compiled.passes:
        kernels = {key: func for key, func in made.functions.items() if isinstance(func, PrimFunc)}
        try:
            made = made.with_functions({key: compiled.finish(func, [step]) for key, func in kernels.items()})
        except TilewrightError:
            return step.info.name
        if not is_right(made):
            return step.info.name
    return "the code generator"


# The graph.


def _smaller(
    suspect: Suspect, replay: Replay, kernel: Step | None, reasons: list[str]
) -> tuple[IRModule, Minimized, tuple[Pass, ...]] | None:
    """Find the smallest graph that shows the failure, with the graph that it was part of and the passes that it needs.
    Obstacles are added to ``reasons``."""
    assert suspect.step is not None
    attempts: list[tuple[IRModule, tuple[Pass, ...]]] = []
    if suspect.flat is not None:
        attempts.append((suspect.flat, (*suspect.since, suspect.step)))
    if kind_of(suspect.before) == GRAPH and suspect.before is not suspect.flat:
        attempts.append((suspect.before, (suspect.step,)))
    for whole, passes in attempts:

        def question(mod: IRModule, values: Any, passes: Sequence[Pass] = passes) -> bool:
            given = Inputs(tuple(values), suspect.inputs.sizes)
            return same_kind(suspect.problem, replay.problem(mod, given, passes))

        around = None if kernel is None else _around(whole, suspect.inputs, kernel, replay.evaluator)
        if around is not None:
            part, values, origin = around
            try:
                small = minimize_values(part, question, values, suspect.inputs.sizes, shapes=False)
            except Exception as error:  # the part alone does not show it or does not run: try the whole graph
                reasons.append(f"{type(error).__name__}: {error}")
            else:
                composed = {new: origin.get(old, old) for new, old in small.origin.items()}
                return whole, dataclasses.replace(small, origin=composed), passes
        try:
            small = minimize_values(whole, question, suspect.inputs.values, suspect.inputs.sizes, shapes=False)
        except Exception as error:  # it does not occur again, or a pass rejects the module the second time
            reasons.append(f"{type(error).__name__}: {error}")
            continue
        return small.whole, small, passes
    return None


def _around(
    whole: IRModule, inputs: Inputs, kernel: Step, evaluator: Evaluator
) -> tuple[IRModule, tuple[Any, ...], dict[Expr, Expr]] | None:
    """Cut out the part of a graph that a kernel computes: it is found by the values that the kernel reads and
    writes."""
    values, _ = evaluator.graph_values(whole, inputs)
    graph = Graph(whole, values)
    known = [node for node in graph.order if isinstance(values.get(node), np.ndarray) and not isinstance(node, Var)]
    roots = [node for output in kernel.outputs if (node := _equal_value(output, known, values)) is not None]
    if len(roots) != len(kernel.outputs) or not all(map(is_operator, roots)):
        return None
    cut = {}
    for given in kernel.inputs:
        node = _equal_value(given, known, values)
        if node is not None and node not in roots and is_operator(node):
            cut[node] = graph.how_to_cut(node)
    made = graph.build(Form(tuple(dict.fromkeys(roots)), cut))
    return made.module, made.inputs or (), dict(made.origin)


def _equal_value(array: Array, nodes: Sequence[Expr], values: Any) -> Expr | None:
    """Find the first expression that has this value, up to rounding and the shape."""
    for node in nodes:
        value = values[node]
        if value.dtype == array.dtype and value.size == array.size:
            other = value.reshape(array.shape)
            if mismatch(0, array, other, value_tolerance(other)) is None:
                return node
    return None


def _named(found: Failure, small: Minimized, whole: IRModule, passes: Sequence[Pass], replay: Replay) -> Failure:
    """Add to ``found`` the operator and the element, as the smallest graph shows them."""
    main, outer = small.module["main"], whole["main"]
    assert isinstance(main, Function) and isinstance(outer, Function) and small.inputs is not None
    problem = replay.problem(small.module, Inputs(tuple(small.inputs.values())), passes)
    body: Expr = main.body
    if isinstance(problem, Mismatch) and not is_operator(body):
        leaves = [node for node in body.children if is_operator(node)]
        body = leaves[min(problem.result, len(leaves) - 1)] if leaves else body
    operators = call_nodes(outer)
    old = small.origin.get(body, body)
    place = operators.index(old) + 1 if isinstance(old, Call) and old in operators else 0
    element = problem if isinstance(problem, Mismatch) else None
    return dataclasses.replace(
        found,
        operator=summary(old),
        place=place,
        operators=len(operators),
        element=element if element is not None else found.element,
        pipeline=tuple(step.info.name for step in passes),
        questions=small.questions,
    )


def _shown(small: Minimized, passes: tuple[Pass, ...], replay: Replay, problem: Problem) -> Shown:
    """Make the sizes of the smallest module as small as possible, and find a seed for random inputs that show the
    failure, too."""
    assert small.inputs is not None

    def wanted(mod: IRModule, values: Any) -> bool:
        try:
            return same_kind(problem, replay.problem(mod, Inputs(tuple(values)), passes))
        except Exception:  # the passes, or NumPy, reject some sizes
            return False

    module, values = smaller_sizes(small.module, tuple(small.inputs.values()), wanted)
    assert values is not None
    for seed in range(_SEEDS):
        try:
            drawn = tuple(random_inputs(module, seed).values())
        except TilewrightError:
            break
        if wanted(module, drawn):
            return Shown(module, Inputs(drawn), passes, seed)
    return Shown(module, Inputs(values), passes, None)
