"""LambdaLift, InlineFunctions and RemoveUnusedFunctions."""

from __future__ import annotations

import pytest

from tilewright import graphir as gi
from tilewright.passes.graph import InlineFunctions, LambdaLift, RemoveUnusedFunctions
from tilewright.tensorir.expr import Call, IntImm
from tilewright.tensorir.stmt import Evaluate, PrimFunc

T = "Tensor[(2,), float32]"


def test_a_closure_becomes_a_function_of_what_it_captures(rewrites):
    rewrites(
        LambdaLift(),
        f"def @main(%x: {T}, %y: {T}) {{ %0 = fn (%p: {T}) {{ %1 = add(%p, %y) %1 }} %2 = %0(%x) %2 }}",
        f"def @main(%x: {T}, %y: {T}) {{ %2 = @main_lifted(%y, %x) %2 }}"
        f"def @main_lifted(%y: {T}, %p: {T}) -> {T} {{ %1 = add(%p, %y) %1 }}",
    )


def test_fused_groups_are_not_lifted(rewrites):
    text = (
        f'def @main(%x: {T}) {{ %0 = fn (%p: {T}) attrs {{"Primitive": True}} {{ %1 = tanh(%p) %1 }} %2 = %0(%x) %2 }}'
    )
    rewrites(LambdaLift(), text, text)


def test_a_loop_body_that_captures_stays_with_a_remark(rewrites):
    body = f"fn (%i: Tensor[(), int64], %s: {T}) {{ %1 = add(%s, %x) %2 = (%1,) %2 }}"
    text = f"def @main(%x: {T}) {{ %0 = {body} %3 = loop(int64(3), None, %0, %x) %3 }}"
    ctx = rewrites(LambdaLift(), text, text)
    assert any("captures variables" in remark.message for remark in ctx.remarks)


def test_marked_functions_and_functions_called_once_are_inlined(rewrites):
    functions = (
        f'def @square(%p: {T}) -> {T} attrs {{"Inline": True}} {{ %1 = multiply(%p, %p) %1 }}'
        f"def @once(%p: {T}) -> {T} {{ %1 = @square(%p) %2 = tanh(%1) %2 }}"
    )
    inlined = functions.replace("@square(%p) %2", "multiply(%p, %p) %2")
    rewrites(
        InlineFunctions(),
        f"def @main(%x: {T}) {{ %0 = @square(%x) %1 = @once(%0) %1 }}" + functions,
        f"def @main(%x: {T}) {{ %0 = multiply(%x, %x) %1 = multiply(%0, %0) %2 = tanh(%1) %2 }}" + inlined,
    )


@pytest.mark.parametrize(
    "callee",
    [
        f'def @f(%p: {T}) -> {T} attrs {{"Inline": True}} {{ %1 = @f(%p) %1 }}',
        f'def @f(%p: {T}) -> {T} attrs {{"Inline": True, "SkipOptimization": True}} {{ %1 = tanh(%p) %1 }}',
        f"def @f(%p: {T}) -> {T} {{ %1 = tanh(%p) %1 }}",
    ],
    ids=["recursive", "skipped", "called twice, not marked"],
)
def test_others_are_not_inlined(rewrites, callee):
    text = f"def @main(%x: {T}) {{ %0 = @f(%x) %1 = @f(%0) %1 }}" + callee
    rewrites(InlineFunctions(), text, text)


def test_variables_of_a_body_that_is_inlined_twice_are_made_anew():
    let = f'def @f(%p: {T}) -> {T} attrs {{"Inline": True}} {{ let %v = tanh(%p) %1 = add(%v, %v) %1 }}'
    mod = gi.parse(f"def @main(%x: {T}) {{ %0 = @f(%x) %1 = @f(%0) %1 }}" + let)
    gi.verify(InlineFunctions()(mod))  # a variable that is bound twice would be an error


def test_unreachable_functions_are_removed(rewrites):
    used = f"def @main(%x: {T}) {{ %0 = @f(%x) %0 }} def @f(%p: {T}) -> {T} {{ %0 = @g(%p) %0 }}"
    used += f"def @g(%p: {T}) -> {T} {{ %p }}"
    rewrites(RemoveUnusedFunctions(), used + f"def @unused(%p: {T}) -> {T} {{ %0 = @g(%p) %0 }}", used)


def test_without_an_entry_point_nothing_is_removed(rewrites):
    text = f"def @f(%p: {T}) {{ %p }} def @g(%p: {T}) {{ %p }}"
    rewrites(RemoveUnusedFunctions(), text, text)
    rewrites(RemoveUnusedFunctions(["g"]), text, f"def @g(%p: {T}) {{ %p }}")


def test_loop_level_functions_count_as_callers():
    inner = PrimFunc("inner", (), Evaluate(IntImm(0)))
    outer = PrimFunc("outer", (), Evaluate(Call("@inner", (), "void")))
    unused = PrimFunc("unused", (), Evaluate(IntImm(0)))
    main = gi.parse(f"def @main(%x: {T}) {{ %0 = @outer(%x) : {T} %0 }}")["main"]
    functions = {"main": main, "outer": outer, "inner": inner}
    before = gi.IRModule({**functions, "unused": unused})
    after = RemoveUnusedFunctions()(before)
    assert [gv.name for gv in after] == ["main", "outer", "inner"]
