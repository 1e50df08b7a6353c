"""Run programs in processes that have NumPy and LLVM's library, but no module of the package.

    python -m tests.packaging.fresh     answers each line that :class:`FreshProcesses` writes

To start an interpreter and to import these libraries takes a third of the time of a small program. Where that is not
what a program is about, it begins in a process forked from one that has done so. Such a process ends without the work
of an interpreter's end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.onnx.process import LineProcess

#: Seconds that a program may take.
LIMIT = 600


class Ended(NamedTuple):
    """The end of a program: 0, or another number if it raised an exception or was ended, and what it wrote."""

    status: int
    output: str
    errors: str


class FreshProcesses(LineProcess):
    """Runs programs, each in a process of its own."""

    def __init__(self) -> None:
        super().__init__([__name__], LIMIT + 60)

    def run(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Ended:
        """Run ``program`` as ``python -c`` would, with these arguments and environment variables."""
        return Ended(*json.loads(self.ask(json.dumps([program, list(arguments), dict(environment)]))))


def _run(program: str, arguments: list[str], environment: dict[str, str]) -> Ended:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(LIMIT)
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                os.environ.clear()
                os.environ.update(environment)
                sys.argv = ["-c", *arguments]
                assert not any(name.partition(".")[0] == "tilewright" for name in sys.modules)
                exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        output.seek(0)
        errors.seek(0)
        return Ended(status, output.read().decode(), errors.read().decode())


if __name__ == "__main__":
    import llvmlite.binding
    import ml_dtypes
    import numpy

    assert llvmlite.binding and ml_dtypes and numpy
    for line in sys.stdin:
        print(json.dumps(_run(*json.loads(line))), flush=True)
