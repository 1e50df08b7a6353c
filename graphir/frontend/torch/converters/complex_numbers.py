"""Convert overloads on complex numbers: these are tensors whose last axis holds the real and the imaginary part.

The shapes that converters see have that axis; axes that the overloads name do not count it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.dims import Dim, product
from tilewright.graphir.expr import Expr, const
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.node import Node, cast_to, dtype_of, reshaped, shape_of
from tilewright.graphir.frontend.torch.registry import converter, find_converter
from tilewright.graphir.op import get_operator
from tilewright.graphir.ops.calls import add, concatenate, divide, multiply, reshape, sqrt, subtract, transpose
from tilewright.tensorir.dtype import DataType


def parts(x: Expr) -> tuple[Expr, Expr]:
    """Return the real and the imaginary parts."""
    rank = len(shape_of(x))
    halves = [get_operator("slice")(x, begin=(n,), end=(n + 1,), axes=(rank - 1,)) for n in (0, 1)]
    real, imaginary = (reshape(half, newshape=shape_of(x)[:-1]) for half in halves)
    return real, imaginary


def joined(real: Expr, imaginary: Expr) -> Expr:
    """Return complex numbers of these parts, which broadcast."""
    shape = shape_of(add(real, imaginary))
    columns = [
        reshape(get_operator("broadcast_to")(part, shape=shape), newshape=(*shape, 1)) for part in (real, imaginary)
    ]
    return concatenate(columns, axis=len(shape))


def _operand(node: Node, value: Any, is_complex: bool, part: DataType | None = None) -> tuple[Expr, Expr]:
    """Return the parts of an operand of any type, with an element type: by default that of the result's parts."""
    dtype = node.dtype if part is None else part
    if isinstance(value, Expr) and is_complex:
        real, imaginary = parts(cast_to(value, dtype))
        return real, imaginary
    if isinstance(value, complex):
        return const(value.real, dtype), const(value.imag, dtype)
    plain = node.tensor(value, dtype)
    return plain, get_operator("zeros_like")(plain)


def _operands(node: Node, *values: Any) -> list[tuple[Expr, Expr]]:
    return [_operand(node, value, node.complex_arguments[number]) for number, value in enumerate(values)]


# Making and taking apart.


@converter("aten.complex.default", of_complex=True)
def make(node: Node, real: Expr, imaginary: Expr) -> Expr:
    """Join real and imaginary parts."""
    return joined(real, imaginary)


@converter("aten.polar.default", of_complex=True)
def make_polar(node: Node, size: Expr, angle: Expr) -> Expr:
    """Join absolute values and angles."""
    return joined(multiply(size, get_operator("cos")(angle)), multiply(size, get_operator("sin")(angle)))


@converter(
    *("aten.view_as_real.default", "aten.view_as_complex.default", "aten.view_as_real_copy.default"),
    *("aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.view_as_complex_copy.default"),
    *("aten.resolve_conj.default", "aten.lift_fresh_copy.default", "aten.contiguous.default"),
    of_complex=True,
)
def same(node: Node, x: Expr, *_: Any) -> Expr:
    """Return the numbers as they are: their parts are the last axis already."""
    return x


@converter("aten._to_copy.default", "prims.convert_element_type.default", of_complex=True)
def to_type(node: Node, x: Expr, *_: Any) -> Expr:
    """Convert to or from complex numbers; a real number keeps the real part."""
    if not node.complex_arguments[0]:
        return joined(*_operand(node, x, False))
    return cast_to(x, node.dtype) if node.is_complex else cast_to(parts(x)[0], node.dtype)


@converter("aten.copy.default", of_complex=True)
def copy(node: Node, x: Expr, source: Expr, *_: Any) -> Expr:
    """Return the numbers of ``source`` in the shape and type of ``x``."""
    if node.is_complex:
        numbers = joined(*_operand(node, source, node.complex_arguments[1]))
    else:
        numbers = cast_to(parts(source)[0], node.dtype)
    return get_operator("broadcast_to")(numbers, shape=node.shape)


@converter("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", of_complex=True)
@converter("aten._efficientzerotensor.default", of_complex=True)
def zeros(node: Node, *_: Any) -> Expr:
    """Return zeros."""
    return get_operator("zeros")(shape=node.shape, dtype=node.dtype)


