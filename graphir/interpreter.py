"""Evaluate graphs with the operators' NumPy references: slow and simple, the oracle for graph passes.

Nothing recurses over the depth of the graph, nor over the depth of calls between functions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Union

import numpy as np

from tilewright.graphir.call_sizes import with_sizes_in_attributes
from tilewright.graphir.dims import symbol, symbols_in_attributes
from tilewright.graphir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Loop,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import call_nodes
from tilewright.tensorir.dtype import as_dtype
from tilewright.tensorir.errors import InputError, VerifyError, add_note
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.expr import Var as ScalarVar

#: A value: an array, a tuple of values, or a closure.
Value = Union[np.ndarray, tuple["Value", ...], "_Closure"]

#: Computes the result of a call of an operator from the arrays of its arguments and from its attributes, in which
#: symbolic dimensions are numbers.
Compute = Callable[[Call, Sequence[Any], Any], Any]


def reference_of(call: Call, args: Sequence[Any], attrs: Any) -> Any:
    """Compute an operator by its NumPy reference."""
    assert isinstance(call.op, Operator)
    if call.op.reads_bits:
        types = [arg.tensor_type.dtype.numpy for arg in call.args]
        args = [np.asarray(value).astype(dtype, copy=False) for value, dtype in zip(args, types, strict=True)]
    return call.op.reference(args, attrs)


def evaluate(
    node: IRModule | Expr,
    *inputs: Any,
    dtype: str | None = None,
    compute: Compute = reference_of,
    **named: Any,
) -> Any:
    """Evaluate ``node`` on ``inputs``: return an array, or a tuple of results.

    Args:
        node: a module (its ``main`` is run), a function, or an expression without free variables.
        inputs: arrays for the parameters, by position; ``named`` ones by the parameters' names.
        dtype: ``"float64"`` computes all floats in float64, whatever their types are, for a result to compare rounded
            ones with.
        compute: what computes each operator's result, for example one that changes it, to see what depends on it.

    Raises:
        InputError: an input is missing, unknown, or of another type or rank than the parameter.
        VerifyError: the graph uses an undefined variable or function.
    """
    wide = None if dtype is None else as_dtype(dtype).numpy
    mod = node if isinstance(node, IRModule) else None
    root = node["main"] if isinstance(node, IRModule) else node
    if not isinstance(root, Expr):
        raise InputError("main: expected a graph-level function; run a loop-level one with tensorir.interpret")
    machine = _Machine(mod, wide, compute)
    if not isinstance(root, Function):
        return machine.start(_Closure(Function((), root), _Scope(None)), [])
    return machine.start(_Closure(root, _Scope(None)), bind_inputs(root, inputs, named, dtype))


def evaluate_decomposition(op: Operator, args: Sequence[Any], attrs: Any) -> Any:
    """Evaluate an operator on arrays through the operators that it decomposes into."""
    assert op.decompose is not None
    arrays = [np.asarray(arg) for arg in args]
    params = [Var(op.argument_name(n), TensorType(a.shape, a.dtype)) for n, a in enumerate(arrays)]
    with np.errstate(all="ignore"):
        return evaluate(Function(params, op.decompose(list(params), attrs)), *arrays)


def evaluate_parts(
    function: Function,
    inputs: Sequence[Any],
    mod: IRModule | None = None,
    dtype: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> dict[Expr, Value]:
    """Return the values of all expressions that ``function`` computes on ``inputs``, its body and parameters included.

    Values inside nested functions are not included, nor are those of branches that are not taken.

    Args:
        inputs: arrays for the parameters, in order.
        mod: the module of the called functions.
        dtype: as in :func:`evaluate`.
        sizes: by name, the sizes of symbolic dimensions that no parameter has.

    Raises:
        InputError, VerifyError: as :func:`evaluate`.
    """
    wide = None if dtype is None else as_dtype(dtype).numpy
    machine = _Machine(mod, wide)
    around = _Scope(None)
    around.sizes.update({symbol(name): size for name, size in (sizes or {}).items()})
    machine.start(_Closure(function, around), bind_inputs(function, inputs, {}, dtype))
    assert machine.outermost is not None
    return machine.outermost.values


def bind_inputs(
    function: Function, inputs: Sequence[Any], named: Mapping[str, Any], dtype: str | None = None
) -> list[Value]:
    """Return the values of a function's parameters, in order: ``inputs`` by position, the rest by name.

    Raises:
        InputError: an input is missing, unknown, given twice, or of another type or rank than the parameter.
    """
    wide = None if dtype is None else as_dtype(dtype).numpy
    names = [param.name for param in function.params]
    if len(inputs) > len(names):
        raise InputError(f"expected {len(names)} inputs ({', '.join(names)}), found {len(inputs)}")
    given = dict(zip(names, inputs, strict=False))
    for name, value in named.items():
        if name not in names or name in given:
            raise InputError(f"input {name!r} is {'given twice' if name in given else 'unknown'}: {', '.join(names)}")
        given[name] = value
    bound: list[Value] = []
    for param in function.params:
        if param.name not in given:
            raise InputError(f"input {param.name!r} is missing")
        bound.append(_checked(param, given[param.name], wide))
    return bound


def _checked(param: Var, value: Any, wide: Any) -> Value:
    if not isinstance(param.type, TensorType):
        return tuple(value) if isinstance(value, (tuple, list)) else np.asarray(value)
    array = np.asarray(value)
    expected = param.type.dtype
    floats = wide is not None and expected.is_float and as_dtype(array.dtype).is_float
    if array.ndim != param.type.ndim or (array.dtype != expected.numpy and not floats):
        raise InputError(f"input {param.name!r}: expected {param.type}, found {array.dtype} of shape {array.shape}")
    for found, dim in zip(array.shape, param.type.shape, strict=True):
        if isinstance(dim, int) and dim != found:
            raise InputError(f"input {param.name!r}: expected {param.type}, found shape {array.shape}")
    return array if wide is None or not expected.is_float else array.astype(wide, copy=False)


class _Scope:
    """The values known in one run of a function's body; ``outer`` holds those of the enclosing function."""

    __slots__ = ("bindings", "outer", "sizes", "values")

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        #: The expressions that determine the sizes that become known while it runs.
        self.bindings: Mapping[ScalarExpr, Expr] = {}
        self.values: dict[Expr, Value] = {}
        #: Sizes of the symbolic dimensions of parameters, here or in enclosing functions.
        self.sizes: dict[ScalarExpr, int] = {} if outer is None else dict(outer.sizes)

    def find(self, node: Expr) -> Value | None:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.values.get(node)
            if found is not None:
                return found
            scope = scope.outer
        return None


