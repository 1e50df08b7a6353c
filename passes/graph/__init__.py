"""Passes over the graph-level IR, one in each module.

Facts about a single operator (its fusion kind, preferred layout, arithmetic meaning) are methods and attributes of its
class in ``graphir/ops``; passes read them. The order of the passes is in ``passes/pipelines.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.passes.graph.a_normal_form import ToANormalForm, ToGraphNormalForm
    from tilewright.passes.graph.alter_op_layout import AlterOpLayout
    from tilewright.passes.graph.common_subexpr import EliminateCommonSubexpr
    from tilewright.passes.graph.dead_code import DeadCodeElimination
    from tilewright.passes.graph.fold_constant import FoldConstant
    from tilewright.passes.graph.fold_scale_axis import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
    from tilewright.passes.graph.fuse_attention import FuseAttention
    from tilewright.passes.graph.fuse_ops import FuseOps
    from tilewright.passes.graph.gradient import Gradient
    from tilewright.passes.graph.hoist_loop_invariant import HoistLoopInvariant
    from tilewright.passes.graph.infer_type import InferType
    from tilewright.passes.graph.inline_functions import InlineFunctions
    from tilewright.passes.graph.lambda_lift import LambdaLift
    from tilewright.passes.graph.narrow_products import NarrowProducts
    from tilewright.passes.graph.pad_rows import PadRows
    from tilewright.passes.graph.place_parts import PlaceParts
    from tilewright.passes.graph.remove_unused import RemoveUnusedFunctions
    from tilewright.passes.graph.simplify_expr import SimplifyExpr
    from tilewright.passes.graph.simplify_inference import SimplifyInference
    from tilewright.passes.graph.specialize_calls import SpecializeCalls
    from tilewright.passes.graph.trim_convolutions import TrimConvolutions
    from tilewright.passes.graph.walk import rewrite_body, rewrite_graph
    from tilewright.passes.graph.widen_halves import WidenHalves
    from tilewright.passes.graph.winograd import Winograd
    from tilewright.passes.graph.winograd_windows import WinogradWindows

__all__ = [
    "AlterOpLayout",
    "BackwardFoldScaleAxis",
    "DeadCodeElimination",
    "EliminateCommonSubexpr",
    "FoldConstant",
    "FoldScaleAxis",
    "ForwardFoldScaleAxis",
    "FuseAttention",
    "FuseOps",
    "Gradient",
    "HoistLoopInvariant",
    "InferType",
    "InlineFunctions",
    "LambdaLift",
    "NarrowProducts",
    "PadRows",
    "PlaceParts",
    "RemoveUnusedFunctions",
    "SimplifyExpr",
    "SimplifyInference",
    "SpecializeCalls",
    "ToANormalForm",
    "ToGraphNormalForm",
    "TrimConvolutions",
    "WidenHalves",
    "Winograd",
    "WinogradWindows",
    "rewrite_body",
    "rewrite_graph",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
