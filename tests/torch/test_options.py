"""What ``torch.compile`` promises, kept by the backend: sizes, modes, threads, memory, processes."""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch._dynamo.backends.common import aot_autograd  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.torch import networks  # noqa: E402
from tests.torch.compiling import assert_close, causes, compile_  # noqa: E402
from tilewright.runtime.torch import compiled  # noqa: E402
from tilewright.tensorir.errors import InputError  # noqa: E402
from tilewright.tensorir.target import Target  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")


# Sizes.


@pytest.mark.parametrize(("dynamic", "count"), [(True, 1), (None, 2), (False, 3)])
def test_a_new_size_builds_as_often_as_dynamic_says(dynamic: bool | None, count: int, builds: list[Any]) -> None:
    model = compile_(lambda x: torch.softmax(x * 2, 1), dynamic=dynamic)
    for rows in 3, 4, 5:
        x = torch.randn(rows, 6)
        assert_close(model(x), torch.softmax(x * 2, 1))
    assert len(builds) == count


def test_a_marked_dimension_is_symbolic_and_the_others_are_not(builds: list[Any]) -> None:
    model = compile_(lambda x: x.sin() + 1)
    for rows in 3, 4:
        x = torch.randn(rows, 6)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        assert_close(model(x), x.sin() + 1)
    assert len(builds) == 1
    rows_dim, columns = builds[0]["main"].params[0].type.shape
    assert columns == 6
    assert not isinstance(rows_dim, int)


def test_numbers_of_the_caller_are_values_of_the_call(builds: list[Any]) -> None:
    def function(x: torch.Tensor, times: int, negate: bool, scale: float) -> torch.Tensor:
        x = x.repeat(times) * scale + times
        return -x if negate else x

    model = compile_(function, dynamic=True)
    x = torch.randn(4)
    for times, scale in (2, 0.5), (3, 1.5), (5, -2.0):
        assert_close(model(x, times, False, scale), function(x, times, False, scale))
    assert len(builds) == 1
    assert_close(model(x, 2, True, 0.5), function(x, 2, True, 0.5))


def test_a_number_of_the_caller_may_be_negative(builds: list[Any]) -> None:
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n + n

    model = compile_(function, dynamic=True)
    x = torch.randn(4)
    for n in 3, -2, 7, -5:
        assert_close(model(x, n), function(x, n))
    assert len(builds) == 1


