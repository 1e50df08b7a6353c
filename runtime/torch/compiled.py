"""Call a compiled graph with tensors.

Tensors and arrays share memory in both directions. Parameters of a graph without gradients are frozen: they are
constants of the model, which is built at the first call that brings them, and again if one of them changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tilewright.graphir.frontend.torch.graphs import ImportedGraph, Output, from_graph
from tilewright.graphir.frontend.torch.tensors import as_array, as_tensor
from tilewright.runtime.build import build
from tilewright.runtime.executable import Executable
from tilewright.tensorir.target import Target

#: How many sets of parameters are frozen before they become inputs: weights that change often are not worth packing.
MOST_FROZEN = 4


class CompiledGraph:
    """A functional graph as a function of tensors, sizes and None; it returns a list.

    Args:
        graph: the graph; all of it is supported.
        static: the numbers of inputs that may be frozen.
        opt_level: the optimization level; None: that of the current context.
    """

    def __init__(self, graph: fx.GraphModule, static: Sequence[int], opt_level: int | None) -> None:
        self._graph = graph.graph
        self._module = graph  # owns the attributes of the graph
        self._static = tuple(static)
        self._opt_level = opt_level
        self._frozen: list[_Frozen] = []
        self._lock = threading.Lock()
        self._plain: _Model | None = None if self._static else self._built({})

    def __call__(self, *inputs: Any) -> list[Any]:
        for frozen in self._frozen:
            if frozen.fits(inputs):
                return frozen.model(inputs)
        if self._plain is not None:
            return self._plain(inputs)
        return self._model_for(inputs)(inputs)

    def _model_for(self, inputs: Sequence[Any]) -> _Model:
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

    def _built(self, known: dict[int, torch.Tensor]) -> _Model:
        return _Model(from_graph(self._graph, known), self._outputs(), self._opt_level)

    def _outputs(self) -> list[Any]:
        """Return what PyTorch knows of the outputs."""
        (output,) = (node for node in self._graph.nodes if node.op == "output")
        nodes = output.args[0] if isinstance(output.args[0], (list, tuple)) else output.args
        return [node.meta.get("val") if isinstance(node, fx.Node) else None for node in nodes]


def _is_freezable(value: Any) -> bool:
    # The version of a tensor that was made under inference_mode is not counted: its changes would go unseen.
    return isinstance(value, torch.Tensor) and not value.is_inference()


class _Frozen:
    """A model, and the parameters that are constants of it, with the versions in which they are."""

    def __init__(self, known: dict[int, torch.Tensor], model: _Model) -> None:
        self.model = model
        self._known = [(number, tensor, tensor.data_ptr(), tensor._version) for number, tensor in known.items()]

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Return whether the inputs are those parameters, unchanged."""
        for number, tensor, address, version in self._known:
            given = inputs[number]
            if given is not tensor or given._version != version or given.data_ptr() != address:
                return False
        return True


class _Model:
    """An executable, and how tensors go in and out."""

    def __init__(self, imported: ImportedGraph, outputs: Sequence[Any], opt_level: int | None) -> None:
        self._inputs = imported.inputs
        self._outputs = [_writer(output, value) for output, value in zip(imported.outputs, outputs, strict=True)]
        self._executable: Executable | None = None
        if imported.module is not None:
            threads = min(Target.current().num_threads, torch.get_num_threads())
            target = Target("llvm", num_threads=threads)
            self._executable = build(imported.module, target, opt_level=opt_level)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        results: Sequence[Any] = ()
        if self._executable is not None:
            results = self._executable(*[_array(inputs[number]) for number in self._inputs])
        return [write(results, inputs) for write in self._outputs]


def _array(value: Any) -> Any:
    """Return an input as an array that shares its memory; a size as it is."""
    if type(value) is int:
        return value
    if value.requires_grad:
        value = value.detach()
    try:
        array = value.numpy()  # the usual case, without questions
        return array if array.dtype.kind != "c" else as_array(value)
    except (TypeError, RuntimeError):
        return as_array(value) if isinstance(value, torch.Tensor) else int(value)


#: Returns an output from the results of the executable and the inputs.
_Writer = Callable[[Sequence[Any], Sequence[Any]], Any]

#: Element types whose arrays PyTorch reads.
_PLAIN = (
    *(torch.float32, torch.float64, torch.float16, torch.bool, torch.uint8),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
)


def _writer(output: Output, value: Any) -> _Writer:
    """Return the function that makes an output, of which PyTorch knows ``value``."""
    number = output.number
    if output.kind == "input":
        return lambda results, inputs: inputs[number]
    if output.kind == "constant":
        return lambda results, inputs: output.value
    if output.kind == "number":
        return lambda results, inputs: int(results[number])
    order = _order(value)
    is_empty = any(isinstance(size, torch.SymInt) or size == 0 for size in value.shape)
    if order is None and value.dtype in _PLAIN and not is_empty:
        from_numpy = torch.from_numpy
        return lambda results, inputs: from_numpy(results[number])

    def write(results: Sequence[Any], inputs: Sequence[Any]) -> torch.Tensor:
        tensor = as_tensor(results[number])
        tensor = torch.view_as_complex(tensor) if value.is_complex() else tensor
        return tensor if order is None else _restrided(tensor, order)

    return write


def _order(value: torch.Tensor) -> Sequence[int] | None:
    """Return the order of the axes of a tensor in memory, if that is not row-major order."""
    if value.is_contiguous():
        return None
    order = sorted(range(value.ndim), key=lambda axis: -_hint(value.stride(axis)))
    return None if order == list(range(value.ndim)) else order


def _hint(stride: Any) -> int:
    return int(stride.node.hint) if isinstance(stride, torch.SymInt) else int(stride)


def _restrided(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Return a tensor whose axes lie in memory in that order, as the program's would."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(tuple(order)).contiguous().permute(inverse)
