"""Roles of parameters follow from a function's attributes, else from the order in which its body reads and writes."""

from __future__ import annotations

import pytest

from tilewright import tensorir as ti
from tilewright.tensorir.interface import interface_of

PARAMS = "(a: Buffer[(n,), float32], c: Buffer[(n,), float32], n: int64)"


def roles(body: str, params: str = PARAMS) -> tuple[str, str]:
    found = interface_of(ti.parse(f"primfunc @f{params} {{ {body} }}"))
    assert set(found.updated) == set(found.arguments) & set(found.results)
    return tuple("".join(buffer.name for buffer in buffers) for buffers in (found.arguments, found.results))  # type: ignore[return-value]


STORE = "for i in range(n) { c[i] = a[i] }"
ADD = "for i in range(n) { c[i] = c[i] + a[i] }"


@pytest.mark.parametrize(
    "body, expected",
    [
        (STORE, ("a", "c")),
        (ADD, ("ac", "c")),
        (f"{STORE} {ADD}", ("a", "c")),
        (f"{ADD} {STORE}", ("ac", "c")),
        ("for i in range(n) { c[i] = 0.0 c[i] = c[i] + a[i] }", ("a", "c")),
        ("for i in range(n) { c[i] = 0.0 for k in range(n) { c[i] = c[i] + a[k] } }", ("a", "c")),
        ("for i in range(n) { c[i] = 0.0 for k in range(n) { c[i] = c[k] + a[k] } }", ("ac", "c")),  # another element
        (f"for k in range(n) {{ {STORE} }} for k in range(n) {{ {ADD} }}", ("ac", "c")),  # n may be 0 the first time
        (f"for k in range(2) {{ {STORE} }} {ADD}", ("a", "c")),
        (f"for i in range(n) {{ if a[i] > 0.0 {{ c[i] = 0.0 }} }} {ADD}", ("ac", "c")),
        (f"if n > 3 {{ {STORE} }} {ADD}", ("ac", "c")),
        (f"if n > 3 {{ {STORE} {ADD} }}", ("a", "c")),
        (f"for i in range(n - 1) {{ c[i] = a[i] }} {ADD}", ("ac", "c")),
        (f"for i in range(n) {{ c[n - 1 - i] = a[i] }} {ADD}", ("ac", "c")),  # not seen to be every element
        ("for i in range(n) { let x: float32 = c[i] c[i] = a[i] * x }", ("ac", "c")),
        ("for i in range(int64(c[0])) { c[i] = a[i] }", ("ac", "c")),
        ("for i in range(n) { if c[i] > 0.0 { c[i] = a[i] } }", ("ac", "c")),
        ("for i in range(n) { a[i] = 1.0 c[i] = 2.0 }", ("", "ac")),
        ("", ("ac", "")),
    ],
)
def test_roles_follow_from_the_order_of_accesses(body: str, expected: tuple[str, str]) -> None:
    assert roles(body) == expected


BLOCKS = """
for i in range(n // 4 + 1) {{ for j in range(4) {{ block s(v: spatial(n) = i * 4 + j) where i * 4 + j < n {{
  writes c[v]
  c[v] = 0.0 }} }} }}
for i in range(n) {{ block t(v: spatial(n) = i) {{ reads c[v], a[v]
  writes c[v]
  c[v] = c[v] + a[v] }} }}"""


def test_a_block_writes_all_that_its_variables_say_however_its_loops_are_split() -> None:
    assert roles(BLOCKS.format()) == ("a", "c")
    assert roles(BLOCKS.format().replace("v: spatial(n) = i * 4", "v: spatial(n - 1) = i * 4")) == ("ac", "c")


def test_a_reduction_is_written_where_it_starts() -> None:
    body = """for i, k in grid(n, n) { block s(v: spatial(n) = i, w: reduction(n) = k) {
      init { c[v] = 0.0 }
      c[v] = c[v] + a[w] } }"""
    body = body.replace("for i, k in grid(n, n) {", "for i in range(n) { for k in range(n) {") + "}"
    assert roles(body) == ("a", "c")
    assert roles(body.replace("init { c[v] = 0.0 }", "")) == ("ac", "c")


def test_what_a_function_states_of_its_outputs_counts() -> None:
    func = ti.parse(f"primfunc @f{PARAMS} {{ {ADD} }}").with_attr("num_outputs", 1)
    found = interface_of(func)
    assert [buffer.name for buffer in found.arguments] == ["a"]
    assert [buffer.name for buffer in found.results] == ["c"]
    assert interface_of(func.with_attr("num_workspaces", 1)).workspaces == func.buffers[1:]
