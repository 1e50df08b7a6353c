"""Test the lowerings of intrinsics, which code generators register with the declarations."""

from __future__ import annotations

import pytest

from tilewright.codegen import llvm, numba_
from tilewright.passes.tensor.intrin import EXPANSIONS
from tilewright.tensorir.dtype import FLOAT32
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.expr import Buffer, BufferLoad, IntImm, call
from tilewright.tensorir.intrinsics import INTRINSICS, lowered_by, lowers
from tilewright.tensorir.stmt import BufferStore, PrimFunc

assert llvm.emit_llvm_ir and numba_.emit_source  # which load how they write intrinsics

VALUED = {name for name, found in INTRINSICS.items() if found.evaluate is not None}


@pytest.mark.parametrize("generator", ["llvm", "numba"])
def test_every_value_has_code_of_every_generator(generator: str) -> None:
    assert not VALUED - set(lowered_by(generator))


def test_expansions_are_of_functions_that_the_c_library_would_compute() -> None:
    assert {name for name, found in INTRINSICS.items() if found.in_c_library} <= set(EXPANSIONS)


def test_one_generator_does_not_write_an_intrinsic_in_two_ways() -> None:
    with pytest.raises(ValueError, match="llvm has a lowering of the intrinsic exp already"):
        lowers("llvm", "exp")(lambda e, call: "")


def test_what_is_written_must_be_declared() -> None:
    with pytest.raises(ValueError, match="unknown intrinsic 'cbrt'"):
        lowers("llvm", "cbrt")(lambda e, call: "")


def test_readable_source_refuses_an_address_as_a_value() -> None:
    a, b = Buffer("a", (IntImm(1),), FLOAT32), Buffer("b", (IntImm(1),), "int64")
    address = call("address_of", BufferLoad(a, (IntImm(0),)))
    bits = call("reinterpret", address, dtype="int64")
    with pytest.raises(CodegenError, match="address_of has no value"):
        numba_.emit_source([PrimFunc("f", (a, b), BufferStore(b, bits, (IntImm(0),)))])
