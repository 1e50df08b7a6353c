"""Random statements whose indices stand in memory that the statements write: built, they do what the interpreter does.

An expression that reads memory has another value after each store, so that nothing may take it for the one before."""

from __future__ import annotations

import dataclasses

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import tilewright as tw
from tests.fuzz.loop_programs import fuzzing
from tilewright.tensorir import interpret, parse

#: Elements of ``at``, which holds places, and of ``x`` and ``y``, by which places are taken modulo.
_PLACES, _WIDTH = 2, 4
_NESTED = ("at[0]", "at[1]", "at[at[0] % 2]", "j", "(at[0] + j)")


@dataclasses.dataclass
class Program:
    """The text of a program, and the names of the buffers that it writes, in the order of its parameters."""

    text: str
    written: list[str]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Two to five stores in a loop. They share few indices, so that many read the same place."""
    shared = draw(st.lists(st.sampled_from(_NESTED), min_size=2, max_size=2, unique=True))
    place, own = st.sampled_from(shared), st.sampled_from((*_NESTED, "0", "1"))
    lines, written = [], set()
    for _ in range(draw(st.integers(2, 5))):
        target = draw(st.sampled_from(("x", "at", "y")))
        written.add(target)
        if target == "at":
            element, source = draw(st.sampled_from(("0", "1", "at[0] % 2"))), draw(st.sampled_from(("0", "1")))
            lines.append(f"at[{element}] = (at[{source}] + {draw(st.integers(1, 3))} + j) % 7")
        else:
            x, y = f"x[{draw(place)} % {_WIDTH}]", f"y[{draw(place)} % {_WIDTH}]"
            lines.append(f"{target}[{draw(own)} % {_WIDTH}] = {x} + {y} * 2.0")
    loop = draw(st.sampled_from(("range", "unrolled")))
    parameters = f"x: Buffer[({_WIDTH},), float64], at: Buffer[({_PLACES},), int64], y: Buffer[({_WIDTH},), float64]"
    text = f"primfunc @stores({parameters}) {{ for j in {loop}(4) {{ {{\n" + "\n".join(lines) + "\n} } }\n"
    return Program(text, [name for name in ("x", "at", "y") if name in written])


@fuzzing(quick=60, in_a_minute=700)
@given(programs(), st.sampled_from((0, 3)), st.sampled_from(("llvm",) * 9 + ("numba",)))
def test_stores_move_the_places_that_later_statements_read(program: Program, level: int, target: str) -> None:
    func = parse(program.text)
    given_arrays = {"x": np.arange(_WIDTH) + 1.0, "at": np.array([1, 3]), "y": np.arange(_WIDTH) * 3.0}
    expected = {name: array.copy() for name, array in given_arrays.items()}
    interpret(func, *expected.values())
    with tw.PassContext(opt_level=level):
        model = tw.build(func, target=tw.Target(target, num_threads=1))
    found = model(*given_arrays.values())
    for name, result in zip(program.written, found if isinstance(found, tuple) else (found,), strict=True):
        np.testing.assert_array_equal(result, expected[name], err_msg=program.text)
