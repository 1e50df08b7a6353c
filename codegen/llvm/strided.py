"""Load vectors whose lanes lie a small step apart: contiguous vectors, of which the wanted lanes are shuffled together.

A gather takes as long as a load for each lane; two neighbouring vectors and one shuffle give every second element. For
a step of ``s``, the elements from the first lane to the last are ``s`` vectors less ``s - 1`` elements: the last vector
begins earlier, so that nothing outside of them is read.
"""

from __future__ import annotations

from tilewright.codegen.llvm.text import Builder, constant_vector, memory_type
from tilewright.tensorir.dtype import DataType

#: The greatest step for which vectors are shuffled: of more, too little of each vector is used.
_WIDEST = 4


def is_shuffled(step: int, lanes: int) -> bool:
    """Return whether lanes ``step`` elements apart are shuffled together; negative steps walk backwards."""
    return step not in (0, 1) and abs(step) <= min(_WIDEST, lanes // 2)


def load_strided(b: Builder, pointer: str, alignment: int, dtype: DataType, step: int) -> str:
    """Load a vector, in memory's type, whose first lane is at ``pointer`` and each other one ``step`` elements on."""
    kind, element, lanes = memory_type(dtype), memory_type(dtype.element), dtype.lanes
    count = abs(step)
    lowest = min(0, step * (lanes - 1))
    places = [lane * step - lowest for lane in range(lanes)]  # counted from the lowest element
    starts = [number * lanes for number in range(count - 1)] + [(count - 1) * (lanes - 1)]
    vectors = []
    for start in starts:
        at = b.pure(f"getelementptr inbounds {element}, ptr {pointer}, i64 {lowest + start}")
        vectors.append(b.value(f"load {kind}, ptr {at}, align {alignment}"))
    owners = [min(place // lanes, count - 1) for place in places]
    found, at_lanes = vectors[0], places
    for number, other in enumerate(vectors[1:] or ["poison"], 1):
        mask = [
            str(at_lanes[lane])
            if owners[lane] < number
            else str(lanes + places[lane] - starts[number])
            if owners[lane] == number
            else "poison"
            for lane in range(lanes)
        ]
        lanes_of = constant_vector(mask, "i32")
        found = b.pure(f"shufflevector {kind} {found}, {kind} {other}, <{lanes} x i32> {lanes_of}")
        at_lanes = list(range(lanes))
    return found
