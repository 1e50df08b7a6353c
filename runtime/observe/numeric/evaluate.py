"""Run a module as it is after any pass, from the user's graph to lowered functions.

============================  ========================================================================
what ``main`` is               how it runs
============================  ========================================================================
a graph of operators           by the operators' NumPy references (``graphir.interpreter``)
a graph of lowered kernels     kernel by kernel, each as machine code or by the loop interpreter
                               (``program``); operators that remain are lowered first
a function of loop nests       as machine code, with the constants of its graph
============================  ========================================================================
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tilewright.graphir.dims import bind_dims, symbol, symbols_of
from tilewright.graphir.expr import Call, Expr, Function
from tilewright.graphir.interpreter import evaluate_parts
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.parts import is_view
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import Pass
from tilewright.passes.context import PassContext
from tilewright.passes.graph import HoistLoopInvariant, InferType, SimplifyInference
from tilewright.passes.graph.walk import children_outside_groups, is_primitive
from tilewright.passes.lower import LowerToTensorIR
from tilewright.passes.lower.linearize import model_constants
from tilewright.passes.lower.primitive import flat_types
from tilewright.runtime.compile_functions import compile_functions
from tilewright.runtime.observe.numeric.kernels import Compiled, Interpreted, KernelRunner
from tilewright.runtime.observe.numeric.program import Program, Step
from tilewright.runtime.steps import Step as ModelStep
from tilewright.tensorir.errors import ExecutionError, InputError
from tilewright.tensorir.expr import Expr as ScalarExpr
from tilewright.tensorir.expr import Var as Symbol
from tilewright.tensorir.keys import ARENA_BYTES
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

Array = np.ndarray[Any, Any]

#: Engines that run modules: ``auto`` uses NumPy for graphs and machine code for loop nests, ``interpreter`` the
#: interpreters for both, ``compiled`` machine code for both.
Engine = Literal["auto", "interpreter", "compiled"]
ENGINES = ("auto", "interpreter", "compiled")

#: Kinds of modules by their stage of lowering.
GRAPH, KERNELS, LOWERED = "graph", "kernels", "lowered"


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a run of a model.

    Attributes:
        values: one for each parameter: an array, or a tuple for a parameter that is a tuple.
        sizes: sizes of symbolic dimensions that no parameter determines, by name.
    """

    values: tuple[Any, ...]
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def flat(self) -> list[Array]:
        """The arrays, tuples flattened."""
        return [array for value in self.values for array in flatten(value)]


@dataclasses.dataclass(frozen=True)
class GraphFacts:
    """Facts about a graph that its functions of loop nests lack.

    Attributes:
        params: the types of the parameters.
        result: the type of the result.
        constants: the arrays that it takes after the inputs.
    """

    params: tuple[Type, ...]
    result: Type
    constants: tuple[Array, ...]

    @classmethod
    def of(cls, mod: IRModule) -> GraphFacts:
        """Derive the facts about ``main``.

        Raises:
            InputError: a type in its signature is not known.
        """
        main = mod["main"]
        assert isinstance(main, Function)
        found = main.type if isinstance(main.type, FuncType) else None
        if found is None:
            raise InputError("the types of main are not known; run the pass InferType first")
        return cls(found.params, found.result, tuple(c.data for c in model_constants(main, mod)))


def kind_of(mod: IRModule) -> str:
    """Return the kind of a module: ``graph``, ``kernels`` or ``lowered`` (see above)."""
    if isinstance(mod["main"], PrimFunc):
        return LOWERED
    return KERNELS if any(isinstance(function, PrimFunc) for function in mod.functions.values()) else GRAPH


def flatten(value: Any) -> list[Array]:
    """List the arrays of a value, tuples flattened."""
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in flatten(part)]
    return [np.asarray(value)]


def bound_sizes(params: Sequence[Type], inputs: Inputs) -> dict[ScalarExpr, int]:
    """Bind the sizes of all symbolic dimensions."""
    sizes: dict[ScalarExpr, int] = {symbol(name): size for name, size in inputs.sizes.items()}
    tensors = [tensor for found in params for tensor in flat_types(found)]
    for tensor, array in zip(tensors, inputs.flat(), strict=True):
        sizes |= {dim: size for dim, size in zip(tensor.shape, array.shape, strict=True) if isinstance(dim, Symbol)}
    return sizes


