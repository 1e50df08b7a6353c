"""Passes under the names that users of Apache TVM look for: its ``tvm.transform``, ``tvm.instrument`` and
``relay.transform`` in one place.

The same objects are in ``tilewright.passes`` (the infrastructure) and ``tilewright.passes.graph`` (the passes over
graphs), and behave as these say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.passes import (
        ApplyPassToFunction,
        DumpIR,
        FunctionPass,
        ModulePass,
        Pass,
        PassContext,
        PassInfo,
        PassInstrument,
        PassPrintingInstrument,
        PassTimingInstrument,
        PrimFuncPass,
        PrintAfterAll,
        PrintBeforeAll,
        PrintIR,
        Sequential,
        VerifyInstrument,
        function_pass,
        get_pass,
        list_passes,
        module_pass,
        pass_instrument,
        register_config_option,
        register_pass,
    )
    from tilewright.passes import primfunc_pass as prim_func_pass
    from tilewright.passes.graph import (
        AlterOpLayout,
        BackwardFoldScaleAxis,
        DeadCodeElimination,
        EliminateCommonSubexpr,
        FoldConstant,
        FoldScaleAxis,
        ForwardFoldScaleAxis,
        FuseOps,
        Gradient,
        InferType,
        InlineFunctions,
        LambdaLift,
        RemoveUnusedFunctions,
        SimplifyExpr,
        SimplifyInference,
        ToANormalForm,
        ToGraphNormalForm,
    )

__all__ = [
    "AlterOpLayout",
    "ApplyPassToFunction",
    "BackwardFoldScaleAxis",
    "DeadCodeElimination",
    "DumpIR",
    "EliminateCommonSubexpr",
    "FoldConstant",
    "FoldScaleAxis",
    "ForwardFoldScaleAxis",
    "FunctionPass",
    "FuseOps",
    "Gradient",
    "InferType",
    "InlineFunctions",
    "LambdaLift",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrimFuncPass",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintIR",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyExpr",
    "SimplifyInference",
    "ToANormalForm",
    "ToGraphNormalForm",
    "VerifyInstrument",
    "function_pass",
    "get_pass",
    "list_passes",
    "module_pass",
    "pass_instrument",
    "prim_func_pass",
    "register_config_option",
    "register_pass",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
