"""Name the keys of the graph IR: attributes of functions.

Each is set by one part of the compiler and read by others, so its name and meaning are stated here, once. Kernels keep
some attributes of the groups that they are lowered from; their own are in :mod:`tilewright.tensorir.keys`.
"""

from __future__ import annotations

from tilewright.tensorir.keys import KIND

__all__ = [
    "CHECKS",
    "INITIAL_STATE",
    "IN_PLACE",
    "KIND",
    "ORDERED",
    "ORDERS",
    "PRIMITIVE",
    "RESULTS",
    "ROW_PADDING",
    "SEGMENT",
    "SIZES",
    "STATE",
    "SYMBOLS",
    "VIEW",
]

#: Whether a function is a group of operators that becomes one kernel. Set by ``FuseOps``.
PRIMITIVE = "Primitive"

#: On a group of one operator: the arguments that are computed in the memory of the result. On its kernel: for each of
#: these, its number and its offset in the result.
IN_PLACE = "in_place"

#: On a group and its kernel: the number of unused elements behind each row (the last dimension) of the result.
ROW_PADDING = "row_padding"

#: On a group that only gives its argument another shape: whether its result is a view of the argument's memory, so that
#: nothing is copied. Set by ``LowerToTensorIR``.
VIEW = "view"

#: On a group over plain sizes: the variables that represent them. Each is a dimension of a parameter.
SIZES = "sizes"

#: On a model's ``main``: the names of its results, in order.
RESULTS = "results"

#: On a model's ``main``: for results that are to lie in memory with their axes in another order than row-major, such as
#: images whose channels are last, pairs of the result's number and the order of its axes, the slowest first.
ORDERS = "Orders"

#: The same for results that ``main`` returns with their axes in that order already: a call returns views of them. Set
#: where a model is built.
ORDERED = "Ordered"

#: On a model's ``main``, whose result is a tuple of tensors: the results that are checks and not returned by a call, as
#: pairs of their number and what it means if an element of them is not 0: an error of the call. The text holds
#: ``{number}`` in place of that element.
CHECKS = "Checks"

#: On a model's ``main``: the names of inputs that are state. Their new values are the last results.
STATE = "State"

#: The name of the function of a module that returns the values of the state before the first call.
INITIAL_STATE = "initial_state"

#: On a model's ``main``: the names of symbolic dimensions whose sizes it takes, whether or not its inputs have them.
SYMBOLS = "Symbols"

#: On the ``main`` of a segment: the values of the model that it takes, returns and reads sizes from, as
#: ``lower.segments`` records them in ``Segment``, for readers of the module alone.
SEGMENT = "Segment"