def test_a_number_that_is_read_from_a_tensor_may_be_negative() -> None:
    def function(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * n.item()

    x = torch.randn(4)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        model = compile_(function)
        for n in 3, -2:
            assert_close(model(x, torch.tensor(n)), function(x, torch.tensor(n)))


def test_a_list_of_numbers_as_an_index_is_a_constant() -> None:
    x = torch.randn(5, 3)
    assert_close(compile_(lambda x: x[[1, 2]] * 2)(x), x[[1, 2]] * 2)


# Modes.


@pytest.mark.parametrize(
    ("settings", "around", "level", "assumes_finite"),
    [
        ({}, 2, 3, False),
        ({"mode": "default"}, 2, 3, False),
        ({"mode": "reduce-overhead"}, 2, 3, False),
        ({"mode": "max-autotune"}, 2, 3, True),
        ({"options": {"opt_level": 2}}, 2, 2, True),
        ({}, 1, 1, True),
        ({"options": {"opt_level": 0}}, 3, 0, True),
    ],
)
def test_mode_options_and_context_choose_the_level(
    settings: dict[str, Any], around: int, level: int, assumes_finite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    original = compiled.build

    def spied(*args: Any, **options: Any) -> Any:
        context = tw.PassContext.current()
        found.append((context.opt_level, context.get_config("tensorir.Simplify").assumes_finite))
        return original(*args, **options)

    monkeypatch.setattr(compiled, "build", spied)
    x = torch.randn(4)
    with tw.PassContext(opt_level=around):
        assert_close(torch.compile(lambda x: x.exp() * 2, backend="tilewright", **settings)(x), x.exp() * 2)
    assert found == [(level, assumes_finite)]


def test_infinities_and_nan_spread_as_in_pytorch() -> None:
    x = torch.tensor([1.0, float("inf"), float("nan")])
    found = torch.compile(lambda x: (x * 0.0, x - x, x / x), backend="tilewright")(x)
    for each, expected in zip(found, (x * 0.0, x - x, x / x), strict=True):
        torch.testing.assert_close(each, expected, equal_nan=True)


def test_an_unknown_mode_is_an_error_that_names_the_modes() -> None:
    with pytest.raises(Exception, match=r"mode: expected one of default, reduce-overhead.*found 'fast'") as caught:
        compile_(torch.sin, mode="fast")(torch.ones(2))
    assert any(isinstance(error, InputError) for error in causes(caught.value))


@pytest.mark.parametrize("trains", [False, True])
def test_autocast_gives_the_types_of_pytorch(trains: bool) -> None:
    module = networks.Perceptron()
    model = compile_(module)
    x = torch.randn(3, 8)
    grads = []
    for each in model, module:
        module.zero_grad()
        with torch.set_grad_enabled(trains), torch.autocast("cpu", torch.bfloat16):
            y = each(x)
        assert y.dtype is torch.bfloat16
        if trains:
            y.float().square().sum().backward()
            grads.append([parameter.grad.clone() for parameter in module.parameters()])
    if trains:
        torch.testing.assert_close(grads[0], grads[1], rtol=5e-2, atol=5e-2)


def test_a_graph_break_under_fullgraph_is_pytorchs_error() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x * 2

    with pytest.raises(torch._dynamo.exc.Unsupported):
        compile_(function)(torch.ones(2))


# Memory.


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x[:1].expand(6, 8),
        lambda x: x.flatten()[3:],
        lambda x: x.flip(0).as_strided((3, 3), (2, 1), 5),
    ],
    ids=["transposed", "strided", "expanded", "with an offset", "overlapping"],
)
def test_inputs_of_any_strides_agree(view: Any) -> None:
    x = view(torch.randn(6, 8))
    assert_close(compile_(lambda x: x.exp() + x.sum())(x), x.exp() + x.sum())


def test_one_tensor_given_twice_agrees() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    x, twin = torch.randn(4), None
    twin = x.clone()
    assert_close(compile_(function)(x, x), function(twin, twin))
    assert_close(x, twin)


def test_changes_of_views_and_of_metadata_of_inputs_are_seen() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[1:].mul_(2)
        y.t_()
        y.add_(1)
        return x.sum() + y[0, 1]

    args = [torch.randn(4), torch.randn(2, 3)]
    twins = [arg.clone() for arg in args]
    assert_close(compile_(function, fullgraph=False)(*args), function(*twins))
    assert_close(args, twins)


@pytest.mark.filterwarnings("ignore")
def test_buffers_of_a_module_change_in_place() -> None:
    module = torch.nn.BatchNorm1d(4)
    twin = torch.nn.BatchNorm1d(4)
    buffer = module.running_mean
    model = compile_(module)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(5, 4)
            assert_close(model(x), twin(x))
    assert module.running_mean is buffer
    assert_close(buffer, twin.running_mean)
    assert module.num_batches_tracked == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64])
def test_inputs_and_results_share_the_memory_of_arrays(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[int], list[int]]] = []
    original = compiled.build

    def spied(*args: Any, **options: Any) -> Any:
        executable = original(*args, **options)
        run = executable._run

        def recorded(inputs: Any, sizes: Any) -> Any:
            results = run(inputs, sizes)
            calls.append(([_address(array) for array in inputs], [_address(array) for array in results]))
            return results

        executable._run = recorded
        return executable

    monkeypatch.setattr(compiled, "build", spied)
    x = torch.ones(64, dtype=dtype)
    found = compile_(lambda x: torch.cat([x, x]))(x)
    ((inputs, results),) = calls
    assert inputs == [x.data_ptr()]
    assert results == [found.data_ptr()]


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_inputs_that_are_unaligned_conjugated_or_negated_agree() -> None:
    model = compile_(lambda x: x * 2)
    unaligned = torch.frombuffer(bytearray(range(33)), dtype=torch.float32, offset=1)
    assert unaligned.data_ptr() % 4
    assert_close(model(unaligned), unaligned * 2)
    x = torch.randn(4, dtype=torch.complex64)
    for view in x, x.conj(), x.real, x.conj().imag:
        assert_close(model(view), view * 2)


