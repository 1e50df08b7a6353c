"""Keep the state of a model: inputs whose new values are results, such as buffers that a PyTorch program changes.

The function ``main`` of such a module has the attribute ``State``, the names of these inputs. Their new values are its
last results, in the same order. The function ``initial_state`` returns their values before the first call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graphir.expr import Constant, Function, Tuple
from tilewright.graphir.keys import INITIAL_STATE, STATE
from tilewright.graphir.module import IRModule
from tilewright.runtime.signature import Signature
from tilewright.tensorir.errors import VerifyError

Array = np.ndarray[Any, Any]


def without_state(mod: IRModule) -> tuple[IRModule, dict[str, Array]]:
    """Return a module without its function ``initial_state``, and the values that this returns, by the names of
    inputs; nothing for a module without state, or whose state was bound to constants.

    Raises:
        VerifyError: the function does not return one constant for each name.
    """
    main = mod["main"]
    if INITIAL_STATE not in mod:
        return mod, {}
    function = mod[INITIAL_STATE]
    mod = mod.without([INITIAL_STATE])
    names: Sequence[str] = main.attrs.get(STATE, ()) if isinstance(main, Function) else ()
    params = {param.name for param in main.params} if isinstance(main, Function) else set()
    if not params.issuperset(names):
        return mod, {}
    values = function.body.fields if isinstance(function, Function) and isinstance(function.body, Tuple) else ()
    constants = [value.data for value in values if isinstance(value, Constant)]
    if len(constants) != len(names):
        raise VerifyError(f"@{INITIAL_STATE}: expected a tuple of constants for {', '.join(names)}, found {function}")
    return mod, dict(zip(names, constants, strict=True))


class ModelState:
    """The state of one executable.

    Args:
        initial: the values before the first call, by the names of inputs; they are copied.
        signature: the signature of the model.

    Attributes:
        values: the state now: arrays that calls change in place.
    """

    def __init__(self, initial: Mapping[str, Array], signature: Signature) -> None:
        self.values: dict[str, Array] = {name: np.array(value, order="C") for name, value in initial.items()}
        self._count = len(signature.outputs) - len(self.values)
        self._lock = threading.Lock()

    def is_left_out(self, args: Sequence[Any], named: Mapping[str, Any], signature: Signature) -> bool:
        """Return whether a call leaves the state to the model: it gives none of it."""
        return len(args) + len(self.values) <= len(signature.inputs) and not self.values.keys() & named.keys()

    def call(self, run: Callable[[Mapping[str, Array]], Sequence[Array]]) -> Any:
        """Run the model on the state, and change that; return the other results: one, or a tuple.

        Args:
            run: runs the model with these inputs added, and returns the flat results.
        """
        with self._lock:  # a call reads what the one before it wrote
            results = list(run(self.values))
            for (_, kept), changed in zip(self.values.items(), results[self._count :], strict=True):
                kept[...] = changed
        return results[0] if self._count == 1 else tuple(results[: self._count])