@converter("aten.real.default", of_complex=True)
def real_part(node: Node, x: Expr) -> Expr:
    """Return the real parts."""
    return parts(x)[0]


@converter("aten.imag.default", of_complex=True)
def imaginary_part(node: Node, x: Expr) -> Expr:
    """Return the imaginary parts."""
    return parts(x)[1]


@converter("aten.abs.default", of_complex=True)
def absolute(node: Node, x: Expr) -> Expr:
    """Return absolute values, scaled so that nothing overflows."""
    a, b = (get_operator("abs")(part) for part in parts(x))
    greater, lesser = get_operator("maximum")(a, b), get_operator("minimum")(a, b)
    ratio = divide(lesser, greater)
    plain = get_operator("logical_or")(get_operator("equal")(greater, 0.0), get_operator("isinf")(greater))
    length = multiply(greater, sqrt(add(get_operator("square")(ratio), 1.0)))
    return get_operator("where")(plain, greater, length)


@converter("aten.angle.default", of_complex=True)
def angle(node: Node, x: Expr) -> Expr:
    """Return angles from -pi to pi."""
    real, imaginary = parts(x)
    atan2 = find_converter("aten.atan2.default")
    assert atan2 is not None
    found = atan2(node, imaginary, real)
    assert isinstance(found, Expr)
    return found


@converter("aten.sgn.default", of_complex=True)
def direction(node: Node, x: Expr) -> Expr:
    """Divide by absolute values; zero stays zero."""
    size = absolute(node, x)
    is_zero = get_operator("equal")(size, 0.0)
    divisor = get_operator("where")(is_zero, get_operator("ones_like")(size), size)
    return joined(*(divide(part, divisor) for part in parts(x)))


# Comparing and choosing.


@converter("aten.eq.Scalar", "aten.eq.Tensor", "aten.ne.Scalar", "aten.ne.Tensor", of_complex=True)
def compare(node: Node, x: Expr, y: Any) -> Expr:
    """Compare both parts."""
    part = next(dtype_of(each) for each in (x, y) if isinstance(each, Expr) and dtype_of(each).is_float)
    (a, b), (c, d) = (_operand(node, each, node.complex_arguments[n], part) for n, each in enumerate((x, y)))
    if node.label.startswith("aten.ne"):
        return get_operator("logical_or")(get_operator("not_equal")(a, c), get_operator("not_equal")(b, d))
    return get_operator("logical_and")(get_operator("equal")(a, c), get_operator("equal")(b, d))


@converter("aten.where.self", of_complex=True)
def select(node: Node, condition: Expr, x: Expr, y: Expr) -> Expr:
    """Select between two tensors."""
    (a, b), (c, d) = (_operand(node, each, node.complex_arguments[n + 1]) for n, each in enumerate((x, y)))
    return joined(get_operator("where")(condition, a, c), get_operator("where")(condition, b, d))


@converter("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", of_complex=True)
def masked_fill(node: Node, x: Expr, mask: Expr, value: Any) -> Expr:
    """Replace the numbers where a mask holds by one number."""
    (a, b), (c, d) = _operand(node, x, True), _operand(node, value, node.complex_arguments[2])
    return joined(get_operator("where")(mask, c, a), get_operator("where")(mask, d, b))


# Arithmetic.


@converter("aten.conj.default", "aten._conj.default", "aten._conj_physical.default", of_complex=True)
@converter("aten.conj_physical.default", of_complex=True)
def conjugate(node: Node, x: Expr) -> Expr:
    """Change the sign of the imaginary parts."""
    return multiply(x, const(np.array([1, -1], dtype_of(x).numpy)))


@converter("aten.neg.default", of_complex=True)
def negative(node: Node, x: Expr) -> Expr:
    """Change both signs."""
    return get_operator("negative")(x)


@converter("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", of_complex=True)
def add_numbers(node: Node, x: Any, y: Any, alpha: Any) -> Expr:
    """Add ``alpha`` times the second operand, or subtract it."""
    if isinstance(alpha, complex) and alpha.imag:
        raise node.unsupported("a complex factor")
    (a, b), (c, d) = _operands(node, x, y)
    factor = const(float(alpha.real), node.dtype)
    operator = add if node.label.startswith("aten.add") else subtract
    return joined(operator(a, multiply(c, factor)), operator(b, multiply(d, factor)))


