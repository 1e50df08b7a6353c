"""List the PyTorch programs of the suite: a module with random weights, its inputs, and what is timed.

Every library makes the module itself, from the same seed. Its results are compared with those of PyTorch without a
compiler.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bench.peers.kernels import Model, normal

if TYPE_CHECKING:
    from torch import nn

Array = np.ndarray[Any, Any]
Kind = Literal["call", "training", "build", "new length", "overhead"]
#: What a process can do once.
ONCE = ("build", "new length")


@dataclasses.dataclass(frozen=True)
class Program:
    """A PyTorch program.

    Attributes:
        make: makes the module; it draws weights from PyTorch's generator.
        inputs: its inputs by name, in order. Where lengths are dynamic, the second input is of another length, and
            goes into a call of its own.
        kind: what is timed: a call without gradients, a ``training`` step (forward and backward), the ``build`` (the
            first call of all in a process), a call with a ``new length`` behind that, or what a call costs in any case,
            the ``overhead``.
    """

    make: Callable[[], nn.Module]
    inputs: Mapping[str, Array]
    kind: Kind = "call"


def _network(name: str, *arguments: Any) -> Callable[[], nn.Module]:
    """Return a function that makes a module of ``torch_networks`` or ``torch_transformers``."""

    def make() -> nn.Module:
        import torch_networks
        import torch_transformers

        found = getattr(torch_networks, name, None) or getattr(torch_transformers, name)
        made: nn.Module = found(*arguments)
        return made

    return make


def _increment() -> nn.Module:
    from torch import nn

    class Increment(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1.0

    return Increment()


def _image(batch: int = 1) -> dict[str, Array]:
    return {"image": normal(batch, 3, 224, 224, seed=1)}


def _words(batch: int, words: int, limit: int) -> dict[str, Array]:
    return {"words": np.random.default_rng(1).integers(0, limit, (batch, words))}


def _cached(words: int) -> dict[str, Array]:
    """Return a word, and the keys and values of those before, for each layer of GPT-2 small."""
    names = [f"{name}{layer}" for layer in range(12) for name in ("keys", "values")]
    cache = {name: normal(1, 12, words, 64, seed=100 + number) for number, name in enumerate(names)}
    return {"words": np.array([[1234]]), **cache}


def _states(batch: int, words: int, name: str = "x") -> dict[str, Array]:
    return {name: normal(batch, words, 768, seed=1)}


def _lengths() -> dict[str, Array]:
    return {**_states(1, 128), **_states(1, 192, "longer")}


RESNET_18, RESNET_50 = _network("ResNet", (2, 2, 2, 2), False), _network("ResNet", (3, 4, 6, 3), True)
_NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Array]]]] = {
    "ResNet-18": (RESNET_18, _image),
    "ResNet-50": (RESNET_50, _image),
    "MobileNet v2": (_network("MobileNetV2"), _image),
    "ConvNeXt-T": (_network("ConvNeXt"), _image),
    "ViT-B/16": (_network("ViT"), _image),
    "BERT-base, 1 x 128": (_network("BERT"), lambda: _words(1, 128, 30522)),
    "BERT-base, 8 x 128": (_network("BERT"), lambda: _words(8, 128, 30522)),
    "GPT-2 small, 512 words": (_network("GPT2"), lambda: _words(1, 512, 50257)),
    "GPT-2 small, a word and its cache": (_network("GPT2"), lambda: _cached(512)),
    "Llama blocks, 124 M weights, 128 words": (_network("Llama"), lambda: _states(1, 128)),
    "LSTM 3 x 512, 64 steps": (_network("Recurrent"), lambda: {"x": normal(1, 64, 512, seed=1)}),
    "U-Net, 256 x 256": (_network("UNet"), lambda: {"image": normal(1, 3, 256, 256, seed=1)}),
}
_OTHERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Array]], Kind]] = {
    "training ResNet-18, 8 images": (RESNET_18, lambda: _image(8), "training"),
    "training 4 GPT blocks, 4 x 128": (_network("Blocks", 768, 4, 12), lambda: _states(4, 128), "training"),
    "build of 2 GPT blocks": (_network("Blocks", 768, 2, 12), _lengths, "build"),
    "2 GPT blocks, a new length": (_network("Blocks", 768, 2, 12), _lengths, "new length"),
    "a call of x + 1": (_increment, lambda: {"x": normal(8)}, "overhead"),
}
#: By name: how the module is made, how the inputs are made, and what is timed.
PROGRAMS = {**{name: (*pair, "call") for name, pair in _NETWORKS.items()}, **_OTHERS}


def kind(name: str) -> Kind:
    """Return what of a program is timed."""
    return PROGRAMS[name][2]


@functools.cache
def program(name: str) -> Program:
    """Return a program by its name."""
    make, inputs, found = PROGRAMS[name]
    return Program(make, inputs(), found)


def module(name: str) -> nn.Module:
    """Make the module of a program: always the same one."""
    import torch

    torch.manual_seed(0)
    made = program(name).make()
    return made.train() if kind(name) == "training" else made.eval()


def training_step(
    made: nn.Module, function: Callable[..., Any], inputs: Sequence[Any]
) -> tuple[Callable[[], Any], Callable[[], list[Any]]]:
    """Return a function that makes a step, forward and backward, and one that returns the loss and all gradients as one
    vector after it: a gradient that is zero but for rounding has no meaning of its own."""
    import torch

    def step() -> Any:
        made.zero_grad(set_to_none=True)
        loss = function(*inputs).square().mean()
        loss.backward()
        return loss.detach().reshape(1)

    def compared() -> list[Any]:
        loss = step()
        return [loss, torch.cat([each.grad.flatten() for each in made.parameters()])]

    return step, compared


def _expected(name: str) -> list[Array]:
    import torch

    made, timed = module(name).double(), kind(name)
    inputs = [torch.from_numpy(array) for array in program(name).inputs.values()]
    inputs = [each.double() if each.is_floating_point() else each for each in inputs]
    if timed == "training":
        return [each.numpy() for each in training_step(made, made, inputs)[1]()]
    if timed in ONCE:
        inputs = inputs[:1] if timed == "build" else inputs[1:]
    with torch.no_grad():
        found = made(*inputs)
    return [each.numpy() for each in (found if isinstance(found, tuple) else (found,))]


def model(name: str) -> Model:
    """Return the inputs of a program, and its results in double precision by PyTorch without a compiler.

    Raises:
        ModuleNotFoundError: PyTorch is not installed.
    """
    import torch  # noqa: F401

    expected = functools.partial(_expected, name)
    return Model("", dict(program(name).inputs), expected, reference="PyTorch, float64")
