"""A model with parallel loops and several kernels, for processes that tests start, interrupt or put under load."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import graphir as gi

WIDTH = 192


def module(number: int, width: int = WIDTH) -> tw.IRModule:
    """A network of two layers; other numbers are other constants, other widths other kernels."""
    rng = np.random.default_rng(number)
    x = gi.var("x", shape=("n", width))
    y: gi.Expr = x
    for _ in range(2):
        weight = (rng.standard_normal((width, width)) / width**0.5).astype("f4")
        y = gi.nn.softmax(gi.exp(gi.matmul(y, gi.const(weight))) + gi.nn.relu(y))
    return tw.IRModule.from_expr(gi.Function([x], y))


def target(kind: str = "llvm", threads: int = 2) -> tw.Target:
    return tw.Target(kind, num_threads=threads)


def built(number: int, width: int = WIDTH, kind: str = "llvm") -> tw.Executable:
    return tw.build(module(number, width), target=target(kind))


def small(kind: str = "llvm") -> tw.Executable:
    """A model that adds a vector to itself: the shortest build that compiles something."""
    x = gi.var("x", shape=("n",))
    return tw.build(gi.Function([x], x + x), target=target(kind))


@functools.cache
def values(rows: int = 400, width: int = WIDTH) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rows).standard_normal((rows, width)).astype("f4")


def result_of(number: int) -> bytes:
    """The bits of a result, in a process of its own: for ``multiprocessing``, which imports this function."""
    return bytes(built(number)(values()).tobytes())


def threads_of_process() -> int:
    """The threads that the operating system has of this process."""
    return len(os.listdir("/proc/self/task"))


def resident_bytes() -> int:
    """The memory of this process that is in use."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def address_space() -> int:
    """The address space of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
