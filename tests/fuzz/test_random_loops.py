"""Random loops whose bounds depend on loops around them, and may be empty, through the passes that split, shorten,
unroll and simplify loops: the interpreter gives the same results before and after."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from tests.fuzz.loop_programs import fuzzing
from tilewright.passes.tensor.common_subexpr_elim import eliminate_common_subexpressions
from tilewright.passes.tensor.hoist_invariant import hoist_invariants
from tilewright.passes.tensor.loop_partition import partition_loops
from tilewright.passes.tensor.name_indices import name_indices
from tilewright.passes.tensor.remove_no_op import remove_no_ops
from tilewright.passes.tensor.simplify import simplify
from tilewright.passes.tensor.unroll_loop import unroll_loops
from tilewright.tensorir import interpret, parse, verify
from tilewright.tensorir.stmt import PrimFunc

#: The columns of the result, by which places are taken modulo.
_WIDTH = 97

_NUMBERS = st.sampled_from((0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, -1, -2, -3, -4, -8, -12))
_FACTORS = st.sampled_from((1, 2, 4, 8, 16, -1, -4, 3))
_EXTENTS = st.sampled_from((1, 2, 3, 4, 5, 8))


@dataclasses.dataclass
class Nest:
    """The text of a nest of loops, and the size of its symbolic dimension."""

    text: str
    size: int


@st.composite
def nests(draw: st.DrawFn) -> Nest:
    """Two or three loops; the bounds of the inner ones, and the conditions in them, are linear in those around."""
    outer = ["a", "n"] if draw(st.booleans()) else ["a"]

    def linear(names: list[str]) -> str:
        terms = [f"{name} * {draw(_FACTORS)}" for name in names if draw(st.booleans())]
        text = " + ".join([*terms, str(draw(_NUMBERS))])
        choice = draw(st.integers(0, 5))
        if choice == 0:
            return f"min({text}, {draw(_NUMBERS)} + {draw(st.sampled_from(names))})"
        if choice == 1:
            return f"max({text}, {draw(_NUMBERS)})"
        return f"({text}) // {draw(st.sampled_from((2, 4, 6)))}" if choice == 2 else text

    lines = [f"for a in {draw(st.sampled_from(('range', 'range', 'parallel')))}({draw(_EXTENTS)}) {{"]
    names = list(outer)
    for name in ("i", "j")[: draw(st.integers(1, 2))]:
        extent = linear(names) if draw(st.booleans()) or name == "i" else str(draw(_EXTENTS))
        low = "" if draw(st.integers(0, 2)) else f"{linear(names)}, extent="
        lines.append(f"for {name} in range({low}{extent}) {{")
        names.append(name)
    comparison = st.sampled_from(("<", ">=", "<=", ">"))

    def condition() -> str:
        sums = " + ".join(f"{name} * {draw(_FACTORS)}" for name in names[-2:])
        return f"{sums} {draw(comparison)} {linear(outer)}"

    place = " + ".join(f"{name} * {factor}" for name, factor in zip(names[::-1], (1, 5, 31), strict=False))
    target = f"B[a, truncmod({place} + 970, {_WIDTH})]"
    value = f"float32({names[-1]} + 1)"
    for _ in range(draw(st.integers(1, 3))):
        value = f"select({condition()}, {draw(st.integers(1, 9))}.0, {value})"
    body = [f"{target} = {target} * 3.0 + {value}"]
    kind = draw(st.integers(0, 3))
    if kind == 1:
        body = [f"if {condition()} {{", *body, "}"]
    elif kind == 2:
        body = [f"if {condition()} {{", *body, "} else {", f"{target} = {target} + 1.0", "}"]
    elif kind == 3:
        body += [f"if {condition()} and {condition()} {{", f"{target} = {target} - 2.0", "}"]
    text = "\n".join([*lines, *body, *"}" * len(names[len(outer) - 1 :])])
    header = f'primfunc @f(B: Buffer[(8, {_WIDTH}), float32], n: int64) attrs {{"num_outputs": 1}} {{\n'
    return Nest(f"{header}{text}\n}}", draw(st.sampled_from((0, 1, 3, 6))))


def _results(func: PrimFunc, size: int) -> np.ndarray:
    array = np.arange(8 * _WIDTH, dtype=np.float32).reshape(8, _WIDTH) % 7
    interpret(func, array, size)
    return array


PASSES: dict[str, Callable[[PrimFunc], PrimFunc]] = {
    "simplify": simplify,
    "partition": partition_loops,
    "partition and simplify": lambda func: simplify(partition_loops(simplify(func))),
    "unroll": lambda func: unroll_loops(partition_loops(func)),
    "all": lambda func: eliminate_common_subexpressions(
        hoist_invariants(remove_no_ops(simplify(unroll_loops(name_indices(simplify(partition_loops(func)))))))
    ),
}


@pytest.mark.parametrize("name", PASSES)
@fuzzing(quick=60, in_a_minute=600)
@given(nest=nests())
def test_nests_keep_their_results(name: str, nest: Nest) -> None:
    func = parse(nest.text)
    verify(func)
    after = PASSES[name](func)
    verify(after)
    np.testing.assert_array_equal(_results(after, nest.size), _results(func, nest.size), err_msg=str(after))
