"""Make a model of a handwritten loop-level function: a graph that calls it.

Before::

    primfunc @scale(x: Buffer[(n,), float32], y: Buffer[(n,), float32], n: int64, m: int64) { .. }

After, with attribute ``model_sizes``: ``("m",)`` of ``@scale``::

    def @main(%x: Tensor[(n,), float32], %m: Tensor[(), int64]) {
      %0 = @scale(%x)
      %1 = bind_size(%0, %m, dim=m)
      %1
    }

The inputs are the buffers that the function reads before it writes them, in parameter order, then the sizes that no
input's shape determines; the results are the buffers that it writes (``tensorir.interface``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.graphir.dims import Dim, symbol
from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.graphir.keys import RESULTS
from tilewright.graphir.loop_calls import asked_sizes, buffer_type
from tilewright.graphir.module import IRModule
from tilewright.graphir.runtime_sizes import bind_size
from tilewright.graphir.types import TensorType, TupleType
from tilewright.passes.lower.adopt import check_loops
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Buffer
from tilewright.tensorir.expr import Var as SizeVar
from tilewright.tensorir.functor import free_vars, substitute
from tilewright.tensorir.interface import interface_of
from tilewright.tensorir.keys import MODEL_SIZES
from tilewright.tensorir.stmt import PrimFunc


def with_graph_main(mod: IRModule) -> IRModule:
    """Return ``mod``, whose ``main`` is a PrimFunc, with a graph function ``main`` that calls that PrimFunc.

    Raises:
        VerifyError: the function breaks a rule of the loop-level IR.
        TypeInferenceError: it has no result, or a parameter that no call can provide.
    """
    main = mod["main"]
    assert isinstance(main, PrimFunc)
    check_loops(main)
    names = [var.name for var in main.variables]
    for found in names:
        if not found.isidentifier() or names.count(found) > 1:
            raise TypeInferenceError(f"@{main.name}: size {found!r}: expected an identifier that no other size has")
    name = mod.unique_name(main.name if main.name != "main" else "main_loops")
    others = {key: function for key, function in mod.functions.items() if key.name != "main"}
    asked = asked_sizes(main, interface_of(main))
    func = main.with_attr(MODEL_SIZES, tuple([var.name for var in asked])) if asked else main
    return IRModule({GlobalVar("main"): _caller(func, name), GlobalVar(name): func, **others})


def _caller(func: PrimFunc, name: str) -> Function:
    """Return the graph that calls ``func`` by ``name``."""
    interface = interface_of(func)
    if not interface.results:
        raise TypeInferenceError(
            f"@{func.name}: expected a function that writes to a buffer among its parameters, which would be its result"
        )
    dims = {var: symbol(var.name) for var in interface.sizes}
    told = {extent for buffer in interface.arguments for extent in buffer.shape if isinstance(extent, SizeVar)}
    inputs = [Var(buffer.name, _input_type(func, buffer, dims, told)) for buffer in interface.arguments]
    results = [buffer_type(func, buffer, _shape(buffer, dims)) for buffer in interface.results]
    call = Call(GlobalVar(name), inputs, None, results[0] if len(results) == 1 else TupleType(results))
    asked = [Var(var.name, TensorType((), "int64")) for var in interface.sizes if var not in told]
    fields: list[Expr] = [call] if len(results) == 1 else [TupleGetItem(call, n) for n in range(len(results))]
    for size in asked:
        fields = [bind_size(field, size, symbol(size.name)) for field in fields]
    body = fields[0] if len(results) == 1 else Tuple(fields) if asked else call
    names = tuple(buffer.name for buffer in interface.results)
    return Function([*inputs, *asked], body, attrs={RESULTS: names})


def _shape(buffer: Buffer, dims: Mapping[SizeVar, SizeVar]) -> list[Dim]:
    return [substitute(extent, dims) for extent in buffer.shape]


def _input_type(
    func: PrimFunc, buffer: Buffer, dims: Mapping[SizeVar, SizeVar], told: Collection[SizeVar]
) -> TensorType:
    """Return the type of an input. A dimension that depends on sizes passed as inputs becomes a separate symbolic
    dimension, which a call checks against its formula."""
    shape = _shape(buffer, dims)
    for axis, extent in enumerate(buffer.shape):
        if any(var not in told for var in free_vars(extent)):
            shape[axis] = symbol(f"{buffer.name}_{axis}")
    return buffer_type(func, buffer, shape)
