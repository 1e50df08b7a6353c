"""List the cases of the suite: every case with its group, its comparison, and its goal."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from bench.peers import kernels, networks, programs, transformers
from bench.peers.kernels import Model

IMAGE_NETWORKS = "image networks"
CONVOLUTIONS = "convolutions of ResNet-50"
DOCUMENTS = "documents"
PROGRAMS = "PyTorch programs"


@dataclasses.dataclass(frozen=True)
class Case:
    """A line of the suite.

    Attributes:
        name: its unique name.
        group: its heading.
        make: writes the model; raises ``ModuleNotFoundError`` if the package that contains it is missing.
        limit: its bound: ``fma``, ``copy``, ``read``, or none that is measured.
        amount: the least number of bytes to move; operations are counted in the model.
        goal: the greatest ratio to the best peer, or to the one of ``against``.
        goal_seconds: the greatest time of a call, above that of ``against`` if there is one.
        against: the peer that the goal is relative to, and not the fastest.
        torch: the function of ``torch_models`` that computes the same; without one PyTorch is not measured.
        program: a program of ``programs``, which all libraries take from PyTorch.
        libraries: the peers that can run the program.
        tolerance: the greatest error of a correct result, relative to the largest element. Gradients of a network with
            ReLUs jump where rounding changes the sign of a number near zero, in float32 without a compiler as well.
    """

    name: str
    group: str
    make: Callable[[], Model]
    limit: str = ""
    amount: float = 0.0
    goal: float | None = None
    goal_seconds: float | None = None
    torch: str = ""
    against: str = ""
    program: str = ""
    libraries: tuple[str, ...] = ()
    tolerance: float = 1e-2


#: Goals that are geometric means of a group's ratios to the best peer, or to one of them.
GROUP_GOALS = {
    (IMAGE_NETWORKS, ""): 0.85,
    (DOCUMENTS, ""): 0.85,
    (PROGRAMS, ""): 0.9,
    (PROGRAMS, "torch_compile"): 0.6,
}


def _convolutions() -> list[Case]:
    """List every distinct convolution of ResNet-50: kernel, stride, channels in and out, size of the image."""
    shapes = [(7, 2, 3, 64, 224), (1, 1, 64, 64, 56), (3, 1, 64, 64, 56), (1, 1, 64, 256, 56), (1, 1, 256, 64, 56)]
    for inner, size in (128, 28), (256, 14), (512, 7):
        shapes += [
            (1, 1, 2 * inner, inner, 2 * size),
            (3, 2, inner, inner, 2 * size),
            (1, 2, 2 * inner, 4 * inner, 2 * size),
            (1, 1, inner, 4 * inner, size),
            (1, 1, 4 * inner, inner, size),
            (3, 1, inner, inner, size),
        ]
    found = []
    for kernel, stride, channels, filters, size in shapes:
        name = f"conv {kernel}x{kernel}{f'/{stride}' if stride > 1 else ''} {channels}-{filters} at {size}"
        make = functools.partial(kernels.convolution, kernel, stride, channels, filters, size)
        found.append(Case(name, CONVOLUTIONS, make, "fma"))
    return found


def _depthwise() -> list[Case]:
    return [
        Case(
            f"depthwise 3x3 {channels} at {size}",
            "depthwise convolutions",
            functools.partial(kernels.convolution, 3, 1, channels, channels, size, groups=channels),
            "fma",
        )
        for channels, size in ((32, 112), (144, 56), (192, 28), (576, 14))
    ]


def _other_convolutions() -> list[Case]:
    """List convolutions of speech, video, segmentation and image-generating networks."""
    made = {
        "conv1d 5 256-256 at 512": functools.partial(kernels.convolution_nd, (5,), 256, 256, (512,)),
        "conv1d 3 dilated by 4 64-64 at 4096": functools.partial(
            kernels.convolution_nd, (3,), 64, 64, (4096,), dilation=4
        ),
        "conv3d 3x3x3 3-64 at 8x112x112": functools.partial(kernels.convolution_nd, (3, 3, 3), 3, 64, (8, 112, 112)),
        "conv3d 3x3x3 16-32 at 16x56x56": functools.partial(kernels.convolution_nd, (3, 3, 3), 16, 32, (16, 56, 56)),
        "conv3d 3x3x3 64-64 at 8x28x28": functools.partial(kernels.convolution_nd, (3, 3, 3), 64, 64, (8, 28, 28)),
        "conv 3x3 dilated by 2 256-256 at 28": functools.partial(
            kernels.convolution_nd, (3, 3), 256, 256, (28, 28), dilation=2
        ),
        "conv 3x3 in 32 groups 128-128 at 56": functools.partial(kernels.convolution, 3, 1, 128, 128, 56, groups=32),
        "transposed 2x2/2 128-64 at 56": functools.partial(kernels.transposed, 2, 2, 0, 128, 64, 56),
        "transposed 4x4/2 256-128 at 16": functools.partial(kernels.transposed, 4, 2, 1, 256, 128, 16),
    }
    return [Case(name, "other convolutions", make, "fma") for name, make in made.items()]


def _image_networks() -> list[Case]:
    light = ("resnet50", "vgg19", "densenet121", "inception_v2", "squeezenet", "shufflenet")
    found = [
        Case(
            name,
            IMAGE_NETWORKS,
            functools.partial(networks.light, name),
            "fma",
            goal=0.80 if name == "resnet50" else None,
        )
        for name in light
    ]
    return [*found, Case("mobilenet_v2", IMAGE_NETWORKS, networks.mobilenet, "fma")]


def _documents() -> list[Case]:
    sizes = {
        "magika": ("1 file", "16 files"),
        "detection": ("320 x 640", "736 x 736"),
        "direction": ("1 line", "6 lines"),
        "recognition": ("1 line of 320", "6 lines of 320"),
    }
    return [
        Case(f"{name}, {title}", DOCUMENTS, functools.partial(networks.real, name, title))
        for name, titles in sizes.items()
        for title in titles
    ]


def _programs() -> list[Case]:
    """List the PyTorch programs; training, builds and short calls have headings of their own."""
    all_peers = ("torch_eager", "torch_compile", "openvino", "onnxruntime")
    compilers = ("torch_compile", "openvino")
    found = []
    for name in programs.PROGRAMS:
        case = functools.partial(Case, name, make=functools.partial(programs.model, name), program=name)
        match programs.kind(name):
            case "call":
                found.append(case(group=PROGRAMS, goal=1.0, libraries=all_peers))
            case "training":
                libraries, goal = ("torch_eager", "torch_compile"), 0.9
                found.append(
                    case(
                        group=f"{PROGRAMS}, training",
                        goal=goal,
                        against="torch_compile",
                        libraries=libraries,
                        tolerance=5e-2,
                    )
                )
            case "build":
                found.append(case(group=f"{PROGRAMS}, builds", goal_seconds=5.0, libraries=compilers))
            case "new length":
                found.append(case(group=f"{PROGRAMS}, builds", goal=1.0, libraries=compilers))
            case "overhead":
                found.append(
                    case(
                        group=f"{PROGRAMS}, short calls",
                        goal_seconds=15e-6,
                        against="torch_empty",
                        libraries=("torch_empty", *all_peers[:2]),
                    )
                )
    return found


MIB = 1 << 20
CASES: list[Case] = [
    *(
        Case(
            f"matmul {size}, {kind}",
            "matrix products",
            functools.partial(kernels.matmul, size, constant),
            "fma",
            torch="matmul",
        )
        for size in (512, 1024, 2048)
        for kind, constant in (("constant weights", True), ("both at run time", False))
    ),
    *_convolutions(),
    *_depthwise(),
    *_other_convolutions(),
    *_image_networks(),
    *(
        Case(
            f"BERT-base, {batch} x {words}",
            "transformers",
            functools.partial(transformers.bert, batch, words),
            "fma",
            goal=0.95,
            torch="bert",
        )
        for batch, words in ((1, 128), (4, 512))
    ),
    Case(
        "GPT-2 small, a word after 512",
        "transformers",
        functools.partial(transformers.gpt_step, 512),
        "read",
        4.0 * (12 * 12 * 768**2 + 50257 * 768 + 24 * 512 * 768),
        goal=0.90,
        torch="gpt",
    ),
    *(
        Case(name, "memory-bound", make, "copy", moved * MIB, goal=0.7, torch=torch)
        for name, make, moved, torch in (
            ("gelu(x * a + b) + y, 4096 x 4096", kernels.gelu_chain, 192.0, "gelu"),
            ("softmax, 4096 x 1024", kernels.softmax_rows, 32.0, "softmax"),
            ("layer norm, 4096 x 1024", kernels.layer_norm_rows, 32.0, "layer_norm"),
        )
    ),
    Case("LSTM 2 x 512, 100 steps", "small", functools.partial(kernels.lstm, 2, 512, 100), goal=1.0, torch="lstm"),
    Case("MLP 784-512-512-10", "small", functools.partial(kernels.mlp, 784, 512, 512, 10), goal=1.0, torch="mlp"),
    Case("a call of a tiny operator", "small", kernels.tiny, goal_seconds=3e-6, torch="tiny"),
    *_documents(),
    *_programs(),
]
