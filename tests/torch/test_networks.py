"""Networks of the usual families are imported, and agree with PyTorch in double precision, at any size."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make torch")

from torch.export import Dim  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.torch import networks, programs  # noqa: E402


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_a_perceptron_serves_any_batch() -> None:
    module = networks.Perceptron()
    program = programs.exported(module, [torch.randn(3, 8)], ({0: Dim.DYNAMIC},))
    model = tw.build(tw.from_exported(program))
    for batch in (1, 2, 7):
        programs.assert_agrees(model, module, [torch.randn(batch, 8)])


def test_a_residual_network_serves_any_image() -> None:
    module = networks.Convolutional()
    for _ in range(2):  # running statistics that are not 0 and 1
        module.train()(torch.randn(4, 3, 16, 16))
    sizes = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    model = tw.build(tw.from_exported(programs.exported(module, [torch.randn(2, 3, 16, 20)], (sizes,))))
    for shape in (1, 3, 16, 16), (2, 3, 24, 20):
        programs.assert_agrees(model, module, [torch.randn(shape)])


def test_a_u_net_agrees() -> None:
    module = networks.UNet()
    x = torch.randn(1, 3, 12, 16)
    programs.assert_agrees(tw.build(tw.from_exported(programs.exported(module, [x]))), module, [x])


def test_an_encoder_serves_any_length_and_ignores_padding() -> None:
    module = networks.Encoder()
    batch, length = Dim("batch"), Dim("length", max=32)
    inputs = [torch.randint(1, 50, (2, 6)), torch.ones(2, 6, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int64)]
    sizes = ({0: batch, 1: length},) * 3
    model = tw.build(tw.from_exported(programs.exported(module, inputs, sizes)))
    for shape in (1, 3), (3, 11):
        mask = torch.ones(shape, dtype=torch.int64)
        mask[0, -1] = 0
        args = [torch.randint(1, 50, shape), mask, torch.randint(0, 2, shape)]
        programs.assert_agrees(model, module, args)


def test_a_decoder_with_a_tied_output_layer_serves_any_length() -> None:
    module = networks.Decoder()
    program = programs.exported(module, [torch.randint(0, 40, (2, 8))], ({0: Dim("batch"), 1: Dim("length", max=23)},))
    model = tw.build(tw.from_exported(program))
    for shape in (1, 2), (2, 17):
        programs.assert_agrees(model, module, [torch.randint(0, 40, shape)])


def test_a_llama_continues_from_its_cache() -> None:
    module = networks.Llama()
    batch, length, before = Dim("batch"), Dim("length"), Dim("before")
    cache = {name: torch.randn(2, 2, 5, 4) for name in ("key", "value")}
    sizes = {"ids": {0: batch, 1: length}, "cache": {name: {0: batch, 2: before} for name in cache}}
    mod = tw.from_exported(programs.exported(module, [torch.randint(0, 40, (2, 3)), cache], sizes))
    model = tw.build(mod)
    assert model.signature.result_names == ("hidden", "cache_key", "cache_value")
    for count, length_now, length_before in (1, 2, 3), (3, 4, 2):
        cache = {name: torch.randn(count, 2, length_before, 4) for name in ("key", "value")}
        programs.assert_agrees(model, module, [torch.randint(0, 40, (count, length_now)), cache])


def test_a_vision_transformer_agrees() -> None:
    module = networks.Vision()
    x = torch.randn(2, 3, 16, 16)
    programs.assert_agrees(tw.build(tw.from_exported(programs.exported(module, [x]))), module, [x])


def test_recurrent_layers_agree() -> None:
    module = networks.Recurrent()
    x = torch.randn(2, 3, 6)
    programs.assert_agrees(tw.build(tw.from_exported(programs.exported(module, [x]))), module, [x])


def test_layers_of_long_short_term_memory_are_compiled_for_any_number_of_steps(builds: list[Any]) -> None:
    lstm = torch.nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        model = torch.compile(lstm, backend="tilewright", dynamic=True, fullgraph=True, options={"fallback": False})
        for steps in 20, 3:
            x = torch.randn(2, steps, 6)
            torch.testing.assert_close(model(x), lstm(x), rtol=1e-4, atol=1e-5)
    assert len(builds) == 1
