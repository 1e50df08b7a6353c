"""Run models for AArch64 on another processor: link their object code with a driver in C, and run that under QEMU.

Debian has what it takes (``make emulated``): qemu-user, gcc-aarch64-linux-gnu and libc6-dev-arm64-cross.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

import tilewright as tw
from tilewright.codegen.llvm.compile import create_target_machine
from tilewright.codegen.llvm.emission import emit_object
from tilewright.codegen.llvm.module import PREFIX
from tilewright.codegen.llvm.team_ir import team_ir
from tilewright.runtime.executable import Executable
from tilewright.runtime.runners import contiguous
from tilewright.runtime.stored_function import StoredFunction

Array = np.ndarray[Any, Any]

TRIPLE = "aarch64-unknown-linux-gnu"
_TOOLS = {"run": "qemu-aarch64", "link": "aarch64-linux-gnu-gcc", "rename": "aarch64-linux-gnu-objcopy"}
_GOLD = "aarch64-linux-gnu-ld.gold"
#: Kinds of values, as in ``driver.c``.
_NUMBER, _INPUT, _CONSTANT, _OUTPUT, _ARENA = range(5)
#: Seconds that a program may take: a hundred times what the slowest does.
_LIMIT = 300


def missing_tools() -> list[str]:
    """Return the names of the programs that are not there."""
    return [name for name in _TOOLS.values() if shutil.which(name) is None]


def target(num_threads: int = 1, mcpu: str = "generic") -> tw.Target:
    """The emulated machine."""
    return tw.Target("llvm", mtriple=TRIPLE, mcpu=mcpu, num_threads=num_threads)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT)
    assert done.returncode == 0, f"{Path(command[0]).name} ended with status {done.returncode}: {done.stderr}"


class Emulator:
    """Links and runs models.

    Args:
        folder: a folder for files, which are small.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._driver = folder / "driver.o"
        _run(_TOOLS["link"], "-O1", "-Wall", "-Werror", "-c", Path(__file__).with_name("driver.c"), "-o", self._driver)

    @functools.cached_property
    def _teams(self) -> Path:
        """The object file of the functions of teams."""
        machine = create_target_machine(target())
        module = llvm.parse_assembly(team_ir(TRIPLE.split("-")[0], True), llvm.create_context())
        module.triple, module.data_layout = TRIPLE, str(machine.target_data)
        path = self._folder / "teams.o"
        path.write_bytes(emit_object(machine, module))
        return path

    def emulated(self, model: Executable) -> Executable:
        """Return a model for the emulated machine that can be called."""
        runners = [_Runner(self, segment.stored(), model.target.num_threads) for segment in model._built.segments]
        return Executable(model._built.step(runners), model._built)

    def build(self, function: Any, opt_level: int = 2, num_threads: int = 1, mcpu: str = "generic") -> Executable:
        """Build a function for the emulated machine."""
        with tw.PassContext(opt_level=opt_level):
            return self.emulated(tw.build(function, target=target(num_threads, mcpu)))

    def link(self, function: StoredFunction, num_threads: int) -> Path:
        """Link a function with the driver; return the program."""
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        files, known, options = [], dict[tuple[int, str], str](), list[str]()
        renamed: dict[int, list[str]] = {}
        for name, place, symbol in function.code.symbols:
            first = known.setdefault((place, symbol), name)
            if first != name:  # a kernel under two names
                options.append(f"-Wl,--defsym={PREFIX}{name}={PREFIX}{first}")
            else:
                renamed.setdefault(place, []).append(f"--redefine-sym={PREFIX}{symbol}={PREFIX}{name}")
        for place, content in enumerate(function.code.objects):
            files.append(folder / f"{place}.o")
            files[-1].write_bytes(content)
            if place in renamed:
                _run(_TOOLS["rename"], *renamed[place], files[-1])
        if num_threads > 1:
            files.append(self._teams)
        program = folder / "program"
        if shutil.which(_GOLD):  # takes half the time of the other linker
            options.append("-fuse-ld=gold")
        # The emulator has not the fault of the Cortex-A53 that linkers work around; gold's way fails for some programs.
        options.append("-mno-fix-cortex-a53-843419")
        _run(_TOOLS["link"], "-static", "-pthread", self._driver, *files, *options, "-lm", "-o", program)
        return program


class _Runner:
    """Runs a function as runners of machine code do (``runtime/runners.py``)."""

    def __init__(self, emulator: Emulator, function: StoredFunction, num_threads: int) -> None:
        self._program = emulator.link(function, num_threads)
        self._constants = [contiguous(constant) for constant in function.constants]
        self._num_values = function.num_values

    def __call__(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        arena: tuple[int, Array],
        arena_bytes: int,
        sizes: Sequence[int],
    ) -> None:
        parts = [struct.pack("<q", self._num_values)]
        for kind, arrays in ((_INPUT, inputs), (_CONSTANT, self._constants)):
            parts += [part for array in arrays for part in (struct.pack("<qq", kind, array.nbytes), array.tobytes())]
        parts += [struct.pack("<qq", _OUTPUT, array.nbytes) for array in outputs]
        parts += [struct.pack("<qq", _ARENA, arena_bytes), *(struct.pack("<qq", _NUMBER, size) for size in sizes)]
        job, results = self._program.with_name("job"), self._program.with_name("results")
        job.write_bytes(b"".join(parts))
        _run(_TOOLS["run"], self._program, job, results)
        content = results.read_bytes()
        for array in outputs:
            array[...] = np.frombuffer(content[: array.nbytes], array.dtype).reshape(array.shape)
            content = content[array.nbytes :]
        assert not content
