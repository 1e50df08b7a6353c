"""Make calls of the operators that move, convert and create elements of tensors of any rank."""

from __future__ import annotations

from typing import Any

from tests.fuzz.makers import maker
from tests.fuzz.pool import Pool
from tests.fuzz.values import Fill
from tilewright import graphir as gi
from tilewright.graphir.dims import Dim, product, symbol, symbols_of
from tilewright.graphir.op import Operator
from tilewright.graphir.ops.common import ANY, FLOATS, INTEGERS, NUMBERS
from tilewright.tensorir.dtype import STORAGE_DTYPES, as_dtype
from tilewright.tensorir.expr import as_expr


@maker("clip")
def clip(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers()
    low, high = pool.pick(((-1, 2), (0, 6), (None, 3), (0, None), (2, -2)))
    if x.tensor_type.dtype.is_float:
        low, high = [None if bound is None else float(bound) for bound in (low, high)]
    return op(x, a_min=low, a_max=high)


@maker("cast")
def cast(pool: Pool, op: Operator) -> gi.Expr:
    return pool.cast(pool.tensor(), pool.pick(ANY))


@maker("bitcast")
def bitcast(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(NUMBERS)
    bits = x.tensor_type.dtype.bits
    return op(x, dtype=pool.pick([name for name in NUMBERS if as_dtype(name).bits == bits]))


@maker("encode", "decode")
def encode(pool: Pool, op: Operator) -> gi.Expr:
    wanted = pool.pick(STORAGE_DTYPES)
    source = "float32" if wanted.startswith("float") else "int32"
    coded = gi.encode(pool.tensor((source,)), dtype=wanted, saturate=not pool.chance(30))
    return gi.decode(coded)


@maker("quantize", "dequantize")
def quantize(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor((*FLOATS[:3], "int32"), least=1)
    stored, axis = pool.pick(("uint8", "int8", "int16", "uint16")), pool.axis(x)
    shape = () if pool.chance(50) else (x.tensor_type.shape[axis],)
    scale = pool.leaf(shape, "float32", Fill("positive"))
    arguments = [scale]
    if pool.chance(60):
        arguments.append(pool.leaf(shape, stored, Fill("index", 0, 5)))
    coded = gi.quantize(x, *arguments, axis=axis, dtype=stored)
    return gi.dequantize(coded, *arguments, axis=axis) if op.name == "dequantize" else coded


@maker("where")
def where(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor()
    return op(pool.like(x, "bool"), x, pool.like(x))


@maker("argmax", "argmin")
def arg_reduction(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers()
    axis = None if not x.tensor_type.ndim or pool.chance(20) else pool.axis(x)
    return op(x, axis=axis, keepdims=pool.chance(40), select_last_index=pool.chance(30))


@maker("logsumexp", "std", "norm")
def decomposed_reduction(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.float() if op.name != "norm" else pool.numbers()
    attrs: dict[str, Any] = {"axis": pool.axes(x), "keepdims": pool.chance(40)}
    if op.name == "std":
        attrs["unbiased"] = pool.chance(30)
    if op.name == "norm":
        attrs["ord"] = pool.pick((2, 1))
    return op(x, **attrs)


@maker("arange")
def arange(pool: Pool, op: Operator) -> gi.Expr:
    if pool.symbols and pool.chance(50):
        return op(start=0, stop=symbol(pool.pick(sorted(pool.symbols))), step=pool.pick((1, 2)))
    if pool.chance(50):
        return op(start=pool.number(-3, 3), stop=pool.number(-5, 9), step=pool.pick((1, 2, -1)))
    return op(start=0.0, stop=float(pool.number(0, 9)) / 2, step=0.5, dtype=pool.pick(FLOATS))


@maker("full", "zeros", "ones")
def created(pool: Pool, op: Operator) -> gi.Expr:
    shape = pool.shape(pool.number(0, 3))
    attrs = {"fill": float(pool.number(-2, 3))} if op.name == "full" else {}
    dtype = pool.pick(("float32", "int64", "bool", "bfloat16", "uint8"))
    if op.name == "full" and dtype in ("uint8", "bool"):
        attrs["fill"] = 1.0
    return op(shape=shape, dtype=dtype, **attrs)


@maker("eye")
def eye(pool: Pool, op: Operator) -> gi.Expr:
    return op(n=pool.dim(), m=None if pool.chance(50) else pool.dim(), k=pool.number(-2, 2), dtype=pool.pick(NUMBERS))


@maker("sizes")
def sizes(pool: Pool, op: Operator) -> gi.Expr:
    given = {symbol(name) for name in pool.symbols}
    # A size that a call computes would need that call among those of the result.
    dims = [dim for dim in pool.tensor(least=1).tensor_type.shape if given.issuperset(symbols_of([dim]))]
    return op(values=tuple(dims) or (pool.dim(),))


@maker("broadcast_to")
def broadcast_to(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(most=3)
    shape: list[Any] = [pool.dim(most=5) for _ in range(pool.number(0, 1))]
    shape += [pool.dim(most=9) if isinstance(dim, int) and dim == 1 else dim for dim in x.tensor_type.shape]
    return op(x, shape=tuple(shape))


@maker("concatenate", "stack")
def join(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1 if op.name == "concatenate" else 0, most=4)
    kind, parts = x.tensor_type, [x]
    rank = kind.ndim + (op.name == "stack")
    axis = pool.number(0, rank - 1)
    for _ in range(pool.number(0, 3)):
        shape = list(kind.shape)
        if op.name == "concatenate" and pool.chance(50):
            shape[axis] = pool.dim(symbolic=not pool.inner)
        parts.append(x if pool.chance(15) else pool.exactly(shape, kind.dtype))
    return op(*parts, axis=axis - rank if pool.chance(25) else axis)


@maker("split")
def split(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1)
    axis = pool.axis(x)
    extent = x.tensor_type.shape[axis]
    if isinstance(extent, int) and extent > 1 and pool.chance(50):
        return op(x, indices_or_sections=pool.pick([n for n in range(1, extent + 1) if extent % n == 0]), axis=axis)
    least = pool.least(extent)
    cuts = sorted({pool.number(0, least) for _ in range(pool.number(1, 2))})
    return op(x, indices_or_sections=tuple(cuts), axis=axis)


@maker("slice")
def slice_(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1)
    axis = pool.axis(x)
    extent = x.tensor_type.shape[axis]
    if pool.chance(20) and not isinstance(extent, int):  # bounds that are formulas
        begin, end = pool.pick(((0, extent), (1, extent), (0, as_expr(extent) // 2), (as_expr(extent) // 2, None)))
        return op(x, begin=(begin,), end=(end,), strides=(pool.pick((1, 2, 3)),), axes=(axis,))
    stride = pool.pick((1, 2, -1, 3, -2))
    begin, end = pool.pick((None, 0, 1, -1, -3, 2)), pool.pick((None, 3, -1, 1, 100, 0, -100))
    return op(x, begin=(begin,), end=(end,), strides=(stride,), axes=(axis,))


@maker("reshape")
def reshape(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor()
    shape = list(x.tensor_type.shape)
    form = pool.number(0, 4)
    if form == 0 or not shape:
        return op(x, newshape=(-1,))
    if form == 1:
        return op(x, newshape=(*shape[:1], product(shape[1:])))
    if form == 2:
        return op(x, newshape=(product(shape[:-1]), shape[-1]))
    if form == 3:
        shape.insert(pool.number(0, len(shape)), 1)
        return op(x, newshape=tuple(shape))
    at = pool.number(0, len(shape) - 1)
    extent = shape[at]
    factors = [n for n in (2, 3, 4, 8) if isinstance(extent, int) and extent % n == 0] or [1]
    factor = pool.pick(factors)
    rest: Dim = extent // factor if isinstance(extent, int) else extent
    shape[at : at + 1] = [factor, rest] if pool.chance(50) else [rest, factor]
    return op(x, newshape=tuple(shape))


@maker("expand_dims")
def expand_dims(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(most=4)
    return op(x, axis=pool.number(-x.tensor_type.ndim - 1, x.tensor_type.ndim))


@maker("squeeze")
def squeeze(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(most=4)
    return op(gi.expand_dims(x, axis=pool.number(0, x.tensor_type.ndim)), axis=None)


@maker("transpose")
def transpose(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor()
    rest = list(range(x.tensor_type.ndim))
    order = [rest.pop(pool.number(0, len(rest) - 1)) for _ in range(len(rest))]
    return op(x, axes=None if pool.chance(25) else tuple(order))


@maker("flip")
def flip(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor()
    return op(x, axis=pool.axes(x))


@maker("tile")
def tile(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(most=3)
    reps: list[Any] = [pool.pick((1, 2, 3, 0)) for _ in range(x.tensor_type.ndim + (1 if pool.chance(20) else 0))]
    if reps and pool.symbols and pool.chance(15):
        reps[0] = symbol(pool.pick(sorted(pool.symbols)))
    return op(x, reps=tuple(reps))


@maker("repeat")
def repeat(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1, most=4)
    return op(x, repeats=pool.pick((1, 2, 3)), axis=pool.axis(x))


@maker("pad")
def pad(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1, most=4)
    mode = pool.pick(("constant", "edge", "reflect", "wrap"))
    width = []
    for dim in x.tensor_type.shape:
        most = 2 if mode == "constant" else max(0, min(2, pool.least(dim) - 1))
        width.append((pool.number(0, most), pool.number(0, most)))
    value = pool.number(0, 3)
    return op(x, pad_width=tuple(width), mode=mode, pad_value=value if mode == "constant" else 0)


@maker("diagonal")
def diagonal(pool: Pool, op: Operator) -> gi.Expr:
    dim = pool.dim(most=17)
    shape = [dim, dim] if pool.chance(60) else [pool.dim(most=5), dim, dim]
    x = pool.exactly(shape, pool.pick(("float32", "int32", "bool")))
    return op(x, axis1=len(shape) - 2, axis2=-1)


@maker("tril", "triu")
def triangle(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=2)
    return op(x, pool.scalar("int64", Fill("index", -3, 3))) if pool.chance(40) else op(x)


@maker("layout_transform")
def layout_transform(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(FLOATS, rank=4)
    block = pool.pick((4, 8, 16))
    blocked = op(x, src_layout="NCHW", dst_layout=f"NCHW{block}c")
    if pool.chance(70):
        channels = x.tensor_type.shape[1]
        extents = {"C": channels} if isinstance(channels, int) and channels % block else ()
        return op(gi.nn.relu(blocked), src_layout=f"NCHW{block}c", dst_layout="NCHW", extents=extents)
    return blocked


@maker("match_shape")
def match_shape(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor()
    return op(x, shape=x.tensor_type.shape)


# Indices.


@maker("take")
def take(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1, most=4)
    axis = pool.axis(x)
    if pool.chance(30):
        return op(x, pool.tensor(INTEGERS, most=2), axis=axis)
    return op(x, pool.index(pool.shape(pool.number(0, 2), 64), x.tensor_type.shape[axis]), axis=axis)


@maker("gather_elements")
def gather_elements(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1, most=4)
    axis = pool.axis(x)
    shape = list(x.tensor_type.shape)
    extent = shape[axis]
    if pool.chance(40):
        shape[axis] = pool.dim(most=5)
    return op(x, pool.index(shape, extent), axis=axis)


@maker("gather_nd")
def gather_nd(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=1, most=4)
    shape = x.tensor_type.shape
    batch = pool.number(0, 1) if len(shape) > 1 else 0
    depth = pool.number(1, len(shape) - batch)
    indices = pool.index((*shape[:batch], *pool.shape(pool.number(0, 1), 64), depth), shape[batch])
    return op(x, indices, batch_dims=batch)


@maker("scatter_elements")
def scatter_elements(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1)
    axis = pool.axis(x)
    shape = list(x.tensor_type.shape)
    extent = shape[axis]
    if pool.chance(40):
        shape[axis] = 2
    updates = pool.exactly(shape, x.tensor_type.dtype)
    reduction = pool.pick(("none", "add", "mul", "max", "min"))
    return op(x, pool.index(updates.tensor_type.shape, extent), updates, axis=axis, reduction=reduction)


@maker("scatter_nd")
def scatter_nd(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.numbers(least=1)
    shape = x.tensor_type.shape
    depth = pool.number(1, len(shape))
    indices = pool.index((pool.number(1, 4), depth), shape[0])
    updates = pool.exactly((indices.tensor_type.shape[0], *shape[depth:]), x.tensor_type.dtype)
    return op(x, indices, updates, reduction=pool.pick(("none", "add", "mul", "max", "min")))


@maker("tensor_scatter")
def tensor_scatter(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=2, most=4)
    shape = list(x.tensor_type.shape)
    axis = pool.number(1, len(shape) - 1)
    shape[axis] = min(1, pool.least(shape[axis]))
    starts = pool.leaf(x.tensor_type.shape[:1], "int64", Fill("index", 0, 1))
    return op(x, pool.exactly(shape, x.tensor_type.dtype), starts, axis=axis, mode=pool.pick(("linear", "circular")))


@maker("reverse_sequence")
def reverse_sequence(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(least=2, most=4)
    batch, time = pool.pick(((1, 0), (0, 1)))
    lengths = pool.leaf((x.tensor_type.shape[batch],), "int64", Fill("index", 0, 4))
    return op(x, lengths, batch_axis=batch, time_axis=time)


@maker("one_hot")
def one_hot(pool: Pool, op: Operator) -> gi.Expr:
    indices = pool.tensor(INTEGERS, most=3)
    on = pool.scalar(pool.pick(("float32", "int32", "bool")))
    off = pool.scalar(str(on.tensor_type.dtype))
    return op(indices, on, off, depth=pool.dim(most=9), axis=pool.number(-1, indices.tensor_type.ndim))


@maker("nonzero")
def nonzero(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.tensor(most=3)
    if pool.chance(60) and not x.tensor_type.dtype.is_bool:
        x = gi.greater(x, gi.zeros_like(x))
    found = op(x) if not pool.inner else op(x, size=3)
    if pool.chance(50) and x.tensor_type.ndim == 1:
        return gi.take(pool.exactly(x.tensor_type.shape, "float32"), gi.squeeze(found, axis=0), axis=0)
    return found


# Products.


@maker("matmul")
def matmul(pool: Pool, op: Operator) -> gi.Expr:
    a = pool.tensor(("float32", *NUMBERS), least=1, most=4)
    shape, dtype = a.tensor_type.shape, a.tensor_type.dtype
    batch = shape[:-2] if pool.chance(50) else ()
    other = (shape[-1],) if pool.chance(15) else (*batch, shape[-1], pool.dim())
    return op(a, pool.exactly(other, dtype))


@maker("gemm")
def gemm(pool: Pool, op: Operator) -> gi.Expr:
    a = pool.tensor(("float32", *FLOATS, "int32"), rank=2)
    transposed, other = pool.chance(30), pool.chance(30)
    _, k = a.tensor_type.shape[::-1] if transposed else a.tensor_type.shape
    columns = pool.dim()
    b = pool.exactly((columns, k) if other else (k, columns), a.tensor_type.dtype)
    factors = {"alpha": 2.0, "beta": pool.pick((1.0, 0.0, 3.0))} if pool.chance(50) else {}
    c = [pool.leaf(pool.pick(((columns,), (), (1, 1))), a.tensor_type.dtype)] if pool.chance(60) else []
    return op(a, b, *c, transpose_a=transposed, transpose_b=other, **factors)


@maker("einsum")
def einsum(pool: Pool, op: Operator) -> gi.Expr:
    first, second, result = pool.pick(
        (
            ("ij", "jk", "ik"),
            ("bij", "bkj", "bik"),
            ("ij", "ij", "i"),
            ("ij", "kj", "jik"),
            ("i", "j", "ij"),
            ("ij", "", "ji"),
        )
    )
    x = pool.tensor(("float32", "float64", "int32"), rank=len(first))
    sizes = dict(zip(first, x.tensor_type.shape, strict=True))
    shape = [sizes.get(letter) if letter in sizes else pool.dim() for letter in second]
    if not second:
        return op(x, equation=f"{first}->{result}")
    return op(x, pool.exactly(shape, x.tensor_type.dtype), equation=f"{first},{second}->{result}")


@maker("det")
def det(pool: Pool, op: Operator) -> gi.Expr:
    n = pool.number(1, 4)
    return op(pool.exactly((*pool.shape(pool.number(0, 1), 64), n, n), pool.pick(("float32", "float64"))))


@maker("dft")
def dft(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.exactly((pool.dim(most=5), pool.dim(most=17), pool.pick((1, 2))), pool.pick(("float32", "float64")))
    inverse, onesided = pool.chance(30), pool.chance(30)
    if onesided:
        inverse = False
    onesided = onesided and x.tensor_type.shape[-1] == 1
    return op(x, axis=1, inverse=inverse, onesided=onesided, length=pool.pick((None, None, 4, 8)))


@maker("stft")
def stft(pool: Pool, op: Operator) -> gi.Expr:
    x = pool.exactly((pool.dim(most=3), pool.pick((8, 16, 17)), 1), "float32")
    return op(
        x, *([pool.leaf((4,), "float32")] if pool.chance(50) else []), frame_step=pool.pick((2, 3)), frame_length=4
    )
