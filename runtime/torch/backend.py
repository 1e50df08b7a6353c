"""Register as a backend of ``torch.compile``: PyTorch finds it by the entry point ``torch_dynamo_backends``.

AOTAutograd makes functional graphs of a function and, where gradients are needed, of its backward pass. Each becomes a
module, and what Tilewright cannot convert runs in PyTorch (``partition.py``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from tilewright.graphir.frontend.torch.decompositions import compile_table
from tilewright.runtime.torch.checks import with_checks_last
from tilewright.runtime.torch.compiled import CompiledGraph
from tilewright.runtime.torch.partition import partitioned
from tilewright.tensorir.errors import InputError

#: The optimization level for each ``mode`` of ``torch.compile``; None: that of the current context.
_LEVELS: dict[str | None, int | None] = {
    None: None,
    "default": None,
    "reduce-overhead": None,
    "max-autotune": 3,
    "max-autotune-no-cudagraphs": 3,
}


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of ``torch.compile(backend="tilewright", options={...})``.

    Attributes:
        fallback: whether what is not supported runs in PyTorch; otherwise it is an error.
        freeze: whether parameters are constants where no gradients are needed: they are packed once, and the model is
            built anew if one of them changes.
        opt_level: the optimization level; None: that of the mode, or of the current context. Where that is the usual
            level 2, sums are reordered as at level 3, as PyTorch's own kernels do; 2 itself keeps their order.
    """

    fallback: bool = True
    freeze: bool = True
    opt_level: int | None = None


def backend(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph of ``torch.compile``.

    Args:
        graph: the graph that PyTorch captured.
        example_inputs: inputs like those of the calls.
        mode: ``default``, ``reduce-overhead``, or ``max-autotune``, which also assumes that no number is infinite or
            NaN (level 3).
        options: the fields of :class:`Options`.

    Raises:
        InputError: the mode or an option is unknown.
        UnsupportedOperatorError: with ``fallback=False``, the graph has parts that are not supported; the message
            names all of them.
    """
    chosen = _options(mode, options or {})

    def forward(inner: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compiled(inner, chosen)

    def inference(inner: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        static = _static_inputs(inner) if chosen.freeze else ()
        return compiled(inner, chosen, static)

    wrapped = aot_autograd(
        fw_compiler=forward,
        bw_compiler=forward,
        inference_compiler=inference,
        decompositions=compile_table(),
    )
    return wrapped(graph, example_inputs)  # type: ignore[no-any-return]


def compiled(graph: fx.GraphModule, options: Options, static: Sequence[int] = ()) -> Callable[..., Any]:
    """Return a function of the sequence of the inputs of a functional graph that returns its outputs.

    Args:
        graph: the graph.
        options: how it is compiled.
        static: the numbers of the inputs that are parameters or buffers, which rarely change.

    Raises:
        UnsupportedOperatorError: as for :func:`backend`.
    """

    def whole(part: fx.GraphModule, frozen: Sequence[int]) -> CompiledGraph:
        return CompiledGraph(part, frozen, options.opt_level)

    return with_checks_last(graph, lambda inner: partitioned(inner, static, whole, options.fallback))


def _options(mode: str | None, given: Mapping[str, Any]) -> Options:
    if mode not in _LEVELS:
        raise InputError(f"mode: expected one of {', '.join(filter(None, _LEVELS))}, found {mode!r}")
    names = {field.name for field in dataclasses.fields(Options)}
    unknown = sorted(set(given) - names)
    if unknown:
        raise InputError(f"options: expected {', '.join(sorted(names))}, found {', '.join(unknown)}")
    return Options(**{"opt_level": _LEVELS[mode], **given})


def _static_inputs(graph: fx.GraphModule) -> Sequence[int]:
    """Return the numbers of the inputs of a functional graph that are parameters and buffers."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return () if metadata is None else tuple(metadata.static_input_indices)
