"""Load vectors whose lanes lie a small step apart: contiguous vectors, of which the wanted lanes are shuffled together.

A gather takes as long as a load for each lane; two neighbouring vectors and one shuffle give every second element. For
a step of ``s``, the elements from the first lane to the last are ``s`` vectors less ``s - 1`` elements: the last vector
begins earlier, so that nothing outside of them is read. A mask of the lanes is spread over the elements that they are:
what lies between is not read then.
"""

from __future__ import annotations

import math

from tilewright.codegen.llvm.masked import masked_load
from tilewright.codegen.llvm.text import Builder, constant_vector, memory_type
from tilewright.tensorir.dtype import DataType

#: The greatest step for which vectors are shuffled: of more, too little of each vector is used.
_WIDEST = 4


def is_shuffled(step: int, lanes: int) -> bool:
    """Return whether lanes ``step`` elements apart are shuffled together; negative steps walk backwards."""
    return step not in (0, 1) and abs(step) <= min(_WIDEST, lanes // 2)


def load_strided(b: Builder, pointer: str, alignment: int, dtype: DataType, step: int, mask: str | None = None) -> str:
    """Load a vector, in memory's type, whose first lane is at ``pointer`` and each other one ``step`` elements on; with
    a mask of one bit for each lane, zero where it is not set."""
    kind, element, lanes = memory_type(dtype), memory_type(dtype.element), dtype.lanes
    count = abs(step)
    lowest = min(0, step * (lanes - 1))
    places = [lane * step - lowest for lane in range(lanes)]  # counted from the lowest element
    starts = [number * lanes for number in range(count - 1)] + [(count - 1) * (lanes - 1)]
    owners = [min(place // lanes, count - 1) for place in places]
    get = "getelementptr inbounds" if mask is None else "getelementptr"  # lanes that a mask disables may lie outside
    vectors = []
    for number, start in enumerate(starts):
        at = b.pure(f"{get} {element}, ptr {pointer}, i64 {lowest + start}")
        aligned = math.gcd(alignment, (lowest + start) * dtype.element.bytes)
        if mask is None:
            vectors.append(b.value(f"load {kind}, ptr {at}, align {aligned}"))
            continue
        spread = [lanes] * lanes  # a lane of the second vector, which is zero
        for lane in range(lanes):
            if owners[lane] == number:
                spread[places[lane] - start] = lane
        vectors.append(
            masked_load(b, at, aligned, dtype, _shuffled(b, "i1", mask, "zeroinitializer", [str(n) for n in spread]))
        )
    found, at_lanes = vectors[0], places
    for number, other in enumerate(vectors[1:] or ["poison"], 1):
        chosen = [
            str(at_lanes[lane])
            if owners[lane] < number
            else str(lanes + places[lane] - starts[number])
            if owners[lane] == number
            else "poison"
            for lane in range(lanes)
        ]
        found = _shuffled(b, element, found, other, chosen)
        at_lanes = list(range(lanes))
    return found


def _shuffled(b: Builder, element: str, first: str, second: str, chosen: list[str]) -> str:
    """Return these lanes of two vectors of as many lanes; the second's numbers follow the first's."""
    lanes = len(chosen)
    kind = f"<{lanes} x {element}>"
    return b.pure(f"shufflevector {kind} {first}, {kind} {second}, <{lanes} x i32> {constant_vector(chosen, 'i32')}")
