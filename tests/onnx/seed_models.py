# ruff: noqa: E501
"""Small valid models, a spread of what importing meets: mutations of them are bad models of every kind.

In the textual syntax of the onnx package; opset 21 unless said otherwise.
"""

from __future__ import annotations

import functools

import numpy as np
import onnx.parser
from onnx import ModelProto, helper, numpy_helper

_GRAPHS = {
    "convolution": """(float[n,3,8,8] x) => (float[n,4,4,4] y)
        <float[4] b = {1,2,3,4}> {
        w = ConstantOfShape <value = float[1] {0.5}> (ws)
        ws = Constant <value_ints = [4,3,3,3]> ()
        y = Conv <pads = [1,1,1,1], strides = [2,2], dilations = [1,1]> (x, w, b) }""",
    "grouped_convolution": """(float[1,4,9] x, float[4,2,3] w) => (float[1,4,9] y) {
        y = Conv <group = 2, auto_pad = "SAME_UPPER"> (x, w) }""",
    "transposed_convolution": """(float[1,2,3,3] x, float[2,3,2,2] w) => (float y) {
        y = ConvTranspose <strides = [2,2], output_padding = [1,1], pads = [0,0,1,1]> (x, w) }""",
    "pooling": """(float[1,2,7,6] x) => (float y, float z, float g) {
        m, places = MaxPool <kernel_shape = [3,2], strides = [2,2], ceil_mode = 1, pads = [1,0,1,0]> (x)
        y = MaxUnpool <kernel_shape = [3,2], strides = [2,2], pads = [1,0,1,0]> (m, places)
        z = AveragePool <kernel_shape = [2,2], count_include_pad = 1, dilations = [2,2]> (x)
        g = GlobalAveragePool (x) }""",
    "lp_pooling": """(float[1,2,7] x) => (float y, float z) {
        y = LpPool <kernel_shape = [3], p = 3> (x)
        z = GlobalLpPool <p = 1> (x) }""",
    "flattening": """(float[batch,3,4] x) => (float y) <int64 zero = {0}, int64[1] axes = {0}, int64[1] rest = {-1}> {
        sizes = Shape (x)
        first = Gather <axis = 0> (sizes, zero)
        first_1 = Unsqueeze (first, axes)
        wanted = Concat <axis = 0> (first_1, rest)
        y = Reshape (x, wanted) }""",
    "shape_arithmetic": """(float[n,6] x) => (float y, int64 r) <int64 two = {2}, int64 zero = {0}, int64 one = {1}> {
        sizes = Shape (x)
        n = Gather (sizes, zero)
        half = Div (n, two)
        more = Add (half, one)
        product = Mul (more, more)
        r = Range (zero, product, one)
        axes = Constant <value_ints = [0]> ()
        v = Unsqueeze (product, axes)
        filled = ConstantOfShape (v)
        y = Reshape (filled, minus)
        minus = Constant <value_ints = [1,-1]> () }""",
    "slicing": """(float[5,n,7] x) => (float y)
        <int64[2] starts = {-1, 1}, int64[2] ends = {-9, 5}, int64[2] axes = {0, 2}, int64[2] steps = {-2, 2}> {
        y = Slice (x, starts, ends, axes, steps) }""",
    "splitting": """(float[6,4] x) => (float c) <int64[2] sizes = {2, 4}> {
        a, b = Split <axis = 0> (x, sizes)
        d, e = Split <axis = 1, num_outputs = 2> (b)
        c = Concat <axis = -1> (d, e) }""",
    "padding": """(float[2,3,4] x) => (float y, float z)
        <int64[6] pads = {0,1,2,0,1,1}, float value = {1.5}, int64[2] few = {1, 1}, int64[1] axes = {1}> {
        y = Pad <mode = "constant"> (x, pads, value)
        z = Pad <mode = "reflect"> (x, few, , axes) }""",
    "broadcasting": """(float[n,1,4] x, float[3,1] z) => (float y, float e, float t)
        <int64[3] shape = {1,3,4}, int64[3] reps = {2,1,3}> {
        s = Sub (x, z)
        p = Pow (s, z)
        m = Max (p, x, z)
        y = Where (c, m, s)
        c = Less (x, z)
        e = Expand (x, shape)
        t = Tile (e, reps) }""",
    "integers": """(int32[n,4] x, int32[4] z) => (int32 y, int64 w, bool b) {
        d = Div (x, z)
        m = Mod (d, z)
        k = BitwiseAnd (m, x)
        y = Abs (k)
        w = Cast <to = 7> (y)
        b = Equal (x, z) }""",
    "shifts": """(uint8[4] x, uint8[4] z) => (uint8 y) {
        s = BitShift <direction = "LEFT"> (x, z)
        y = BitwiseXor (s, z) }""",
    "reductions": """(float[2,n,4] x) => (float y, float z, int64 i, float l) <int64[2] axes = {1, -1}> {
        y = ReduceSum <keepdims = 0> (x, axes)
        z = ReduceMean (x, axes)
        i = ArgMax <axis = 2, keepdims = 0> (x)
        l = ReduceLogSumExp <noop_with_empty_axes = 1> (x) }""",
    "transposition": """(float[2,3,4] x) => (float y) {
        t = Transpose <perm = [2,0,1]> (x)
        f = Flatten <axis = 2> (t)
        y = Squeeze (u, axes)
        axes = Constant <value_ints = [-1]> ()
        u = Unsqueeze (f, axes) }""",
    "gathering": """(float[4,5] x, int64[2,3] i) => (float g, float e, float n) <int64[2,5] j = {0,1,2,3,0,1,2,3,0,1}> {
        g = Gather <axis = 1> (x, i)
        e = GatherElements <axis = 0> (x, j)
        p = Constant <value = int64[2,2] {0,1,3,4}> ()
        n = GatherND <batch_dims = 0> (x, p) }""",
    "scattering": """(float[4,5] x, float[2,5] u, int64[2,5] i) => (float e, float n) {
        e = ScatterElements <axis = 0, reduction = "add"> (x, i, u)
        p = Constant <value = int64[2,1] {0,3}> ()
        n = ScatterND <reduction = "max"> (x, p, u) }""",
    "sorting": """(float[3,6] x) => (float v, int64 i, float c) <int64[1] k = {2}, int64 axis = {1}> {
        v, i = TopK <axis = -1, largest = 0, sorted = 1> (x, k)
        c = CumSum <exclusive = 1, reverse = 1> (x, axis) }""",
    "masks": """(float[3,4] x, int64[3] i) => (float o, float t, float e, float h) <int64 d = {4}, float[2] v = {0, 1}> {
        o = OneHot <axis = 1> (i, d, v)
        t = Trilu <upper = 0> (x)
        e = EyeLike <k = 1> (x)
        h = Hardmax <axis = 0> (x) }""",
    "resizing": """(float[1,1,4,n] x) => (float y, float z) <float[4] scales = {1, 1, 2, 1.5}, int64[4] sizes = {1,1,3,3}> {
        y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , scales)
        c = Slice (x, zero, four, three)
        z = Resize <mode = "cubic", cubic_coeff_a = -0.5, exclude_outside = 1> (c, , , sizes)
        zero = Constant <value_ints = [0]> ()
        four = Constant <value_ints = [4]> ()
        three = Constant <value_ints = [3]> () }""",
    "sampling": """(float[1,1,4,4] x, float[1,2,2,2] grid, float[2,4] rois, int64[2] b) => (float y, float r) {
        y = GridSample <mode = "cubic", padding_mode = "reflection", align_corners = 1> (x, grid)
        r = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2, mode = "max"> (x, rois, b) }""",
    "pixels": """(float[1,8,2,3] x) => (float y) {
        d = DepthToSpace <blocksize = 2, mode = "CRD"> (x)
        y = SpaceToDepth <blocksize = 2> (d) }""",
    "columns": """(float[1,5,5] x) => (float y) <int64[2] image = {5,5}, int64[2] block = {1,5}> {
        y = Col2Im <strides = [1,1], pads = [0,0,0,0], dilations = [1,1]> (x, image, block) }""",
    "products": """(float[n,3,4] x, float[4,5] w) => (float y, float g) <float[5] b = {1,2,3,4,5}> {
        y = MatMul (x, w)
        f = Reshape (x, s)
        s = Constant <value_ints = [-1,4]> ()
        g = Gemm <alpha = 0.5, beta = 2.0, transB = 0> (f, w, b) }""",
    "einsum": """(float[2,3,4] x, float[4,5] w) => (float y, float d) {
        y = Einsum <equation = "bij, jk -> bik"> (x, w)
        d = Einsum <equation = "...i->..."> (x) }""",
    "normalization": """(float[2,4,3] x, float[4] s, float[4] b, float[4] m, float[4] v) => (float y, float i, float l, float g) {
        y = BatchNormalization <epsilon = 0.001> (x, s, b, m, v)
        i = InstanceNormalization (x, s, b)
        g = GroupNormalization <num_groups = 2> (x, s, b)
        t = Transpose <perm = [0,2,1]> (x)
        l, mean, deviation = LayerNormalization <axis = -1> (t, s, b) }""",
    "local_normalization": """(float[1,6,3] x) => (float y, float p) {
        y = LRN <size = 3, alpha = 0.1, beta = 0.5, bias = 2.0> (x)
        p = LpNormalization <axis = 1, p = 1> (x) }""",
    "activations": """(float[n,5] x, float[5] slope) => (float y, float d) <float low = {-1}, float high = {2}> {
        a = LeakyRelu <alpha = 0.1> (x)
        b = Gelu <approximate = "tanh"> (a)
        c = PRelu (b, slope)
        e = Clip (c, low, high)
        f = HardSigmoid <alpha = 0.3, beta = 0.4> (e)
        g = ThresholdedRelu <alpha = 0.2> (f)
        h = Softmax <axis = 1> (g)
        y = Celu <alpha = 2.0> (h)
        d = Dropout (y) }""",
    "halves": """(float16[n,4] x, bfloat16[4] w) => (float16 y) {
        a = Cast <to = 10> (w)
        b = Mul (x, a)
        y = Tanh (b) }""",
    "lstm": """(float[3,2,4] x, float[1,8,4] w, float[1,8,2] r, float[1,16] b) => (float y, float h, float c) {
        y, h, c = LSTM <hidden_size = 2, direction = "forward", activations = ["Sigmoid","Tanh","Tanh"]> (x, w, r, b) }""",
    "gru": """(float[3,2,4] x, float[2,6,4] w, float[2,6,2] r) => (float y, float h) {
        y, h = GRU <hidden_size = 2, direction = "bidirectional", linear_before_reset = 1> (x, w, r) }""",
    "quantization": """(float[2,4] x) => (float y) <float[4] scale = {0.5,0.25,1,2}, uint8[4] zero = {1,2,3,4}> {
        q = QuantizeLinear <axis = 1> (x, scale, zero)
        y = DequantizeLinear <axis = 1> (q, scale, zero) }""",
    "integer_products": """(uint8[2,4] x, int8[4,3] w, uint8[1,1,4,4] p, int8[2,1,2,2] k) => (int32 y, int32 c)
        <uint8 a = {3}, int8 b = {1}> {
        y = MatMulInteger (x, w, a, b)
        c = ConvInteger <kernel_shape = [2,2], strides = [1,2]> (p, k, a) }""",
    "fourier": """(float[1,8,1] x, float[1,16,1] s) => (float y, float t) <int64 axis = {1}, int64 step = {4}, int64 size = {8}> {
        y = DFT <onesided = 1> (x, , axis)
        t = STFT <onesided = 1> (s, step, , size) }""",
    "branches": """(bool flag, float[2,2] x) => (float y) {
        y = If (flag) <
            then_branch = g1 () => (float[2,2] a) { a = Transpose (x) },
            else_branch = g2 () => (float[2,2] b) { z = Add (x, x) b = Relu (z) }> }""",
    "loop": """(float[2] x) => (float y, float all) <int64 trips = {3}, bool go = {1}> {
        y, all = Loop (trips, go, x) <
            body = g (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) {
                d = Identity (c) t = Add (s, x) u = Mul (s, s) }> }""",
    "counted_loop": """(int64 trips, float[2] x) => (float y) <bool go = {1}, float[1] most = {50}> {
        y = Loop (trips, go, x) <
            body = g (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
                t = Add (s, x) m = ReduceSum <keepdims = 0> (t) d0 = Less (m, most) d = Squeeze (d0) }> }""",
    "scan": """(float[2] x, float[4,2] z) => (float y, float all) {
        y, all = Scan (x, z) <num_scan_inputs = 1, scan_input_directions = [1],
            body = g (float[2] s, float[2] e) => (float[2] t, float[2] u) { t = Add (s, e) u = Relu (t) }> }""",
    "attention": """(float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => (float y) {
        y = Attention <is_causal = 1, scale = 0.5> (q, k, v) }""",
    "rotary": """(float[1,2,3,4] x, float[3,2] c, float[3,2] s) => (float y) {
        c1 = Unsqueeze (c, axes)
        s1 = Unsqueeze (s, axes)
        axes = Constant <value_ints = [0]> ()
        y = RotaryEmbedding (x, c1, s1) }""",
    "standard_function": """(float[n,4] x, int64[n] t) => (float y, float m) {
        y = SoftmaxCrossEntropyLoss <reduction = "mean"> (x, t)
        m = MeanVarianceNormalization <axes = [0]> (x) }""",
    "constants": """() => (float y, int64 s) <float[2,2] a = {1,2,3,4}> {
        b = Constant <value_floats = [0.5, 1.5]> ()
        c = Add (a, b)
        y = MatMul (c, a)
        s = Size (y) }""",
    "old_opset": """(float[2,3] x) => (float y) {
        a = Unsqueeze <axes = [0]> (x)
        b = Pad <pads = [0,0,1,0,1,0], mode = "edge"> (a)
        c = Slice <starts = [0], ends = [2], axes = [1]> (b)
        d = ReduceMean <axes = [2], keepdims = 1> (c)
        e = Squeeze <axes = [0]> (d)
        f = Clip <min = 0.0, max = 1.0> (e)
        y = Upsample <mode = "nearest"> (f, g)
        g = Constant <value = float[2] {2.0, 1.0}> () }""",
}  # fmt: skip

