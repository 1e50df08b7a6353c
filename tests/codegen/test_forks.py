"""Test the conditions on which the threads of a function stay together."""

from __future__ import annotations

from tilewright.codegen.forks import several_forks
from tilewright.tensorir import parse


def gathers(*conditions: str) -> str:
    """Return the condition on which a function with loops that fork on these conditions gathers a team."""
    loops = "\n".join(
        f"""
  for i in parallel(8) annotations {{"parallel_if": expr({condition})}} {{
    b[i] = 0.0
  }}"""
        for condition in conditions
    )
    params = "b: Buffer[(8,), float32], n: int64, m: int64"
    return str(several_forks(parse(f'primfunc @k({params}) attrs {{"num_outputs": 1}} {{{loops}\n}}'), {}))


def test_of_limits_for_the_same_number_the_least_one_counts():
    assert gathers("n >= 30", "n >= 20", "n >= 40") == "n >= 20"
    assert gathers("n >= 30", "m >= 20", "n >= 25") in ("n >= 25 or m >= 20", "m >= 20 or n >= 25")


def test_a_loop_that_forks_for_all_sizes_decides():
    assert gathers("n >= 30", "(m + 15) // 16 * 4 >= 2") == "True"
    assert gathers("n >= 30", "(m + 15) // 16 >= 2") == "(m + 15) // 16 >= 2 or n >= 30"


def test_one_loop_gathers_nobody():
    assert gathers("n >= 30") == "False"
