"""``torch.compile(backend="tilewright")``: inference, training, dynamic shapes, and what runs in PyTorch."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tests.torch import networks  # noqa: E402
from tests.torch.compiling import assert_close, causes, compile_  # noqa: E402
from tilewright.graphir.visitor import call_nodes  # noqa: E402
from tilewright.passes import Sequential  # noqa: E402
from tilewright.passes.graph import InferType, SimplifyExpr  # noqa: E402
from tilewright.runtime import torch as runtime_torch  # noqa: E402
from tilewright.runtime.executable import Executable  # noqa: E402
from tilewright.runtime.torch import compiled  # noqa: E402
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


def test_pytorch_lists_the_backend() -> None:
    assert "tilewright" in torch._dynamo.list_backends()
    assert torch._dynamo.lookup_backend("tilewright") is runtime_torch.backend


def test_inference_agrees_and_a_new_length_builds_nothing(builds: list[Any]) -> None:
    module = networks.Decoder().eval()
    model = compile_(module, dynamic=True)
    with torch.no_grad():
        for shape in (2, 8), (3, 5), (4, 11):
            ids = torch.randint(0, 40, shape)
            assert_close(model(ids), module(ids))
    assert len(builds) == 1


def test_parameters_are_constants_until_they_change(builds: list[Any]) -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        assert_close(model(x), module(x))
        assert_close(model(x), module(x))
        assert len(builds) == 1
        assert len(builds[0]["main"].params) == 1
        module.layers[0].weight.mul_(2)
        assert_close(model(x), module(x))
    assert len(builds) == 2


def test_parameters_that_change_again_and_again_become_inputs(builds: list[Any]) -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(8):
            module.layers[0].weight.mul_(1.1)
            assert_close(model(x), module(x))
    assert len(builds) == compiled.MOST_FROZEN + 1
    assert len(builds[-1]["main"].params) == 7


def test_a_replaced_parameter_is_seen() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        model(x)
        module.layers[0].weight = torch.nn.Parameter(torch.randn(16, 8))
        assert_close(model(x), module(x))


def test_inference_mode_agrees() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.inference_mode():
        assert_close(model(x), module(x))


@pytest.mark.filterwarnings("ignore")
def test_training_steps_agree_with_pytorch() -> None:
    module = networks.Convolutional()
    twin = copy.deepcopy(module)
    model = compile_(module)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (module, twin)]
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        for each, optimizer in zip((model, twin), optimizers, strict=True):
            optimizer.zero_grad()
            each(x).square().mean().backward()
            optimizer.step()
    for (name, found), expected in zip(module.state_dict().items(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_what_is_not_supported_runs_in_pytorch_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.special.airy_ai(x) + x.sin()
        return y.relu() * 2, y.sum()

    x = torch.randn(4, 4)
    with caplog.at_level(logging.WARNING, "tilewright.torch"):
        assert_close(compile_(function)(x), function(x))
    messages = [record.getMessage() for record in caplog.records if record.name == "tilewright.torch"]
    assert len(messages) == 1
    assert "aten.special_airy_ai.default" in messages[0]
    assert "test_compile.py" in messages[0]


def test_sizes_beside_what_runs_in_pytorch_need_no_build(builds: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x.sin()).expand(x.shape[0] * 2, *x.shape)

    x = torch.randn(4, 4)
    assert_close(compile_(function, dynamic=True)(x), function(x))
    assert len(builds) == 1


def test_a_part_takes_a_size_that_was_computed_before() -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        y = torch.special.airy_ai(torch.ones(3) * 2)
        return torch.special.airy_ai(y.repeat(n * 2 + 1).cos()) + torch.arange(n * 6 + 3)

    for n in 2, 4:
        x = torch.randn(5)
        assert_close(compile_(function, dynamic=True)(x, n), function(x, n))


def test_a_part_takes_a_size_that_does_not_follow_from_its_inputs(builds: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        squares = torch.special.airy_ai(torch.arange(n * n) * 1.0)
        return torch.special.airy_ai(squares.cos() + 1).reshape(n, n) * x

    model = compile_(function, dynamic=True)
    for n in 3, 4:
        x = torch.randn(n)
        assert_close(model(x), function(x))
    assert len(builds) == 3


def test_a_part_takes_a_size_that_depends_on_data() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        positive = x[x > 0]
        products = torch.special.airy_ai(positive.outer(positive).reshape(-1))
        return torch.special.airy_ai(products.cos() + 1) * 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        model = compile_(function)
        for n in 5, 9:
            x = torch.randn(n)
            assert_close(model(x), function(x))


def test_parts_that_begin_where_data_say_have_gradients() -> None:
    def function(x: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.tensor_split(x.exp(), starts)

    x = torch.randn(6, 2, requires_grad=True)
    model = compile_(function)
    for starts in torch.tensor([1, 4]), torch.tensor([2, 3]):
        (found,) = torch.autograd.grad(model(x, starts)[1].sum(), x)
        (expected,) = torch.autograd.grad(function(x, starts)[1].sum(), x)
        assert_close(found, expected)


def test_rows_that_are_repeated_as_data_say_agree() -> None:
    def function(x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
        return torch.repeat_interleave(x * 2, repeats, dim=0).sin()

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        model = compile_(function, dynamic=True, options={"fallback": False})
        for repeats in map(torch.tensor, ([2, 0, 3, 1], [0, 0, 5, 0], [0, 0])):
            x = torch.randn(len(repeats), 3, requires_grad=True)
            found, expected = model(x, repeats), function(x, repeats)
            assert_close(found, expected)
            weight = torch.randn(expected.shape)
            assert_close(*(torch.autograd.grad((y * weight).sum(), x) for y in (found, expected)))


def test_rows_of_a_table_are_scaled_to_a_norm_in_place() -> None:
    indices, tables = torch.tensor([[1, 3], [1, 0]]), [torch.linspace(-2, 2, 15).reshape(5, 3) for _ in range(2)]

    def function(table: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(indices, table, max_norm=1.5)

    model = compile_(function, options={"fallback": False})
    assert_close(model(tables[0]), function(tables[1]))
    assert_close(*tables)


def test_views_between_what_runs_in_pytorch_agree() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.special.airy_ai(x.exp()[1:].t())
        z = torch.special.airy_ai((y * 2).t()[: x.shape[0] - 2])
        return y[1:], z.t(), (z + 1).t(), x[x.shape[0] - 1]

    x = torch.randn(5, 4)
    for dynamic in False, True:
        assert_close(compile_(function, dynamic=dynamic)(x), function(x))


def test_without_fallback_one_error_names_all_overloads() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.igamma(x, x) + torch.special.airy_ai(x)

    with pytest.raises(Exception, match=r"aten\.igamma\.default.*aten\.special_airy_ai\.default") as caught:
        compile_(function, options={"fallback": False})(torch.ones(2))
    assert any(isinstance(error, UnsupportedOperatorError) for error in causes(caught.value))


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(Exception, match="options: expected fallback, freeze, opt_level, found speed") as caught:
        compile_(torch.sin, options={"speed": 1})(torch.ones(2))
    assert any(isinstance(error, InputError) for error in causes(caught.value))


def test_inputs_that_are_changed_or_share_memory_agree() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    base = torch.randn(6)
    other = base.clone()
    model = compile_(function)
    assert_close(model(base[:4], base[2:]), function(other[:4], other[2:]))
    assert_close(base, other)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("turned", "shape"),
    [
        (lambda x: x.t(), (7, 5)),
        (lambda x: x.permute(2, 0, 1), (3, 1, 4)),
        (lambda x: x.permute(0, 3, 1, 2), (2, 3, 5, 4)),
    ],
    ids=["a transposed matrix", "an axis of one element", "channels last"],
)
def test_inputs_without_gaps_are_read_in_place(
    turned: Any, shape: tuple[int, ...], dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.cumsum(0) * 2

    monkeypatch.setattr(Executable, "__call__", lambda *inputs: pytest.fail("the inputs are copied"))
    model = compile_(function, dynamic=dynamic)
    for count in shape[0], *([shape[0] + 3] * dynamic):
        x = turned(torch.randn(count, *shape[1:]))
        torch.testing.assert_close(model(x), function(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_whose_axes_change_their_order_agrees(dynamic: bool) -> None:
    model = compile_(lambda x: x @ x.mT, dynamic=dynamic)
    for x in torch.randn(5, 3, 4), torch.randn(3, 5, 4).transpose(0, 1), torch.randn(4, 5, 3).permute(1, 2, 0):
        assert_close(model(x), x @ x.mT)


@pytest.mark.filterwarnings("ignore")
def test_weights_of_a_backward_pass_are_neither_copied_nor_transposed(builds: list[Any]) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 4))
    compile_(module)(torch.randn(5, 6)).sum().backward()
    backward = Sequential([InferType(), SimplifyExpr()])(builds[1])["main"]
    products = [call for call in call_nodes(backward.body) if call.op.name in ("matmul", "nn.dense")]
    (weight,) = [factor for call in products for factor in call.args if factor.shape == (4, 10)]
    assert weight in backward.params


def test_views_stay_views_of_their_input() -> None:
    x = torch.randn(4, 6)
    found = compile_(lambda x: (x.t(), x[1:], x + 1))(x)
    assert found[0].data_ptr() == x.data_ptr()
    assert found[1].data_ptr() == x[1:].data_ptr()
    assert_close(found[0], x.t())


def test_results_have_the_strides_of_the_program() -> None:
    function = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    with torch.no_grad():
        found = compile_(function)(x)
        assert_close(found, function(x))
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_results_of_one_call_are_not_changed_by_the_next() -> None:
    model = compile_(lambda x: x * 2)
    first = model(torch.ones(8))
    model(torch.zeros(8))
    assert_close(first, torch.full((8,), 2.0))


def test_numbers_sizes_and_none_go_in_and_out() -> None:
    def function(x: torch.Tensor, n: int, scale: float, extra: None) -> tuple[Any, ...]:
        return x[:n] * scale, x.shape[0] * 2, extra, x.ne(0)

    model = compile_(function, dynamic=True)
    for count, n in (8, 3), (9, 5):
        x = torch.randn(count)
        assert_close(model(x, n, 0.5, None), function(x, n, 0.5, None))


def test_bfloat16_goes_through_without_a_copy_of_another_type() -> None:
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    found = compile_(lambda x: torch.relu(x) + 1)(x)
    torch.testing.assert_close(found, torch.relu(x) + 1)


def test_complex_numbers_share_memory() -> None:
    x = torch.randn(3, 8)
    found = compile_(lambda x: torch.fft.rfft(x) * (1 + 2j))(x)
    assert_close(found, torch.fft.rfft(x) * (1 + 2j))


def test_gradients_of_complex_results_go_in() -> None:
    parts = torch.randn(5, 2, requires_grad=True)
    (found,) = torch.autograd.grad(compile_(torch.view_as_complex)(parts).abs().sum(), parts)
    (expected,) = torch.autograd.grad(torch.view_as_complex(parts).abs().sum(), parts)
    assert_close(found, expected)


def test_a_size_that_depends_on_data_is_kept_for_the_backward_pass() -> None:
    def positive(x: Any) -> Any:
        return torch.masked_select(x, x > 0) * 2

    x = torch.randn(5, 4, requires_grad=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        (found,) = torch.autograd.grad(compile_(positive)(x).sum(), x)
    assert_close(found, torch.where(x > 0, 2.0, 0.0))


def test_the_gradient_of_log_sigmoid_of_a_number_agrees() -> None:
    x = torch.tensor(0.3, requires_grad=True)
    (found,) = torch.autograd.grad(compile_(torch.nn.functional.logsigmoid)(x), x)
    assert_close(found, torch.sigmoid(-x.detach()))


def test_autocast_agrees() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(x), module(x), rtol=2e-2, atol=2e-2)


def test_an_empty_tensor_and_one_without_dimensions_agree() -> None:
    model = compile_(lambda x, y: (x * 2 + y, y.exp()))
    x, y = torch.zeros(0, 3), torch.tensor(2.0)
    assert_close(model(x, y), (x, y.exp()))


def test_a_custom_operator_runs_in_pytorch() -> None:
    @torch.library.custom_op("tilewright_tests::shifted", mutates_args=())
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x + 3

    shifted.register_fake(torch.empty_like)
    x = torch.randn(5)
    assert_close(compile_(lambda x: shifted(x.sin()).cos())(x), (x.sin() + 3).cos())
