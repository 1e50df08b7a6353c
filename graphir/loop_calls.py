"""Type calls of loop-level functions: the arguments and results of a call against the buffers of the function.

A function's sizes are told by its call: a variable that is a dimension of a buffer is that dimension of the argument
(or of the declared result). One that no shape tells is passed behind the tensors, as an integer constant; or it is a
symbolic dimension of the model (by :func:`tilewright.graphir.symbol`, or as the attribute ``model_sizes`` says).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from tilewright.graphir.dims import Dim, dim_equal, format_shape, product, simplify, symbol
from tilewright.graphir.expr import Call, Constant, Expr
from tilewright.graphir.types import TensorType, TupleType, Type
from tilewright.tensorir import expr as tir
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.functor import free_vars, substitute
from tilewright.tensorir.interface import Interface, interface_of
from tilewright.tensorir.keys import MODEL_SIZES, NUM_INPUTS, OPERATORS, SIZES_FROM
from tilewright.tensorir.stmt import PrimFunc


@dataclasses.dataclass(frozen=True)
class LoopCall:
    """A call that fits.

    Attributes:
        result: its type.
        unproved: sizes that must be equal, and may be or not: found, expected, and the place.
    """

    result: Type
    unproved: tuple[tuple[Dim, Dim, str], ...] = ()


def is_handwritten(func: PrimFunc) -> bool:
    """Return whether a function is as its author wrote it. Lowering states the number of inputs of its own functions,
    and of those that it adopted; passes may then change the dimensions of their buffers, but not what lies in
    memory."""
    return NUM_INPUTS not in func.attrs


def is_model_dimension(func: PrimFunc, var: tir.Var) -> bool:
    """Return whether a variable of a function is the symbolic dimension of its name, or stands for it."""
    return var.name in func.attrs.get(MODEL_SIZES, ()) or (var.name.isidentifier() and symbol(var.name) is var)


def model_dimensions(func: PrimFunc) -> dict[tir.Var, tir.Var]:
    """Return the sizes of a function that its calls do not tell, with the dimensions of the model that they are."""
    told = interface_of(func).told_sizes() if func.variables else {}
    own = [var for var in func.variables if var not in told and is_model_dimension(func, var)]
    return {var: symbol(var.name) for var in own}


def asked_sizes(func: PrimFunc, interface: Interface) -> list[tir.Var]:
    """List the sizes of a function that a call passes behind the tensors."""
    told = interface.told_sizes()
    return [var for var in func.variables if var not in told and not is_model_dimension(func, var)]


def passed_numbers(func: PrimFunc) -> int:
    """Return the number of integers that a call of ``func`` passes behind its tensors, as constants."""
    if is_handwritten(func):
        return len(asked_sizes(func, interface_of(func))) if func.variables else 0
    return kernel_numbers(func)


def kernel_numbers(func: PrimFunc) -> int:
    """Return the same of a function that is lowered."""
    sources = func.attrs.get(SIZES_FROM, ())
    return len({source for source in sources if source is not None and len(source) == 1})


def loop_call(func: PrimFunc, call: Call, memory: bool = False) -> LoopCall | None:
    """Check a call of ``func``; None if the type of an argument is not known yet, or if the declared type is needed and
    there is none.

    Args:
        memory: whether to compare the number of elements with kernels of the compiler's own, too, whose buffers may be
            longer than their tensors (``graphir.parts``) once they are scheduled.

    Raises:
        TypeInferenceError: the number of tensors, an element type or a size does not fit.
    """
    if any(arg.type is None for arg in call.args):
        return None
    return _Checker(func, call, not is_handwritten(func), memory or OPERATORS not in func.attrs).check()


def check_kernel_call(func: PrimFunc, call: Call, sizes: Mapping[tir.Var, Dim]) -> None:
    """Check a call of a kernel, whose sizes are known, by what lies in memory.

    Raises:
        TypeInferenceError: as :func:`loop_call`.
    """
    known = {var: tir.as_expr(size) for var, size in sizes.items()}
    found = _Checker(func, call, True, OPERATORS not in func.attrs).check(known)
    if found is not None and found.unproved and is_handwritten(func):  # too late to compare them in calls
        dim, expected, where = found.unproved[0]
        raise TypeInferenceError(f"{where} must be {expected!s}, found {dim!s}, which may be another number")


def flat_tensors(found: Type | None, what: str) -> list[TensorType]:
    """List the tensors of a type.

    Raises:
        TypeInferenceError: a part of it is no tensor.
    """
    if isinstance(found, TupleType):
        return [tensor for field in found.fields for tensor in flat_tensors(field, what)]
    if not isinstance(found, TensorType):
        raise TypeInferenceError(f"{what}: expected tensors, found {found}")
    return [found]


def buffer_type(func: PrimFunc, buffer: tir.Buffer, shape: Sequence[Dim] | None = None) -> TensorType:
    """Return the type of the tensor in a parameter of a function.

    Args:
        shape: in place of the parameter's own.

    Raises:
        TypeInferenceError: its elements are no tensor's.
    """
    try:
        return TensorType(buffer.shape if shape is None else shape, buffer.dtype)
    except TypeError as error:
        raise TypeInferenceError(f"@{func.name}: parameter {buffer.name}: {error}") from None


class _Checker:
    def __init__(self, func: PrimFunc, call: Call, lowered: bool, memory: bool) -> None:
        self.func = func
        self.lowered = lowered
        self.memory = memory
        self.name = getattr(call.op, "name", func.name)
        self.interface = interface_of(func)
        self.asked = [] if lowered else asked_sizes(func, self.interface)
        count = len(call.args) - (kernel_numbers(func) if lowered else len(self.asked))
        if count < 0:
            self.wrong_count([])
        self.passed = call.args[max(count, 0) :]
        self.args = [
            tensor for arg in call.args[:count] for tensor in flat_tensors(arg.type, f"@{self.name}: an argument")
        ]
        self.declared = call.type
        self.results = [] if call.type is None else flat_tensors(call.type, f"@{self.name}: the result")
        self.unproved: list[tuple[Dim, Dim, str]] = []

    def check(self, sizes: Mapping[tir.Var, tir.Expr] | None = None) -> LoopCall | None:
        """Check the call, with these sizes or those that it tells."""
        interface = self.interface
        if len(self.args) != len(interface.arguments):
            self.wrong_count(self.args)
        if not interface.results:
            raise TypeInferenceError(f"@{self.name}: expected a function that writes to a buffer among its parameters")
        if self.declared is not None and len(self.results) != len(interface.results):
            raise TypeInferenceError(
                f"@{self.name}: expected {_counted(len(interface.results), 'result')} "
                f"({self.signature(interface.results)}), declared as {self.declared}"
            )
        if self.declared is None and self.lowered:
            return None
        pairs = [("argument", *pair) for pair in zip(interface.arguments, self.args, strict=True)]
        if self.declared is not None:
            pairs += [("result", *pair) for pair in zip(interface.results, self.results, strict=True)]
        for what, buffer, tensor in pairs:
            if tensor.dtype is not buffer.dtype or (tensor.ndim != buffer.ndim and not self.lowered):
                self.misfit(buffer, tensor, what)
        if sizes is None:
            sizes = self.sizes()
        for what, buffer, tensor in pairs:
            self.compare(buffer, tensor, what, sizes)
        if self.declared is not None:
            return LoopCall(self.declared, tuple(self.unproved))
        made = [
            buffer_type(self.func, buffer, [self.known(extent, sizes) for extent in buffer.shape])
            for buffer in interface.results
        ]
        return LoopCall(made[0] if len(made) == 1 else TupleType(made), tuple(self.unproved))

    def signature(self, buffers: Sequence[tir.Buffer]) -> str:
        parts = [f"{buffer.name}: Tensor[{_shape(buffer)}, {buffer.dtype!s}]" for buffer in buffers]
        return ", ".join(parts) or "none"

    def wrong_count(self, found: Sequence[TensorType]) -> None:
        wanted = list(self.interface.arguments)
        text = f"@{self.name}: expected {_counted(len(wanted), 'argument')} ({self.signature(wanted)})"
        if self.asked:
            names = ", ".join(var.name for var in self.asked)
            text += f" and behind them the size{'s' if len(self.asked) > 1 else ''} {names}, which no shape tells"
        raise TypeInferenceError(f"{text}; found {', '.join(map(str, found)) or 'none'}")

    def misfit(self, buffer: tir.Buffer, tensor: TensorType, what: str, hint: str = "") -> None:
        expected = f"Tensor[{_shape(buffer)}, {buffer.dtype!s}]"
        found = "declared as" if what == "result" else "found"
        raise TypeInferenceError(f"@{self.name}: {what} {buffer.name}: expected {expected}, {found} {tensor}{hint}")

    def sizes(self) -> Mapping[tir.Var, tir.Expr]:
        """Return what a call says of the function's sizes, as far as it does."""
        told = self.interface.told_sizes()
        tensors = [*self.args, *self.results]
        sources = self.func.attrs.get(SIZES_FROM, ()) if self.lowered else ()
        known: dict[tir.Var, tir.Expr] = {}
        for var, source in itertools.zip_longest(self.func.variables, sources):
            if source is None and not self.lowered:
                source = (self.asked.index(var),) if var in self.asked else told.get(var)
            elif source is None and self.memory and not is_model_dimension(self.func, var):
                source = self.same_place(told.get(var), tensors)
            if source is not None:
                dim = self.told(var, source, tensors)
                known.update({} if dim is None else {var: tir.as_expr(dim)})
            elif is_model_dimension(self.func, var):
                known[var] = symbol(var.name)
        return known

    def same_place(self, place: tuple[int, int] | None, tensors: Sequence[TensorType]) -> tuple[int, int] | None:
        """Return a place in a buffer if the tensor there has as many dimensions."""
        buffers = (*self.interface.arguments, *self.interface.results)
        same = place is not None and place[0] < len(tensors) and tensors[place[0]].ndim == buffers[place[0]].ndim
        return place if same else None

    def told(self, var: tir.Var, source: Sequence[int], tensors: Sequence[TensorType]) -> Dim | None:
        """Return the size that a place (see ``SIZES_FROM``) tells; None: it is one of a result whose type is to be
        found."""
        if len(source) == 1:
            return self.number(var, self.passed[source[0]])
        number, axis, *divisor = source
        if number >= len(tensors):
            if self.results:
                raise TypeInferenceError(f"@{self.name}: no tensor tells the size {var.name}")
            if not self.lowered:
                raise TypeInferenceError(
                    f"@{self.name}: no argument tells the size {var.name} of the result; declare the type of the call"
                )
            return None
        dim = tensors[number].shape[axis]
        return simplify(dim // divisor[0]) if divisor else dim

    def number(self, var: tir.Var, arg: Expr) -> int:
        found = arg.data if isinstance(arg, Constant) else None
        if found is None or found.ndim or found.dtype.kind not in "iu" or int(found) < 1:
            raise TypeInferenceError(
                f"@{self.name}: size {var.name}: expected a positive integer constant, found "
                f"{arg.type if found is None or found.ndim or found.dtype.kind not in 'iu' else int(found)}"
            )
        return int(found)

    def known(self, extent: tir.Expr, sizes: Mapping[tir.Var, tir.Expr]) -> Dim:
        return simplify(substitute(extent, sizes)) if not isinstance(extent, tir.IntImm) else extent.value

    def compare(self, buffer: tir.Buffer, tensor: TensorType, what: str, sizes: Mapping[tir.Var, tir.Expr]) -> None:
        """Compare the sizes of a tensor with those of its buffer."""
        if self.lowered and (buffer.strides or not self.memory):
            return
        for var in [var for extent in buffer.shape for var in free_vars(extent)]:
            if var not in sizes:
                raise TypeInferenceError(f"@{self.name}: no tensor tells the size {var.name} of {buffer.name}")
        if not self.lowered:
            pairs = [(dim, self.known(extent, sizes)) for dim, extent in zip(tensor.shape, buffer.shape, strict=True)]
        else:
            pairs = [(product(tensor.shape), product(self.known(extent, sizes) for extent in buffer.shape))]
        for axis, (found, expected) in enumerate(pairs):
            if dim_equal(found, expected):
                continue
            size = "the number of elements" if self.lowered else f"dimension {axis}"
            if isinstance(simplify(tir.as_expr(found) - tir.as_expr(expected)), int):
                self.misfit(buffer, tensor, what, f"; {size} must be {expected!s}")
            self.unproved.append((found, expected, f"{size} of {what} {buffer.name} of @{self.name}"))


def _shape(buffer: tir.Buffer) -> str:
    return format_shape([extent.value if isinstance(extent, tir.IntImm) else extent for extent in buffer.shape])


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