@converter("aten.mul.Tensor", "aten.mul.Scalar", of_complex=True)
def multiply_numbers(node: Node, x: Any, y: Any) -> Expr:
    """Multiply."""
    (a, b), (c, d) = _operands(node, x, y)
    if not (node.complex_arguments[1] or isinstance(y, complex)):
        return joined(multiply(a, c), multiply(b, c))
    return joined(subtract(multiply(a, c), multiply(b, d)), add(multiply(a, d), multiply(b, c)))


@converter("aten.div.Tensor", "aten.div.Scalar", of_complex=True)
def divide_numbers(node: Node, x: Any, y: Any) -> Expr:
    """Divide; by a complex number scaled, so that its square does not overflow (Smith, 1962)."""
    (a, b), (c, d) = _operands(node, x, y)
    if not (node.complex_arguments[1] or isinstance(y, complex)):
        return joined(divide(a, c), divide(b, c))
    size = get_operator("maximum")(get_operator("abs")(c), get_operator("abs")(d))
    p, q = divide(c, size), divide(d, size)
    square = multiply(add(multiply(p, p), multiply(q, q)), size)
    real = divide(add(multiply(a, p), multiply(b, q)), square)
    return joined(real, divide(subtract(multiply(b, p), multiply(a, q)), square))


@converter("aten.exp.default", of_complex=True)
def exponential(node: Node, x: Expr) -> Expr:
    """Return exponentials."""
    real, imaginary = parts(x)
    return make_polar(node, get_operator("exp")(real), imaginary)


@converter("aten.sum.dim_IntList", "aten.sum.default", "aten.mean.dim", "aten.mean.default", of_complex=True)
def reduce(node: Node, x: Expr, *options: Any) -> Expr:
    """Add or average over axes."""
    dim, keepdim = options[:2] if len(options) == 3 else (None, False)
    rank = len(shape_of(x)) - 1
    if not rank:
        return cast_to(x, node.dtype)
    name = "sum" if node.label.startswith("aten.sum") else "mean"
    value = cast_to(x, node.dtype) if node.complex_arguments[0] else joined(*_operand(node, x, False))
    return get_operator(name)(value, axis=node.axes(dim, rank), keepdims=keepdim)


# Moving numbers: as other converters do, with axes counted without that of the parts.


@converter(
    *("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.unsqueeze.default"),
    *("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims"),
    of_complex=True,
)
def to_shape(node: Node, x: Expr, *_: Any) -> Expr:
    """Reshape to the shape that PyTorch found."""
    return reshaped(x, node.shape)


@converter("aten.expand.default", of_complex=True)
def expand(node: Node, x: Expr, *_: Any) -> Expr:
    """Repeat along axes of size 1, and along new ones."""
    return get_operator("broadcast_to")(x, shape=node.shape)


@converter("aten.permute.default", of_complex=True)
def permute(node: Node, x: Expr, dims: Sequence[int]) -> Expr:
    """Permute the axes."""
    rank = len(shape_of(x)) - 1
    return transpose(x, axes=(*(dim % rank for dim in dims), rank)) if rank else x


@converter("aten.t.default", "aten.numpy_T.default", of_complex=True)
def reverse_axes(node: Node, x: Expr) -> Expr:
    """Reverse the axes: transpose a matrix."""
    rank = len(shape_of(x)) - 1
    return permute(node, x, tuple(reversed(range(rank))))


@converter("aten.cat.default", of_complex=True)
def concatenate_numbers(node: Node, tensors: Sequence[Expr], dim: int) -> Expr:
    """Concatenate along an axis."""
    rank = len(node.shape)
    values = [cast_to(x, node.dtype) for x in tensors if len(shape_of(x)) == rank]
    return concatenate(values, axis=dim % (rank - 1))


@converter("aten.constant_pad_nd.default", of_complex=True)
def pad(node: Node, x: Expr, widths: Sequence[Dim], value: Any) -> Expr:
    """Add a border of zeros."""
    if value:
        raise node.unsupported(f"a border of {value}")
    made = _moved("aten.constant_pad_nd.default", node, x, (0, 0, *widths), 0)
    assert isinstance(made, Expr)
    return made


