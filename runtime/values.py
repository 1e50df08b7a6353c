"""The values of a model's constants are computed while its kernels are made.

NumPy, which packs weights, and the system, which gives memory for them, let others run Python meanwhile. The largest
values come first: so the memory of what they were made of is large enough for all that follow.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable

from tilewright.graphir.constant import Constant
from tilewright.tensorir.cores import available_cores

#: More threads only wait for memory.
_MOST_THREADS = 4
#: Fewer bytes than these are computed sooner than a thread starts.
_LEAST_BYTES = 1 << 20


class ValuesAhead:
    """Computes values that are not there so far (``Constant.later``), in threads of its own where there are cores for
    them. As a context it waits for the threads; what is left then is computed when it is read."""

    def __init__(self) -> None:
        self._waiting: collections.deque[Constant] = collections.deque()
        self._threads: list[threading.Thread] = []

    def start(self, constants: Iterable[Constant]) -> None:
        """Begin with the values of ``constants``."""
        missing = [constant for constant in constants if not constant.is_computed]
        self._waiting.extend(sorted(missing, key=lambda constant: constant.nbytes, reverse=True))
        if sum(constant.nbytes for constant in missing) < _LEAST_BYTES:
            return
        for _ in range(min(len(missing), available_cores() // 2, _MOST_THREADS)):
            thread = threading.Thread(target=self._compute_quietly, name="tilewright-values")
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Compute what is left, with the threads.

        Raises:
            Exception: whatever an operator raises.
        """
        self._compute()
        self._wait()

    def _compute(self) -> None:
        while self._waiting:
            try:
                constant = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            constant.data  # noqa: B018

    def _compute_quietly(self) -> None:
        try:
            self._compute()
        except Exception:
            self._waiting.clear()  # whoever reads the value sees it fail

    def _wait(self) -> None:
        while self._threads:
            self._threads.pop().join()

    def __enter__(self) -> ValuesAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        self._wait()
