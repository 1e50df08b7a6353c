"""Define the fully connected layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.dims import Dim, dim_equal
from tilewright.graphir.layout import parse_layout
from tilewright.graphir.layout_rewrite import reshape
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops.calls import multiply
from tilewright.graphir.ops.common import compute_type, normalize
from tilewright.graphir.ops.layout_transform import change_layout
from tilewright.graphir.ops.narrow import MatrixSums
from tilewright.graphir.ops.sums import narrowed_sum, product_dtype, sum_dtype, widened_factors
from tilewright.graphir.traits import LayoutChoice
from tilewright.graphir.types import TensorType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Var, cast
from tilewright.tensorir.target import Target
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class DenseAttrs:
    """The weight's layout, and the type of the sums.

    Attributes:
        units: the number of outputs; checked against the weight if given, and needed if the weight's layout pads it.
        weight_layout: ``OI``, or panels of outputs such as ``OI64o``: ``[ceil(units / 64), in, 64]``; ``OI64o4i`` has
            four inputs of an output side by side.
        out_dtype: ``int32`` for factors of narrower integers, perhaps of two types, ``float32`` for those of half
            types; None: all have one type.
    """

    units: int | None = None
    weight_layout: str = "OI"
    out_dtype: DataType | None = None

    def __post_init__(self) -> None:
        normalize(self, out_dtype=sum_dtype(self.out_dtype))


def panels(
    data: GraphExpr, weight: GraphExpr, plain: str, lanes: int, out_dtype: DataType | None
) -> LayoutChoice | str:
    """Choose a dense layer with its weight, which is in the layout ``plain``, packed in panels of as many outputs as a
    register tile is wide. A weight that is known when the model is built is packed then, and one that is invariant in a
    loop before that loop; each step of the sum reads the next cache lines of a panel. Inputs whose products one
    instruction adds are contiguous."""
    units, inputs = weight.shape[plain.index("O")], weight.shape[plain.index("I")]
    if not isinstance(units, int):
        return "the number of its outputs is not constant"
    machine = Target.current()
    together = ""
    if out_dtype is not None:
        lanes = machine.lanes(out_dtype)
        neighbours = machine.dot_products(data.dtype, weight.dtype, out_dtype)
        if neighbours == 1 or not isinstance(inputs, int) or inputs % neighbours:
            return f"the target has no dot-product instruction for groups of {data.dtype!s} and {weight.dtype!s} inputs"
        together = f"{neighbours}i"
    elif lanes == 1 or weight.dtype is not compute_type(weight.dtype) or not weight.dtype.is_float:
        return f"weights of type {weight.dtype!s} are not packed"
    vector_bytes = inputs * lanes * weight.dtype.bytes if isinstance(inputs, int) else 0
    target = f"OI{lanes * _vectors(-(-units // lanes), vector_bytes, machine)}o{together}"
    attrs = DenseAttrs(units, target, out_dtype)
    return LayoutChoice(("", plain, ""), ("", target, ""), attrs, "nn.dense", once=(1,))


#: Vectors in a row of a panel, best first: a register tile of as many has accumulators for several rows. Of 5, it has
#: few rows; of one, it loads a number for each multiply-add.
_WIDTHS, _WIDTHS_OF_FEW_REGISTERS = (4, 3, 2, 5), (2, 3)


def _vectors(needed: int, vector_bytes: int, machine: Target) -> int:
    """Return the number of vectors in a row of a panel: that of which the fewest are left empty (outputs of 6 vectors
    in panels of 4 leave a quarter empty, which costs a quarter of the time), the best of those.

    Args:
        needed: vectors that the outputs fill.
        vector_bytes: the memory of a vector in all rows of a panel; 0: unknown.
    """
    found, least = min(2, max(1, needed)), -1
    for width in _WIDTHS if machine.vector_registers >= 32 else _WIDTHS_OF_FEW_REGISTERS:
        # PrefetchPanels fetches a panel while tiles use the one before.
        fits = width <= 2 or 2 * width * vector_bytes <= machine.cache_bytes(2)
        empty = -needed % width
        if width <= needed and fits and (least < 0 or empty < least):
            found, least = width, empty
    return found


@register_operator
class dense(Operator):
    """Multiply by a transposed weight: ``data @ weight.T`` for data ``[..., in]`` and weight ``[units, in]`` (in
    ``weight_layout``), result ``[..., units]``. Half types accumulate in float32; the result is of type ``out_dtype``
    if that is given."""

    name = "nn.dense"
    arguments = ("data", "weight")
    kind = "contraction"
    Attrs = DenseAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: DenseAttrs) -> TensorType:
        data, weight = args
        dtype = product_dtype(self, args, attrs.out_dtype)
        if data.ndim == 0:
            raise self.error(0, "at least one dimension", data)
        layout = parse_layout(attrs.weight_layout)
        expected = "OI" if layout.block("O") == 1 else f"{attrs.weight_layout}, with units given"
        if not layout.matches(weight.shape) or (layout.block("O") > 1 and attrs.units is None):
            raise self.error(1, f"a shape of layout {expected}", weight)
        extents = layout.extents(weight.shape)
        units: Dim = extents["O"] if attrs.units is None else attrs.units
        if not dim_equal(extents["I"], data.shape[-1]):
            wanted = "units" if attrs.units is None else units
            raise self.error(1, f"a shape ({wanted}, {data.shape[-1]}) to match data of {data}", weight)
        if not dim_equal(layout.shape({**extents, "O": units})[0], weight.shape[0]):
            raise self.error("units", f"{extents['O']}, the rows of weight", attrs.units)
        return TensorType((*data.shape[:-1], units), dtype)

    def reads_rows(self, args: Sequence[TensorType], attrs: DenseAttrs) -> Sequence[int]:
        return (0,)

    def reference(self, args: Sequence[Any], attrs: DenseAttrs) -> Any:
        data, weight = args
        if attrs.weight_layout != "OI":
            assert attrs.units is not None
            weight = change_layout(weight, attrs.weight_layout, "OI", {"O": attrs.units})
        x, w = widened_factors([data, weight], attrs.out_dtype)
        return narrowed_sum(np.asarray(np.matmul(x, w.T)), data, attrs.out_dtype)

    def channel_axis(self, argument: int, attrs: DenseAttrs) -> int | None:
        return -1

    def scale_weights(
        self, args: Sequence[GraphExpr], attrs: DenseAttrs, scale: GraphExpr, of_result: bool
    ) -> list[GraphExpr] | None:
        data, weight = args
        if attrs.weight_layout != "OI" or attrs.out_dtype is not None:
            return None
        factors = reshape(scale, (weight.shape[0], 1) if of_result else (1, weight.shape[1]))
        return [data, multiply(weight, factors)]

    def sum_of_products(self, args: Sequence[GraphExpr], attrs: DenseAttrs) -> MatrixSums | None:
        return MatrixSums(self, args, attrs, transposed=True) if attrs.weight_layout == "OI" else None

    def prefer_layout(self, args: Sequence[GraphExpr], attrs: DenseAttrs, lanes: int) -> LayoutChoice | str:
        return "" if attrs.weight_layout != "OI" else panels(args[0], args[1], "OI", lanes, attrs.out_dtype)

    def compute(self, args: Sequence[Tensor], attrs: DenseAttrs, out: TensorType) -> Tensor:
        data, weight = args
        wide = compute_type(out.dtype)
        layout = parse_layout(attrs.weight_layout)
        k = te.reduce_axis(weight.shape[layout.position("I")] * layout.block("I"), "k")

        def element(*place: Var) -> te.Reduction:
            *row, unit = place
            return te.sum(cast(wide, data(*row, k)) * cast(wide, weight[layout.place({"O": unit, "I": k})]), axis=k)

        product = te.compute(out.shape, element, name="dense")
        if wide is out.dtype:
            return product
        return te.compute(out.shape, lambda *place: cast(out.dtype, product[place]), name="dense_cast")
