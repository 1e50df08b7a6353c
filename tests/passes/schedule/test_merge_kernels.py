"""MergeKernels: kernels that differ in free constants alone become one, and compute what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import PassContext
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.passes.schedule import MergeKernels
from tilewright.passes.schedule.kernel_patterns import pattern_of, with_constants
from tilewright.tensorir import assert_structural_equal, parse
from tilewright.tensorir.functor import walk
from tilewright.tensorir.stmt import Block, PrimFunc

#: The loop of n steps gives tasks something to do: those that do little keep their divisors.
SCALE = """
primfunc @{name}(x: Buffer[(n, {c}, 16), float32], y: Buffer[(n, {c}, 16), float32], n: int64)
    attrs {{"num_inputs": 1, "num_outputs": 1, "operators": ("multiply",)}} {{
  for task in parallel(n * {c}) {{
    for step in range(n) {{
      for lane in vectorized(16) {{
        block y(vi: spatial(n) = task // {c}, vc: spatial({c}) = task % {c}, vl: spatial(16) = lane) {{
          reads x[vi, vc, vl]
          writes y[vi, vc, vl]
          y[vi, vc, vl] = x[vi, vc, vl] * {a}
        }}
      }}
    }}
  }}
}}
"""
BEFORE = (
    """
def @main(%x: Tensor[(n, 12, 16), float32], %z: Tensor[(n, 24, 16), float32]) {
  %0 = @scale(%x) : Tensor[(n, 12, 16), float32]
  %1 = @scale_1(%z) : Tensor[(n, 24, 16), float32]
  %2 = (%0, %1)
  %2
}
"""
    + SCALE.format(name="scale", c=12, a=0.5)
    + SCALE.format(name="scale_1", c=24, a=0.75)
)
EXPECTED = """
def @main(%x: Tensor[(n, 12, 16), float32], %z: Tensor[(n, 24, 16), float32]) {
  %0 = @scale(%x, float32(0.5)) : Tensor[(n, 12, 16), float32]
  %1 = @scale(%z, float32(0.75)) : Tensor[(n, 24, 16), float32]
  %2 = (%0, %1)
  %2
}
primfunc @scale(
    x: Buffer[(n, count_0 * 12, 16), float32],
    scalar_0: Buffer[(), float32],
    y: Buffer[(n, count_0 * 12, 16), float32],
    n: int64,
    count_0: int64
) attrs {"num_inputs": 2, "num_outputs": 1, "operators": ("multiply",), "sizes_from": (None, (0, 1, 12))} {
  for task in parallel(n * (count_0 * 12)) {
    for step in range(n) {
      for lane in vectorized(16) {
        block y(
          vi: spatial(n) = task // (count_0 * 12),
          vc: spatial(count_0 * 12) = task % (count_0 * 12),
          vl: spatial(16) = lane
        ) {
          reads x[vi, vc, vl], scalar_0[()]
          writes y[vi, vc, vl]
          y[vi, vc, vl] = x[vi, vc, vl] * scalar_0[()]
        }
      }
    }
  }
}
"""


def merged(text: str) -> IRModule:
    return MergeKernels()(gi.parse(text))


def names(mod: IRModule) -> list[str]:
    return sorted(key.name for key, function in mod.functions.items() if isinstance(function, PrimFunc))


def test_kernels_of_other_sizes_and_scalars_become_one_with_parameters() -> None:
    found = merged(BEFORE)
    expected = gi.parse(EXPECTED)
    assert names(found) == ["scale"]
    assert_structural_equal(found["scale"], expected["scale"])
    gi.assert_structural_equal(found["main"], expected["main"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[vi, vc, vl] * 0.75", "x[vi, vc, vl] + 0.75"),
        ("x[vi, vc, vl] * 0.75", "x[vi, vc, vl] / 0.75"),
        ("parallel(n * 24)", 'parallel(n * 24) annotations {"note": 1}'),
        ("task // 24, vc", "task // 24 + 0, vc"),
    ],
)
def test_kernels_that_differ_in_more_than_free_constants_stay(old: str, new: str) -> None:
    changed = BEFORE.replace(old, new)
    assert changed != BEFORE
    assert names(merged(changed)) == ["scale", "scale_1"]


@pytest.mark.parametrize(("steps", "count"), [(300, 1), (200, 2)])
def test_tasks_of_few_steps_keep_their_divisors(steps: int, count: int) -> None:
    assert len(names(merged(BEFORE.replace("step in range(n)", f"step in range({steps})")))) == count


def test_what_unrolled_and_vectorized_loops_walk_belongs_to_the_pattern() -> None:
    text = BEFORE.replace("for lane in vectorized(16)", "for lane in unrolled(16)")
    wide = text.replace("vc, vl] * 0.75", "vc, vl] * 0.75").replace("(n, 24, 16)", "(n, 24, 32)")
    assert names(merged(text)) == ["scale"]
    assert names(merged(wide)) == ["scale"], "the stride of a dimension that only a parallel loop walks is free"
    turned = BEFORE.replace("vl: spatial(16) = lane) {", "vl: spatial(16) = 0) {").replace("= task % 24", "= lane")
    assert names(merged(turned)) == ["scale", "scale_1"], "these index other variables"
    strided = text.replace("[vi, vc, vl]", "[vl, vc, vi]").replace("(n, 12, 16)", "(16, 12, n)")
    strided = strided.replace("(n, 24, 16)", "(16, 24, n)")
    assert names(merged(strided)) == ["scale", "scale_1"], "copies of the body are 12 and 24 rows apart"
    few = strided.replace("unrolled(16)", "unrolled(4)").replace("spatial(16)", "spatial(4)")
    few = few.replace("(16, 12, n)", "(4, 12, n)").replace("(16, 24, n)", "(4, 24, n)")
    assert names(merged(few)) == ["scale"], "four copies have an address each"
    large = few.replace("(4, 12, n)", "(4, 12, 2048)").replace("(4, 24, n)", "(4, 24, 2048)")
    assert names(merged(large)) == ["scale", "scale_1"], "what is fetched ahead has constant strides"


@pytest.mark.parametrize(("rows", "small"), [(4, (0, 2)), (64, None)])
def test_buffers_are_small_if_they_are_in_each_of_the_kernels(rows: int, small: tuple[int, ...] | None) -> None:
    found = merged(
        BEFORE.replace(", n: int64)", ")").replace("range(n)", "range(300)").replace("(n", f"({rows}")
    )  # 64 rows of 24 are 96 KiB
    func = found["scale"]
    assert isinstance(func, PrimFunc) and names(found) == ["scale"]
    assert func.attrs.get("small_buffers") == small


#: What is added behind a sum is read in two rows, which lie as far apart as the image is large.
RESIDUAL = """
primfunc @{name}(
    w: Buffer[(300, 16), float32], x: Buffer[(1, 64, {p}, 16), float32], y: Buffer[(1, 64, {p}, 16), float32]
) attrs {{"num_inputs": 2, "num_outputs": 1, "operators": ("conv2d", "add")}} {{
  allocate s: Buffer[(16,), float32, register]
  for task in parallel(64 * {p}) {{
    for k in range(300) {{
      for lane in vectorized(16) {{
        block sum(vl: spatial(16) = lane, vk: reduction(300) = k) {{
          reads s[vl], w[vk, vl]
          writes s[vl]
          s[vl] = s[vl] + w[vk, vl]
        }}
      }}
    }}
    for row in unrolled(2) {{
      for lane in vectorized(16) {{
        block y(vc: spatial(64) = task // {p} // 2 * 2 + row, vp: spatial({p}) = task % {p}, vl: spatial(16) = lane) {{
          reads s[vl], x[task // 64 // {p}, vc, vp, vl]
          writes y[0, vc, vp, vl]
          y[0, vc, vp, vl] = s[vl] + x[task // 64 // {p}, vc, vp, vl]
        }}
      }}
    }}
  }}
}}
"""


def test_what_is_read_behind_a_sum_may_have_any_strides() -> None:
    main = "def @main(%w: Tensor[(300, 16), float32]"
    kernels, calls, results = "", "", []
    for number, size in enumerate((100, 300)):
        name = f"add_{number}"
        kernels += RESIDUAL.format(name=name, p=size)
        main += f", %x{number}: Tensor[(1, 64, {size}, 16), float32]"
        calls += f"  %{number} = @{name}(%w, %x{number}) : Tensor[(1, 64, {size}, 16), float32]\n"
        results.append(f"%{number}")
    found = merged(f"{main}) {{\n{calls}  %2 = ({', '.join(results)})\n  %2\n}}\n{kernels}")
    assert names(found) == ["add_0"]


def test_sizes_that_no_argument_tells_are_passed() -> None:
    text = BEFORE
    for old, new in ((24, 40), (12, 13)):
        text = text.replace(f"y: Buffer[(n, {old}, 16)", f"y: Buffer[(n, {new}, 16)")
    found = merged(text)
    func = found["scale"]
    assert isinstance(func, PrimFunc)
    assert names(found) == ["scale"]
    assert func.attrs["sizes_from"] == (None, (0, 1, 12), (0,))
    main = [line.split(" : ")[0].strip() for line in str(found["main"]).splitlines() if "@scale(" in line]
    assert main == [
        "%0 = @scale(%x, float32(0.5), int64(13))",
        "%1 = @scale(%z, float32(0.75), int64(40))",
    ]


def test_what_is_passed_is_positive() -> None:
    text = BEFORE.replace("range(n)", "range(300)").replace("spatial(16) = lane", "spatial(16) = lane + step * OFFSET")
    first, second = text.split("primfunc @scale_1")
    found = merged(first.replace("OFFSET", "-30") + "primfunc @scale_1" + second.replace("OFFSET", "20"))
    assert names(found) == ["scale"]
    main = [line.split(" : ")[0].strip() for line in str(found["main"]).splitlines() if "@scale(" in line]
    assert [line.split(", ")[-1] for line in main] == ["int64(1))", "int64(51))"], "31 more than what is meant"
    assert "step * (count_1 - 31)" in str(found["scale"])


def test_sizes_may_be_told_by_an_argument_with_a_border() -> None:
    text = BEFORE
    for count in (12, 24):
        text = text.replace(f"x: Buffer[(n, {count}, 16)", f"x: Buffer[(n, {count + 2}, 16)")
        text = text.replace(f"x: Tensor[(n, {count}, 16)", f"x: Tensor[(n, {count + 2}, 16)")
        text = text.replace(f"z: Tensor[(n, {count}, 16)", f"z: Tensor[(n, {count + 2}, 16)")
    func = merged(text)["scale"]
    assert isinstance(func, PrimFunc)
    assert [str(buffer.shape[1]) for buffer in func.buffers if buffer.shape] == ["count_0 * 2", "count_0 * 2 - 2"]
    assert func.attrs["sizes_from"] == (None, (0, 1, 2))


def test_sizes_may_be_told_by_a_result() -> None:
    text = BEFORE
    for name in ("x", "z"):
        text = text.replace(f"%{name}: Tensor[(n, {12 if name == 'x' else 24}, 16)", f"%{name}: Tensor[(n, 48, 16)")
    text = text.replace("x: Buffer[(n, 12, 16)", "x: Buffer[(n, 48, 16)")
    text = text.replace("x: Buffer[(n, 24, 16)", "x: Buffer[(n, 48, 16)")
    func = merged(text)["scale"]
    assert isinstance(func, PrimFunc)
    assert func.attrs["sizes_from"] == (None, (2, 1, 12)), "a scalar stands between the argument and the result"


def test_places_of_results_that_a_kernel_knows_move_behind_its_scalars() -> None:
    text = BEFORE.replace('"operators": ("multiply",)', '"operators": ("multiply",), "sizes_from": ((1, 0),)')
    func = merged(text)["scale"]
    assert isinstance(func, PrimFunc)
    assert func.attrs["sizes_from"] == ((2, 0), (0, 1, 12))


def test_a_result_in_a_larger_tensor_and_one_with_memory_of_its_own_are_alike() -> None:
    text = BEFORE.replace("y: Buffer[(n, 24, 16), float32]", "y: Buffer[(n, 24, 16), float32, strides=(640, 16, 1)]")
    found = merged(text)
    func = found["scale"]
    assert isinstance(func, PrimFunc) and names(found) == ["scale"]
    strides = {buffer.name: [str(stride) for stride in buffer.strides] for buffer in func.buffers}
    assert strides == {"x": [], "scalar_0": [], "y": ["count_1 * 64", "16", "1"]}
    assert func.attrs["sizes_from"] == (None, (0, 1, 12), (0,))
    assert [line.split(" : ")[0].strip() for line in str(found["main"]).splitlines() if "@scale(" in line] == [
        "%0 = @scale(%x, float32(0.5), int64(3))",
        "%1 = @scale(%z, float32(0.75), int64(10))",
    ]


def test_kernels_with_memory_of_their_own_get_no_strides_from_others() -> None:
    other = SCALE.format(name="root", c=24, a=0.75).replace("* 0.75", "+ 0.75")
    other = other.replace("y: Buffer[(n, 24, 16), float32]", "y: Buffer[(n, 24, 16), float32, strides=(640, 16, 1)]")
    text = BEFORE.replace("%2 = (%0, %1)", "%3 = @root(%z) : Tensor[(n, 24, 16), float32]\n  %2 = (%0, %1, %3)") + other
    func = merged(text)["scale"]
    assert isinstance(func, PrimFunc) and not any(buffer.strides for buffer in func.buffers)


def test_a_kernel_of_the_same_scalars_and_sizes_needs_no_parameters() -> None:
    text = BEFORE.replace("24", "12").replace("0.75", "0.5")
    found = merged(text)
    assert names(found) == ["scale"]
    assert_structural_equal(found["scale"], gi.parse(text)["scale"])


def test_functions_that_somebody_wrote_stay() -> None:
    text = BEFORE.replace(', "operators": ("multiply",)', "")
    assert names(merged(text)) == ["scale", "scale_1"]


def test_zeros_of_other_signs_are_other_constants() -> None:
    text = BEFORE.replace("24", "12").replace("* 0.5", "+ 0.0").replace("* 0.75", "+ -0.0")
    assert [buffer.name for buffer in merged(text)["scale"].buffers] == ["x", "scalar_0", "y"]  # type: ignore[union-attr]


def test_constants_are_put_where_they_were_found() -> None:
    func = parse(SCALE.format(name="scale", c=12, a=0.5))
    pattern = pattern_of(func)
    assert [constant.value for constant in pattern.constants] == [12, 16, 12, 16, 12, 12, 12, 12, 16, *[1] * 6, 0.5]
    assert with_constants(func, pattern.constants) is func
    other = parse(SCALE.format(name="scale", c=24, a=0.75))
    assert_structural_equal(with_constants(func, pattern_of(other).constants), other)


def test_blocks_say_that_they_read_scalars() -> None:
    func = merged(BEFORE)["scale"]
    assert isinstance(func, PrimFunc)
    (block,) = [node for node in walk(func.body) if isinstance(node, Block)]
    assert [region.buffer.name for region in block.reads] == ["x", "scalar_0"]


# -- whole models -----------------------------------------------------------------------------------------------------


def layers(x: gi.Expr, widths: list[int], scalars: list[float], rng: Any) -> tuple[gi.Expr, Any]:
    """Dense layers, each multiplied by a scalar; and the same in NumPy, on float64."""
    value, steps = x, []
    before = 8
    for width, scalar in zip(widths, scalars, strict=True):
        weight = (rng.standard_normal((width, before)) / before).astype(np.float32)
        value = gi.nn.dense(value, gi.const(weight)) * gi.const(np.float32(scalar))
        steps.append((weight.astype(np.float64), np.float64(np.float32(scalar))))
        before = width

    def reference(given: Any) -> Any:
        found = given.astype(np.float64)
        for weight, scalar in steps:
            found = found @ weight.T * scalar
        return found

    return value, reference


@settings(max_examples=6, deadline=None)
@given(
    widths=st.lists(st.sampled_from([16, 32, 48, 64, 20]), min_size=2, max_size=4),
    scalars=st.lists(st.sampled_from([0.5, 1.25, -0.7]), min_size=4, max_size=4),
    rows=st.sampled_from([1, 5, 33]),
)
def test_layers_of_several_sizes_compute_what_numpy_does(widths: list[int], scalars: list[float], rows: int) -> None:
    rng = np.random.default_rng(3)
    x = gi.var("x", shape=("n", 8))
    value, reference = layers(x, widths, scalars[: len(widths)], rng)
    with PassContext(opt_level=3):
        model = tw.build(gi.Function([x], value), target="llvm")
    given_rows = rng.standard_normal((rows, 8)).astype(np.float32)
    np.testing.assert_allclose(model(given_rows), reference(given_rows), rtol=2e-5, atol=1e-6)


def test_a_model_passes_its_kernel_what_no_size_tells() -> None:
    rng = np.random.default_rng(6)
    images = [rng.standard_normal((1, 1, size, size, 16)).astype(np.float32) for size in (47, 43, 29)]
    inputs = [gi.var(f"x{k}", shape=image.shape) for k, image in enumerate(images)]
    with PassContext(opt_level=3):
        pools = [gi.nn.max_pool2d(x, (17, 17), (2, 2), layout="NCHW16c") for x in inputs]
        model = tw.build(gi.Function(inputs, gi.Tuple(pools)), target="llvm")
    assert len({call.kernel for call in kernel_calls(gi.parse(model.ir("lowered")))}) == 1
    for found, image in zip(model(*images), images, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(image, (17, 17), axis=(2, 3))[:, :, ::2, ::2]
        np.testing.assert_array_equal(found, windows.max(axis=(-1, -2)))


def scaled_images() -> tuple[IRModule, list[int]]:
    """Images of several numbers of channels, each channel scaled: kernels that become one."""
    channels = [32, 64, 96]
    inputs = [gi.var(f"x{count}", shape=("n", count, 7, 7)) for count in channels]
    results = [gi.tanh(x * gi.const(np.float32(0.1 * k + 0.3))) for k, x in enumerate(inputs)]
    return IRModule.from_expr(gi.Function(inputs, gi.Tuple(results))), channels


def test_a_model_has_one_kernel_for_what_differs_in_scalars_and_its_calls_know_what_they_were() -> None:
    mod, channels = scaled_images()
    with PassContext(opt_level=3):
        model = tw.build(mod, target="llvm")
    lowered = gi.parse(model.ir("lowered"))
    calls = kernel_calls(lowered)
    assert len({call.kernel for call in calls}) == 1
    assert len({call.formula for call in calls}) == len(channels)
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal((3, count, 7, 7)).astype(np.float32) for count in channels]
    for k, (found, given_input) in enumerate(zip(model(*inputs), inputs, strict=True)):
        np.testing.assert_allclose(found, np.tanh(given_input * np.float32(0.1 * k + 0.3)), rtol=1e-5, atol=1e-6)


def test_a_profile_counts_what_each_call_of_a_merged_kernel_costs() -> None:
    mod, channels = scaled_images()
    with PassContext(opt_level=3):
        model = tw.build(mod, target="llvm")
        apart = _apart(mod)
    inputs = [np.ones((3, count, 7, 7), np.float32) for count in channels]
    costs = [
        [(call.operations, call.bytes) for call in sorted(each.profile(*inputs).calls, key=lambda call: call.bytes)]
        for each in (model, apart)
    ]
    assert costs[0] == costs[1] and len(set(costs[0])) == len(channels)


def _apart(mod: IRModule) -> tw.Executable:
    with PassContext(opt_level=3, disabled_pass=["MergeKernels"]):
        return tw.build(mod, target="llvm")
