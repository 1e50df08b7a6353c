"""Collect the facts about a model's kernels: run its passes again for their remarks, and read its lowered loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graphir.origins import Origin
from tilewright.passes.context import PassContext
from tilewright.passes.diagnostics import Remark
from tilewright.passes.lower.kernel_calls import CalledKernel, kernel_calls
from tilewright.runtime import lower_model
from tilewright.runtime.built_model import BuiltModel
from tilewright.runtime.loaded_code import LoadedCode
from tilewright.runtime.lower_model import LoweredFunction
from tilewright.runtime.observe.explain.copies import layout_copies
from tilewright.runtime.observe.explain.explanation import Explanation, KernelExplanation
from tilewright.runtime.observe.explain.loops import loop_facts
from tilewright.runtime.observe.explain.reasons import KernelFacts, Reason, reasons
from tilewright.runtime.observe.profile.profile import CallProfile, Profile, merged
from tilewright.tensorir.costs import function_cost
from tilewright.tensorir.expr import Var
from tilewright.tensorir.known_numbers import integer_value
from tilewright.tensorir.stmt import PrimFunc


def explain(built: BuiltModel, sizes: Mapping[str, int], profile: Profile | None, note: str = "") -> Explanation:
    """Explain the speed of each kernel of a model.

    Args:
        sizes: sizes of the symbolic dimensions by name, as far as they are known.
        profile: the profile of calls with these sizes; None for static facts only.
        note: why there is no profile.

    Raises:
        ArtifactError: the model was loaded from an artifact, and the passes cannot run on its graph again.
    """
    lowered: list[LoweredFunction] = []
    with PassContext.collecting_remarks() as remarks:
        for segment in range(len(built.segments)):
            lowered.append(_lower_again(built, segment))
    return explain_lowered(built, lowered, remarks, sizes, profile, note)


def explain_lowered(
    built: BuiltModel,
    lowered: Sequence[LoweredFunction],
    remarks: Sequence[Remark],
    sizes: Mapping[str, int],
    profile: Profile | None,
    note: str = "",
) -> Explanation:
    """Explain the kernels of functions that were lowered with these remarks; see :func:`explain`."""
    measured = {call.number: call for call in profile.calls} if profile is not None else {}
    known = {**sizes, **(profile.facts["sizes"] if profile is not None else {})}
    found: list[KernelExplanation] = []
    before = 0
    for function in lowered:
        calls = kernel_calls(function.modules["lowered"])
        copies = layout_copies(function.modules["tensor"])
        named: dict[str, list[int]] = {}
        for number, call in enumerate(calls):
            named.setdefault(call.kernel, []).append(number)
        for numbers in named.values():
            ran = [measured[before + number] for number in numbers if before + number in measured]
            if profile is not None and not ran:
                continue
            own = [calls[number] for number in numbers]
            found.append(_kernel(built, function, own, ran, remarks, known, copies))
        before += len(calls)
    if profile is not None:
        found.sort(key=lambda each: -(each.seconds or 0.0))
    return Explanation(found, note)


def _lower_again(built: BuiltModel, segment: int) -> LoweredFunction:
    if built.target.kind != "llvm":
        return built.lower_again(segment, [])
    code = LoadedCode(built.segments[segment].stored().code, built.target)  # so that nothing is compiled again
    with built.settings.context():
        return lower_model.lower(built.source.modules()[segment], built.target, built.after, code)[0]


def _kernel(
    built: BuiltModel,
    lowered: LoweredFunction,
    calls: Sequence[CalledKernel],
    ran: Sequence[CallProfile],
    remarks: Sequence[Remark],
    sizes: Mapping[str, int],
    copies: Mapping[str, Reason],
) -> KernelExplanation:
    """Explain a kernel by its calls: its sizes are those of the first."""
    module, first = lowered.modules["lowered"], calls[0]
    func = module[first.kernel]
    assert isinstance(func, PrimFunc)
    outer = {var: sizes[var.name] for var in lowered.main.variables if var.name in sizes}
    values: dict[Var, int] = {}
    for param, arg in zip(func.params, first.arguments, strict=True):
        value = integer_value(arg, outer) if isinstance(param, Var) else None
        if isinstance(param, Var) and value is not None:
            values[param] = value
    names = {first.kernel, *(call.formula for call in calls if call.formula is not None)}
    call = merged(list(ran)) if ran else None
    facts = KernelFacts(
        remarks=[remark for remark in remarks if remark.function in names],
        loops=loop_facts(func, values),
        vector_bits=lowered.code.vector_bits(first.kernel, function_cost(func, values).vector_bits),
        sizes=values,
        target=built.target,
        settings=built.settings,
        measured=call,
    )
    copied = [copies[name] for name in sorted(names) if name in copies]
    origins: dict[Origin, None] = dict.fromkeys(origin for each in calls for origin in each.origins)
    return KernelExplanation(
        kernel=first.kernel,
        origins=tuple(origins),
        calls=len(calls),
        seconds=call.median if call is not None else None,
        share=call.share if call is not None else None,
        reasons=(*copied, *reasons(facts)),
        declined=tuple(dict.fromkeys(facts.said("ScheduleKernels", "declined"))),
    )
