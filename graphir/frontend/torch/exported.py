"""Convert an exported program (``torch.export``) to a module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
)
from torch.utils import _pytree as pytree

from tilewright.graphir.dims import Dim, simplify
from tilewright.graphir.expr import Expr, Function, Tuple, Var
from tilewright.graphir.frontend.runtime_sizes import as_number
from tilewright.graphir.frontend.torch.checks import Check, in_words, take_checks
from tilewright.graphir.frontend.torch.decompositions import export_table
from tilewright.graphir.frontend.torch.importer import Importer, check_overloads, output_nodes
from tilewright.graphir.frontend.torch.node import shape_of, with_shape
from tilewright.graphir.frontend.torch.sizes import find_roots
from tilewright.graphir.frontend.torch.strides import dense_order
from tilewright.graphir.frontend.torch.tensors import stored_type
from tilewright.graphir.keys import CHECKS, INITIAL_STATE, ORDERS, RESULTS, STATE
from tilewright.graphir.module import IRModule
from tilewright.graphir.runtime_sizes import with_bound_sizes
from tilewright.graphir.types import TensorType
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import InputError, UnsupportedOperatorError
from tilewright.tensorir.expr import Var as Symbol
from tilewright.tensorir.expr import as_expr, maximum, minimum

_PARAMETERS = (InputKind.PARAMETER, InputKind.BUFFER)
_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)

#: The least size that PyTorch assumes of every symbolic dimension, because it treats 0 and 1 apart. It is no condition
#: that a program has: only limits beyond it are checked.
_LEAST = 2


def from_exported(program: ExportedProgram) -> IRModule:
    """Convert an exported program to a module whose ``main`` takes the program's tensors and returns its results.

    Parameters and buffers become constants that share their memory. A buffer that the program changes is state: an
    input behind the others, named as the buffer with ``_`` for ``.``, whose new value is a result behind the others.
    An executable keeps it (:attr:`Executable.state`), so that calls give and take neither.
    Nested inputs and results are flat, in PyTorch's order; results that are None are left out. The attribute
    ``results`` of ``main`` names the results by their places: ``logits``, ``cache_0_key``. A call returns arrays with
    the order of axes in memory that PyTorch's results have, if these fill their memory (the attribute ``Orders``).

    Complex numbers have an axis of two parts behind the others, as ``torch.view_as_real`` shows them.

    Checks, such as whether a matrix that is inverted is singular, are further results: a call does not return them, but
    raises ``LinearAlgebraError`` (the attribute ``Checks`` of ``main``).

    Dynamic dimensions are symbolic, under PyTorch's names. A call checks the limits of a ``torch.export.Dim``, and
    relations between dimensions.

    Args:
        program: what ``torch.export.export`` or ``torch.export.load`` returns. It stays as it is.

    Raises:
        InputError: it is no exported program.
        UnsupportedOperatorError: some overloads have no converter; the message lists all of them, with their nodes and
            the lines of the program that they come from. Or it has quantized or sparse tensors, or tensors
            that are not in the memory of the processor. Or PyTorch cannot decompose it.
    """
    if not isinstance(program, ExportedProgram):
        raise InputError(f"expected a torch.export.ExportedProgram, found {type(program).__name__}")
    orders = _orders(program)
    try:
        program = program.run_decompositions(export_table())
    except Exception as error:  # PyTorch's own, as where the program transposes an input in place
        raise UnsupportedOperatorError(f"PyTorch cannot decompose the program: {error}") from error
    checks = take_checks(program.graph_module)
    check_overloads(program.graph)
    return _Exported(program, checks, orders).module()


class _Exported:
    """Converts one program, whose last results are checked.

    Args:
        program: the program.
        checks: its checks.
        orders: for each of its results the order of axes in memory, None for row-major order.
    """

    def __init__(
        self, program: ExportedProgram, checks: Sequence[Check], orders: Sequence[tuple[int, ...] | None]
    ) -> None:
        self.program = program
        self.checks = checks
        self.orders = orders
        self.importer = Importer()
        self.values: dict[fx.Node, Any] = {}
        self.params: list[Var] = []
        self.roots: Mapping[Any, Symbol] = {}
        self.limited: set[Any] = set()

    def module(self) -> IRModule:
        nodes = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        signature = self.program.graph_signature
        inputs = list(zip(nodes, signature.input_specs, strict=True))
        self._find_roots([node for node, spec in inputs if spec.kind is InputKind.USER_INPUT])
        changed = {spec.target for spec in signature.output_specs if spec.kind in _MUTATIONS}
        state = [(node, spec) for node, spec in inputs if spec.kind in _PARAMETERS and spec.target in changed]
        for node, spec in inputs:
            if spec.kind is InputKind.USER_INPUT:
                self._user_input(node, spec)
            elif spec.kind is InputKind.TOKEN:
                self.values[node] = None  # it keeps checks in order
            elif spec.kind in (*_PARAMETERS, InputKind.CONSTANT_TENSOR) and spec.target not in changed:
                self.values[node] = self.importer.constant(self._tensor(spec))
            elif (node, spec) not in state:
                raise UnsupportedOperatorError(f"input {node.name!r}: a {spec.kind.name} is not supported")
        known = [(str(spec.target), str(spec.target).replace(".", "_"), self._tensor(spec)) for _, spec in state]
        for (node, _), (_, name, _) in zip(state, known, strict=True):
            self._param(node, name)
        outputs = self.importer.convert(self.program.graph, self.values)
        count = len(outputs) - len(self.checks)
        state_targets = [target for target, _, _ in known]
        names, results, orders = self._results(outputs[:count], signature.output_specs, state_targets)
        results = with_bound_sizes([*results, *outputs[count:]], self.importer.bound, self.params)
        body = results[0] if len(results) == 1 and not self.checks else Tuple(results)
        main = Function(self.params, body, attrs={RESULTS: tuple(names), **({ORDERS: orders} if orders else {})})
        if self.checks:
            texts = map(in_words, self.checks)
            main = main.with_attr(CHECKS, tuple(enumerate(texts, len(results) - len(self.checks))))
        if not known:
            return IRModule.from_expr(main)
        main = main.with_attr(STATE, tuple(name for _, name, _ in known))
        initial = Function([], Tuple([self.importer.constant(tensor) for _, _, tensor in known]))
        return IRModule({"main": main, INITIAL_STATE: initial})

    def _tensor(self, spec: InputSpec) -> torch.Tensor:
        found = self.program.state_dict.get(spec.target, self.program.constants.get(spec.target))
        assert isinstance(found, torch.Tensor)
        return found

    # Inputs.

    def _find_roots(self, nodes: Sequence[fx.Node]) -> None:
        """Find the symbols that are no dimension by themselves, but only in a formula such as ``2*s0``: a dimension
        with such a formula gets a symbol of its own, from which the others follow."""
        shapes = [node.meta["val"].shape for node in nodes if isinstance(node.meta.get("val"), torch.Tensor)]
        formulas = [size.node.expr for shape in shapes for size in shape if isinstance(size, torch.SymInt)]
        known = {found for found in formulas if isinstance(found, sympy.Symbol)}
        self.roots = find_roots(self.importer.sizes, formulas, known)

    def _user_input(self, node: fx.Node, spec: InputSpec) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            self._param(node, node.name)
        elif isinstance(spec.arg, SymIntArgument) and isinstance(value, torch.SymInt):
            param = Var(node.name, TensorType((), INT64))
            self.params.append(param)
            self.importer.bind_number(value, param)
        elif not isinstance(spec.arg, ConstantArgument):
            raise UnsupportedOperatorError(f"input {node.name!r}: expected a tensor or an integer, found {spec.arg}")

    def _param(self, node: fx.Node, name: str) -> None:
        value = node.meta["val"]
        sizes = value.shape
        claimed = [self.importer.sizes.dim(size) for size in sizes]
        shape = [self.roots.get(_formula(size), dim) for size, dim in zip(sizes, claimed, strict=True)]
        param = Var(name, stored_type(value, shape))
        self.params.append(param)
        limited = [self._limited(size, dim) for size, dim in zip(sizes, claimed, strict=True)]
        self.values[node] = with_shape(
            with_shape(param, stored_type(value, limited).shape), stored_type(value, claimed).shape
        )

    def _limited(self, size: Any, dim: Dim) -> Dim:
        """Return a formula that is the dimension if that is within its limits; the limits are stated once."""
        formula = _formula(size)
        limits = self.program.range_constraints.get(formula)
        if limits is None or formula in self.limited:
            return dim
        self.limited.add(formula)
        result: Any = as_expr(dim)
        if limits.lower.is_Integer and int(limits.lower) > _LEAST:
            result = maximum(result, int(limits.lower))
        if limits.upper.is_Integer:
            result = minimum(result, int(limits.upper))
        return simplify(result)

    # Results.

    def _results(
        self, outputs: Sequence[Any], specs: Sequence[OutputSpec], state: Sequence[str]
    ) -> tuple[list[str], list[Expr], tuple[tuple[int, tuple[int, ...]], ...]]:
        """Return the names and the values of the program's results, of its inputs that it changes, and then those of
        its state, in the order of ``state``; and the orders of axes of results, by their numbers."""
        places, orders = iter(_paths(self.program)), iter(self.orders)
        ordered: list[tuple[int, tuple[int, ...]]] = []
        users: list[tuple[str, Expr]] = []
        changed: list[tuple[str, Expr]] = []
        states: dict[str, tuple[str, Expr]] = {}
        for value, spec in zip(outputs, specs, strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                place, order = next(places), next(orders)
                if order is not None and isinstance(value, Expr):
                    rank = len(shape_of(value))  # the axis of the parts of complex numbers stays the last
                    ordered.append((len(users), (*order, *range(len(order), rank))))
                if value is not None and not isinstance(spec.arg, ConstantArgument):
                    users.append((place, value if isinstance(value, Expr) else as_number(value)))
            elif spec.kind in (*_MUTATIONS, OutputKind.USER_INPUT_MUTATION):
                result = f"{str(spec.target).replace('.', '_')}_changed", value
                if spec.kind in _MUTATIONS:
                    states[str(spec.target)] = result
                else:
                    changed.append(result)
            elif spec.kind is not OutputKind.TOKEN:
                raise UnsupportedOperatorError(f"a result that is a {spec.kind.name} is not supported")
        found = users + changed + [states[target] for target in state]
        return [name for name, _ in found], [value for _, value in found], tuple(ordered)


def _formula(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else None


def _orders(program: ExportedProgram) -> list[tuple[int, ...] | None]:
    """Return for each result of a program the order of its axes in memory, None for row-major order. (Decompositions
    may change it: the program as it was exported tells it.)"""
    specs = program.graph_signature.output_specs
    nodes = [
        node
        for node, spec in zip(output_nodes(program.graph), specs, strict=True)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    values = [node.meta.get("val") if isinstance(node, fx.Node) else None for node in nodes]
    return [
        dense_order(value) if isinstance(value, torch.Tensor) and value.layout is torch.strided else None
        for value in values
    ]


def _paths(program: ExportedProgram) -> list[str]:
    """Return the places of the results in the program's nested result: ``logits``, ``cache_0_key``."""
    spec = program.call_spec.out_spec
    if spec is None:
        return ["result"]
    numbered = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths, _ = pytree.tree_flatten_with_path(numbered)
    names = ["_".join(filter(None, re.split(r"\W+", pytree.keystr(path)))) for path, _ in paths]
    return [name if name and not name[0].isdigit() else f"result_{name}".rstrip("_") for name in names]
