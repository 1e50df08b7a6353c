"""Collect the content of a report as plain data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.visitor import rewrite
from tilewright.passes.context import PassContext
from tilewright.passes.graph import InferType
from tilewright.passes.instruments.timing import PassTimingInstrument
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.runtime.built_model import BuiltModel, GivenSource
from tilewright.runtime.executable import Executable
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.runtime.observe.example_inputs import example_inputs
from tilewright.runtime.observe.explain.explain import explain_lowered
from tilewright.runtime.observe.report.graphs import picture
from tilewright.runtime.observe.report.history import PassHistory
from tilewright.runtime.observe.report.kernel_texts import kernel_texts
from tilewright.runtime.observe.report.source_lines import SourceLines
from tilewright.tensorir.errors import TilewrightError
from tilewright.tensorir.sources import tracing


def collect(model: Executable, inputs: Sequence[Any] | Mapping[str, Any] | None, repeat: int) -> dict[str, Any]:
    """Collect the data of a build: run the passes once more, and profile calls.

    Args:
        inputs: inputs of the profiled calls; drawn if None.
        repeat: number of profiled calls.
    """
    built = model._built
    whole = with_labels(built.module)
    parts = [whole] if built.wiring is None else built.source.modules()
    labelled = dataclasses.replace(built, source=GivenSource(whole, parts))
    timing = PassTimingInstrument(steps=False)
    histories: list[PassHistory] = []
    lowered: list[LoweredFunction] = []
    lines: list[SourceLines] = []
    with PassContext.collecting_remarks() as remarks, tracing():
        for segment in range(len(built.segments)):
            history = PassHistory(timing)
            histories.append(history)
            lines.append(SourceLines())
            lowered.append(labelled.lower_again(segment, [timing, history], lines[-1].between))
    data: dict[str, Any] = {
        "settings": _settings(built),
        "timing": timing.as_dict(),
        "history": [history.as_dict() for history in histories],
        "remarks": [dataclasses.asdict(remark) for remark in remarks],
        "kernels": {},
        "lines": {},
        "profile": None,
        "explained": {},
        "problem": None,
    }
    for each, own_lines in zip(lowered, lines, strict=True):
        for name, made in kernel_texts(each, built.target, built.settings, own_lines).items():
            data["kernels"][name] = made.texts
            data["lines"][name] = made.origins
    profile = None
    try:
        given = inputs if inputs is not None else example_inputs(built)
        named, ordered = (given, ()) if isinstance(given, Mapping) else ({}, given)
        profile = model.profile(*ordered, repeat=repeat, **named)
    except TilewrightError as error:
        if inputs is not None:
            raise
        data["problem"] = f"There is no profile: random inputs do not suit the model ({error})."
    else:
        data["profile"] = profile.as_dict()
        _name_origins(data["profile"]["attributes"]["calls"], data["profile"]["spans"], lowered)
    sizes = data["profile"]["attributes"]["sizes"] if profile is not None else {}
    data["graph"] = {
        "before": picture(_typed(labelled), sizes),
        "after": [_with_labels(picture(each.modules["tensor"], sizes), each) for each in lowered],
    }
    explained = explain_lowered(built, lowered, remarks, {}, profile)
    data["explained"] = {each.kernel: each.as_dict() for each in explained.kernels}
    return data


def with_labels(mod: IRModule) -> IRModule:
    """Give all operators of ``mod`` a label that identifies them in kernels; those without one get their number."""
    numbers = iter(range(1 << 62))

    def label(old: Expr, new: Expr) -> Expr:
        if isinstance(new, Call) and isinstance(new.op, Operator):
            number = next(numbers)
            if new.span is None:
                return Call(new.op, new.args, new.attrs, new.type, f"#{number}")
        return new

    updates = {
        key: function.with_body(rewrite(function.body, label))
        for key, function in mod.functions.items()
        if isinstance(function, Function)
    }
    return mod.with_functions(updates)


def _typed(built: BuiltModel) -> IRModule:
    with built.settings.context():
        return InferType()(built.module)


def _settings(built: BuiltModel) -> dict[str, Any]:
    settings = built.settings
    found: dict[str, Any] = {
        "signature": str(built.signature),
        "target": str(built.target),
        "opt_level": settings.opt_level,
    }
    for name in ("required_pass", "disabled_pass"):
        if getattr(settings, name):
            found[name] = ", ".join(getattr(settings, name))
    found |= {key: str(value) for key, value in settings.config.items()}
    return found


def _with_labels(drawn: dict[str, Any], lowered: LoweredFunction) -> dict[str, Any]:
    """Add the labels of operators to the picture of the kernels that compute them."""
    origins = {" ".join(map(str, call.origins)): call.origins for call in kernel_calls(lowered.modules["lowered"])}
    for node in drawn["nodes"]:
        found = origins.get(" ".join(node["origins"]), ())
        node["labels"] = [origin.label for origin in found if origin.label is not None]
    return drawn


def _name_origins(calls: list[dict[str, Any]], spans: list[dict[str, Any]], lowered: Sequence[LoweredFunction]) -> None:
    """Label the operators in a profile as in the graph whose operators all have labels."""
    known = [
        [dataclasses.asdict(origin) for origin in call.origins]
        for each in lowered
        for call in kernel_calls(each.modules["lowered"])
    ]
    for root in spans:
        for call, span in zip(calls, root["children"], strict=True):
            call["origins"] = span["attributes"]["origins"] = known[span["attributes"]["number"]]