def _moved(overload: str, node: Node, *arguments: Any) -> Any:
    convert = find_converter(overload)
    assert convert is not None
    return convert(node, *arguments)


#: For overloads that move elements, or add them, the arguments that are axes.
_AXES = {
    "aten.slice.Tensor": (1,),
    "aten.select.int": (1,),
    "aten.index_select.default": (1,),
    "aten.flip.default": (1,),
    "aten.roll.default": (2,),
    "aten.transpose.int": (1, 2),
    "aten.split_with_sizes.default": (2,),
    "aten.cumsum.default": (1,),
    "aten.slice_scatter.default": (2,),
    "aten.select_scatter.default": (2,),
}


def _register_moving(overload: str, places: Sequence[int]) -> None:
    def convert(node: Node, *arguments: Any) -> Any:
        rank = len(shape_of(arguments[0])) - 1
        given = list(arguments)
        for place in places:
            dims = given[place]
            if isinstance(dims, list) and not dims and overload == "aten.roll.default":
                raise node.unsupported("rolling in row-major order")
            given[place] = [dim % rank for dim in dims] if isinstance(dims, list) else dims % rank
        return _moved(overload, node, *given)

    convert.__qualname__ = f"moving_{overload}"
    converter(overload, of_complex=True)(convert)


for _overload, _places in _AXES.items():
    _register_moving(_overload, _places)


# Fourier transforms.


def _transformed(x: Expr, axes: Sequence[int], inverse: bool) -> Expr:
    """Transform along axes; an inverse transform is divided by their sizes."""
    for axis in axes:
        x = get_operator("dft")(x, axis=axis, inverse=inverse)
    return x


def _normalized(node: Node, x: Expr, sizes: Sequence[Dim], normalization: int, divided: bool) -> Expr:
    """Scale a transform: by nothing (0), by one over the root of the number of elements (1), or by one over that (2).
    ``divided``: whether it is divided by that number already."""
    count = cast_to(as_number(product(sizes)), dtype_of(x))
    wanted = {0: 0.0, 1: 0.5, 2: 1.0}[normalization] - (1.0 if divided else 0.0)
    if not wanted:
        return x
    factor = get_operator("power")(count, const(-wanted, dtype_of(x)))
    return multiply(x, factor)


def _sizes(x: Expr, dims: Sequence[int]) -> list[Dim]:
    return [shape_of(x)[dim] for dim in dims]


@converter("aten._fft_c2c.default", of_complex=True)
def fourier(node: Node, x: Expr, dims: Sequence[int], normalization: int, forward: bool) -> Expr:
    """Transform complex numbers."""
    rank = len(shape_of(x)) - 1
    axes = [dim % rank for dim in dims]
    found = _transformed(x, axes, inverse=not forward)
    return _normalized(node, found, _sizes(x, axes), normalization, divided=not forward)


@converter("aten._fft_r2c.default", of_complex=True)
def fourier_of_real(node: Node, x: Expr, dims: Sequence[int], normalization: int, onesided: bool) -> Expr:
    """Transform real numbers: the last axis first, of which half the frequencies are enough."""
    rank = len(shape_of(x))
    axes = [dim % rank for dim in dims]
    found = get_operator("dft")(reshape(x, newshape=(*shape_of(x), 1)), axis=axes[-1], onesided=bool(onesided))
    found = _transformed(found, axes[:-1], inverse=False)
    return _normalized(node, found, _sizes(x, axes), normalization, divided=False)


@converter("aten._fft_c2r.default", of_complex=True)
def fourier_to_real(node: Node, x: Expr, dims: Sequence[int], normalization: int, last_dim_size: Dim) -> Expr:
    """Transform half a spectrum to real numbers: the last axis last."""
    rank = len(shape_of(x)) - 1
    axes = [dim % rank for dim in dims]
    found = _transformed(x, axes[:-1], inverse=True)
    found = get_operator("dft")(found, length=last_dim_size, axis=axes[-1], inverse=True, onesided=True)
    sizes = [*_sizes(x, axes[:-1]), last_dim_size]
    made = _normalized(node, found, sizes, normalization, divided=True)
    return reshape(made, newshape=shape_of(made)[:-1])
