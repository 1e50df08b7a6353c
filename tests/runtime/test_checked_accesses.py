"""With ``tensorir.CheckBounds``, an access outside of a buffer is an error of the call, which touches no memory."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.tensorir.errors import OutOfBoundsError

CHECKED = {"tensorir.CheckBounds": True}
GATHER = "at: Buffer[(n,), int64], x: Buffer[(m,), float32], y: Buffer[(n,), float32]"
X = np.arange(1, 4, dtype="f4")


def built(body: str, kind: str, parameters: str = GATHER, *, attrs: str = "", threads: int | None = None):
    loops = ti.parse(f"""
      primfunc @k({parameters}, n: int64, m: int64) attrs {{"num_outputs": 1{attrs}}} {{ {body} }}""")
    with tw.PassContext(config=CHECKED):
        return tw.build(loops, target=tw.Target(kind, num_threads=threads))


def raises(where: str, extent: int, found: int):
    return pytest.raises(OutOfBoundsError, match=re.escape(f"{where}: expected 0 <= index < {extent}, found {found}"))


@pytest.mark.parametrize(
    ("body", "access"),
    [
        ("for i in range(n) { y[i] = x[at[i]] }", "x[at[i]]"),
        ("for i in range(n) { y[i] = 0.0 } y[ramp(0, 1, 8)] = x[at[ramp(0, 1, 8)]]", "x[at[ramp(0, 1, 8)]]"),
    ],
)
def test_an_error_names_kernel_access_dimension_and_index(kind: str, body: str, access: str) -> None:
    model = built(body, kind)
    inside = np.array([0, 2, 1, 1, 1, 0, 2, 0, 2])
    np.testing.assert_array_equal(model(inside, X)[:8], X[inside][:8])
    for wrong in (3, -1, 1 << 40, -(1 << 62)):
        outside = inside.copy()
        outside[5] = wrong
        with raises(f"@k: {access}: dimension 0 of x", 3, wrong):
            model(outside, X)
    np.testing.assert_array_equal(model(inside, X)[:8], X[inside][:8])


def test_trusted_indices_and_stores_are_checked_too(kind: str) -> None:
    body = "for i in range(n) { y[i] = 0.0 } for i in range(n) { y[at[i]] = y[at[i]] + 1.0 }"
    parameters = "at: Buffer[(n,), int64], y: Buffer[(n,), float32]"
    model = built(body, kind, parameters, attrs=', "unchecked_indices": True')
    np.testing.assert_array_equal(model(np.array([0, 1, 1]), 1), [1, 2, 0])
    with raises("@k: y[at[i]]: dimension 0 of y", 3, 1 << 33):
        model(np.array([0, 1 << 33, 1]), 1)


def test_an_index_of_the_next_row_is_outside(kind: str) -> None:
    parameters = "x: Buffer[(n, m), float32], y: Buffer[(n, m), float32]"
    body = "for i in range(n - 1) { for j in range(m) { y[i, j] = x[i, j + 1] } }"
    model = built(body, kind, parameters)
    with raises("@k: x[i, j + 1]: dimension 1 of x", 5, 5):
        model(np.zeros((3, 5), "f4"))


def test_a_masked_access_outside_is_none(kind: str) -> None:
    model = built("for i in range(n) { y[i] = x[at[i] where at[i] >= 0 and at[i] < m] }", kind)
    np.testing.assert_array_equal(model(np.array([0, -1, 1 << 40]), X), [1, 0, 0])


@pytest.mark.parametrize("scope", ["stack", "register"])
def test_a_local_buffer_is_left_neither(kind: str, scope: str) -> None:
    body = f"""
      allocate t: Buffer[(16,), float32, {scope}]
      for i in range(16) {{ t[i] = 0.0 }}
      for i in range(n) {{ t[at[i]] = x[0] }}
      for i in range(n) {{ y[i] = t[i % 16] }}
    """
    model = built(body, kind)
    np.testing.assert_array_equal(model(np.array([1, 1, 1]), X), [0, 1, 0])
    with raises("@k: t[at[i]]: dimension 0 of t", 16, 1 << 22):
        model(np.array([1, 1 << 22, 1]), X)


def test_threads_of_a_loop_report_one_access(kind: str) -> None:
    model = built("for i in parallel(n) { y[i] = x[at[i]] }", kind, threads=2)
    at = np.arange(100_000) % 3
    np.testing.assert_array_equal(model(at, X), X[at])
    with raises("@k: x[at[i]]: dimension 0 of x", 3, 7):
        model(np.where(at == 1, 7, at), X)


def test_calls_of_several_threads_get_their_own_errors(kind: str) -> None:
    model, inside = built("for i in range(n) { y[i] = x[at[i]] }", kind), np.arange(2000) % 3
    model(inside, X)
    wrong: list[object] = []

    def call(number: int) -> None:
        at = inside if number % 2 else np.full(2000, 100 + number)
        for _ in range(20):
            try:
                result = model(at, X)
                if not number % 2 or not np.array_equal(result, X[at]):
                    wrong.append(number)
            except OutOfBoundsError as error:
                if number % 2 or not str(error).endswith(f"found {100 + number}"):
                    wrong.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_artifact_reports_as_well(tmp_path: Path) -> None:
    built("for i in range(n) { y[i] = x[at[i]] }", "llvm").export(tmp_path / "k.tw")
    model = tw.load(tmp_path / "k.tw")
    with raises("@k: x[at[i]]: dimension 0 of x", 3, 5):
        model(np.array([0, 5]), X)


def convolution(image: gi.Expr) -> gi.Expr:
    weight = gi.const(np.random.default_rng(0).standard_normal((5, 3, 3, 3)).astype("f4"))
    convolved = gi.nn.relu(gi.nn.conv2d(image, weight, padding=(1, 1)))
    return gi.nn.softmax(gi.nn.max_pool2d(convolved, (2, 2), strides=(2, 2)))


@pytest.mark.parametrize(
    ("kind", "level", "make"),
    [("llvm", 0, convolution), ("llvm", 2, convolution), ("numba", 2, gi.nn.softmax)],
)
def test_what_the_compiler_makes_stays_inside(kind: str, level: int, make) -> None:
    """Borders, tails of vectors and symbolic sizes: no check fails, and results are as without."""
    x = gi.var("x", shape=("n", 3, "h", "w"))
    mod = tw.IRModule.from_expr(gi.Function([x], make(x)))
    target = tw.Target(kind, num_threads=1 if kind == "numba" else None)
    usual = tw.build(mod, target=target, opt_level=level)
    with tw.PassContext(opt_level=level, config=CHECKED):
        checked = tw.build(mod, target=target)
    rng = np.random.default_rng(1)
    for shape in ((1, 3, 7, 19), (2, 3, 12, 33)):
        image = rng.standard_normal(shape).astype("f4")
        np.testing.assert_array_equal(checked(image), usual(image))


@pytest.mark.parametrize("cached", ["off", "on"])
def test_equal_kernels_of_other_names_report_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: str
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", cached)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    for name in ("first", "second", "first"):
        loops = ti.parse(f"""
          primfunc @{name}({GATHER.replace("x:", f"{name}_x:")}, n: int64, m: int64) attrs {{"num_outputs": 1}} {{
            for i in range(n) {{ y[i] = {name}_x[at[i]] }}
          }}""")
        with tw.PassContext(config=CHECKED):
            model = tw.build(loops)
        with raises(f"@{name}: {name}_x[at[i]]: dimension 0 of {name}_x", 3, 3):
            model(np.array([3]), X)
