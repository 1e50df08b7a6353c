"""Compute the values of a model's constants in background threads while its kernels are compiled.

NumPy, which packs weights, and the operating system, which maps memory for them, run without the GIL. The largest
values are computed first: the memory that they free is large enough for all that follow.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable

from tilewright.graphir.constant import Constant
from tilewright.tensorir.cores import available_cores

#: Maximum number of threads: more would only wait for memory.
_MOST_THREADS = 4
#: Minimum total size of values that are worth starting a thread.
_LEAST_BYTES = 1 << 20


class BackgroundConstants:
    """Compute lazy values (``Constant.later``) in threads of its own, where there are cores for them. As a context
    manager, wait for the threads at exit; a value that is not computed by then is computed when it is read."""

    def __init__(self) -> None:
        self._waiting: collections.deque[Constant] = collections.deque()
        self._threads: list[threading.Thread] = []

    def start(self, constants: Iterable[Constant]) -> None:
        """Start computing the values of ``constants``."""
        missing = [constant for constant in constants if not constant.is_computed]
        self._waiting.extend(sorted(missing, key=lambda constant: constant.nbytes, reverse=True))
        if sum(constant.nbytes for constant in missing) < _LEAST_BYTES:
            return
        for _ in range(min(len(missing), available_cores() // 2, _MOST_THREADS)):
            thread = threading.Thread(target=self._compute_quietly, name="tilewright-values")
            thread.start()
            self._threads.append(thread)

    def finish(self) -> None:
        """Compute the remaining values, together with the threads.

        Raises:
            Exception: any error of an operator.
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
            self._waiting.clear()  # the error is raised again where the value is read

    def _wait(self) -> None:
        while self._threads:
            self._threads.pop().join()

    def __enter__(self) -> BackgroundConstants:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        self._wait()
