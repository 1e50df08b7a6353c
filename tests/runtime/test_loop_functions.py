"""A function written as loops is built and called like a model: the same checks, profile, report and artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright import tensorir as ti
from tilewright.graphir.module import UnknownFunctionError
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import InputError, TypeInferenceError, VerifyError

RNG = np.random.default_rng(0)


def scale(dtype: str = "float32") -> ti.PrimFunc:
    return ti.parse(f"""primfunc @scale(x: Buffer[(n, 3), {dtype}], y: Buffer[(n, 3), {dtype}], n: int64) {{
      for i in range(n) {{ for j in range(3) {{ y[i, j] = x[i, j] + x[i, j] }} }}
    }}""")


ACCUMULATE = ti.parse("""primfunc @accumulate(
  c: Buffer[(n, m), float32], a: Buffer[(n, k), float32], b: Buffer[(k, m), float32], n: int64, m: int64, k: int64
) {
  for i in range(n) { for j in range(m) { for l in range(k) { c[i, j] = c[i, j] + a[i, l] * b[l, j] } } }
}""")
SPREAD = ti.parse("""primfunc @spread(x: Buffer[(n,), int32], y: Buffer[(n, m), int32], n: int64, m: int64) {
  for i in range(n) { for j in range(m) { y[i, j] = x[i] + int32(j) } }
}""")
UNZIP = ti.parse("""primfunc @unzip(
  left: Buffer[(n,), float64], x: Buffer[(n * 2,), float64], right: Buffer[(n,), float64], n: int64, plus: int64
) {
  for i in range(n) { left[i] = x[i * 2] + float64(plus) right[i] = x[i * 2 + 1] }
}""")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64"])
@pytest.mark.parametrize("given", ["function", "module", "dictionary"])
def test_a_function_of_loops_is_built_and_called(target: tw.Target, dtype: str, given: str) -> None:
    func = scale(dtype)
    mod: Any = {"function": func, "module": tw.IRModule({"main": func}), "dictionary": {"main": func}}[given]
    model = tw.build(mod, target=target)
    assert str(model.signature) == f"(x: Tensor[(n, 3), {dtype}]) -> Tensor[(n, 3), {dtype}]"
    assert model.signature.result_names == ("y",)
    for rows in (0, 1, 17):
        x = (RNG.random((rows, 3)) * 20).astype(as_dtype(dtype).numpy)
        before = x.copy()
        found = model(x)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, x + x)
        np.testing.assert_array_equal(model(x=x), found)
        np.testing.assert_array_equal(x, before)


def test_inputs_are_checked_as_those_of_a_graph() -> None:
    model = tw.build(ACCUMULATE)
    c, a, b = np.ones((3, 5), "f4"), np.ones((3, 4), "f4"), np.ones((4, 5), "f4")
    for args, message in (
        ((c, a.astype("f8"), b), r"input 'a': expected float32 of shape \(n, k\), found element type float64"),
        ((c, a, b[0]), r"input 'b': expected float32 of shape \(k, m\), found 1 dimensions"),
        ((c, a, b.T), r"input 'b': .*dimension 'k' is 4 in input 'a' but 5 here"),
        ((a, b), "missing input 'b'"),
        ((c, a, b, b), "expected 3 inputs, found 4"),
    ):
        with pytest.raises(InputError, match=message):
            model(*args)
    np.testing.assert_array_equal(model(c.T.copy().T, a[:, ::-1], b), c + a @ b)  # strided views are copied


def test_a_buffer_that_is_read_first_is_taken_and_returned(target: tw.Target) -> None:
    model = tw.build(ACCUMULATE, target=target)
    assert [argument.name for argument in model.signature.inputs] == ["c", "a", "b"]
    for n, m, k in ((3, 5, 7), (1, 1, 1), (17, 33, 2), (2, 3, 0), (0, 4, 4)):
        c, a, b = (RNG.random(shape, "f4") for shape in ((n, m), (n, k), (k, m)))
        before = c.copy()
        np.testing.assert_allclose(model(c, a, b), c.astype("f8") + a.astype("f8") @ b, rtol=1e-5)
        np.testing.assert_array_equal(c, before)


def test_a_function_can_state_its_results() -> None:
    prefix = ti.parse("""primfunc @prefix(x: Buffer[(n,), float32], y: Buffer[(n,), float32], n: int64) {
      for i in range(n) { if i == 0 { y[i] = x[i] } else { y[i] = y[i - 1] + x[i] } }
    }""")
    assert len(tw.build(prefix).signature.inputs) == 2  # nothing proves that no element of y is read too early
    model = tw.build(prefix.with_attr("num_outputs", 1))
    x = RNG.random(9, "f4")
    np.testing.assert_allclose(model(x), np.cumsum(x), rtol=1e-6)


def test_a_size_that_no_shape_tells_is_an_input(target: tw.Target) -> None:
    model = tw.build(SPREAD, target=target)
    assert str(model.signature) == "(x: Tensor[(n,), int32], m: Tensor[(), int64]) -> Tensor[(n, m), int32]"
    for n, m in ((3, 5), (7, 0), (0, 3), (1, 1)):
        x = np.arange(n, dtype="i4")
        for size in (m, np.int64(m), np.array(m)):
            np.testing.assert_array_equal(model(x, size), x[:, None] + np.arange(m, dtype="i4"))
    with pytest.raises(InputError, match="size m: expected a number that is not negative, found -3"):
        model(np.ones(2, "i4"), -3)
    with pytest.raises(InputError, match=r"input 'm': expected int64 .*found the number 9223372036854775808"):
        model(np.ones(2, "i4"), 1 << 63)
    with pytest.raises(InputError, match=r"input 'm': expected int64 .*found a float"):
        model(np.ones(2, "i4"), 2.0)


def test_a_size_inside_of_a_formula_is_compared_with_the_shape(target: tw.Target) -> None:
    model = tw.build(UNZIP, target=target)
    assert [argument.name for argument in model.signature.inputs] == ["x", "n", "plus"]
    assert model.signature.result_names == ("left", "right")
    x = RNG.random(14)
    left, right = model(x, 7, 3)
    np.testing.assert_array_equal(left, x[::2] + 3)
    np.testing.assert_array_equal(right, x[1::2])
    with pytest.raises(InputError, match=r"dimension 0 of argument x of @unzip: x_0 is 14, but it must be n \* 2"):
        model(x, 6, 3)


def test_other_functions_of_a_module_do_not_matter() -> None:
    mod = tw.IRModule({"scale": ACCUMULATE, "main": scale(), "main_loops": SPREAD})
    x = RNG.random((5, 3), "f4")
    np.testing.assert_array_equal(tw.build(mod)(x), x + x)


@pytest.mark.parametrize("name", ["main", "memcpy", "expf", "my function", "def", ""])
def test_any_name_will_do(target: tw.Target, name: str) -> None:
    func = scale()
    x = RNG.random((5, 3), "f4")
    model = tw.build(ti.PrimFunc(name, func.params, func.body, func.attrs), target=target)
    np.testing.assert_array_equal(model(x), x + x)


def test_what_cannot_be_built_says_what_was_expected() -> None:
    with pytest.raises(
        UnknownFunctionError, match=r"whose function 'main' is the model, .*\(it has: f, g\); to build one"
    ):
        tw.build(tw.IRModule({"f": scale(), "g": scale()}))
    with pytest.raises(TypeError, match="build takes an IRModule, a Function or a PrimFunc, found list"):
        tw.build([scale()])  # type: ignore[arg-type]
    with pytest.raises(TypeInferenceError, match="@f: expected a function that writes to a buffer"):
        tw.build(ti.parse("primfunc @f(x: Buffer[(4,), float32]) { }"))
    with pytest.raises(VerifyError, match="index 0 to 4 is out of bounds"):
        tw.build(ti.parse("primfunc @f(x: Buffer[(4,), float32]) { for i in range(5) { x[i] = 0.0 } }"))
    with pytest.raises(VerifyError, match=r"index i \+ 1 of x reaches n, out of bounds for extent n"):
        tw.build(ti.parse("primfunc @f(x: Buffer[(n,), float32], n: int64) { for i in range(n) { x[i + 1] = 0.0 } }"))


def test_parameters_are_bound_by_name() -> None:
    add = ti.parse("""primfunc @add(a: Buffer[(4,), float32], b: Buffer[(4,), float32], c: Buffer[(4,), float32]) {
      for i in range(4) { c[i] = a[i] + b[i] }
    }""")
    model = tw.build(add, params={"b": np.arange(4, dtype="f4")})
    np.testing.assert_array_equal(model(np.ones(4, "f4")), np.arange(4, dtype="f4") + 1)


def test_stages_show_the_loops(kind: str) -> None:
    model = tw.build(scale(), target=kind)
    assert "%0 = @scale(%x)" in model.ir("graph")
    for stage in ("graph", "tensor", "scheduled", "lowered"):
        assert "@scale" in model.ir(stage)
    assert "scale" in model.source


def test_a_profile_names_the_function(kind: str) -> None:
    found = tw.build(SPREAD, target=kind).profile(np.arange(5, dtype="i4"), 7, repeat=2)
    assert "spread" in found.render()


def test_a_report_shows_the_function(tmp_path: Path) -> None:
    tw.report(tw.build(ACCUMULATE), tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("graph", [False, True])
def test_an_artifact_runs_the_function(tmp_path: Path, graph: bool) -> None:
    model = tw.build(UNZIP)
    model.export(tmp_path / "unzip.tw", graph=graph)
    loaded = tw.load(tmp_path / "unzip.tw")
    assert str(loaded.signature) == str(model.signature)
    x = RNG.random(6)
    for found, expected in zip(loaded(x, 3, 1), (x[::2] + 1, x[1::2]), strict=True):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match=r"must be n \* 2"):
        loaded(x, 4, 1)
    assert "primfunc @unzip(" in loaded.ir("graph") and "primfunc @unzip(" in loaded.ir("lowered")


def test_a_build_is_found_again_by_its_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "on")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    x = np.ones((2, 3), "f4")
    other = ti.parse(str(scale()).replace("x[i, j] + x[i, j]", "x[i, j] * x[i, j]"))
    for _ in range(2):
        np.testing.assert_array_equal(tw.build(scale())(x), x + x)
        np.testing.assert_array_equal(tw.build(other)(x), x * x)


def test_loops_and_operators_make_one_model(target: tw.Target) -> None:
    x = gi.var("x", shape=("p", 3))
    doubled = gi.Call(gi.GlobalVar("scale"), [gi.tanh(x)])
    call = gi.Call(gi.GlobalVar("scale", gi.FuncType([x.type], x.type)), [x])
    joined = gi.concatenate([call, gi.Call(gi.GlobalVar("scale", gi.FuncType([x.type], x.type)), [call])], axis=1)
    for body, expected in (
        (doubled, lambda v: np.tanh(v) * 2),
        (gi.exp(call) + call, lambda v: np.exp(v * 2) + v * 2),
        (joined, lambda v: np.concatenate([v * 2, v * 4], axis=1)),
        (gi.Tuple([call, call]), lambda v: v * 2),
    ):
        model = tw.build(tw.IRModule({"main": gi.Function([x], body), "scale": scale()}), target=target)
        values = RNG.random((7, 3), "f4")
        found = model(values)
        for part in found if isinstance(found, tuple) else (found,):
            np.testing.assert_allclose(part, expected(values), rtol=1e-5)
