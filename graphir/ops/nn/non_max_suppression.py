"""Select boxes that do not overlap a better one: the last stage of detectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as GraphExpr
from tilewright.graphir.base import call_operator
from tilewright.graphir.dims import dim_equal
from tilewright.graphir.expr import TupleGetItem
from tilewright.graphir.op import Operator, register_operator
from tilewright.graphir.ops import calls
from tilewright.graphir.ops.common import check_dtype
from tilewright.graphir.ops.loop_nests import assign, loop, nest, register
from tilewright.graphir.ops.sorting import Sort
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import FLOAT32, INT64
from tilewright.tensorir.expr import Buffer, Expr, Var, all_of, as_expr, const, maximum, minimum, select
from tilewright.tensorir.stmt import Allocate, BufferStore, IfThenElse, LetStmt, Stmt, sequence
from tilewright.tensorir.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class SuppressAttrs:
    """``corners``: whether a box is two opposite corners (y, x, y, x) rather than its centre and size (x, y, w, h)."""

    corners: bool = True


def non_max_suppression(
    boxes: GraphExpr,
    scores: GraphExpr,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = -np.inf,
    corners: bool = True,
) -> GraphExpr:
    """Select the boxes of each image and class that overlap no better one too much, the best ones first.

    Args:
        boxes: float32 (images, boxes, 4).
        scores: float32 (images, classes, boxes).
        max_output_size: the greatest number of boxes of an image and class, int64.
        iou_threshold: a box is dropped if its intersection with a better one, divided by their union, is greater.
        score_threshold: a box is dropped if its score is not greater.
        corners: see :class:`SuppressAttrs`.

    Returns:
        int64 (selected, 3): image, class and box of each. Their number becomes known when the model runs.
    """
    options = [
        call_operator("copy", value) if isinstance(value, GraphExpr) else calls.cast(value, dtype=dtype)
        for value, dtype in ((max_output_size, "int64"), (iou_threshold, "float32"), (score_threshold, "float32"))
    ]
    made = call_operator("nn.suppress_overlaps", boxes, scores, *options, corners=corners)
    selected, counts = (TupleGetItem(made, number) for number in range(2))
    assert isinstance(selected.type, TensorType)
    numbers = call_operator("arange", start=0, stop=selected.type.shape[2], step=1, dtype="int64")
    is_selected = call_operator("less", numbers, calls.expand_dims(counts, axis=2))
    places = calls.transpose(call_operator("nonzero", is_selected), axes=(1, 0))
    chosen = call_operator("gather_nd", selected, places)
    where = call_operator("slice", places, begin=(0,), end=(2,), strides=(1,), axes=(1,))
    return calls.concatenate([where, calls.expand_dims(chosen, axis=1)], axis=1)


@register_operator
class suppress_overlaps(Operator):
    """Select, for each image and class, the boxes that overlap no better one too much. The results are their indices,
    the best one first (images, classes, boxes; zeros behind the last), and their numbers (images, classes). See
    :func:`non_max_suppression` for the arguments."""

    name = "nn.suppress_overlaps"
    arguments = ("boxes", "scores", "max_output_size", "iou_threshold", "score_threshold")
    kind = "opaque"
    num_outputs = 2
    Attrs = SuppressAttrs

    def infer_type(self, args: Sequence[TensorType], attrs: SuppressAttrs) -> TupleType:
        boxes, scores, *options = args
        for number in (0, 1):
            check_dtype(self, number, args[number], ("float32",))
        if boxes.ndim != 3 or not dim_equal(boxes.shape[2], 4):
            raise self.error(0, "boxes (images, boxes, 4)", boxes)
        fits = scores.ndim == 3 and dim_equal(scores.shape[0], boxes.shape[0])
        if not fits or not dim_equal(scores.shape[2], boxes.shape[1]):
            raise self.error(1, f"scores (images, classes, boxes) of the boxes {boxes}", scores)
        for number, (option, dtype) in enumerate(zip(options, (INT64, FLOAT32, FLOAT32), strict=True), 2):
            if option.ndim != 0 or option.dtype is not dtype:
                raise self.error(number, f"a number of type {dtype!s}", option)
        return TupleType([TensorType(scores.shape, INT64), TensorType(scores.shape[:2], INT64)])

    def reference(self, args: Sequence[Any], attrs: SuppressAttrs) -> Any:
        boxes, scores, most, threshold, lowest = args
        selected = np.zeros(scores.shape, np.int64)
        counts = np.zeros(scores.shape[:2], np.int64)
        for image, class_ in np.ndindex(*counts.shape):
            kept: list[int] = []
            for number in np.argsort(-scores[image, class_], kind="stable"):
                if len(kept) >= most or not scores[image, class_, number] > lowest:
                    break
                if not any(_overlap(boxes[image, number], boxes[image, k], attrs) > threshold for k in kept):
                    kept.append(int(number))
            selected[image, class_, : len(kept)] = kept
            counts[image, class_] = len(kept)
        return selected, counts

    def compute(self, args: Sequence[Tensor], attrs: SuppressAttrs, out: TupleType) -> list[Tensor]:
        boxes, scores, most, threshold, lowest = args
        images, classes, extent = scores.shape

        def loops(outputs: list[Buffer]) -> Stmt:
            selected, counts = outputs

            def row(place: list[Expr]) -> Stmt:
                image, class_ = place
                kept, is_left_out = register("kept"), register("is_left_out")
                sort = Sort(extent, lambda number: scores[image, class_, number], largest=True)
                box = Var("box")

                def compare(number: Var) -> Stmt:
                    other = Var("other")
                    share = _overlap_expr(boxes, image, box, other, attrs)
                    stmt = IfThenElse(share > threshold(), assign(is_left_out, 1))
                    return LetStmt(other, selected[image, class_, number], stmt)

                def visit(number: Var) -> Stmt:
                    keep = sequence(BufferStore(selected, box, (image, class_, kept[0])), assign(kept, kept[0] + 1))
                    check = sequence(
                        assign(is_left_out, 0),
                        loop(kept[0], compare, "before"),
                        IfThenElse(is_left_out[0].equal(0), keep),
                    )
                    is_candidate = all_of(kept[0] < most(), scores[image, class_, box] > lowest())
                    return LetStmt(box, sort.result(number), IfThenElse(is_candidate, check))

                clear = loop(extent, lambda n: BufferStore(selected, const(0, INT64), (image, class_, n)))
                stmt = sequence(
                    clear,
                    assign(kept, 0),
                    sort.around(loop(extent, visit, "rank")),
                    BufferStore(counts, kept[0], (image, class_)),
                )
                return Allocate(kept, Allocate(is_left_out, stmt))

            return nest([images, classes], row)

        types = [found for found in out.fields if isinstance(found, TensorType)]
        return te.extern([(found.shape, found.dtype) for found in types], loops, "suppress_overlaps")


def _sides(a: Any, b: Any, attrs: SuppressAttrs, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the lower and the upper end of a box along an axis, from its two numbers there."""
    return (low(a, b), high(a, b)) if attrs.corners else (a - b / 2, a + b / 2)