def test_a_call_takes_few_calls_of_functions() -> None:
    """Of Python's and of C's functions, above those that PyTorch takes around any backend."""
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made = compiled.CompiledGraph(graph, (), None)
        graphs.append((made, inputs))
        return made

    function = aot_autograd(fw_compiler=backend)
    torch.compile(lambda x, y: (x @ y, x + 1), backend=function, dynamic=True)(torch.randn(3, 4), torch.randn(4, 5))
    (graph, inputs) = graphs[0]
    given = [torch.randn(*map(int, each.shape)) if torch.is_tensor(each) else int(each) for each in inputs]
    graph(given)
    counted = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        graph(given)
    finally:
        sys.setprofile(None)
    assert counted <= 32


def test_formulas_of_sizes_that_pytorch_knows_to_be_equal_agree(builds: list[Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        halves = torch.cat([x[::2], x[1::2]]) * x  # (s + 1) // 2 + s // 2 rows, and s
        return torch.where(halves > 0, halves + x, torch.cat([x[::3], x[1::3], x[2::3]]))

    model = compile_(function, dynamic=True, options={"fallback": False})
    for rows in 7, 12, 9:
        x = torch.randn(rows, 3)
        assert_close(model(x), function(x))


# Threads and processes.


def test_a_build_takes_the_threads_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    targets: list[Target] = []
    original = compiled.build

    def spied(mod: Any, target: Target, **options: Any) -> Any:
        targets.append(target)
        return original(mod, target, **options)

    monkeypatch.setattr(compiled, "build", spied)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        compile_(lambda x: x.sin() * 2)(torch.randn(4))
    finally:
        torch.set_num_threads(before)
    assert [target.num_threads for target in targets] == [1]


def test_calls_follow_the_threads_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch guards the number of threads: each number has a build of its own, which stays."""
    made: list[int] = []
    called: list[int] = []
    original = compiled.caller

    def spied(executable: Any, *args: Any) -> Any:
        made.append(executable.num_threads)
        call = original(executable, *args)

        def noted(inputs: Any) -> Any:
            called.append(executable.num_threads)
            return call(inputs)

        return noted

    monkeypatch.setattr(compiled, "caller", spied)
    monkeypatch.setattr(compiled.Target, "current", lambda: Target("llvm", num_threads=8))
    before = torch.get_num_threads()
    model = compile_(torch.nn.Linear(4, 4))
    try:
        for threads in (2, 1, 2, 3, 1):
            torch.set_num_threads(threads)
            with torch.no_grad():
                model(torch.randn(2, 4))
    finally:
        torch.set_num_threads(before)
    assert called == [2, 1, 2, 3, 1]
    assert made == [2, 1, 3]


class Squares(torch.utils.data.Dataset):  # type: ignore[misc]
    """Numbers that workers compute with PyTorch."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((64, 64), float(number)).square()


@pytest.mark.filterwarnings("ignore")
def test_forked_workers_of_a_loader_run_beside_a_model() -> None:
    module = torch.nn.Linear(64, 64)
    model = compile_(module)
    loader = torch.utils.data.DataLoader(Squares(), 2, num_workers=1, multiprocessing_context="fork")
    with torch.no_grad():
        model(torch.randn(2, 64, 64))  # threads have started
        found = [model(batch) for batch in loader]
        for number, each in enumerate(found):
            assert_close(each, module(torch.stack([Squares()[2 * number], Squares()[2 * number + 1]])))


def _call(model: Any, x: torch.Tensor, results: Any) -> None:
    with torch.no_grad():
        results.put(model(x).numpy())


@pytest.mark.filterwarnings("ignore")
def test_a_forked_process_calls_the_model() -> None:
    module = networks.Perceptron().eval()
    model = compile_(module)
    x = torch.randn(3, 8)
    with torch.no_grad():
        expected = model(x)
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_call, args=(model, x, results))
    process.start()
    found = results.get(timeout=60)
    process.join()
    assert_close(torch.from_numpy(found), expected)
