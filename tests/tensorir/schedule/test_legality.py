"""Check that an edit which would change the result is refused with reason and place, and leaves the schedule
unchanged."""

from __future__ import annotations

import ast
import functools
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.tensorir import parse
from tilewright.tensorir import tensor as te
from tilewright.tensorir.errors import ScheduleError, TilewrightError
from tilewright.tensorir.expr import Var, maximum
from tilewright.tensorir.schedule import Schedule, Trace, state
from tilewright.tensorir.schedule.trace import PRIMITIVES
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.structural import assert_structural_equal

Make = Callable[..., PrimFunc]


def changes(sch: Schedule) -> list[str]:
    """The steps that are more than looking something up."""
    return [str(step) for step in sch.trace.instructions if not step.name.startswith("get_")]


def refused(sch: Schedule, step: Callable[[], Any], reason: str) -> str:
    """The message with which ``step`` is refused."""
    before, steps = sch.func, changes(sch)
    with pytest.raises(ScheduleError, match=reason) as caught:
        step()
    assert sch.func is before
    assert changes(sch) == steps
    return str(caught.value)


def row_sum(dtype: str = "float32") -> PrimFunc:
    x = te.placeholder((6, 8), dtype, "x")
    k = te.reduce_axis(8, "k")
    total = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="total")
    out = te.compute((6,), lambda i: total[i] * 2, name="out")
    return te.create_prim_func("rows", [x], [out])


def test_a_reduction_loop_is_not_parallel() -> None:
    sch = Schedule(row_sum())
    loop = sch.get_loops(sch.get_block("total"))[1]
    message = refused(sch, lambda: sch.parallel(loop), "accumulate into the same elements")
    assert "for k in range(8) {" in message
    assert "^^^^" in message


def test_a_reduction_loop_is_a_vector_only_where_reassociation_is_allowed() -> None:
    sch = Schedule(row_sum())
    loop = sch.get_loops(sch.get_block("total"))[1]
    refused(sch, lambda: sch.vectorize(loop), "accumulate into the same elements")
    sch.vectorize(loop, reassociate=True)
    assert sch.get(loop).kind == "vectorized"


def test_floating_point_steps_keep_their_order() -> None:
    sch = Schedule(row_sum())
    outer, inner = sch.split(sch.get_loops(sch.get_block("total"))[1], [None, 4])
    refused(sch, lambda: sch.reorder(inner, outer), "rounds differently")
    sch.reorder(inner, outer, reassociate=True)


def test_integer_steps_run_in_any_order(same: Callable[..., None]) -> None:
    func = row_sum("int64")
    sch = Schedule(func)
    outer, inner = sch.split(sch.get_loops(sch.get_block("total"))[1], [None, 3])
    sch.reorder(inner, outer)
    same(func, sch)


def test_init_stays_first_where_a_loop_drives_elements_and_steps() -> None:
    sch = Schedule(row_sum())
    fused = sch.fuse(*sch.get_loops(sch.get_block("total")))
    outer, inner = sch.split(fused, [None, 4])
    refused(sch, lambda: sch.reorder(inner, outer), "init would no longer come first")


def test_what_is_computed_again_does_not_move_inside_its_reduction() -> None:
    sch = Schedule(row_sum("int64"))
    total, out = sch.get_block("total"), sch.get_block("out")
    row, again = sch.split(sch.get_loops(out)[0], [1, None])
    sch.compute_at(total, row)  # computes all rows, in the one iteration of `row`
    i, k = sch.get_loops(total)[-2:]
    sch.reorder(k, i)  # every row once in each step: fine
    twice = Schedule(
        parse(
            """
            primfunc @twice(x: Buffer[(6, 8), int64], total: Buffer[(6,), int64]) attrs {"num_outputs": 1} {
              for again in range(2) {
                for k in range(8) {
                  for i in range(6) {
                    block total(vi: spatial(6) = i, vk: reduction(8) = k) {
                      reads x[vi, vk]
                      writes total[vi]
                      init { total[vi] = int64(0) }
                      total[vi] = total[vi] + x[vi, vk]
                    }
                  }
                }
              }
            }
            """
        )
    )
    again, k, i = twice.get_loops(twice.get_block("total"))
    refused(twice, lambda: twice.reorder(k, again), "accumulate them twice")
    refused(
        twice,
        lambda: twice.decompose_reduction(twice.get_block("total"), again),
        "a separate init would run once for each",
    )
    refused(twice, lambda: twice.parallel(again), "two iterations may write the same elements")


