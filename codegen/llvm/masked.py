"""Loads and stores of the lanes that a mask allows: contiguous ones, gathers and scatters.

All take an address (gathers and scatters: a vector of them), its alignment in bytes, the type of the value, and a mask
of one bit for each lane. Lanes that a mask disables touch no memory; loaded, they are zero.
"""

from __future__ import annotations

import math

from tilewright.codegen.llvm.text import Builder, constant, memory_type
from tilewright.tensorir.dtype import DataType


def masked_load(b: Builder, pointer: str, alignment: int, dtype: DataType, mask: str) -> str:
    """Load elements that follow each other."""
    lanes, element = dtype.lanes, memory_type(dtype.element)
    kind = f"<{lanes} x {element}>"
    name = f"llvm.masked.load.v{lanes}{_suffix(dtype)}.p0"
    operand = b.module.declare(name, kind, ["ptr", "i32", f"<{lanes} x i1>", kind])
    mask = _as_vector(b, dtype, mask, "i1")
    loaded = b.value(
        f"call {kind} {operand}(ptr {pointer}, i32 {alignment}, <{lanes} x i1> {mask}, {kind} zeroinitializer)"
    )
    return b.pure(f"extractelement {kind} {loaded}, i64 0") if lanes == 1 else loaded


def gather(b: Builder, pointers: str, alignment: int, dtype: DataType, mask: str) -> str:
    """Load elements from anywhere."""
    lanes, kind = dtype.lanes, memory_type(dtype)
    name = f"llvm.masked.gather.v{lanes}{_suffix(dtype)}.v{lanes}p0"
    operand = b.module.declare(name, kind, [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", kind])
    return b.value(
        f"call {kind} {operand}(<{lanes} x ptr> {pointers}, i32 {alignment}, "
        f"<{lanes} x i1> {mask}, {kind} zeroinitializer)"
    )


def masked_store(b: Builder, pointer: str, alignment: int, dtype: DataType, value: str, mask: str) -> None:
    """Store elements that follow each other."""
    lanes = dtype.lanes
    value = _as_vector(b, dtype, value, memory_type(dtype.element))
    mask = _as_vector(b, dtype, mask, "i1")
    _store(b, f"llvm.masked.store.v{lanes}{_suffix(dtype)}.p0", "ptr", pointer, alignment, dtype, value, mask)


def scatter(b: Builder, pointers: str, alignment: int, dtype: DataType, value: str, mask: str) -> None:
    """Store elements anywhere."""
    lanes = dtype.lanes
    name = f"llvm.masked.scatter.v{lanes}{_suffix(dtype)}.v{lanes}p0"
    _store(b, name, f"<{lanes} x ptr>", pointers, alignment, dtype, value, mask)


def _store(b: Builder, name: str, address: str, pointer: str, alignment: int, dtype: DataType, value: str, mask: str
           ) -> None:  # fmt: skip
    lanes = dtype.lanes
    kind = f"<{lanes} x {memory_type(dtype.element)}>"
    operand = b.module.declare(name, "void", [kind, address, "i32", f"<{lanes} x i1>"])
    b.emit(f"call void {operand}({kind} {value}, {address} {pointer}, i32 {alignment}, <{lanes} x i1> {mask})")


def store_lane(b: Builder, pointer: str, alignment: int, dtype: DataType, value: str, lane: int) -> None:
    """Store one lane of a vector whose first is at ``pointer``. LLVM 22 makes a store of 32 bits of a masked store of
    one lane whose value is truncated from 32 bits, where there is AVX-512: it writes behind a number of 8 or 16 bits.
    """
    element = memory_type(dtype.element)
    number = b.pure(f"extractelement {memory_type(dtype)} {value}, i64 {lane}")
    if lane:
        pointer = b.pure(f"getelementptr inbounds {element}, ptr {pointer}, i64 {lane}")
        alignment = math.gcd(alignment, lane * dtype.element.bytes)
    b.emit(f"store {element} {number}, ptr {pointer}, align {alignment}")


def zero(dtype: DataType) -> str:
    """Return the constant of memory's type that is zero in all lanes."""
    if dtype.lanes != 1:
        return "zeroinitializer"
    return "0" if dtype.is_bool or not dtype.is_float else constant(0.0, dtype)


def _as_vector(b: Builder, dtype: DataType, x: str, element: str) -> str:
    """Return a scalar as a vector of one lane, which is what LLVM's masked operations take."""
    if dtype.lanes != 1:
        return x
    return b.pure(f"insertelement <1 x {element}> poison, {element} {x}, i64 0")


def _suffix(dtype: DataType) -> str:
    """Return the end of an intrinsic's name that says what its elements are in memory."""
    if dtype.is_float and dtype.element != "bfloat16":
        return f"f{dtype.bits}"
    return f"i{dtype.bits}"