class _Closure:
    """A function with the scope that it was created in."""

    __slots__ = ("function", "scope")

    def __init__(self, function: Function, scope: _Scope) -> None:
        self.function = function
        self.scope = scope


_Run = Generator[tuple["_Closure", Sequence[Value]], Value, Value]


class _Machine:
    """Run functions. Each run is a generator that yields the calls it needs and is sent their results."""

    def __init__(self, mod: IRModule | None, wide: Any, compute: Compute = reference_of) -> None:
        self.mod = mod
        self.wide = wide
        self.compute_call = compute
        #: The values of the function that runs first.
        self.outermost: _Scope | None = None
        #: For each function, the expressions that determine the sizes that become known while it runs.
        self.known_bindings: dict[Function, dict[ScalarExpr, Expr]] = {}

    def start(self, closure: _Closure, args: Sequence[Value]) -> Value:
        runs: list[_Run] = [self.run(closure, args)]
        result: Any = None
        while runs:
            try:
                callee, given = runs[-1].send(result)
            except StopIteration as finished:
                runs.pop()
                result = finished.value
            else:
                runs.append(self.run(callee, given))
                result = None
        value: Value = result
        return value

    def run(self, closure: _Closure, args: Sequence[Value]) -> _Run:
        function = closure.function
        if len(args) != len(function.params):
            raise VerifyError(f"a function of {len(function.params)} parameters is called with {len(args)} arguments")
        scope = _Scope(closure.scope)
        if self.outermost is None:
            self.outermost = scope
        for param, value in zip(function.params, args, strict=True):
            scope.values[param] = value
            if isinstance(param.type, TensorType) and isinstance(value, np.ndarray):
                pairs = zip(param.type.shape, value.shape, strict=False)
                scope.sizes |= {dim: size for dim, size in pairs if isinstance(dim, ScalarVar)}
        scope.bindings = self.bindings(function)
        stack: list[Expr] = [function.body]
        while stack:
            node = stack[-1]
            if scope.find(node) is not None:
                stack.pop()
                continue
            needed = self.needed(node, scope)
            if needed:
                stack.extend(reversed(needed))
                continue
            if isinstance(node, Loop):
                scope.values[node] = yield from self.loop(node, scope)
            elif isinstance(node, Call) and not isinstance(node.op, Operator):
                scope.values[node] = yield self.callee(node.op, scope), [self.get(arg, scope) for arg in node.args]
            else:
                scope.values[node] = self.compute(node, scope)
            stack.pop()
        return self.get(function.body, scope)

    def bindings(self, function: Function) -> dict[ScalarExpr, Expr]:
        """Return the expression that determines each size that becomes known while ``function`` runs; found once, as
        loops run a body repeatedly."""
        found = self.known_bindings.get(function)
        if found is None:
            found = self.known_bindings[function] = {}
            for call in call_nodes(function.body):
                bound = call.op.bound_size(call.args, call.attrs) if isinstance(call.op, Operator) else None
                if bound is not None:
                    found[bound[0]] = bound[1]
        return found

    def needed(self, node: Expr, scope: _Scope) -> list[Expr]:
        """Return the parts of ``node`` that must be evaluated before it and have no value yet."""
        if isinstance(node, Function):
            return []
        parts: Sequence[Expr] = node.children
        if isinstance(node, If):
            condition = scope.find(node.condition)
            if condition is None:
                parts = (node.condition,)
            else:
                parts = (node.then_branch if bool(condition) else node.else_branch,)
        elif isinstance(node, Let):
            value = scope.find(node.value)
            if value is None:
                parts = (node.value,)
            else:
                scope.values[node.var] = value
                parts = (node.body,)
        elif isinstance(node, Call) and scope.bindings:
            parts = (*self.sizes_needed(node, scope), *parts)
        return [part for part in parts if scope.find(part) is None]

    def sizes_needed(self, node: Call, scope: _Scope) -> list[Expr]:
        """Return the expressions that determine sizes in ``node`` and have no value yet; record the sizes of the
        others."""
        mentioned = symbols_in_attributes(node.attrs)
        needed = []
        for dim, size in scope.bindings.items():
            if dim in mentioned and dim not in scope.sizes:
                found = scope.find(size)
                if found is None:
                    needed.append(size)
                else:
                    assert isinstance(found, np.ndarray)
                    scope.sizes[dim] = int(found)
        return needed

    def compute(self, node: Expr, scope: _Scope) -> Value:
        if isinstance(node, Call):
            assert isinstance(node.op, Operator)
            try:
                attrs = with_sizes_in_attributes(node.attrs, scope.sizes)  # references compute with numbers
                result = self.compute_call(node, [self.get(arg, scope) for arg in node.args], attrs)
            except Exception as error:
                add_note(error, f"in the NumPy reference of {summary(node)}")
                raise
            if isinstance(result, (tuple, list)):
                return tuple(self.widen(np.asarray(part)) for part in result)
            return self.widen(np.asarray(result))
        if isinstance(node, Constant):
            return self.widen(node.data)
        if isinstance(node, Tuple):
            return tuple(self.get(field, scope) for field in node.fields)
        if isinstance(node, TupleGetItem):
            fields = self.get(node.value, scope)
            assert isinstance(fields, tuple)
            return fields[node.index]
        if isinstance(node, If):
            return self.get(node.then_branch if bool(self.get(node.condition, scope)) else node.else_branch, scope)
        if isinstance(node, Let):
            return self.get(node.body, scope)
        if isinstance(node, Function):
            return _Closure(node, scope)
        if isinstance(node, GlobalVar):
            return self.callee(node, scope)
        raise VerifyError(f"{summary(node)} is used where nothing defines it")

    def widen(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.wide is None or not as_dtype(array.dtype).is_float:
            return array
        return array.astype(self.wide, copy=False)

    def get(self, node: Expr, scope: _Scope) -> Value:
        found = scope.find(node)
        assert found is not None  # it was evaluated before its users
        return found

    def callee(self, op: Any, scope: _Scope) -> _Closure:
        if isinstance(op, GlobalVar):
            if self.mod is None or op not in self.mod:
                raise VerifyError(f"function @{op.name} is called, but no module defines it")
            function = self.mod[op]
            if not isinstance(function, Function):
                raise VerifyError(f"@{op.name} is a loop-level function; run it with tensorir.interpret")
            return _Closure(function, _Scope(None))
        found = scope.find(op)
        if not isinstance(found, _Closure):
            raise VerifyError(f"{summary(op)} is called, but is no function")
        return found

    def loop(self, node: Loop, scope: _Scope) -> _Run:
        state: Any = tuple(self.get(value, scope) for value in node.initial)
        collected: list[Any] = [np.array(self.get(value, scope)) for value in node.collect]
        trips = self.get(node.trip_count, scope)
        assert isinstance(trips, np.ndarray)
        for i in range(int(trips)):
            index = np.asarray(i, np.int64)
            if node.condition is not None:
                goes_on = yield self.callee(node.condition, scope), (index, *state)
                if not bool(goes_on):
                    break
            results: Any = yield self.callee(node.body, scope), (index, *state)
            state = results[: len(state)]
            for rows, row in zip(collected, results[len(state) :], strict=True):
                if i < len(rows):
                    rows[i] = row
        return (*state, *collected)