class Evaluator:
    """Run modules.

    Args:
        target: the target that kernels are compiled for.
        engine: see :data:`Engine`.
    """

    def __init__(self, target: Target, engine: Engine = "auto") -> None:
        self.target = target
        self.engine = engine
        self.compiled = Compiled(target)
        self.runner: KernelRunner = Interpreted() if engine == "interpreter" else self.compiled

    def run(self, mod: IRModule, inputs: Inputs, facts: GraphFacts | None = None) -> list[Array]:
        """Return the results of ``main``, tuples flattened.

        Args:
            facts: needed where ``main`` is a function of loop nests.

        Raises:
            TilewrightError: the module cannot be run.
        """
        kind = kind_of(mod)
        if kind == LOWERED:
            if facts is None:
                raise InputError("a main of loop nests does not declare its inputs; pass the facts about its graph")
            return self._run_lowered(mod, inputs, facts)
        if kind == GRAPH and self.engine != "compiled":
            return flatten(self.graph_values(mod, inputs)[1])
        return self.run_kernels(mod, inputs)[0]

    def graph_values(self, mod: IRModule, inputs: Inputs, dtype: str | None = None) -> tuple[dict[Expr, Any], Any]:
        """Return the values of all expressions in ``main``, a graph of operators, and the result."""
        main = mod["main"]
        assert isinstance(main, Function)
        with np.errstate(all="ignore"):
            values = evaluate_parts(main, inputs.values, mod, dtype, inputs.sizes)
        return values, values[main.body]

    def run_kernels(
        self, mod: IRModule, inputs: Inputs, forced: Sequence[Step] | None = None
    ) -> tuple[list[Array], list[Step]]:
        """Return the results, and the steps of the kernels; see :meth:`Program.run`."""
        mod = self.as_kernels(mod)
        main = mod["main"]
        assert isinstance(main, Function)
        sizes = bound_sizes([param.type for param in main.params if param.type is not None], inputs)
        return Program(mod, self.runner).run(inputs.flat(), sizes, forced)

    def as_kernels(self, mod: IRModule) -> IRModule:
        """Lower all operators of ``mod`` to loop nests without a schedule."""
        if kind_of(mod) == KERNELS and not _has_operators(mod):
            return mod
        steps: list[Pass] = [InferType(), SimplifyInference(), HoistLoopInvariant(), LowerToTensorIR()]
        with self.target, PassContext(opt_level=0):
            for step in steps:
                mod = step(mod)
        return mod

    def _run_lowered(self, mod: IRModule, inputs: Inputs, facts: GraphFacts) -> list[Array]:
        main = mod["main"]
        assert isinstance(main, PrimFunc)
        functions = [function for function in mod.functions.values() if isinstance(function, PrimFunc)]
        # Kernels for numba are not lowered as far as LLVM needs.
        target = self.target if self.target.is_runnable else self.compiled.target
        code = compile_functions(functions, target)
        sizes = bound_sizes(facts.params, inputs)
        dims = main.variables
        missing = [dim.name for dim in dims if dim not in sizes]
        if missing:
            raise ExecutionError(f"no input determines the sizes {', '.join(missing)}")
        runner = code.runner(len(main.params), list(facts.constants))
        step = ModelStep(dims, flat_types(facts.result), main.attrs[ARENA_BYTES], runner)
        arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs.flat()]
        return step(arrays, tuple(sizes[dim] for dim in dims))


def _has_operators(mod: IRModule) -> bool:
    graphs = [function for function in mod.functions.values() if isinstance(function, Function)]
    calls = [node for node in post_order(*graphs, children_of=children_outside_groups) if isinstance(node, Call)]
    return any((isinstance(call.op, Operator) or is_primitive(call.op)) and not is_view(call) for call in calls)


def random_inputs(mod: IRModule, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Draw inputs for ``main`` by name: standard normal floats, integers from 0 to 4, bools.

    Args:
        mod: a module whose ``main`` is a graph function.
        seed: seed of NumPy's default generator. The same arguments give the same inputs.
        sizes: sizes of the symbolic dimensions, by name; 4 for those that are missing.

    Raises:
        InputError: the type of a parameter is not known, or ``main`` is no graph function.
    """
    main = mod["main"]
    if not isinstance(main, Function):
        raise InputError("main: expected a graph-level function, whose parameters have types of tensors")
    generator = np.random.default_rng(seed)
    given = {name: int(size) for name, size in (sizes or {}).items()}
    return {param.name: random_value(param.type, generator, given) for param in main.params}


#: The default size of a symbolic dimension.
USUAL_SIZE = 4


def random_value(found: Type | None, generator: np.random.Generator, sizes: Mapping[str, int]) -> Any:
    """Draw a random value of a type; see :func:`random_inputs`."""
    if isinstance(found, TupleType):
        return tuple(random_value(field, generator, sizes) for field in found.fields)
    if not isinstance(found, TensorType):
        raise InputError(f"expected a parameter of tensors, found the type {found}")
    known: dict[ScalarExpr, int] = {dim: sizes.get(dim.name, USUAL_SIZE) for dim in symbols_of(found.shape)}
    shape = bind_dims(found.shape, known)
    dtype = found.dtype
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(bool)
    return generator.integers(0, 5 if dtype.bits > 4 else 2, shape).astype(dtype.numpy)
