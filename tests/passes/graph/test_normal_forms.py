"""ToANormalForm binds everything, in the innermost scope; ToGraphNormalForm is the inverse."""

from __future__ import annotations

from tilewright import graphir as gi
from tilewright.passes.graph import ToANormalForm, ToGraphNormalForm
from tilewright.passes.graph.a_normal_form import is_a_normal_form

HEAD = "def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {"


def test_every_result_is_bound(rewrites):
    rewrites(
        ToANormalForm(),
        f"{HEAD} %0 = tanh(%x) %1 = exp(%0) %2 = add(%1, %0) %2 }}",
        f"{HEAD} let %a = tanh(%x) let %b = exp(%a) let %d = add(%b, %a) %d }}",
    )


def test_a_branch_binds_what_only_it_needs(rewrites):
    rewrites(
        ToANormalForm(),
        f"{HEAD} %0 = tanh(%x) %1 = if %c {{ %2 = exp(%0) %2 }} else {{ %0 }} %1 }}",
        f"{HEAD} let %a = tanh(%x) let %r = if %c {{ let %b = exp(%a) %b }} else {{ %a }} %r }}",
    )


def test_the_two_are_inverse(network, keeps_values):
    mod, x = network
    normal = keeps_values(ToANormalForm(), mod, x)
    assert is_a_normal_form(normal["main"].body)
    gi.assert_structural_equal(ToGraphNormalForm()(normal), mod)
