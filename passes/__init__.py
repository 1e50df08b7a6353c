"""Passes: the infrastructure here, the passes themselves in ``graph``, ``lower``, ``schedule`` and ``tensor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.tensorir.lazy import lazy_exports

if TYPE_CHECKING:
    from tilewright.passes.apply_to_function import ApplyPassToFunction
    from tilewright.passes.base import SKIP_OPTIMIZATION, FunctionPass, ModulePass, Pass, PrimFuncPass
    from tilewright.passes.config import register_config_option
    from tilewright.passes.context import PassContext
    from tilewright.passes.decorators import function_pass, module_pass, primfunc_pass
    from tilewright.passes.diagnostics import Remark
    from tilewright.passes.info import PassInfo
    from tilewright.passes.instrument import PassInstrument, pass_instrument
    from tilewright.passes.instruments.bisection import Culprit, OptBisect, bisect_passes
    from tilewright.passes.instruments.changes import PrintChanged
    from tilewright.passes.instruments.counting import PassCounter
    from tilewright.passes.instruments.dumping import DumpIR
    from tilewright.passes.instruments.memory import PassMemoryInstrument
    from tilewright.passes.instruments.printing import (
        PassPrintingInstrument,
        PrintAfterAll,
        PrintBeforeAll,
        PrintIR,
    )
    from tilewright.passes.instruments.remarks import Remarks
    from tilewright.passes.instruments.statistics import IRStatistics
    from tilewright.passes.instruments.timing import PassTimingInstrument
    from tilewright.passes.instruments.tracing import TraceSymbol
    from tilewright.passes.instruments.verifying import VerifyInstrument
    from tilewright.passes.location import set_ir_function, set_ir_location
    from tilewright.passes.registry import get_pass, list_passes, register_pass, unregister_pass
    from tilewright.passes.sequential import Sequential
    from tilewright.passes.spans import Span, SpanRecorder

__all__ = [
    "SKIP_OPTIMIZATION",
    "ApplyPassToFunction",
    "Culprit",
    "DumpIR",
    "FunctionPass",
    "IRStatistics",
    "ModulePass",
    "OptBisect",
    "Pass",
    "PassContext",
    "PassCounter",
    "PassInfo",
    "PassInstrument",
    "PassMemoryInstrument",
    "PassPrintingInstrument",
    "PassTimingInstrument",
    "PrimFuncPass",
    "PrintAfterAll",
    "PrintBeforeAll",
    "PrintChanged",
    "PrintIR",
    "Remark",
    "Remarks",
    "Sequential",
    "Span",
    "SpanRecorder",
    "TraceSymbol",
    "VerifyInstrument",
    "bisect_passes",
    "function_pass",
    "get_pass",
    "list_passes",
    "module_pass",
    "pass_instrument",
    "primfunc_pass",
    "register_config_option",
    "register_pass",
    "set_ir_function",
    "set_ir_location",
    "unregister_pass",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__)
