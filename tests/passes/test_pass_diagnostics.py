"""Test the messages to users: notes on errors (pass, function, IR line), remarks, suggestions."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.graphir.module import IRModule
from tilewright.passes import (
    PassContext,
    Remark,
    Sequential,
    function_pass,
    module_pass,
    primfunc_pass,
    set_ir_location,
)
from tilewright.passes.diagnostics import order_by_similarity, suggestion
from tilewright.tensorir.functor import Visitor
from tilewright.tensorir.stmt import Evaluate, PrimFunc, SeqStmt


class UserError(Exception):
    """An error that this project knows nothing of."""


def notes_of(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def test_the_error_is_the_users_own_with_a_note_of_pass_and_function(mixed_mod: IRModule) -> None:
    raised = UserError("no")

    @function_pass(opt_level=1)
    def Fails(func: Any, mod: Any, ctx: Any) -> Any:
        if func is mod["other"]:
            raise raised
        return func

    with pytest.raises(UserError) as caught:
        Fails(mixed_mod)
    assert caught.value is raised
    assert caught.value.args == ("no",)
    assert notes_of(raised) == ["in pass Fails (opt_level 1) on function @other"]


def test_the_note_of_a_module_pass_names_the_function_if_it_says_so(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def Fails(mod: Any, ctx: Any) -> Any:
        with ctx.in_function("main"):
            raise UserError

    with pytest.raises(UserError) as caught:
        Fails(mod)
    assert notes_of(caught.value) == ["in pass Fails (opt_level 0) on function @main"]


def test_a_module_pass_that_finished_with_a_function_is_not_blamed_on_it(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def Fails(mod: Any, ctx: Any) -> Any:
        with ctx.in_function("main"):
            pass
        raise UserError

    with pytest.raises(UserError) as caught:
        Fails(mod)
    assert notes_of(caught.value) == ["in pass Fails (opt_level 0)"]


def test_each_pipeline_around_the_pass_adds_its_note(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def Fails(mod: Any, ctx: Any) -> Any:
        raise UserError

    with pytest.raises(UserError) as caught:
        Sequential([Fails], name="Pipe")(mod)
    assert notes_of(caught.value) == ["in pass Fails (opt_level 0)", "in pass Pipe (opt_level 0)"]


def test_the_place_that_an_error_says_of_itself_is_in_the_innermost_note(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def Fails(mod: Any, ctx: Any) -> Any:
        error = UserError()
        set_ir_location(error, "%3 = add(%x, %y)")
        set_ir_location(error, "a later, outer word")
        raise error

    with pytest.raises(UserError) as caught:
        Sequential([Fails])(mod)
    first, second = notes_of(caught.value)
    assert first == "in pass Fails (opt_level 0)\n  at: %3 = add(%x, %y)"
    assert "at:" not in second


def loop_level_mod() -> tuple[IRModule, Any]:
    """A module with a PrimFunc of two statements, and the second one."""
    a = ti.Buffer("a", (4,), "float32")
    i = ti.Var("i", "int64")
    store = ti.BufferStore(a, ti.const(1.0, "float32"), (i,))
    body = SeqStmt((Evaluate(ti.const(0, "int32")), ti.For(i, 0, 4, "serial", store)))
    return IRModule({"kernel": PrimFunc("kernel", (a,), body)}), store


def test_the_loop_level_statement_that_a_visitor_was_at_is_shown_and_underlined() -> None:
    mod, store = loop_level_mod()

    class Finder(Visitor):
        def visit_BufferStore(self, stmt: Any) -> None:
            raise UserError

    @primfunc_pass(opt_level=0)
    def Fails(func: Any, mod: Any, ctx: Any) -> Any:
        Finder().visit(func.body)
        return func

    with pytest.raises(UserError) as caught:
        Fails(mod)
    (note,) = notes_of(caught.value)
    lines = note.splitlines()
    assert lines[0] == "in pass Fails (opt_level 0) on function @kernel"
    shown = next(number for number, line in enumerate(lines) if line.strip() == str(store).strip())
    assert set(lines[shown + 1].strip()) == {"^"}
    assert len(lines[shown + 1].rstrip()) == len(lines[shown].rstrip())


def test_a_node_that_is_not_part_of_the_function_gives_way_to_one_that_is() -> None:
    mod, store = loop_level_mod()
    fresh = ti.Var("fresh", "int64")

    def check_new(expr: Any) -> None:
        raise UserError

    def rewrite(stmt: Any) -> None:
        check_new(fresh)

    @primfunc_pass(opt_level=0)
    def Fails(func: Any, mod: Any, ctx: Any) -> Any:
        rewrite(store)
        return func

    with pytest.raises(UserError) as caught:
        Fails(mod)
    (note,) = notes_of(caught.value)
    assert str(store).strip() in note
    assert "fresh" not in note


def test_the_graph_node_that_a_function_was_given_is_shown() -> None:
    x = gi.var("x", shape=(4,), dtype="float32")
    call = gi.tanh(x)  # type: ignore[attr-defined]

    def rewrite(expr: Any) -> Any:
        raise UserError

    @function_pass(opt_level=0)
    def Fails(func: Any, mod: Any, ctx: Any) -> Any:
        return rewrite(func.body)

    with pytest.raises(UserError) as caught:
        Fails(IRModule({"main": gi.Function([x], gi.negative(call))}))  # type: ignore[attr-defined]
    (note,) = notes_of(caught.value)
    place = note.splitlines()[1].strip()
    assert place == "at: negative(tanh(...)) : Tensor[(4,), float32]"


def test_an_error_that_a_pass_handles_leaves_no_trace(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def Fails(mod: Any, ctx: Any) -> Any:
        raise UserError

    @module_pass(opt_level=0)
    def Tries(mod: Any, ctx: Any) -> Any:
        with pytest.raises(UserError):
            Fails(mod)
        ctx.remark("tried")
        return mod

    with PassContext() as ctx:
        assert Tries(mod) is mod
    assert ctx.remarks[0].pass_name == "Tries"


def test_a_remark_says_pass_and_function_by_itself(mixed_mod: IRModule) -> None:
    @function_pass(opt_level=0)
    def Fuse(func: Any, mod: Any, ctx: Any) -> Any:
        ctx.remark("conv1 and add2 not fused: the output escapes", kind="missed", place="%2 = add(%1, %b)")
        return func

    with PassContext() as ctx:
        Fuse(mixed_mod)
    message = "conv1 and add2 not fused: the output escapes"
    assert ctx.remarks == [Remark("Fuse", name, "missed", message, "%2 = add(%1, %b)") for name in ("main", "other")]
    assert str(ctx.remarks[0]) == f"Fuse @main: missed: {message} [%2 = add(%1, %b)]"


def test_a_module_pass_names_the_function_of_a_remark(mod: IRModule) -> None:
    @module_pass(opt_level=0)
    def Look(mod: Any, ctx: Any) -> Any:
        ctx.remark("one")
        ctx.remark("two", function="given")
        with ctx.in_function("main"):
            ctx.remark("three")
        ctx.remark("four")
        return mod

    with PassContext() as ctx:
        Look(mod)
    assert [(remark.function, remark.message) for remark in ctx.remarks] == [
        ("", "one"),
        ("given", "two"),
        ("main", "three"),
        ("", "four"),
    ]


def test_a_pass_run_by_a_pass_speaks_for_itself(mod: IRModule) -> None:
    def speaking(name: str, inner: Any = None) -> Any:
        def transform(mod: Any, ctx: Any) -> Any:
            if inner is not None:
                inner(mod, ctx)
            ctx.remark("here")
            return mod

        return module_pass(transform, opt_level=0, name=name)

    with PassContext() as ctx:
        speaking("Outer", speaking("Inner"))(mod)
    assert [remark.pass_name for remark in ctx.remarks] == ["Inner", "Outer"]


def test_after_an_inner_pass_the_outer_one_is_at_its_function_again(mixed_mod: IRModule) -> None:
    inner = function_pass(lambda func, mod, ctx: func, opt_level=0, name="Inner")

    @function_pass(opt_level=0)
    def Outer(func: Any, mod: Any, ctx: Any) -> Any:
        inner(mod, ctx)
        ctx.remark("here")
        return func

    with PassContext() as ctx:
        Outer(mixed_mod)
    assert [(remark.pass_name, remark.function) for remark in ctx.remarks] == [("Outer", "main"), ("Outer", "other")]


def test_a_remark_outside_of_a_pass_names_none() -> None:
    with PassContext() as ctx:
        ctx.remark("hello")
    assert ctx.remarks == [Remark("", "", "note", "hello")]
    assert str(ctx.remarks[0]) == "(no pass): note: hello"


def test_remarks_stay_readable_after_the_context_and_begin_anew_with_the_next_block() -> None:
    ctx = PassContext()
    with ctx:
        ctx.remark("first")
        with ctx:
            ctx.remark("second")
    assert [remark.message for remark in ctx.remarks] == ["first", "second"]
    with ctx:
        assert ctx.remarks == []


def test_remarks_belong_to_the_context_that_the_pass_got(mod: IRModule) -> None:
    speak = module_pass(lambda mod, ctx: ctx.remark("here") or mod, opt_level=0, name="Speak")
    with PassContext() as outer, PassContext() as inner:
        speak(mod)
        speak(mod, outer)
    assert (len(outer.remarks), len(inner.remarks)) == (1, 1)


def test_candidates_are_ordered_by_similarity_without_regard_to_case() -> None:
    candidates = ["UnrollLoop", "VectorizeLoop", "FoldConstant", "foldconstants"]
    assert order_by_similarity("FOLDCONSTANT", candidates)[:2] == ["FoldConstant", "foldconstants"]
    assert sorted(order_by_similarity("x", candidates)) == sorted(candidates)


@pytest.mark.parametrize(
    ("candidates", "text"),
    [
        ([], ""),
        (["Alpha"], " Did you mean 'Alpha'?"),
        (["Alpha", "Beta"], " Did you mean 'Alpha' or 'Beta'?"),
        (["Alpha", "Beta", "Gamma", "Alphabet"], " Did you mean 'Alpha', 'Alphabet' or 'Gamma'?"),
    ],
)
def test_a_suggestion_reads_as_a_sentence(candidates: list[str], text: str) -> None:
    assert suggestion("alpha", candidates) == text


def test_a_node_as_the_place_of_a_remark_is_one_line() -> None:
    x = gi.var("x", shape=(2,))
    with PassContext() as ctx:
        ctx.remark("not done", "missed", place=gi.tanh(gi.exp(gi.exp(x))))
    assert ctx.remarks[0].place == "tanh(exp(...)) : Tensor[(2,), float32]"
