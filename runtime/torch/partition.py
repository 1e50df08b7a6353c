"""Cut a functional graph into parts that are compiled and nodes that run in PyTorch.

A node is tried before: its overload has a converter, and that accepts the node's arguments. PyTorch's capability
partitioner then joins neighbours to as few parts as dependencies allow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch._functorch.aot_autograd import make_boxed_func
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from tilewright.graphir.expr import Var
from tilewright.graphir.frontend.torch.control_flow import attribute
from tilewright.graphir.frontend.torch.importer import (
    NUMBERS,
    Importer,
    is_supported,
    lines_of,
    load_converters,
    overload_name,
)
from tilewright.graphir.frontend.torch.sizes import undetermined
from tilewright.graphir.frontend.torch.tensors import stored_type
from tilewright.passes.context import PassContext
from tilewright.tensorir.errors import TilewrightError, UnsupportedOperatorError

logger = logging.getLogger("tilewright.torch")

#: Compiles a graph, of whose inputs some are parameters, to a function of the sequence of its inputs.
Compile = Callable[[fx.GraphModule, Sequence[int]], Callable[..., Any]]


def partitioned(
    graph: fx.GraphModule, static: Sequence[int], compile_part: Compile, fallback: bool
) -> Callable[..., Any]:
    """Return a function that computes a graph from the sequence of its inputs: as a whole, or in parts between nodes
    that run in PyTorch, each of which is logged, and a remark of the current context.

    Raises:
        UnsupportedOperatorError: some nodes are not supported, and there is no ``fallback``; the message names all.
    """
    unsupported = _unsupported(graph.graph)
    if not unsupported:
        return compile_part(graph, static)
    by_overload: dict[str, list[fx.Node]] = {}
    for node in unsupported:
        by_overload.setdefault(overload_name(node.target), []).append(node)
    lines = lines_of(by_overload, {node: reason for node, reason in unsupported.items() if reason})
    if not fallback:
        raise UnsupportedOperatorError(f"not supported: {'; '.join(lines)}")
    for line in lines:
        logger.warning("runs in PyTorch: %s", line)
        PassContext.current().remark(f"runs in PyTorch: {line}", "missed")
    support = _Support(frozenset(node.name for node in (*unsupported, *_sizes(graph.graph))))
    partitioner = CapabilityBasedPartitioner(graph, support, allows_single_node_partition=True)
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    names = {inputs[number].name for number in static}
    cut = partitioner.fuse_partitions(partitioner.propose_partitions())
    sources = _Sources()
    for node in list(cut.graph.nodes):
        if node.op == "call_module":
            part = cut.get_submodule(str(node.target))
            _take_attributes(node, part)
            _take_numbers(node, part, sources)
            frozen = [n for n, arg in enumerate(node.args) if isinstance(arg, fx.Node) and arg.name in names]
            _replace(cut, str(node.target), _Part(compile_part(part, frozen)))
        sources.see(node)
    cut.recompile()
    return make_boxed_func(cut.forward)  # type: ignore[no-any-return]


class _Part(torch.nn.Module):  # type: ignore[misc]
    """A compiled part, as a module of the graph that calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        results = self.function(args)
        return results[0] if len(results) == 1 else tuple(results)


def _take_attributes(call: fx.Node, part: fx.GraphModule) -> None:
    """Give a part the attributes of the graph that it takes as inputs: they are constants, and graphs."""
    inputs = [node for node in part.graph.nodes if node.op == "placeholder"]
    given: list[Any] = []
    for placeholder, value in zip(inputs, call.args, strict=True):
        if not isinstance(value, fx.Node) or value.op != "get_attr":
            given.append(value)
            continue
        name = f"_taken_{len(given)}_{placeholder.name}"
        setattr(part, name, attribute(value))
        with part.graph.inserting_after(placeholder):
            own = part.graph.get_attr(name)
        own.meta.update(value.meta)
        placeholder.replace_all_uses_with(own)
        part.graph.erase_node(placeholder)
    call.args = tuple(given)
    part.recompile()