def test_reads_of_another_iteration_are_refused_in_foreign_functions() -> None:
    text = """
    primfunc @scan(x: Buffer[(6,), int64], y: Buffer[(6,), int64]) attrs {"num_outputs": 1} {
      allocate t: Buffer[(7,), int64, arena]
      for i in range(6) {
        block t(vi: spatial(6) = i) {
          reads x[vi]
          writes t[vi]
          t[vi] = x[vi]
        }
        block y(vi: spatial(6) = i) {
          reads t[READ]
          writes y[vi]
          y[vi] = t[READ]
        }
      }
    }
    """
    good = Schedule(parse(text.replace("READ", "vi")))
    good.parallel(good.get_loops(good.get_block("y"))[0])
    bad = Schedule(parse(text.replace("READ", "max(vi - 1, 0)")))
    refused(bad, lambda: bad.parallel(bad.get_loops(bad.get_block("y"))[0]), "in another iteration")


def test_overlapping_tiles_are_parallel_only_with_a_buffer_of_their_own(same: Callable[..., None]) -> None:
    x = te.placeholder((20,), name="x")
    t = te.compute((20,), lambda i: x[i] * 2.0, name="t")
    y = te.compute((20,), lambda i: t[i] + t[maximum(i - 1, 0)], name="y")
    inner = te.create_prim_func("stencil", [x], [y])
    sch = Schedule(inner)
    tile, _ = sch.split(sch.get_loops(sch.get_block("y"))[0], [None, 4])
    sch.compute_at(sch.get_block("t"), tile)
    sch.parallel(tile)
    same(inner, sch)
    both = te.create_prim_func("stencil", [x], [y, t])  # t is a result: it cannot move
    sch = Schedule(both)
    tile, _ = sch.split(sch.get_loops(sch.get_block("y"))[0], [None, 4])
    refused(sch, lambda: sch.compute_at(sch.get_block("t"), tile), "a result of the function")


def test_a_consumer_waits_for_the_whole_reduction() -> None:
    sch = Schedule(row_sum())
    total, out = sch.get_block("total"), sch.get_block("out")
    step = sch.get_loops(total)[1]
    refused(sch, lambda: sch.reverse_compute_at(out, step), "is not complete there")


def test_a_producer_serves_all_its_consumers() -> None:
    x = te.placeholder((6,), name="x")
    t = te.compute((6,), lambda i: x[i] * 2.0, name="t")
    y = te.compute((6,), lambda i: t[i] + 1.0, name="y")
    z = te.compute((6,), lambda i: t[i] + 2.0, name="z")
    sch = Schedule(te.create_prim_func("two", [x], [y, z]))
    loop = sch.get_loops(sch.get_block("y"))[0]
    message = refused(sch, lambda: sch.compute_at(sch.get_block("t"), loop), "z reads the result outside of that loop")
    assert "block z" in message


def test_float_sums_are_factored_only_if_they_may_round_differently() -> None:
    sch = Schedule(row_sum())
    refused(sch, lambda: sch.rfactor(sch.get_loops(sch.get_block("total"))[1]), "reassociate=True allows that")
    x, k = te.placeholder((4, 6), "int32", name="x"), te.reduce_axis(6, "k")
    whole = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="whole")
    exact = Schedule(te.create_prim_func("sums", [x], [whole]))
    exact.rfactor(exact.get_loops(exact.get_block("whole"))[1])
    assert [ref.name for ref in exact.get_blocks()] == ["whole_rf", "whole"]


def test_reductions_and_results_are_not_inlined() -> None:
    sch = Schedule(row_sum())
    refused(sch, lambda: sch.compute_inline(sch.get_block("total")), "is a reduction")
    refused(sch, lambda: sch.compute_inline(sch.get_block("out")), "out is a result of the function")
    refused(sch, lambda: sch.reverse_compute_inline(sch.get_block("out")), "reads no intermediate buffer")


def test_a_diagonal_is_not_enough_for_an_outer_product() -> None:
    x = te.placeholder((6,), name="x")
    t = te.compute((6,), lambda i: x[i] * 2.0, name="t")
    y = te.compute((6, 6), lambda i, j: t[i] * t[j], name="y")
    sch = Schedule(te.create_prim_func("outer", [x], [y]))
    loop = sch.get_loops(sch.get_block("t"))[0]
    refused(sch, lambda: sch.reverse_compute_at(sch.get_block("y"), loop), "another iteration completes")


