"""Calls between functions that are written as loops are checked against their parameters."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.tensorir.both_targets import on_both_targets
from tilewright import graphir as gi
from tilewright.tensorir.errors import TypeInferenceError

TEXT = """
def @main(%x: Tensor[(n, 4), float32]) -> Tensor[(n, 4), float32] {
  %0 = @outer(%x) : Tensor[(n, 4), float32]
  %0
}
primfunc @outer(a: Buffer[(n, 4), float32], b: Buffer[(n, 4), float32], n: int64) attrs {"num_outputs": 1} {
  for i in range(n) {
    CALL
  }
}
primfunc @inner(a: Buffer[(m,), float32], b: Buffer[(m,), float32], m: int64) attrs {ROLES} {
  for i in range(m) {
    b[i] = a[i] + 1.0
  }
}
"""
FITS = "@inner(address_of(a[i, 0]), address_of(b[i, 0]), 4)"


def build(call: str, roles: str = '"num_outputs": 1', target: tw.Target | str = "llvm") -> tw.Executable:
    return tw.build(gi.parse(TEXT.replace("CALL", call).replace("ROLES", roles)), target)


@on_both_targets
def test_a_function_calls_another_for_each_row(target: tw.Target) -> None:
    x = np.arange(20, dtype="f4").reshape(5, 4)
    np.testing.assert_array_equal(build(FITS, target=target)(x), x + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("@inner(address_of(a[i, 0]), address_of(b[i, 0]), 5)", "expected 5 elements behind the address"),
        ("@inner(address_of(a[i, 1]), address_of(b[i, 0]), 4)", "which a of n \\* 4 is not known to have"),
        ("@inner(address_of(a[i, 0]), address_of(b[i, 0]))", "expected 3 arguments, found 2"),
        ("@inner(address_of(a[i, 0]), address_of(b[i, 0]), int32(4))", "size m: expected int64, found int32"),
        ("@inner(address_of(a[i, 0]), 8, 4)", "buffer b: expected an address"),
        ("@outer(address_of(a[i, 0]), address_of(b[i, 0]), 1)", "@outer calls @outer in turn, without end"),
        ("@other(address_of(a[i, 0]))", "expected a function of the module that is loops, found @other"),
        ("@main(address_of(a[i, 0]))", "expected a function of the module that is loops, found @main"),
    ],
)
def test_calls_that_do_not_fit_are_refused(call: str, message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        build(call)


def test_roles_of_buffers_have_to_be_stated() -> None:
    with pytest.raises(TypeInferenceError, match="@inner has to state which buffers are results"):
        build(FITS, "")
