"""Make the function that calls an executable with tensors: it is generated for the graph's inputs and outputs.

The usual input is a contiguous tensor of the expected type and shape, whose address goes to the machine code as it is;
so is one whose axes have another order in memory, after they are brought into that order, which is a view; and so is
the whole box of one with gaps, of which the machine code reads a part. Any other goes through an array, which shares
the tensor's memory, and the checks of :class:`Executable`. For a graph of two inputs the function reads about so::

    def call(inputs):
        x0, x1 = inputs[0], inputs[3]
        shape0, shape1 = x0.shape, x1.shape
        p0, p1 = x0.data_ptr(), x1.data_ptr()
        n0 = shape0[0]
        if x0.is_contiguous() and ... and shape0 == (n0, 8) and shape1 == (8, 4) and not (p0 | p1) & 3:
            results = run((p0, p1), (n0,))
        else:
            results = through_arrays(inputs)
        return [from_numpy(results[0])]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tilewright.graphir.frontend.torch.graphs import ImportedGraph, Output
from tilewright.graphir.frontend.torch.strides import Box
from tilewright.graphir.frontend.torch.tensors import as_array, as_tensor, part_type, torch_type
from tilewright.runtime.executable import Executable
from tilewright.runtime.signature import Argument
from tilewright.tensorir.expr import Var

#: Returns the outputs of a graph from its inputs.
Call = Callable[[Sequence[Any]], list[Any]]


def caller(executable: Executable | None, graph: ImportedGraph, values: Sequence[Any]) -> Call:
    """Return the function that computes a graph.

    Args:
        executable: computes the graph's module; None if there is nothing to compute.
        graph: how inputs and outputs go in and out.
        values: what PyTorch knows of the outputs: tensors without elements, or numbers.
    """
    names: dict[str, Any] = dict(_NAMES)
    lines = ["def call(inputs):"]
    if executable is not None:
        lines += [f"    {line}" for line in _run(executable, graph, names)]
    pairs = enumerate(zip(graph.outputs, values, strict=True))
    outputs = [_written(number, output, value, names) for number, (output, value) in pairs]
    lines.append(f"    return [{', '.join(outputs)}]")
    exec("\n".join(lines), names)
    return names["call"]  # type: ignore[no-any-return]


# Inputs.


def _run(executable: Executable, graph: ImportedGraph, names: dict[str, Any]) -> list[str]:
    """Return the lines that compute ``results``."""

    def through_arrays(inputs: Sequence[Any]) -> Sequence[Any]:
        return executable(*[_array(inputs[number], number, graph) for number in graph.inputs])  # type: ignore[no-any-return]

    names["through_arrays"] = through_arrays
    arguments = executable.signature.inputs
    places = _places(executable)
    if executable.at_addresses is None or places is None or any(number not in graph.dtypes for number in graph.inputs):
        return ["results = through_arrays(inputs)"]
    names["run"] = executable.at_addresses
    lines: list[str] = []
    for place, number in enumerate(graph.inputs):
        order, box = graph.orders.get(number), graph.boxes.get(number)
        ordered = "" if order is None else f".permute({order})"
        before = "" if box is None else f" - {box.offset * graph.dtypes[number].itemsize}"
        lines += [f"x{place} = inputs[{number}]{ordered}", f"shape{place} = x{place}.shape"]
        lines.append(f"p{place} = x{place}.data_ptr(){before}")
    lines += [f"n{symbol} = shape{place}[{axis}]" for symbol, (place, axis) in enumerate(places)]
    symbols = {symbol: f"n{number}" for number, symbol in enumerate(executable.signature.symbols)}
    conditions: list[str] = []
    by_size: dict[int, list[str]] = {}
    for place, (argument, number) in enumerate(zip(arguments, graph.inputs, strict=True)):
        dtype = graph.dtypes[number]
        conditions += _conditions(place, argument, dtype, graph.boxes.get(number), symbols, names)
        by_size.setdefault(argument.type.dtype.numpy.itemsize, []).append(f"p{place}")
    conditions += [f"not ({' | '.join(pointers)}) & {size - 1}" for size, pointers in by_size.items() if size > 1]
    addresses = "".join(f"p{place}, " for place in range(len(arguments)))
    sizes = "".join(f"n{symbol}, " for symbol in range(len(places)))
    lines += [
        f"if {' and '.join(conditions) or 'True'}:",
        f"    results = run(({addresses}), ({sizes}))",
        "else:",
        "    results = through_arrays(inputs)",
    ]
    return lines


def _places(executable: Executable) -> list[tuple[int, int]] | None:
    """Return where the sizes of the symbols are found: the place of an input and its axis; None if one is not."""
    places: list[tuple[int, int]] = []
    for symbol in executable.signature.symbols:
        found = [
            (place, axis)
            for place, argument in enumerate(executable.signature.inputs)
            for axis, dim in enumerate(argument.type.shape)
            if dim is symbol
        ]
        if not found:
            return None
        places.append(found[0])
    known = (int, Var)
    computed = [dim for each in executable.signature.inputs for dim in each.type.shape if not isinstance(dim, known)]
    return None if computed else places


def _conditions(
    place: int, argument: Argument, dtype: torch.dtype, box: Box | None, symbols: dict[Any, str], names: dict[str, Any]
) -> list[str]:
    """Return what holds of an input whose address may be given: of one with gaps, that its memory holds the box."""
    name = f"dtype{place}"
    names[name] = dtype
    if box is not None:
        sizes = tuple(box.sizes)
        return [
            f"shape{place} == {sizes}",
            f"x{place}.dtype is {name}",
            f"x{place}.stride() == {box.strides}",
            f"not x{place}.is_neg()",
            f"x{place}.storage_offset() >= {box.offset}",
            f"x{place}.untyped_storage().nbytes() >= (x{place}.storage_offset() + {math.prod(box.shape) - box.offset})"
            f" * {dtype.itemsize}",
        ]
    shape = argument.type.shape[:-1] if dtype.is_complex else argument.type.shape
    dims = "".join(f"{dim if isinstance(dim, int) else symbols[dim]}, " for dim in shape)
    found = [f"shape{place} == ({dims})", f"x{place}.dtype is {name}", f"x{place}.is_contiguous()"]
    if dtype.is_complex:
        found.append(f"not x{place}.is_conj()")
    if dtype.is_complex or dtype.is_floating_point:
        found.append(f"not x{place}.is_neg()")  # the imaginary part of a conjugate
    return found


def _array(value: Any, number: int, graph: ImportedGraph) -> Any:
    """Return an input as an array, in the order of axes that ``main`` takes, which shares its memory; inside of a box
    if ``main`` takes that; a size as it is."""
    if not isinstance(value, torch.Tensor):
        return int(value)
    order, box = graph.orders.get(number), graph.boxes.get(number)
    if box is None:
        return as_array(value if order is None else value.permute(order))
    part = as_array(value.permute(box.order))
    whole = np.empty(box.shape, part.dtype)
    whole[tuple([slice(start, start + size) for start, size in zip(box.starts, part.shape, strict=True)])] = part
    return whole


# Outputs.


def _written(number: int, output: Output, value: Any, names: dict[str, Any]) -> str:
    """Return the expression of an output, of which PyTorch knows ``value``."""
    if output.kind == "input":
        return f"inputs[{output.number}]"
    if output.kind == "constant":
        names[f"constant{number}"] = output.value
        return f"constant{number}"
    if output.kind == "number":
        return f"results[{output.number}].item()"
    if all(isinstance(size, int) for size in (*value.shape, *value.stride())) and 0 in value.shape:
        names[f"dtype_of{number}"] = value.dtype  # the strides of an array without elements may be any
        return f"empty_strided({tuple(value.shape)}, {tuple(value.stride())}, dtype=dtype_of{number})"
    result = f"results[{output.number}]"
    part = torch_type(part_type(value.dtype))
    tensor = f"from_numpy({result})"
    if part in _BITS:
        names[f"part{number}"], names[f"bits{number}"] = part, _BITS[part]
        tensor = f"from_numpy({result}.view(bits{number})).view(part{number})"
    if any(isinstance(size, torch.SymInt) for size in value.shape):
        tensor = f"({tensor} if {result}.size else as_tensor({result}))"
    if value.is_complex():
        tensor = f"view_as_complex({tensor})"
    if output.order is not None:
        inverse = sorted(range(len(output.order)), key=output.order.__getitem__)
        tensor = f"{tensor}.permute({tuple(inverse)})"
    return tensor


#: Element types that PyTorch does not read from arrays, and those of as many bits that it does.
_BITS: dict[torch.dtype, Any] = {
    torch.bfloat16: np.int16,
    **{getattr(torch, name): np.uint8 for name in dir(torch) if name.startswith("float8_")},
}

#: What the generated functions call.
_NAMES = {
    "from_numpy": torch.from_numpy,
    "view_as_complex": torch.view_as_complex,
    "empty_strided": torch.empty_strided,
    "as_tensor": as_tensor,
}
