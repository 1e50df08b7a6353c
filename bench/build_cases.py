"""Define the networks whose builds ``bench_builds`` measures, each with a neighbour that shares kernels with it."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from detector import detector
from onnx_writer import Writer

from bench.peers import networks, transformers

Shapes = dict[str, list[int | str]]

#: Sizes of the layers in the chain of distinct kernels are below ``SIZES``, and at least ``LEAST``.
SIZES, LEAST = 128, 8


@dataclasses.dataclass(frozen=True)
class Model:
    """A model to build.

    Attributes:
        make: returns the ONNX model or the path of its file; raises ``ModuleNotFoundError`` if its package is missing.
            None: the network of ``examples/digits``.
        shapes: as ``from_onnx`` takes them; None: the model's own.
        classes: the number of digits that the digits network distinguishes, if not all.
    """

    make: Callable[[], onnx.ModelProto | Path] | None
    shapes: Shapes | None = None
    classes: int | None = None


@dataclasses.dataclass(frozen=True)
class Case:
    """A row of the tables.

    Attributes:
        title: the name of the row.
        model: the model to build.
        neighbour: a model that another program has built before, with its description.
    """

    title: str
    model: Model
    neighbour: tuple[str, Model]


def _light(name: str) -> onnx.ModelProto:
    model = networks.light(name).onnx
    assert isinstance(model, onnx.ModelProto)
    return model


def resnet101() -> onnx.ModelProto:
    """Extend ResNet-50 with 17 more blocks like the last one of its third stage."""
    model = _light("resnet50")
    graph = model.graph
    uses = {name: number for number, node in enumerate(graph.node) for name in node.input}
    first, behind = uses["gpu_0/res4_5_branch2a_w_0"], uses["gpu_0/res5_0_branch2a_w_0"]
    block, rest = list(graph.node[first:behind]), list(graph.node[behind:])
    entry, leave = block[0].input[0], block[-1].output[0]
    del graph.node[behind:]
    last = leave
    for number in range(17):
        renamed = {entry: last, **{name: f"{name}_{number}" for node in block for name in node.output}}
        for node in block:
            added = copy.deepcopy(node)
            added.name = f"{node.name}_{number}"
            for names in (added.input, added.output):
                names[:] = [renamed.get(name, name) for name in names]
            graph.node.append(added)
        last = renamed[leave]
    for node in rest:
        node.input[:] = [last if name == leave else name for name in node.input]
    graph.node.extend(rest)
    return model


def bert(layers: int) -> onnx.ModelProto:
    """Build BERT-base with ``layers`` layers, over 1 x 128 words."""
    model = transformers.bert(1, 128, layers).onnx
    assert isinstance(model, onnx.ModelProto)
    return model


def chain(layers: int) -> onnx.ModelProto:
    """Build a chain of small dense layers, no two of the same sizes."""
    random, used = np.random.default_rng(3), np.zeros((SIZES, SIZES), bool)
    o, value, size, first = Writer(), "x", 64, 64
    for _ in range(layers):
        following = int(random.choice(np.flatnonzero(~used[size, LEAST:]))) + LEAST
        used[size, following] = True
        weight = random.standard_normal((size, following), np.float32) * np.float32((2 / size) ** 0.5)
        value, size = o("Relu", o("MatMul", value, o.constant(weight))), following
    o.named(value, "y")
    return o.model({"x": np.zeros((1, first), np.float32)}, {"y": (1, size)}, "chain")


def _package(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed (make models)", name=name)
    return Path(found.origin).parent


def _ocr(file: str) -> Path:
    return _package("rapidocr_onnxruntime") / "models" / file


def _magika() -> Path:
    (path,) = _package("magika").glob("models/standard*/model.onnx")
    return path


def _images(number: int | str, height: int | str, width: int | str, name: str = "x") -> Shapes:
    return {name: [number, 3, height, width]}


def _direction() -> Path:
    return _ocr("ch_ppocr_mobile_v2.0_cls_infer.onnx")


def _detection() -> Path:
    return _ocr("ch_PP-OCRv4_det_infer.onnx")


CASES: dict[str, Case] = {
    "digits": Case("digits", Model(None), ("for five digits", Model(None, classes=5))),
    "resnet50": Case("ResNet-50", Model(lambda: _light("resnet50")), ("ResNet-101", Model(resnet101))),
    "squeezenet": Case(
        "SqueezeNet",
        Model(lambda: _light("squeezenet")),
        ("for 192 x 192", Model(lambda: _light("squeezenet"), _images(1, 192, 192, "data_0"))),
    ),
    "bert": Case("BERT-base, 1 x 128", Model(lambda: bert(12)), ("with two layers", Model(lambda: bert(2)))),
    "magika": Case(
        "magika",
        Model(_magika, {"bytes": ["files", 2048]}),
        ("for one file", Model(_magika, {"bytes": [1, 2048]})),
    ),
    "direction": Case(
        "OCR direction, sizes unknown",
        Model(_direction, _images("lines", "height", "width")),
        ("for lines of 48 x 192", Model(_direction, _images("lines", 48, 192))),
    ),
    "detection": Case(
        "OCR detection, sizes unknown",
        Model(_detection, _images("pages", "height", "width")),
        ("for a width of 640", Model(_detection, _images("pages", "height", 640))),
    ),
    "detector": Case(
        "a YOLO-like detector, sizes unknown", Model(detector), ("for 20 classes", Model(lambda: detector(20)))
    ),
}
#: The models of the growth table: a row's heading, and the model by its number of layers.
GROWTH: dict[str, Callable[[int], onnx.ModelProto]] = {"layers of BERT": bert, "distinct dense layers": chain}