class _Sources:
    """Where the numbers of symbols are found: the nodes of a graph that are a symbol, or have it as a dimension."""

    def __init__(self) -> None:
        self._numbers: dict[sympy.Symbol, fx.Node] = {}
        self._dims: dict[sympy.Symbol, tuple[fx.Node, int]] = {}

    def see(self, node: fx.Node) -> None:
        """Note what is found in a node."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and isinstance(value.node.expr, sympy.Symbol):
            self._numbers.setdefault(value.node.expr, node)
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
                self._dims.setdefault(size.node.expr, (node, axis))

    def number(self, name: sympy.Symbol, before: fx.Node) -> fx.Node | None:
        """Return the node that is the number of a symbol, which may be new; None if no node has it."""
        if name not in self._numbers and name in self._dims:
            owner, axis = self._dims[name]
            with before.graph.inserting_before(before):
                made = before.graph.call_function(torch.ops.aten.sym_size.int, (owner, axis))
            made.meta["val"] = owner.meta["val"].shape[axis]
            self._numbers[name] = made
        return self._numbers.get(name)


def _take_numbers(call: fx.Node, part: fx.GraphModule, sources: _Sources) -> None:
    """Give a part the symbols that do not follow from its inputs, such as n for a tensor of ``n*n`` elements, as
    further inputs."""
    inputs = [node for node in part.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("val") for node in inputs]
    sizes = [size for value in values for size in (value.shape if isinstance(value, torch.Tensor) else (value,))]
    for name in undetermined([size.node.expr for size in sizes if isinstance(size, torch.SymInt)]):
        number = sources.number(name, call)
        if number is None:
            continue
        with part.graph.inserting_after(inputs[-1]):
            own = part.graph.placeholder(f"size_{name}")
        own.meta["val"] = number.meta["val"]
        inputs.append(own)
        call.args = (*call.args, number)
    part.recompile()


def _replace(graph: fx.GraphModule, name: str, module: torch.nn.Module) -> None:
    owner, _, last = name.rpartition(".")
    setattr(graph.get_submodule(owner), last, module)


class _Support(OperatorSupportBase):  # type: ignore[misc]
    """Tells the partitioner which nodes can be compiled."""

    def __init__(self, unsupported: frozenset[str]) -> None:
        self._unsupported = unsupported

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node.op == "call_function" and node.name not in self._unsupported


def _sizes(graph: fx.Graph) -> list[fx.Node]:
    """Return the nodes that compute numbers from sizes of the inputs: they come first, and need no kernel."""
    known = {node for node in graph.nodes if node.op == "placeholder"}
    found: list[fx.Node] = []
    for node in graph.nodes:
        is_number = isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat))
        reads_data = overload_name(node.target) in NUMBERS
        if node.op == "call_function" and is_number and not reads_data and known.issuperset(node.all_input_nodes):
            known.add(node)
            found.append(node)
    return found


def _unsupported(graph: fx.Graph) -> dict[fx.Node, str]:
    """Return the nodes that cannot be converted, each with the reason: each is tried alone."""
    load_converters()
    found = ((node, _obstacle(node)) for node in graph.nodes if node.op == "call_function")
    return {node: reason for node, reason in found if reason is not None}


def _obstacle(node: fx.Node) -> str | None:
    """Return why a node cannot be converted: empty if it has no converter; None if it can."""
    if not is_supported(node):
        return ""
    importer = Importer()
    scope: dict[fx.Node, Any] = {}
    try:
        for each in node.all_input_nodes:
            scope[each] = _stand_in(importer, each.name, each.meta.get("val"))
        importer.convert_node(node, scope)
    except (TilewrightError, NotImplementedError) as error:
        return str(error)
    return None


def _stand_in(importer: Importer, name: str, value: Any) -> Any:
    """Return a variable of a tensor's type; for a sequence, one for each tensor."""
    if isinstance(value, (list, tuple)):
        return [_stand_in(importer, f"{name}_{number}", part) for number, part in enumerate(value)]
    if not isinstance(value, torch.Tensor):
        return None
    if value.layout is not torch.strided or value.device.type != "cpu":
        raise UnsupportedOperatorError(f"a tensor of layout {value.layout} on {value.device} is not supported")
    return Var(name, stored_type(value, [importer.sizes.dim(size) for size in value.shape]))
