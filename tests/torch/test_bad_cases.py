"""Programs that are hard on a backend of ``torch.compile``: each agrees with PyTorch, or raises PyTorch's error."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from tests.torch import networks  # noqa: E402
from tests.torch.compiling import assert_close, compile_  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


# Control flow.


def test_a_graph_break_cuts_the_function_into_two_graphs(builds: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y * x

    x = torch.randn(5)
    assert_close(compile_(function, fullgraph=False)(x), function(x))
    assert len(builds) == 2


def test_branches_on_data_take_the_side_that_the_data_asks_for() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:
            return y.relu()
        return y.exp()

    model = compile_(function, fullgraph=False)
    for x in torch.ones(4), -torch.ones(4), torch.full((4,), 2.0):
        assert_close(model(x), function(x))


def test_a_loop_whose_length_is_data_agrees() -> None:
    def function(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        for _ in range(int(count)):
            x = torch.tanh(x) + 1
        return x

    model = compile_(function, fullgraph=False)
    x = torch.randn(4)
    for count in 0, 1, 3:
        assert_close(model(x, torch.tensor(count)), function(x, torch.tensor(count)))


def test_sizes_that_data_decides_agree_in_one_graph() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x[x > 0] * 2).cumsum(0)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        model = compile_(function)
        for x in torch.randn(9), -torch.ones(3), torch.ones(3):
            assert_close(model(x), function(x))


# Kinds of tensors.


def test_tensors_on_another_device_stay_there() -> None:
    found = compile_(lambda x: torch.relu(x @ x.t()) + 1)(torch.empty(3, 4, device="meta"))
    assert found.device.type == "meta"
    assert found.shape == (3, 3)


def test_a_graph_with_tensors_on_two_devices_computes_what_it_can(builds: list[Any]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() * 2, y.sin() * 2

    x = torch.randn(4)
    found, elsewhere = compile_(function)(x, torch.empty(4, device="meta"))
    assert_close(found, x.sin() * 2)
    assert elsewhere.device.type == "meta"
    assert len(builds) == 1


def test_sparse_tensors_agree() -> None:
    def function(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(table, x).relu() + 1

    table = torch.eye(4).to_sparse()
    x = torch.randn(4, 3)
    assert_close(compile_(function, fullgraph=False)(table, x), function(table, x))


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_agree() -> None:
    def function(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return table.dequantize() * 2 + x.relu()

    x = torch.randn(4)
    table = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    assert_close(compile_(function, fullgraph=False)(table, x), function(table, x))


def test_complex_parameters_and_results_agree() -> None:
    class Rotation(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = torch.nn.Parameter(torch.randn(6, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.view_as_complex(x) * self.turn.conj()
            return y, y.abs()

    module = Rotation()
    x = torch.randn(3, 6, 2)
    model = compile_(module)
    with torch.no_grad():
        assert_close(model(x), module(x))


def test_conjugated_and_negated_views_are_read_as_what_they_mean() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    for view in x.conj(), x.conj().imag:
        assert_close(compile_(lambda x: x * 2)(view), view * 2)


def test_a_tensor_of_two_to_the_31_elements_is_read_at_its_end() -> None:
    size = 2**31 + 8
    x = torch.empty(size, dtype=torch.int8)  # memory is taken when it is touched: three pages of it
    x[:4], x[-4:] = 1, torch.tensor([2, 3, 4, 5], dtype=torch.int8)
    x[2**31 - 2 : 2**31 + 2] = 7

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[-4:] + x[:4], x[2**31 - 2 : 2**31 + 2] * 2, x[x.shape[0] - 1]

    for dynamic in False, True:
        assert_close(compile_(function, dynamic=dynamic)(x), function(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_tensors_without_elements_agree(dynamic: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ y, x.sum(0), x.sum(1), torch.cat([x, x]), x.t() * 2, x.reshape(-1), torch.softmax(x, 1)

    model = compile_(function, dynamic=dynamic)
    for rows, columns in (0, 3), (2, 0), (0, 0):
        x, y = torch.zeros(rows, columns), torch.zeros(columns, 4)
        torch.testing.assert_close(model(x, y), function(x, y))


def test_tensors_without_dimensions_agree() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, x + y, x.sum(), torch.softmax(x, 0), x.expand(3), y[0] * x, x.max(0).values, x > 1, x.reshape(1)

    x, y = torch.tensor(1.5), torch.randn(3)
    assert_close(compile_(function)(x, y), function(x, y))
    assert_close(compile_(function)(x.double(), y), function(x.double(), y))


def test_operators_that_make_nan_agree() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.log(x), torch.sqrt(x), x / x, torch.asin(x), torch.fmod(x, 0.0), x * float("inf"), x**0.5
        kept = torch.relu(x), torch.clamp(x, -1, 1), x.amax(), x.amin(), x.max(0).values, torch.maximum(x, x.flip(0))
        order = x.argmax(), x.argmin(), torch.sort(x).values, x.isnan(), x == x, x.cummax(0).values, torch.sign(x)
        means = torch.softmax(x, 0), torch.logsumexp(x, 0), x.nanmean(), torch.nan_to_num(x), x.median(), x.prod()
        return *made, *kept, *order, *means

    for x in torch.tensor([-2.0, 0, 3, 0.5]), torch.tensor([1.0, float("nan"), float("inf"), -float("inf")]):
        assert_close(compile_(function)(x), function(x))


# Modules and gradients.


def test_hooks_of_modules_run() -> None:
    module = networks.Perceptron().eval()
    module.layers[0].register_forward_hook(lambda module, args, result: result * 2)
    module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        assert_close(model(x), module(x))


def test_hooks_of_gradients_run() -> None:
    seen: list[torch.Tensor] = []
    module = networks.Perceptron()
    module.layers[0].weight.register_hook(lambda gradient: gradient * 3)
    module.layers[0].weight.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.clone()))
    module.register_full_backward_hook(lambda module, before, after: (before[0] * 2,))
    x = torch.randn(3, 8, requires_grad=True)
    for each in compile_(module, fullgraph=False), module:
        x.grad = module.layers[0].weight.grad = None
        each(x).square().sum().backward()
        seen.append(x.grad)
    assert len(seen) == 4
    assert_close(seen[:2], seen[2:])


def test_gradients_of_tied_weights_agree() -> None:
    module = networks.Decoder()
    twin = copy.deepcopy(module)
    ids = torch.randint(0, 40, (2, 6))
    for each in compile_(module), twin:
        each(ids).square().mean().backward()
    for (name, found), expected in zip(module.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-3, atol=1e-5, msg=lambda text, n=name: n + text)


def test_a_tied_weight_that_changes_is_seen_at_both_places() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(4, 4, bias=False)
            self.second = torch.nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).relu())

    module = Tied()
    model = compile_(module)
    x = torch.randn(2, 4)
    with torch.no_grad():
        assert_close(model(x), module(x))
        module.second.weight.add_(1)
        assert_close(model(x), module(x))


def test_inputs_that_require_gradients_get_none_under_no_grad() -> None:
    module = networks.Perceptron()
    model = compile_(module)
    x = torch.randn(3, 8, requires_grad=True)
    with torch.no_grad():
        found = model(x)
    assert not found.requires_grad
    assert_close(found, module(x).detach())
    assert model(x).requires_grad  # a second graph, with gradients


# Calls.


def test_compiled_functions_call_each_other() -> None:
    inner = compile_(lambda x: x.sin() * 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return inner(x.cos()) + inner(x)

    x = torch.randn(5)
    expected = x.cos().sin() * 2 + x.sin() * 2
    assert_close(compile_(function, fullgraph=False)(x), expected)


def test_a_graph_calls_itself_from_an_operator_within_it() -> None:
    @torch.library.custom_op("tilewright_tests::nested", mutates_args=())
    def nested(x: torch.Tensor, depth: int) -> torch.Tensor:
        return model(x, depth - 1) if depth else x.clone()

    nested.register_fake(lambda x, depth: torch.empty_like(x))

    def function(x: torch.Tensor, depth: int) -> torch.Tensor:
        return nested(x.sin() + 1, depth) * 2

    def expected(x: torch.Tensor, depth: int) -> torch.Tensor:
        y = x.sin() + 1
        return (expected(y, depth - 1) if depth else y) * 2

    model = compile_(function, dynamic=True)
    x = torch.randn(5)
    assert_close(model(x, 3), expected(x, 3))


def test_several_threads_call_one_model() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    inputs = [torch.randn(3, 8) for _ in range(4)]
    found: dict[int, torch.Tensor] = {}

    def call(number: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                found[number] = model(inputs[number])

    with torch.no_grad():
        model(inputs[0])
    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, x in enumerate(inputs):
        assert_close(found[number], module(x).detach())


def test_a_copy_of_a_compiled_module_has_its_own_parameters() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        twin = copy.deepcopy(model)
        for parameter in twin.parameters():
            parameter.mul_(2)
        assert_close(model(x), before)
        assert_close(twin(x), twin._orig_mod(x))


def test_a_compiled_module_is_pickled() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        expected = model(x)
        again = pickle.loads(pickle.dumps(model))
        assert_close(again(x), expected)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        assert_close(torch.load(file, weights_only=False)(x), expected)


def test_an_error_in_the_middle_of_a_graph_is_pytorchs_and_the_next_call_works() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x * 2).sin() + 1

    model = compile_(function)
    with pytest.raises(RuntimeError, match="singular"):
        model(torch.zeros(3, 3))
    x = torch.eye(3) + 1
    assert_close(model(x), function(x))


@pytest.mark.parametrize("gradients", [False, True])
def test_checks_of_matrices_raise_pytorchs_errors_in_their_order(gradients: bool) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(x, torch.linalg.cholesky(y))

    model = compile_(function, options={"fallback": False})
    singular, indefinite = torch.zeros(3, 3, requires_grad=gradients), -torch.eye(3)
    with pytest.raises(RuntimeError, match="cholesky"):
        model(singular, indefinite)
    with pytest.raises(RuntimeError, match="singular"):
        model(singular, torch.eye(3))
    x = (torch.eye(3) + 1).requires_grad_(gradients)
    assert_close(model(x, torch.eye(3)), function(x, torch.eye(3)))


def test_checks_of_matrices_go_with_what_runs_in_pytorch() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(torch.special.airy_ai(torch.linalg.inv(x)) + torch.eye(3) * 9)

    model = compile_(function)
    with pytest.raises(RuntimeError, match="singular"):
        model(torch.zeros(3, 3))
    x = torch.eye(3) + 1
    assert_close(model(x), function(x))


def test_an_error_of_an_operator_of_the_user_is_raised_as_it_is() -> None:
    class OwnError(Exception):
        pass

    @torch.library.custom_op("tilewright_tests::careful", mutates_args=())
    def careful(x: torch.Tensor) -> torch.Tensor:
        if x[0] < 0:
            raise OwnError("negative")
        return x.clone()

    careful.register_fake(torch.empty_like)
    model = compile_(lambda x: careful(x * 2) + 1)
    for _ in range(2):
        with pytest.raises(OwnError, match="negative"):
            model(-torch.ones(3))
        assert_close(model(torch.ones(3)), torch.full((3,), 3.0))
