"""Add random nodes to an ONNX model that grows: a function for each kind of node."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.onnx_growing import FLOATS, SIZES, Growing, fits
from tests.fuzz.values import Fill

_FLOAT_UNARY = (
    "Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Floor", "Ceil", "Round", "Erf", "Reciprocal", "Softplus", "Softsign",
    "LeakyRelu", "HardSigmoid", "Selu", "HardSwish", "Mish", "Gelu", "Sin", "Cos", "Atan", "Sinh", "IsNaN", "IsInf",
    "ThresholdedRelu", "Celu", "Elu", "Log",
)  # fmt: skip
_BINARY = ("Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual")
_REDUCTIONS = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
)


def _unary(g: Growing) -> None:
    if g.chance(25):
        g.add(g.pick(("Abs", "Neg", "Sign", "Identity")), g.find((*FLOATS, "int64", "int32")))
    else:
        op = g.pick(_FLOAT_UNARY)
        g.add(op, g.find(("float32",) if op == "Celu" else FLOATS))


def _binary(g: Growing) -> None:
    x = g.find((*FLOATS, "int64", "int32"))
    y = x if g.chance(8) else g.partner(x)
    op = g.pick(_BINARY)
    if g.array(x).dtype.kind == "i" and op in ("Div", "Pow"):
        op = "Add"
    g.add(op, *((y, x) if g.chance(40) else (x, y)))


def _logic(g: Growing) -> None:
    x = g.find(("bool",))
    if g.chance(40):
        g.add("Not", x)
    else:
        g.add(g.pick(("And", "Or", "Xor")), x, g.partner(x))


def _where(g: Growing) -> None:
    x = g.find((*FLOATS, "int64"))
    condition = g.find(("bool",))
    g.add("Where", condition, x, g.partner(x))


def _has_nan(g: Growing, x: str) -> bool:
    return any(np.isnan(array).any() for array in g.values[x])


def _cast(g: Growing) -> None:
    x = g.find()
    to = g.pick(("float32", "int64", "bool", "int32", "float64", "float16", "uint8"))
    if g.array(x).dtype.kind == "f" and to not in FLOATS and to != "bool":
        kind = g.array(x).dtype
        x = g.last("Clip", x, g.constant(np.array(0, kind)), g.constant(np.array(100, kind)))
        if _has_nan(g, x):
            return
    g.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def _reduce(g: Growing) -> None:
    x = g.find((*FLOATS, "int64", "int32"))
    inputs = [x]
    if g.array(x).ndim and g.chance(80):
        inputs.append(g.integers(g.axis(x)))
    op = g.pick(_REDUCTIONS)
    if op == "ReduceSumSquare" and g.array(x).dtype == np.int32:
        op = "ReduceSum"  # the reference evaluator makes int64 of int32, against the standard
    if op == "ReduceL2" and g.array(x).dtype == np.float16 and not all(map(_has_squares, g.values[x])):
        op = "ReduceL1"  # the reference evaluator squares in half precision
    g.add(op, *inputs, keepdims=g.number(0, 1))


def _has_squares(array: np.ndarray) -> bool:
    """Return whether squares of the elements, and sums of thousands of them, are normal numbers in half precision."""
    sizes = np.abs(array)
    return bool(np.all((sizes == 0) | ((sizes >= 2.0**-6) & (sizes <= 4))))


def _arg(g: Growing) -> None:
    x = g.find((*FLOATS, "int64"), least=1)
    g.add(g.pick(("ArgMax", "ArgMin")), x, axis=g.axis(x), keepdims=g.number(0, 1), select_last_index=g.number(0, 1))


def _softmax(g: Growing) -> None:
    x = g.find(FLOATS, least=1)
    op = g.pick(("Softmax", "LogSoftmax"))
    if any(not np.all(np.abs(array) < 20) for array in g.values[x]):
        op = "Softmax"  # the reference evaluator's LogSoftmax gives the logarithm of an underflow
    g.add(op, x, axis=g.axis(x))


def _concat(g: Growing) -> None:
    x = g.find(least=1)
    axis = g.axis(x)
    parts = [x]
    for _ in range(g.number(1, 2)):
        arrays = g.values[x]
        fitting = [
            name
            for name, others in g.values.items()
            if others[0].dtype == arrays[0].dtype
            and all(
                a.ndim == b.ndim and np.delete(a.shape, axis).tolist() == np.delete(b.shape, axis).tolist()
                for a, b in zip(arrays, others, strict=True)
            )
        ]
        parts.append(g.pick(fitting[::-1]))
    g.add("Concat", *parts, axis=axis)


def _split(g: Growing) -> None:
    x = g.find(least=1)
    axis = g.axis(x)
    extent = g.same(x, axis)
    if extent is not None and extent > 1:
        first = g.number(1, extent - 1)
        g.add("Split", x, g.integers(first, extent - first), outputs=2, axis=axis)


def _slice(g: Growing) -> None:
    x = g.find(least=1)
    step = g.pick((1, 2, -1, 3))
    begin, end = g.pick(((0, 2), (1, 1000), (-2, 1000), (0, -1), (1, -1)))
    if step < 0:
        begin, end = g.pick(((-1, -1000), (2, -1000), (1000, 0)))
    g.add("Slice", x, g.integers(begin), g.integers(end), g.integers(g.axis(x)), g.integers(step))


def _gather(g: Growing) -> None:
    x = g.find(least=1)
    axis = g.axis(x)
    least = min(array.shape[axis] for array in g.values[x])
    if least == 0:
        return
    shape = [g.number(1, 3) for _ in range(g.number(0, 2))]
    g.add("Gather", x, g.constant(g.rng.integers(-least, least, shape)), axis=axis)


def _transpose(g: Growing) -> None:
    x = g.find(least=1)
    rest = list(range(g.array(x).ndim))
    g.add("Transpose", x, perm=[rest.pop(g.number(0, len(rest) - 1)) for _ in range(len(rest))])


def _reshape(g: Growing) -> None:
    x = g.find(least=1)
    form = g.number(0, 4)
    if form == 0:
        g.add("Reshape", x, g.integers(-1))
    elif form == 1:
        g.add("Flatten", x, axis=g.number(0, g.array(x).ndim))
    elif form == 2:
        g.add("Reshape", x, g.integers(0, -1))
    elif form == 3:  # by a computed shape
        shape = g.last("Shape", x)
        rest = g.last("Slice", shape, g.integers(1), g.integers(1000))
        g.add("Reshape", x, g.last("Concat", rest, g.integers(-1), axis=0))
    else:
        g.add("Unsqueeze", x, g.integers(g.number(0, g.array(x).ndim)))


def _squeeze(g: Growing) -> None:
    x = g.find(least=1)
    ones = [axis for axis in range(g.array(x).ndim) if g.same(x, axis) == 1]
    if ones:
        g.add("Squeeze", x, g.integers(g.pick(ones)))


def _expand(g: Growing) -> None:
    x, other = g.find(), g.find()
    form = g.number(0, 2)
    if form == 0:
        g.add("Expand", x, g.last("Shape", other))
    elif form == 1:
        g.add("Expand", x, g.integers(g.number(1, 3), *[1] * g.array(x).ndim))
    else:  # a size that differs between calls, and is 1 in one of them, to that of the other
        g.add("Expand", x, g.integers(*np.max([array.shape for array in g.values[x]], axis=0)))


def _selected(g: Growing) -> None:
    """Add nodes whose results have as many elements as there are of some kind."""
    form = g.number(0, 3)
    if form == 0:
        condition = g.find(("bool",), rank=1)
        x = g.find(("float32", "int64"), least=1)
        g.add("Compress", x, condition, axis=g.axis(x))
    elif form == 1:
        g.add("Unique", g.find(("float32", "int64"), rank=1), outputs=4)
    elif form == 2:
        x = g.find(("float32", "int64"), least=1)
        places = g.last("NonZero", x)
        g.add("GatherND", x, g.last("Transpose", places, perm=[1, 0]))
    else:
        x = g.find(("int64", "int32"))
        size = g.last("ReduceMax", x, keepdims=0)
        if all(array.ndim == 0 and 0 <= array <= 20 for array in g.values[size]):
            zero, one = (g.constant(np.array(number, g.array(size).dtype)) for number in (0, 1))
            g.add("Range", zero, size, one)


def _scatter(g: Growing) -> None:
    x = g.find(("float32", "int64"), least=1)
    axis = g.axis(x)
    least = min(array.shape[axis] for array in g.values[x])
    if least and all(
        g.same(x, other) is not None for other in range(g.array(x).ndim) if other != axis % g.array(x).ndim
    ):
        shape = list(g.array(x).shape)
        shape[axis] = g.number(1, 2)
        updates = Fill("ties").draw(g.rng, tuple(shape), g.array(x).dtype)
        indices = g.constant(g.rng.integers(0, least, shape))
        g.add("ScatterElements", x, indices, g.constant(updates), axis=axis, reduction=g.pick(("none", "add", "max")))


def _branches(g: Growing) -> None:
    """Add a conditional on the size or the values of a tensor."""
    x = g.find(("float32", "int64"), least=1)
    size = g.last("Size", x) if g.chance(40) else g.last("ReduceMax", x, keepdims=0)
    if g.array(size).ndim:
        return
    asked = g.last("Greater", size, g.constant(np.array(2, g.array(size).dtype)))
    then = helper.make_graph([helper.make_node("Neg", [x], ["then"])], "a", [], [onnx.ValueInfoProto(name="then")])
    other = helper.make_graph(
        [helper.make_node("Add", [x, x], ["other"])], "b", [], [onnx.ValueInfoProto(name="other")]
    )
    g.branch(asked, x, then, other)


def _shape(g: Growing) -> None:
    shape = g.last("Shape", g.find(least=1))
    form = g.number(0, 3)
    if form == 0:
        g.add("ReduceProd", shape)
    elif form == 1:
        g.add("ConstantOfShape", shape, value=helper.make_tensor("value", 1, [1], [2.0]))
    elif form == 2 and g.array(shape).size:
        size = g.last("Gather", shape, g.constant(np.array(0)))
        g.add("Range", g.constant(np.array(0)), size, g.constant(np.array(1)))
    elif g.array(shape).dtype == np.int64:
        g.add("Cast", shape, to=1)


def _nonzero(g: Growing) -> None:
    found = g.last("NonZero", g.find(("float32", "bool", "int64"), least=1))
    if g.array(found).ndim == 2 and g.chance(60):
        g.add("Transpose", found)


def _tile(g: Growing) -> None:
    x = g.find(least=1)
    g.add("Tile", x, g.integers(*[g.pick((1, 2, 3)) for _ in range(g.array(x).ndim)]))


def _pad(g: Growing) -> None:
    x = g.find(FLOATS, least=1)
    rank = g.array(x).ndim
    widths = [g.number(0, 1) for _ in range(2 * rank)]
    mode = g.pick(("constant", "edge", "reflect"))
    if min(min(array.shape) for array in g.values[x]) < 2:  # there is nothing to mirror
        mode = "constant"
    g.add("Pad", x, g.integers(*widths), mode=mode)


def _matmul(g: Growing) -> None:
    x = g.find(("float32", "float64", "int32"), least=2)
    k = g.same(x, -1)
    if k is not None:
        g.add("MatMul", x, g.constant(Fill("ties").draw(g.rng, (k, g.pick(SIZES)), g.array(x).dtype)))


def _products(g: Growing) -> None:
    """Add a product of two values whose sizes may be equal, or 1, in each call."""
    x = g.find(("float32",), least=2)
    fitting = [
        name
        for name, others in g.values.items()
        if others[0].dtype == g.array(x).dtype
        and others[0].ndim >= 2
        and all(
            a.shape[-1] == b.shape[-2] and fits(a.shape[:-2], b.shape[:-2])
            for a, b in zip(g.values[x], others, strict=True)
        )
    ]
    if fitting:
        g.add("MatMul", x, g.pick(fitting[::-1]))
    else:
        g.add(
            "MatMul",
            x,
            g.last("Transpose", x, perm=[*range(g.array(x).ndim - 2), g.array(x).ndim - 1, g.array(x).ndim - 2]),
        )


def _variadic(g: Growing) -> None:
    x = g.find(("float32",))
    y = g.partner(x)
    g.add(g.pick(("Sum", "Max", "Min", "Mean")), x, y, *([g.partner(x)] if g.chance(50) else []))


def _batched(g: Growing) -> None:
    """Gather with a leading dimension that data and indices share, and that may be symbolic."""
    x = g.find(("float32", "int64"), least=2)
    least = min(array.shape[1] for array in g.values[x])
    if least:
        places = g.last("ReduceMax", x, g.integers(*range(1, g.array(x).ndim)), keepdims=0)
        zero = g.last("Cast", g.last("Mul", places, places), to=7)
        limited = g.last("Clip", zero, g.constant(np.array(0)), g.constant(np.array(least - 1)))
        g.add("GatherND", x, g.last("Unsqueeze", limited, g.integers(1)), batch_dims=1)


def _along_a_row(g: Growing) -> None:
    """Convolve or pool rows, which may be of symbolic length."""
    x = g.find(("float32",), rank=3)
    channels, window = g.same(x, 1), g.pick((2, 3, 1))
    if not channels or any(array.shape[2] + 2 < window or 0 in array.shape for array in g.values[x]):
        return
    form = g.number(0, 2)
    if form == 2 and _has_nan(g, x):  # as in _pool
        return
    if form == 0:
        weight = Fill("ties").draw(g.rng, (g.pick((1, 2, 4)), channels, window), "float32")
        g.add("Conv", x, g.constant(weight), pads=[1, 1], strides=[g.pick((1, 2))])
    else:
        pads = [1, 1] if window > 1 else [0, 0]
        g.add(("MaxPool", "AveragePool")[form - 1], x, kernel_shape=[window], pads=pads)


def _gemm(g: Growing) -> None:
    x = g.find(("float32",), rank=2)
    k = g.same(x, 1)
    if k is not None:
        columns = g.pick(SIZES)
        weight = Fill("ties").draw(g.rng, (columns, k), "float32")
        g.add("Gemm", x, g.constant(weight), g.constant(np.ones(columns, np.float32)), transB=1, alpha=0.5)


def _conv(g: Growing) -> None:
    x = g.find(("float32",), rank=4)
    channels = g.same(x, 1)
    if not channels or 0 in g.array(x).shape:
        return
    window, groups = g.pick((1, 3, 2)), channels if g.chance(25) else 1
    if any(extent + 2 < window for array in g.values[x] for extent in array.shape[2:]):
        return
    weight = Fill("ties").draw(
        g.rng, (groups * g.pick((1, 2, 4, 8)) if groups == 1 else groups, channels // groups, window, window), "float32"
    )
    g.add("Conv", x, g.constant(weight), pads=[1, 1, 1, 1], strides=[g.pick((1, 2))] * 2, group=groups)


def _pool(g: Growing) -> None:
    x = g.find(("float32",), rank=4)
    if any(extent < 2 for array in g.values[x] for extent in array.shape[2:]):
        return
    form = g.number(0, 3)
    if form == 1 and _has_nan(g, x):  # the reference evaluator leaves NaN out of a mean, against the standard
        return
    if form < 2:
        g.add(("MaxPool", "AveragePool")[form], x, kernel_shape=[2, 2], strides=[g.pick((1, 2))] * 2)
    else:
        g.add(("GlobalAveragePool", "GlobalMaxPool")[form - 2], x)


def _norm(g: Growing) -> None:
    x = g.find(("float32",), least=2)
    form = g.number(0, 1)
    extent = g.same(x, -1 if form else 1)
    if extent is None:
        return
    vectors = [g.constant(g.rng.uniform(0.5, 1.5, extent).astype("float32")) for _ in range(4)]
    if form:
        g.add("LayerNormalization", x, *vectors[:2], axis=-1)
    else:
        g.add("BatchNormalization", x, *vectors)


def _topk(g: Growing) -> None:
    x = g.find(("float32", "int64"), least=1)
    axis = g.axis(x)
    least = min(array.shape[axis] for array in g.values[x])
    g.add("TopK", x, g.integers(g.number(0, least)), outputs=2, axis=axis, largest=g.number(0, 1))


def _cumsum(g: Growing) -> None:
    x = g.find(("float32", "int64"), least=1)
    g.add("CumSum", x, g.constant(np.array(g.axis(x))), exclusive=g.number(0, 1), reverse=g.number(0, 1))


def _onehot(g: Growing) -> None:
    x = g.find(("int64",))
    g.add("OneHot", x, g.constant(np.array(g.number(1, 5))), g.constant(np.array([0, 1], "float32")), axis=-1)


def _eye(g: Growing) -> None:
    g.add("EyeLike", g.find(("float32", "int64"), rank=2), k=g.number(-1, 1))


def _trilu(g: Growing) -> None:
    g.add("Trilu", g.find(("float32", "int64"), least=2), g.constant(np.array(g.number(-1, 1))), upper=g.number(0, 1))


def _quantize(g: Growing) -> None:
    x = g.find(("float32",))
    if not all((np.abs(array) < 2**28).all() for array in g.values[x]):
        return  # the reference evaluator wraps numbers to int32, against the standard, before it saturates
    scale, zero = g.constant(np.float32(0.25)), g.constant(np.uint8(g.number(0, 5)))
    coded = g.last("QuantizeLinear", x, scale, zero)
    if coded != x:
        g.add("DequantizeLinear", coded, scale, zero)


def _resize(g: Growing) -> None:
    x = g.find(("float32",), rank=4)
    if not all(0 < array.size <= 256 for array in g.values[x]):
        return  # the reference evaluator reads all elements for each that it makes: minutes for a large image
    scales = g.constant(np.array([1, 1, g.pick((2, 0.5)), g.pick((2, 1.5))], "float32"))
    mode = g.pick(("nearest", "linear"))
    g.add("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=g.pick(("asymmetric", "half_pixel")))


MAKERS = (
    _binary, _unary, _reduce, _slice, _reshape, _concat, _gather, _transpose, _where, _cast, _matmul, _expand, _shape,
    _softmax, _logic, _arg, _split, _squeeze, _tile, _pad, _gemm, _conv, _pool, _norm, _topk, _cumsum, _onehot, _eye,
    _trilu, _quantize, _resize, _nonzero, _selected, _scatter, _branches, _expand, _selected, _binary, _binary, _unary,
    _reduce, _slice, _reshape, _gather, _expand, _shape, _products, _variadic, _batched, _along_a_row, _products,
)  # fmt: skip