def test_layouts_must_be_injective_and_parameters_keep_theirs() -> None:
    sch = Schedule(row_sum())
    total = sch.get_block("total")
    refused(sch, lambda: sch.transform_layout(total, 0, lambda i: (i // 2,)), "two elements to one place")
    refused(sch, lambda: sch.transform_layout(sch.get_block("out"), 0, lambda i: (i // 2, i % 2)), "parameter")
    refused(sch, lambda: sch.transform_layout(total, 0, lambda i: (i // 4, i % 4), 0.0), "padding cannot be written")
    refused(sch, lambda: sch.transform_layout(total, 0, lambda i, j: (j, i)), "takes 2 indices")


def test_a_parameter_of_a_layout_with_a_default_is_no_index() -> None:
    sch = Schedule(row_sum())
    width = 3
    sch.transform_layout(sch.get_block("total"), 0, lambda i, width=width: (i // width, i % width))
    assert "total: Buffer[(2, 3), float32, arena]" in str(sch.func)


IN_PLACE = """primfunc @f(a: Buffer[(6, 8), float32]) {{
  for i in range(6) {{
    for j in range(8) {{
      block update(vi: spatial(6) = i, vj: spatial(8) = j) where j > 0 {{
        reads {load}
        writes a[vi, vj]
        a[vi, vj] = {load} + 1.0
      }}
    }}
  }}
}}"""


@pytest.mark.parametrize("number", [0, 1])
def test_a_block_that_reads_what_other_iterations_of_it_write_keeps_their_order(number: int) -> None:
    reason = "block update may read elements of a that it writes in another iteration"
    for load, ordered in (("a[vi, vj - 1]", [1]), ("a[vi - 1, vj + 1]", [0, 1]), ("a[vi, vj]", [])):
        sch = Schedule(parse(IN_PLACE.format(load=load)))
        loop = sch.get_loops(sch.get_block("update"))[number]
        if number in ordered:
            refused(sch, functools.partial(sch.parallel, loop), reason)
        else:
            sch.parallel(loop)


def test_loops_are_not_exchanged_around_a_block_that_reads_what_it_wrote_along_both() -> None:
    sch = Schedule(parse(IN_PLACE.format(load="a[vi - 1, vj + 1]")))
    i, j = sch.get_loops(sch.get_block("update"))
    refused(sch, lambda: sch.reorder(j, i), "cannot reorder loop i: block update may read elements of a")


def test_splits_must_cover_the_extent() -> None:
    sch = Schedule(row_sum())
    loop = sch.get_loops(sch.get_block("out"))[0]
    refused(sch, lambda: sch.split(loop, [2, 2]), "may be less than 6")
    refused(sch, lambda: sch.split(loop, [None, None]), "at most one of them None")
    refused(sch, lambda: sch.split(loop, [None, 0]), "not known to be positive")
    refused(sch, lambda: sch.split(loop, [2**32 + 1, 2**32]), "fewer than 2\\*\\*63 iterations")
    sch.split(loop, [4, 2])


def test_stale_and_foreign_handles_are_named() -> None:
    sch = Schedule(row_sum())
    loop = sch.get_loops(sch.get_block("out"))[0]
    sch.split(loop, [None, 2])
    refused(sch, lambda: sch.unroll(loop), "there is no loop i")
    refused(sch, lambda: sch.get_block("nothing"), "its blocks are total, out")
    refused(sch, lambda: sch.parallel(sch.get_block("out")), "expected a loop")  # type: ignore[arg-type]


def test_divisible_splits_need_no_predicate() -> None:
    n = Var("n")
    x = te.placeholder((n * 16,), name="x")
    func = te.create_prim_func(
        "f", [x, te.placeholder((n,), name="d")], [te.compute((n * 16,), lambda i: x[i], name="y")]
    )
    sch = Schedule(func)
    sch.split(sch.get_loops(sch.get_block("y"))[0], [None, 16])
    assert sch.get(sch.get_block("y")).predicate is None


def test_copies_go_their_own_way() -> None:
    sch = Schedule(row_sum())
    loop = sch.get_loops(sch.get_block("out"))[0]
    copy = sch.copy()
    copy.parallel(loop)
    assert sch.get(loop).kind == "serial"
    assert len(copy.trace) == len(sch.trace) + 1


def test_the_trace_is_python_that_makes_the_schedule_again() -> None:
    func = row_sum()
    sch = Schedule(func)
    loop = sch.get_loops(sch.get_block("total"))[1]
    sch.rfactor(sch.split(loop, [None, 4])[1], reassociate=True)
    sch.transform_layout(sch.get_block("total_rf"), 0, lambda lane, i: (i, lane))
    sch.annotate(sch.get_block("total"), "note", "last")
    again = Schedule(func)
    exec(str(sch.trace), {"sch": again})
    assert_structural_equal(sch.func, again.func)


def test_a_broken_trace_is_refused() -> None:
    for text in ("", "[1]", '[{"name": "split"}]'):
        with pytest.raises(ScheduleError, match="not a trace"):
            Trace.from_json(text)
    unknown = Trace.from_json('[{"name": "__init__", "args": [], "kwargs": {}, "outputs": [], "is_list": false}]')
    with pytest.raises(ScheduleError, match="there is no primitive"):
        unknown.apply(Schedule(row_sum()))


@pytest.mark.parametrize(
    "change",
    [
        '"name": "split"|"name": {"x": 1}',
        '"args": [|"args": {"handle": 1}, "x": [',
        '"kwargs": {}|"kwargs": []',
        '"outputs": ["b0"]|"outputs": [5]',
        '"handle": "b0"|"handle": {}',
        "[null, 4]|[null, 4, 1e300]",
        '[null, 4]|{"expr": "("}',
        '"name": "split"|"name": "unroll"',
    ],
)
def test_a_trace_of_something_else_is_refused(change: str) -> None:
    sch = Schedule(row_sum())
    sch.split(sch.get_loops(sch.get_block("total"))[0], [None, 4])
    before, after = change.split("|")
    text = sch.trace.to_json()
    assert before in text
    with pytest.raises(TilewrightError):
        Trace.from_json(text.replace(before, after, 1)).apply(Schedule(row_sum()))


def test_peeled_loops_split_without_predicates(same: Callable[..., None]) -> None:
    n = Var("n")
    x = te.placeholder((n, 5), name="x")
    func = te.create_prim_func("f", [x], [te.compute((n, 5), lambda i, j: x[i, j] * 2.0, name="y")])
    sch = Schedule(func)
    main, _ = sch.peel(sch.get_loops(sch.get_block("y"))[0], 4)
    sch.split(main, [None, 4])
    assert sch.get(sch.get_block("y")).predicate is None
    for size in (0, 3, 4, 9):
        same(func, sch, n=size)


def test_tiles(same: Callable[..., None], matmul_bias_relu: Make) -> None:
    func = matmul_bias_relu(7, 9, 3)
    sch = Schedule(func)
    assert len(sch.tile(sch.get_block("E"), [4, 2])) == 4
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.tile((i, j), [2, 4])
    same(func, sch)


def test_twenty_steps_take_milliseconds(matmul_bias_relu: Make) -> None:
    func = matmul_bias_relu(Var("m"), 512, 512)

    def steps() -> float:
        start = time.thread_time()
        sch = Schedule(func)
        sch.compute_inline(sch.get_block("D"))
        c, e = sch.get_block("C"), sch.get_block("E")
        io, jo, ii, ji = sch.tile(e, [6, 64])
        sch.reorder(jo, io, ii, ji)
        sch.compute_at(c, io)
        i, j, k = sch.get_loops(c)[-3:]
        sch.reorder(k, i, j)
        outer, lanes = sch.split(j, [4, 16])
        sch.vectorize(lanes)
        sch.unroll(outer)
        sch.unroll(i)
        sch.set_scope(c, 0, "register")
        sch.decompose_reduction(c, k)
        sch.vectorize(sch.split(ji, [4, 16])[1])
        sch.parallel(jo)
        return time.thread_time() - start

    assert min(steps() for _ in range(5)) < 0.05


def test_the_ir_is_printed_when_the_message_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules try steps that do not fit, and drop the error: what it would show is only written where it is shown."""
    printed: list[object] = []

    def underline(*args: Any) -> str:
        printed.append(args)
        return original(*args)

    original = state.underline
    monkeypatch.setattr(state, "underline", underline)
    sch = Schedule(row_sum())
    loop = sch.get_loops(sch.get_block("total"))[1]
    with pytest.raises(ScheduleError) as caught:
        sch.parallel(loop)
    assert caught.value.summary == (
        "cannot parallel loop k: its iterations accumulate into the same elements of block total"
    )
    assert printed == []
    copied = pickle.loads(pickle.dumps(caught.value))
    shown = str(caught.value)
    assert shown.startswith(caught.value.summary + "\n") and "^^^^" in shown
    assert str(copied) == shown == str(caught.value)
    assert len(printed) == 1


def test_each_primitive_says_what_it_does_where_it_is_called() -> None:
    # Compiled functions have no docstrings: their source is read.
    source = (Path(__file__).resolve().parents[3] / "tensorir" / "schedule" / "schedule.py").read_text(encoding="utf-8")
    methods = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
    for name in PRIMITIVES:
        doc = ast.get_docstring(methods[name])
        assert doc and "See :" not in doc, name


def test_notebooks_show_the_function() -> None:
    sch = Schedule(row_sum())
    assert "primfunc" in sch._repr_html_()