_OPSETS = {"attention": 23, "rotary": 23, "old_opset": 9, "standard_function": 13}


def _model(graph: str, opset: int) -> ModelProto:
    # The textual syntax has nodes in any order; models have them in the order of their use.
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> agraph {graph}')
    known = {info.name for info in model.graph.input} | {tensor.name for tensor in model.graph.initializer} | {""}
    waiting, ordered = list(model.graph.node), []
    while waiting:
        ready = next(node for node in waiting if known.issuperset(node.input))
        waiting.remove(ready)
        ordered.append(ready)
        known.update(ready.output)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _with_functions() -> ModelProto:
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 21, "mine" : 1]>
        agraph (float[2,3] x) => (float y) { t = mine.Twice <along = 1> (x) y = mine.Shift <by = 2.0> (t) }
        <domain: "mine", opset_import: ["" : 21]>
        Twice <along> (a) => (b) { t = Neg (a) b = Concat <axis: int = @along> (t, a) }
        <domain: "mine", opset_import: ["" : 21, "mine" : 1]>
        Shift <by> (a) => (b) { c = Constant <value_float: float = @by> () d = CastLike (c, a) e = Add (a, d) b = mine.Twice <along = 0> (e) }
        """)


def _with_raw_data() -> ModelProto:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Gather", ["b", "i"], ["y"], axis=1),
    ]
    constants = {"w": rng.standard_normal((4, 5)).astype("f4"), "i": np.array([0, 4, 2])}
    graph = helper.make_graph(
        nodes,
        "raw",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@functools.cache
def seed_models() -> dict[str, ModelProto]:
    """The models by name."""
    found = {name: _model(graph, _OPSETS.get(name, 21)) for name, graph in _GRAPHS.items()}
    return {**found, "functions": _with_functions(), "raw_data": _with_raw_data()}
