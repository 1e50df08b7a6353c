"""Test source locations of statements: how passes and schedules hand them on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilewright import tensorir as ti
from tilewright.tensorir.expr import as_expr
from tilewright.tensorir.functor import Mutator, walk_statements
from tilewright.tensorir.schedule import Schedule
from tilewright.tensorir.sources import NO_SOURCES, add_sources, inherit, sources_of, tracing, with_sources
from tilewright.tensorir.stmt import Block, BufferStore, For, IfThenElse, PrimFunc, SeqStmt, Stmt


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    """Hand sources on in each test."""
    with tracing():
        yield


def chain() -> PrimFunc:
    """``b = a + 1; c = b * 2``: the loops of ``b`` have source 0, those of ``c`` source 1."""
    a = ti.placeholder((8,), "float32", "a")
    b = ti.compute((8,), lambda i: a[i] + 1.0, "b")
    c = ti.compute((8,), lambda i: b[i] * 2.0, "c")
    return ti.create_prim_func("f", [a], [c], sources={b: 0, c: 1})


def stores(func: PrimFunc) -> dict[str, set[int]]:
    """Return the sources of the stores to each buffer."""
    found: dict[str, set[int]] = {}
    for stmt in walk_statements(func.body):
        if isinstance(stmt, BufferStore):
            found.setdefault(stmt.buffer.name, set()).update(sources_of(stmt))
    return found


def test_loops_of_tensors_have_the_given_sources() -> None:
    assert stores(chain()) == {"b": {0}, "c": {1}}
    assert all(sources_of(stmt) for stmt in walk_statements(chain().body) if isinstance(stmt, (For, Block)))


def test_statements_have_no_sources_by_default() -> None:
    a = ti.placeholder((8,), "float32", "a")
    func = ti.create_prim_func("f", [a], [ti.compute((8,), lambda i: a[i], "b")])
    assert {sources_of(stmt) for stmt in walk_statements(func.body)} == {NO_SOURCES}


def test_sources_are_no_part_of_a_program() -> None:
    func = chain()
    bare = with_sources(func, {})
    assert stores(bare) == {"b": set(), "c": set()}
    assert ti.structural_equal(func, bare)
    assert str(func) == str(bare)


def test_a_copy_with_other_sources_leaves_the_function_as_it_is() -> None:
    func = chain()
    copied = with_sources(func, {stmt: frozenset([7]) for stmt in walk_statements(func.body)})
    assert stores(copied) == {"b": {7}, "c": {7}}
    assert stores(func) == {"b": {0}, "c": {1}}


class _Guard(Mutator):
    """Puts each store twice under a condition, in statements that are all new."""

    def mutate_BufferStore(self, store: BufferStore) -> Stmt:
        again = BufferStore(store.buffer, store.value + 1.0, store.indices)
        return IfThenElse(as_expr(True), SeqStmt((again, BufferStore(store.buffer, store.value, store.indices))))


def test_statements_that_a_mutator_makes_take_over_sources() -> None:
    func = chain()
    changed = func.with_body(_Guard().mutate(func.body))
    assert stores(changed) == {"b": {0}, "c": {1}}
    assert [sources_of(s) for s in walk_statements(changed.body) if isinstance(s, IfThenElse)] == [{0}, {1}]


def test_what_has_sources_keeps_them() -> None:
    buffer = ti.Buffer("b", (4,), "float32")
    old, new = (BufferStore(buffer, as_expr(0.0, "float32"), (as_expr(place),)) for place in range(2))
    for stmt, source in ((old, 1), (new, 2)):
        add_sources(stmt, frozenset([source]))
    inherit(new, old)
    assert sources_of(new) == {2}


@pytest.mark.parametrize("primitive", ["compute_inline", "reverse_compute_inline"])
def test_an_inlined_block_adds_its_sources(primitive: str) -> None:
    schedule = Schedule(chain())
    getattr(schedule, primitive)(schedule.get_block("b" if primitive == "compute_inline" else "c"))
    assert stores(schedule.func) == {"c": {0, 1}}


def test_schedules_hand_sources_on() -> None:
    schedule = Schedule(chain())
    (i,) = schedule.get_loops(schedule.get_block("c"))
    outer, inner = schedule.split(i, [None, 4])
    schedule.vectorize(inner)
    schedule.compute_at(schedule.get_block("b"), outer)
    assert stores(schedule.func) == {"b": {0}, "c": {1}}
    assert all(sources_of(stmt) for stmt in walk_statements(schedule.func.body) if isinstance(stmt, For))


@pytest.mark.parametrize("primitive", ["cache_read", "cache_write"])
def test_a_copy_has_the_sources_of_the_block_that_it_is_for(primitive: str) -> None:
    schedule = Schedule(chain())
    getattr(schedule, primitive)(schedule.get_block("c"), 0, "stack")
    copied = {"cache_read": "b_stack", "cache_write": "c_stack"}[primitive]
    assert stores(schedule.func)[copied] == {1}


def test_a_block_in_another_layout_keeps_its_sources() -> None:
    schedule = Schedule(chain())
    schedule.transform_layout(schedule.get_block("b"), 0, lambda i: (i // 4, i % 4))
    assert stores(schedule.func) == {"b": {0}, "c": {1}}
