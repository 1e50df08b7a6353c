"""Write image networks as ONNX models, with random weights; load those that ``make models`` installs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference
from onnx_writer import Writer

from bench.peers.kernels import Model, normal

Array = np.ndarray[Any, Any]

LIGHT = Path(onnx.__file__).resolve().parent / "backend" / "test" / "data" / "light"
IMAGE = (1, 3, 224, 224)
#: MobileNet v2: expansion, channels, repetitions and stride of each group of blocks.
MOBILENET = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


def light(name: str) -> Model:
    """Load a network of the onnx package. Its weights are constants of one value: random ones replace them, so that
    results are meaningful and no library gains from equal weights."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    graph = model.graph
    made = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    uses = {name: (node.op_type, at) for node in graph.node for at, name in enumerate(node.input)}
    random = np.random.default_rng(0)
    # Variances stay the same over a chain of convolutions and ReLUs, and grow little at residual additions:
    # a softmax at the end still distinguishes its inputs.
    gain = 1.0 if any(node.op_type == "Sum" for node in graph.node) else 2.0
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape, (op, at) = tuple(int(size) for size in made.pop(node.input[0])), uses[node.output[0]]
        if len(shape) > 1:
            values = random.standard_normal(shape, np.float32) * np.float32(np.sqrt(gain / np.prod(shape[1:])))
        elif op in ("Conv", "Gemm") or (op == "BatchNormalization" and at in (2, 3)):  # biases and means
            values = random.standard_normal(shape, np.float32) * np.float32(0.1)
        elif op == "BatchNormalization" and at == 4:
            values = random.uniform(1, 2, shape).astype(np.float32)
        else:  # scales
            values = random.uniform(0.5, 1.5, shape).astype(np.float32)
        made[node.output[0]] = values
    images = [value for value in graph.input if value.name not in made and "data" in value.name]
    used = {name for node in kept for name in node.input}
    constants = [numpy_helper.from_array(value, name) for name, value in made.items() if name in used]
    for field, values in ((graph.node, kept), (graph.input, images), (graph.initializer, constants)):
        del field[:]
        field.extend(values)
    model.ir_version = 8
    return Model(model, {images[0].name: normal(*IMAGE, seed=1)})


def mobilenet() -> Model:
    """Write MobileNet v2 for 224 x 224 pixels, its normalizations folded into the convolutions as exporters do."""
    o, seed = Writer(), 0
    zero, six = o.constant(np.float32(0)), o.constant(np.float32(6))

    def convolution(value: str, of: int, to: int, kernel: int, stride: int, groups: int = 1, relu: bool = True) -> str:
        nonlocal seed
        seed += 2
        gain = 2.0 if relu else 1.0
        weight = normal(to, of // groups, kernel, kernel, seed=seed, scale=(gain * groups / (of * kernel**2)) ** 0.5)
        at = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        value = o("Conv", value, o.constant(weight), o.constant(normal(to, seed=seed + 1, scale=0.1)), **at)
        return o("Clip", value, zero, six) if relu else value

    value, channels = convolution("image", 3, 32, 3, 2), 32
    for expansion, to, repetitions, first_stride in MOBILENET:
        for number in range(repetitions):
            stride, inner = first_stride if number == 0 else 1, channels * expansion
            made = convolution(value, channels, inner, 1, 1) if expansion > 1 else value
            made = convolution(made, inner, inner, 3, stride, groups=inner)
            made = convolution(made, inner, to, 1, 1, relu=False)
            value = o("Add", value, made) if channels == to and stride == 1 else made
            channels = to
    value = o("GlobalAveragePool", convolution(value, channels, 1280, 1, 1))
    matrix, bias = o.constant(normal(1280, 1000, seed=1, scale=1280**-0.5)), o.constant(normal(1000, seed=3))
    o.named(o("Add", o("MatMul", o("Flatten", value), matrix), bias), "classes")
    image = {"image": normal(*IMAGE, seed=1)}
    return Model(o.model(image, {"classes": (1, 1000)}), image)


def real(name: str, title: str) -> Model:
    """Load a network of ``real_models``, for one of its sizes.

    Raises:
        ModuleNotFoundError: the package that contains it is not installed.
    """
    import real_models

    case = real_models.CASES[name]()
    path = str(case.peer())
    graph = onnx.load(path, load_external_data=False).graph
    constants = {one.name for one in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    return Model(path, dict(zip(names, case.inputs()[title], strict=True)), real=name)


def operations(model: onnx.ModelProto) -> float:
    """Count the floating-point operations of the contractions of a model of fixed sizes, a multiply-add as two."""
    graph = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in graph.value_info}
    for value in (*graph.input, *graph.output):
        shapes[value.name] = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    shapes.update((one.name, list(one.dims)) for one in graph.initializer)
    total = 0.0
    for node in graph.node:
        if node.op_type == "Conv":
            total += 2.0 * np.prod(shapes[node.output[0]]) * np.prod(shapes[node.input[1]][1:])
        elif node.op_type == "ConvTranspose":
            total += 2.0 * np.prod(shapes[node.input[0]]) * np.prod(shapes[node.input[1]][1:])
        elif node.op_type in ("MatMul", "Gemm"):
            transposed = any(one.name == "transA" and one.i for one in node.attribute)
            total += 2.0 * np.prod(shapes[node.output[0]]) * shapes[node.input[0]][-2 if transposed else -1]
    return total
