"""CheckBounds: each access whose index may be outside carries a check of it."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes.context import PassContext
from tilewright.passes.registry import get_pass
from tilewright.passes.tensor.check_bounds import check_bounds
from tilewright.tensorir import interpret, parse, verify
from tilewright.tensorir.errors import ConfigTypeError, OutOfBoundsError

GATHER = """
primfunc @gather(at: Buffer[(n,), int64], x: Buffer[(m,), float32], y: Buffer[(n,), float32], n: int64, m: int64) {
  for i in range(n) {
    y[i] = x[at[i]]
  }
}
"""


def test_every_index_is_compared_with_its_extent(rewrites):
    rewrites(
        check_bounds,
        GATHER,
        """
primfunc @gather(at: Buffer[(n,), int64], x: Buffer[(m,), float32], y: Buffer[(n,), float32], n: int64, m: int64)
    attrs {"checked_accesses": ("@gather: at[i]: dimension 0 of at", "@gather: x[at[i]]: dimension 0 of x",
                                "@gather: y[i]: dimension 0 of y")} {
  for i in range(n) {
    y[i where check_index(i, n, True, 2)] =
      x[at[i where check_index(i, n, True, 0)] where check_index(at[i where check_index(i, n, True, 0)], m, True, 1)]
  }
}
""",
    )


def test_only_the_dimensions_that_may_be_left_are_checked_and_only_active_lanes(rewrites):
    rewrites(
        check_bounds,
        """
primfunc @f(a: Buffer[(4, n), float32], b: Buffer[(4, 32), float32], n: int64) {
  for i in range(4) {
    a[i, ramp(n - 8, 1, 8) where ramp(n - 8, 1, 8) >= broadcast(0, 8)] = b[i, ramp(24, 1, 8)]
  }
}
""",
        """
primfunc @f(a: Buffer[(4, n), float32], b: Buffer[(4, 32), float32], n: int64)
    attrs {"checked_accesses": ("@f: a[i, ramp(n - 8, 1, 8)]: dimension 1 of a",)} {
  for i in range(4) {
    a[i, ramp(n - 8, 1, 8) where check_index(ramp(n - 8, 1, 8), broadcast(n, 8),
                                             ramp(n - 8, 1, 8) >= broadcast(0, 8), 0)] = b[i, ramp(24, 1, 8)]
  }
}
""",
    )


def test_an_index_of_a_local_buffer_is_also_clamped(rewrites):
    rewrites(
        check_bounds,
        """
primfunc @f(y: Buffer[(1,), float32], n: int64) {
  allocate t: Buffer[(16,), float32, stack]
  t[n] = 1.0
  y[0] = t[3]
}
""",
        """
primfunc @f(y: Buffer[(1,), float32], n: int64) attrs {"checked_accesses": ("@f: t[n]: dimension 0 of t",)} {
  allocate t: Buffer[(16,), float32, stack]
  t[max(min(n, 15), 0) where check_index(n, 16, True, 0)] = 1.0
  y[0] = t[3]
}
""",
    )


def test_an_address_and_a_hint_are_no_accesses(rewrites):
    text = """
primfunc @f(y: Buffer[(8,), float32], n: int64) {
  evaluate prefetch(y[n])
  evaluate @g(address_of(y[n]))
}
"""
    rewrites(check_bounds, text, text)


def test_the_interpreter_agrees():
    values = np.array([0, 2, 1]), np.arange(3, dtype="f4")
    func = check_bounds(parse(GATHER))
    verify(func)
    y = np.zeros(3, "f4")
    interpret(func, *values, y, 3, 3)
    np.testing.assert_array_equal(y, [0, 2, 1])
    with pytest.raises(OutOfBoundsError, match="expected 0 <= index < 3, found 3"):
        interpret(func, np.array([0, 3, 1]), values[1], y, 3, 3)


def test_it_does_nothing_unless_the_configuration_asks_for_it():
    mod = IRModule({"gather": parse(GATHER)})
    run = get_pass("CheckBounds")
    with PassContext(config={"tensorir.CheckBounds": False}):
        assert run(mod)["gather"] is mod["gather"]
    for asked in (True, {"enabled": True}):
        with PassContext(config={"tensorir.CheckBounds": asked}):
            assert len(run(mod)["gather"].attrs["checked_accesses"]) == 3


def test_what_is_checked_is_not_checked_again():
    func = check_bounds(parse(GATHER))
    assert check_bounds(func) is func


def test_only_a_switch_may_be_set_by_a_bool():
    with pytest.raises(ConfigTypeError, match="expected a mapping or UnrollLoopConfig, found bool"):
        PassContext(config={"tensorir.UnrollLoop": True})
    with pytest.raises(ConfigTypeError, match="expected a mapping or CheckBoundsConfig, found int"):
        PassContext(config={"tensorir.CheckBounds": 1})
