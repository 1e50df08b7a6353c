"""``tw.from_exported``: names, state, sizes, memory and errors of imported programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

import tilewright as tw  # noqa: E402
from tests.torch import networks, programs  # noqa: E402
from tilewright import graphir as gi  # noqa: E402
from tilewright.graphir.frontend.torch import converter, registry, tensors  # noqa: E402
from tilewright.graphir.visitor import post_order  # noqa: E402
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError  # noqa: E402


def imported(function: Any, *args: Any, dynamic: Any = None) -> gi.IRModule:
    return tw.from_exported(programs.exported(programs.Program(function), args, dynamic and (tuple(dynamic),)))


def constants(mod: gi.IRModule) -> list[gi.Constant]:
    return [node for node in post_order(mod["main"]) if isinstance(node, gi.Constant) and node.size > 1]


def test_parameters_share_the_memory_of_the_tensors() -> None:
    module = torch.nn.Linear(4, 3)
    mod = tw.from_exported(programs.exported(module, [torch.randn(2, 4)]))
    addresses = {constant.data.__array_interface__["data"][0] for constant in constants(mod)}
    assert addresses == {module.weight.data_ptr(), module.bias.data_ptr()}


def test_tied_weights_are_one_constant() -> None:
    mod = tw.from_exported(programs.exported(networks.Decoder(), [torch.randint(0, 40, (1, 4))]))
    tables = [constant for constant in constants(mod) if constant.type.shape == (40, 16)]
    assert len(tables) == 1


def test_a_transposed_parameter_is_read_by_its_strides() -> None:
    weight = torch.randn(3, 5).t()
    x = torch.randn(2, 5)
    found = programs.results(tw.build(imported(lambda x: x @ weight, x)), [x])
    np.testing.assert_allclose(found[0], (x @ weight).numpy(), rtol=1e-5, atol=1e-6)


def test_results_have_the_strides_of_pytorchs_where_these_fill_their_memory() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = x.flatten(1)
        return x.relu(), x.sin().permute(3, 0, 1, 2), torch.complex(flat, flat).t(), x[:, :2]

    example, x = (torch.randn(n, 3, 4, 5).contiguous(memory_format=torch.channels_last) for n in (2, 4))
    model = tw.build(imported(function, example, dynamic=[{0: torch.export.Dim("batch")}]))
    *found, gaps = programs.results(model, [x])
    expected = [torch.view_as_real(y) if y.is_complex() else y for y in function(x)]
    for one, other in zip(found, expected[:3], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
        assert torch.from_numpy(one).stride() == other.stride()
    np.testing.assert_array_equal(gaps, expected[3])
    assert gaps.flags.c_contiguous


def test_nested_results_are_named_by_their_places_and_none_is_left_out() -> None:
    def function(x: torch.Tensor, more: dict[str, Any]) -> Any:
        return {"out": x + more["a"], "rest": (None, [x * 2])}

    x = torch.randn(3)
    mod = imported(function, x, {"a": torch.randn(3)})
    assert mod["main"].attrs["results"] == ("out", "rest_1_0")


def test_a_changed_buffer_is_an_input_and_a_result() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(x)
            return self.count * 2

    model = tw.build(tw.from_exported(programs.exported(Counting(), [torch.ones(2)])))
    assert [argument.name for argument in model.signature.inputs] == ["x", "count"]
    state = np.zeros(2, "float32")
    for call in (1, 2):
        y, state = model(np.ones(2, "float32"), state)
        np.testing.assert_array_equal(y, np.full(2, 2.0 * call))


def test_limits_of_a_dimension_are_checked() -> None:
    batch = torch.export.Dim("batch", min=3, max=5)
    model = tw.build(imported(lambda x: x + 1, torch.randn(4, 2), dynamic=[{0: batch}]))
    assert model(np.zeros((5, 2), "float32")).shape == (5, 2)
    for size in (2, 6):
        with pytest.raises(InputError, match="must be from 3 to 5"):
            model(np.zeros((size, 2), "float32"))


def test_a_dimension_that_is_a_formula_of_another_is_checked() -> None:
    half = torch.export.Dim("half", min=1)
    model = tw.build(
        imported(lambda x, y: (x.reshape(2, -1), y), torch.randn(8), torch.randn(4), dynamic=[{0: 2 * half}, {0: half}])
    )
    assert model(np.zeros(6, "float32"), np.zeros(3, "float32"))[0].shape == (2, 3)
    with pytest.raises(InputError):
        model(np.zeros(7, "float32"), np.zeros(3, "float32"))


def test_a_symbol_that_occurs_in_formulas_alone_follows_from_them() -> None:
    half = torch.export.Dim("half", min=1)
    model = tw.build(imported(lambda x: x.reshape(-1, 2).sum(0), torch.randn(8), dynamic=[{0: 2 * half}]))
    np.testing.assert_allclose(model(np.arange(6, dtype="float32")), [6.0, 9.0])
    with pytest.raises(InputError):
        model(np.zeros(7, "float32"))


def test_a_size_is_an_input_if_the_program_takes_it() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.expand(n, 3) * n

    model = tw.build(imported(function, torch.randn(3), 4, dynamic=[None, torch.export.Dim.DYNAMIC]))
    for n in (2, 5):
        found = model(np.ones(3, "float32"), n)
        np.testing.assert_array_equal(found, np.full((n, 3), float(n)))


def test_sizes_that_depend_on_data_are_found_in_calls() -> None:
    model = tw.build(imported(lambda x: x[x > 0] * 2, torch.randn(6)))
    for values in ([1.0, -1, 2, -2, 3, -3], [-1.0] * 6):
        x = np.array(values, "float32")
        np.testing.assert_array_equal(model(x), x[x > 0] * 2)


def test_integer_and_double_programs_agree() -> None:
    def function(i: torch.Tensor, d: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return i // 3 + b, (d * i).sum(), torch.where(b, d, i)

    args = [torch.arange(-4, 4), torch.randn(8, dtype=torch.float64), torch.arange(8) % 2 == 0]
    found = programs.results(tw.build(imported(function, *args)), args)
    for one, other in zip(found, programs.arrays(function(*args)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_one_error_names_all_unsupported_overloads_and_their_lines() -> None:
    class Unsupported(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.airy_ai(x) + torch.igamma(x, x)

    with pytest.raises(UnsupportedOperatorError) as caught:
        tw.from_exported(programs.exported(Unsupported(), [torch.rand(3)]))
    message = str(caught.value)
    assert "aten.special_airy_ai.default" in message
    assert "aten.igamma.default" in message
    assert "test_exported.py, line" in message


def test_complex_numbers_are_an_axis_of_two_parts() -> None:
    x = torch.randn(2, 3, dtype=torch.complex64)
    model = tw.build(imported(lambda x: (x * x.conj(), x.abs()), x))
    assert model.signature.inputs[0].type.shape == (2, 3, 2)
    square, size = model(torch.view_as_real(x).numpy())
    np.testing.assert_allclose(square, torch.view_as_real(x * x.conj()).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(size, x.abs().numpy(), rtol=1e-5)


def test_complex_numbers_are_decomposed_where_an_overload_is_whole_for_others() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.addcmul(x, x, y, value=2), torch.stack([x, y], 1), x.cumsum(1), *y.split([1, 2], 1)

    x, y = torch.randn(2, 2, 3, dtype=torch.complex64)
    expected = [torch.view_as_real(each) for each in function(x, y)]
    found = programs.results(tw.build(imported(function, x, y)), [torch.view_as_real(x), torch.view_as_real(y)])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_quantized_tensors_are_refused_by_their_type() -> None:
    table = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    with pytest.raises(UnsupportedOperatorError, match="qint8"):
        tensors.as_array(table)


def test_what_pytorch_cannot_decompose_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="PyTorch cannot decompose the program") as caught:
        imported(lambda x: x.t_() + x, torch.ones(2, 3))
    assert isinstance(caught.value.__cause__, AssertionError)


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected a torch\.export\.ExportedProgram, found Linear"):
        tw.from_exported(torch.nn.Linear(1, 1))


def test_an_overload_of_ones_own_has_a_converter_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CONVERTERS", dict(registry._CONVERTERS))

    @torch.library.custom_op("tilewright_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    doubled.register_fake(torch.empty_like)

    @converter("tilewright_tests.doubled.default")
    def convert(node: Any, x: gi.Expr) -> gi.Expr:
        return gi.add(x, x)

    x = torch.randn(3)
    found = tw.build(imported(lambda x: doubled(x) + 1, x))(x.numpy())
    np.testing.assert_allclose(found, x.numpy() * 2 + 1, rtol=1e-6)


def test_a_second_converter_of_an_overload_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aten\.add\.Tensor: two converters"):
        converter("aten.add.Tensor")(lambda node, x, y, alpha: x)


def test_nodes_are_named_in_the_module_by_their_overloads() -> None:
    text = str(imported(lambda x: torch.relu(x) + 1, torch.randn(2)))
    assert "aten.relu.default 'relu'" in text


def test_tensors_go_in_and_results_go_out_by_dlpack_without_copies() -> None:
    model = tw.build(imported(lambda x: x * 2, torch.ones(64)))
    addresses: list[int] = []
    run = model._run

    def recorded(inputs: Any, sizes: Any) -> Any:
        addresses.extend(array.__array_interface__["data"][0] for array in inputs)
        return run(inputs, sizes)

    model._run = recorded
    x = torch.ones(64)
    found = model(x)
    assert addresses == [x.data_ptr()]
    assert torch.from_dlpack(found).data_ptr() == found.__array_interface__["data"][0]
    assert torch.equal(torch.from_dlpack(found), x * 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, s: x.index_add(0, i, s),
        lambda x, i, s: x.index_add(0, i, s, alpha=False),
        lambda x, i, s: x.put(i, s, accumulate=True),
        lambda x, i, s: x.index_put((i,), s, accumulate=True),
        lambda x, i, s: x.index_put((s,), torch.tensor(True), accumulate=True),
        lambda x, i, s: x.scatter_add(0, i, s),
        *(lambda x, i, s, how=how: x.scatter_reduce(0, i, s, how) for how in ("sum", "prod", "amax", "amin")),
        lambda x, i, s: x.scatter_reduce(0, i, s, "prod", include_self=False),
    ],
)
def test_bools_are_combined_at_places(function: Any) -> None:
    x, s = torch.tensor([True, False, False, True]), torch.tensor([True, True, False, False])
    args = x, torch.tensor([1, 1, 3, 3]), s
    np.testing.assert_array_equal(gi.evaluate(imported(function, *args), *map(np.asarray, args)), function(*args))


def test_a_bfloat16_tensor_goes_in_though_numpy_has_no_such_type() -> None:
    x = torch.linspace(-2, 2, 12).bfloat16().reshape(3, 4).T
    found = tw.build(imported(lambda x: x * 2 + 1, x))(x)
    assert found.dtype == "bfloat16"
    np.testing.assert_array_equal(found.astype("f4"), (x * 2 + 1).float())


@pytest.mark.parametrize("align", [False, True])
def test_bicubic_samples_repeat_the_border(align: bool) -> None:
    image, grid = torch.randn(1, 2, 5, 4), torch.randn(1, 6, 7, 2)

    def sample(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        sampled = torch.nn.functional.grid_sample
        return sampled(image, grid, mode="bicubic", padding_mode="border", align_corners=align)

    found = programs.results(tw.build(imported(sample, image, grid)), [image, grid])
    np.testing.assert_allclose(found[0], sample(image, grid).numpy(), rtol=1e-4, atol=1e-5)
