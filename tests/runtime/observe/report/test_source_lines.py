"""The lines of a kernel's text: which statement stands on each, and which lines of the stage before it comes from."""

from __future__ import annotations

from tilewright.graphir.module import IRModule
from tilewright.runtime.observe.report.source_lines import SourceLines, kernel_lines
from tilewright.tensorir.functor import walk_statements
from tilewright.tensorir.parser import parse
from tilewright.tensorir.sources import with_sources
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc

TEXT = """primfunc @f(A: Buffer[(8,), float32], B: Buffer[(8,), float32]) {
  for i in range(8) {
    A[i] = 1.0
    B[i] = A[i]
  }
}"""


def with_operators(func: PrimFunc) -> PrimFunc:
    """Return the function whose first store computes operator 1 and whose second one operator 2."""
    stores = [stmt for stmt in walk_statements(func.body) if isinstance(stmt, BufferStore)]
    return with_sources(func, {store: frozenset({number}) for number, store in enumerate(stores, 1)})


def test_each_line_has_its_innermost_statement_and_its_operators() -> None:
    func = with_operators(parse(TEXT))
    found = kernel_lines(func)
    assert str(func) == TEXT
    kinds = [type(stmt) for stmt in found.statements]
    assert kinds == [type(None), For, BufferStore, BufferStore, For, type(None)]
    assert [sorted(each) for each in found.sources] == [[], [1, 2], [1], [2], [1, 2], []]
    assert {line for lines in found.lines.values() for line in lines} == {1, 2, 3}


def test_a_later_stage_refers_to_the_lines_of_the_one_before() -> None:
    recorded = SourceLines()
    mod = recorded.between("tensor", IRModule({"f": with_operators(parse(TEXT))}))
    recorded.between("scheduled", mod)
    again = recorded.kernels["scheduled", "f"]
    assert [sorted(each) for each in again.sources] == [[], [1], [2], [3], [1], []]


def test_other_stages_record_nothing() -> None:
    recorded = SourceLines()
    mod = IRModule({"f": parse(TEXT)})
    assert recorded.between("graph", mod) is mod
    assert not recorded.kernels