def _overlap(a: Any, b: Any, attrs: SuppressAttrs) -> Any:
    """Return the intersection over union of two boxes; 0 if the union is empty."""
    common, areas = np.float32(1), [np.float32(1), np.float32(1)]
    for axis in range(2):
        sides = [_sides(box[axis], box[axis + 2], attrs, np.minimum, np.maximum) for box in (a, b)]
        common = common * np.maximum(min(s[1] for s in sides) - max(s[0] for s in sides), 0)
        areas = [area * (side[1] - side[0]) for area, side in zip(areas, sides, strict=True)]
    union = areas[0] + areas[1] - common
    return common / union if union > 0 else np.float32(0)


def _overlap_expr(boxes: Tensor, image: Expr, a: Expr, b: Expr, attrs: SuppressAttrs) -> Expr:
    common: Expr = const(1, FLOAT32)
    areas: list[Expr] = [const(1, FLOAT32), const(1, FLOAT32)]
    for axis in range(2):
        sides = [
            _sides(boxes[image, box, axis], boxes[image, box, axis + 2], attrs, minimum, maximum) for box in (a, b)
        ]
        length = minimum(sides[0][1], sides[1][1]) - maximum(sides[0][0], sides[1][0])
        common = common * maximum(length, const(0, FLOAT32))
        areas = [area * (side[1] - side[0]) for area, side in zip(areas, sides, strict=True)]
    union = areas[0] + areas[1] - common
    return select(union > 0, common / select(union > 0, union, as_expr(1.0)), const(0, FLOAT32))
