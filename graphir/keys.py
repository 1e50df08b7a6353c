"""Name the keys of the graph IR: attributes of functions.

Each is set by one part of the compiler and read by others, so the name and what it stands for are here, once. Kernels
keep some of those of the groups that they are lowered from; what else they have is in :mod:`tilewright.tensorir.keys`.
"""

from __future__ import annotations

from tilewright.tensorir.keys import KIND

__all__ = ["IN_PLACE", "KIND", "PRIMITIVE", "RESULTS", "ROW_PADDING", "SEGMENT", "SIZES", "SYMBOLS"]

#: Whether a function is a group of operators that becomes one kernel. Set by ``FuseOps``.
PRIMITIVE = "Primitive"

#: On a group of one operator: the arguments that are computed where the result has them. On its kernel: for each of
#: these, its number and where it begins in the result.
IN_PLACE = "in_place"

#: On a group and its kernel: how many elements of unused memory lie behind each row (the last dimension) of the result.
ROW_PADDING = "row_padding"

#: On a group over plain sizes: the variables that stand for them. Each is a dimension of a parameter.
SIZES = "sizes"

#: On a model's ``main``: the names of its results, in order.
RESULTS = "results"

#: On a model's ``main``: the names of symbolic dimensions whose sizes it takes whether or not its inputs have them.
SYMBOLS = "Symbols"

#: On the ``main`` of a segment: which of the model's values it takes, gives and reads sizes from, as ``lower.segments``
#: has it in ``Segment``, for those who see the module alone.
SEGMENT = "Segment"
