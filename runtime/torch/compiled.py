"""Call a compiled graph with tensors.

Tensors and arrays share memory in both directions. Parameters of a graph without gradients are frozen: they are
constants of the model, which is built at the first call that brings them, and again if one of them changes.
"""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx

from tilewright.graphir.frontend.torch.graphs import from_graph
from tilewright.graphir.frontend.torch.importer import output_nodes
from tilewright.passes.context import DEFAULT_OPT_LEVEL, PassContext
from tilewright.runtime.build import build
from tilewright.runtime.executable import Executable
from tilewright.runtime.torch.calls import Call, caller
from tilewright.runtime.torch.views import cut_views
from tilewright.tensorir.target import Target

#: How many sets of parameters are frozen before they become inputs: weights that change often are not worth packing.
MOST_FROZEN = 4
#: The optimization level from which on sums of floats are reordered.
_REORDERED = 3


class CompiledGraph:
    """A functional graph as a function of a sequence of tensors, sizes and None; it returns a list.

    Args:
        graph: the graph; all of it is supported.
        static: the numbers of inputs that may be frozen.
        opt_level: the optimization level; None: the current context's, or if that is the usual one, level 3 without
            the assumption that numbers are finite.
    """

    def __init__(self, graph: fx.GraphModule, static: Sequence[int], opt_level: int | None) -> None:
        self._boxed_call = True  # states to PyTorch that the inputs come as one sequence
        self._module, self._views = cut_views(graph)
        self._graph = self._module.graph
        self._static = tuple(static)
        self._opt_level = opt_level
        self._frozen: list[_Frozen] = []
        self._lock = threading.Lock()
        self._plain: Call | None = None if self._static else self._built({})

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        results = self._results(inputs)
        return results if self._views is None else self._views(*inputs, *results)

    def _results(self, inputs: Sequence[Any]) -> list[Any]:
        """Return what the graph without its last views computes."""
        for frozen in self._frozen:
            if frozen.fits(inputs):
                return frozen.model(inputs)
        if self._plain is not None:
            return self._plain(inputs)
        return self._model_for(inputs)(inputs)

    def _model_for(self, inputs: Sequence[Any]) -> Call:
        """Return a model for inputs that no model was built for."""
        with self._lock:
            for frozen in self._frozen:
                if frozen.fits(inputs):
                    return frozen.model
            known = {number: inputs[number] for number in self._static if _is_freezable(inputs[number])}
            if len(self._frozen) < MOST_FROZEN and known:
                made = _Frozen(known, self._built(known))
                self._frozen.append(made)
                return made.model
            if self._plain is None:
                self._plain = self._built({})
                self._frozen.clear()
            return self._plain

    def _built(self, known: dict[int, torch.Tensor]) -> Call:
        imported = from_graph(self._graph, known)
        executable: Executable | None = None
        if imported.module is not None:
            threads = min(Target.current().num_threads, torch.get_num_threads())
            with _floats(self._opt_level):
                executable = build(imported.module, Target("llvm", num_threads=threads))
        nodes = output_nodes(self._graph)
        values = [node.meta.get("val") if isinstance(node, fx.Node) else None for node in nodes]
        return caller(executable, imported, values)


def _floats(opt_level: int | None) -> AbstractContextManager[object]:
    """Return the context of a build. Without a level of its own, sums are reordered as PyTorch's own kernels reorder
    theirs, and infinities and NaN spread as they do there, but for convolutions by Winograd's algorithm. A context
    whose level is not the usual one decides itself.
    """
    context = PassContext.current()
    if opt_level is not None:
        return context.at_level(opt_level)
    if context.opt_level != DEFAULT_OPT_LEVEL:
        return contextlib.nullcontext()
    return context.at_level(_REORDERED, {"tensorir.Simplify": {"assumes_finite": False}})


def _is_freezable(value: Any) -> bool:
    # The version of a tensor that was made under inference_mode is not counted: its changes would go unseen.
    return isinstance(value, torch.Tensor) and not value.is_inference()


class _Frozen:
    """A model, and the parameters that are constants of it, with the versions in which they are."""

    def __init__(self, known: dict[int, torch.Tensor], model: Call) -> None:
        self.model = model
        self._numbers = list(known)
        self._tensors = list(known.values())
        self._addresses = list(map(_data_ptr, self._tensors))
        self._versions = list(map(_version, self._tensors))

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Return whether the inputs are those parameters, unchanged."""
        given = [inputs[number] for number in self._numbers]
        return (
            all(map(operator.is_, given, self._tensors))
            and list(map(_version, given)) == self._versions
            and list(map(_data_ptr, given)) == self._addresses
        )


_version = operator.attrgetter("_version")
_data_ptr = torch.Tensor.data_ptr
