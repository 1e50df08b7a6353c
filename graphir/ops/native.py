"""The base of operators that functions of ``numba.njit`` or ``numba.cfunc`` compute."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from tilewright.graphir.op import Operator
from tilewright.graphir.types import TensorType, TupleType
from tilewright.tensorir import tensor as te
from tilewright.tensorir.dtype import BOOL, HANDLE, INT64, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, TypeInferenceError
from tilewright.tensorir.expr import Buffer, Call, Expr, Var, address_of, as_expr, cast
from tilewright.tensorir.stmt import Evaluate, Stmt
from tilewright.tensorir.tensor_intrins import TensorIntrinError, c_function, native_function, provide

_TYPES = frozenset(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"])


class Native(Operator):
    """An operator that a function of the user computes, in machine code: models call its address, without Python.

    Class attributes:
        function: what ``numba.njit`` made, called with an array for each argument and then one for each result, which
            it fills; or what ``numba.cfunc`` made, called with the address of each array, and then with the sizes of
            all dimensions of each as ``int64``. Arrays are contiguous. Attributes are not passed, exceptions are lost.
    """

    kind = "opaque"
    function: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        function = type(self).__dict__.get("function", type(self).function)
        self._function = function.__func__ if isinstance(function, staticmethod) else function
        self._is_c = hasattr(self._function, "address")
        python = getattr(self._function, "_pyfunc" if self._is_c else "py_func", None)
        if python is None:
            found = type(self._function).__name__
            raise ArgumentTypeError(
                f"{self.name}: function: expected the result of numba.njit or numba.cfunc, found {found}"
            )
        code = python.__code__
        text = repr((code.co_code, [each for each in code.co_consts if not hasattr(each, "co_code")], code.co_names))
        # Machine code that is kept names the function that it calls; one that has changed is another.
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        self._prefix = f"native_{self.name.replace('.', '__')}_{digest}__"
        provide(self._prefix, self._register)

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        """Call the function on arrays."""
        types = [TensorType(arg.shape, str(arg.dtype)) for arg in args]
        outs = _tensor_types(self.infer_type(types, attrs))
        results: list[Any] = [np.empty(_numbers(each), as_dtype(each.dtype).numpy) for each in outs]
        arrays = [np.ascontiguousarray(arg).reshape(arg.shape) for arg in args] + results
        if self._is_c:
            self._register(self._name(types + outs))
            sizes = [size for array in arrays for size in array.shape]
            c_function(self._name(types + outs))(*[array.ctypes for array in arrays], *sizes)
        else:
            self._function(*arrays)
        return results[0] if self.num_outputs == 1 else tuple(results)

    def compute(self, args: Sequence[te.Tensor], attrs: Any, out: Any) -> list[te.Tensor]:
        """Return tensors that one call of the function fills."""
        outs = _tensor_types(out)
        name = self._name([*args, *outs])
        self._register(name)

        def call(results: list[Buffer]) -> Stmt:
            firsts = [arg[tuple([0] * len(arg.shape))] for arg in args]
            values: list[Expr] = [Call("address_of", (first,), HANDLE) for first in firsts]
            values += [address_of(buffer, *[as_expr(0)] * buffer.ndim) for buffer in results]
            shapes = [*[arg.shape for arg in args], *[buffer.shape for buffer in results]]
            values += [cast(INT64, extent) for shape in shapes for extent in shape]
            return Evaluate(Call(name, tuple(values), BOOL))

        return te.extern([(each.shape, each.dtype) for each in outs], call, self.__name__)

    def _name(self, types: Sequence[Any]) -> str:
        """Return the name of the C function for tensors of these element types and numbers of dimensions."""
        for each in types:
            if str(each.dtype) not in _TYPES:
                raise TypeInferenceError(
                    f"{self.name}: its function takes tensors of {', '.join(sorted(_TYPES))}; found {each.dtype}"
                )
        return self._prefix + "_".join(f"{each.dtype}x{len(each.shape)}" for each in types)

    def _register(self, name: str) -> None:
        """Register the C function of that name."""
        params: list[Buffer | Var] = []
        sizes: list[Var] = []
        for number, each in enumerate(name.removeprefix(self._prefix).split("_")):
            dtype, _, ndim = each.partition("x")
            own = [Var(f"n{number}_{axis}", INT64) for axis in range(int(ndim))]
            params.append(Buffer(f"a{number}", tuple(own), as_dtype(dtype), "global"))
            sizes += own
        params += sizes
        try:
            native_function(name, params, self._function if self._is_c else _wrapped(self._function, params))
        except TensorIntrinError as error:
            raise TypeInferenceError(f"{self.name}: {error}") from None


def _tensor_types(found: Any) -> list[TensorType]:
    fields: list[Any] = list(found.fields) if isinstance(found, TupleType) else [found]
    return fields


def _numbers(found: TensorType) -> Any:
    return found.shape  # of arrays


def _wrapped(function: Any, params: Sequence[Buffer | Var]) -> Any:
    """Return a C function that calls ``function`` with arrays.

    Raises:
        TensorIntrinError: numba cannot compile it for these arrays.
    """
    import numba

    names = ", ".join(param.name for param in params)
    buffers = [param for param in params if isinstance(param, Buffer)]
    arrays = [f"numba.carray({b.name}, ({''.join(f'{extent!s}, ' for extent in b.shape)}))" for b in buffers]
    kinds = [f"CPointer({param.dtype})" if isinstance(param, Buffer) else "int64" for param in params]
    namespace = {"numba": numba, "function": function}
    exec(f"def call({names}):\n    function({', '.join(arrays)})\n", namespace)
    try:
        return numba.cfunc(f"void({', '.join(kinds)})")(namespace["call"])
    except numba.core.errors.NumbaError as error:
        found = ", ".join(f"{b.dtype} of {b.ndim} dimensions" for b in buffers)
        raise TensorIntrinError(f"numba cannot compile its function for arrays of {found}: {error}") from error
