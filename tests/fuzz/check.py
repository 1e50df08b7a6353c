"""Build a model in several ways, call each, and compare with the oracle."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tests.fuzz.onnx_models import OnnxModel
from tests.fuzz.oracle import Oracle, UndefinedError, flatten
from tests.fuzz.values import Array
from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.tensorir.dtype import as_dtype


@dataclasses.dataclass(frozen=True)
class Build:
    """A way to build a model: level, threads and target."""

    level: int
    threads: int = 1
    target: str = "llvm"

    def __str__(self) -> str:
        return f"{self.target} level {self.level} threads {self.threads}"

    def __call__(self, module: IRModule) -> tw.Executable:
        """Build a module."""
        with tw.PassContext(opt_level=self.level):
            return tw.build(module, target=tw.Target(self.target, num_threads=self.threads))


LLVM_BUILDS = tuple(Build(level, threads) for level in range(4) for threads in (1, 2))
NUMBA_BUILDS = tuple(Build(level, threads, "numba") for level in range(4) for threads in (1, 2))


#: The reference evaluator is about the meaning of operators: some of its formulas, such as that of LogSoftmax, lose
#: digits. So the graph's results may differ from its by this share of the greatest element.
_IMPORTED = 1e-3


class FoundError(AssertionError):
    """A wrong result, an error, or a call that changes what it must not.

    Attributes:
        kind: ``wrong`` (a result), ``changed`` (an input), ``unstable`` (another result of a second call) or ``error``.
        build: the build that shows it.
        inputs: the inputs that show it.
    """

    def __init__(self, kind: str, build: Build, message: str, inputs: Sequence[Any] | None) -> None:
        super().__init__(f"{kind}: {build}: {message}")
        self.kind, self.build, self.message, self.inputs = kind, build, message, inputs

    @property
    def signature(self) -> str:
        """The message without names and numbers, by which findings are counted as one."""
        text = re.sub(r"\d+", "#", self.message.split("\n")[0])
        text = re.sub(r"'[^']*'|%\w+|\b\w+_#\b", "_", text)
        return f"{self.kind}: {text[:160]}" if self.kind == "error" else self.kind


@dataclasses.dataclass
class Counts:
    """Numbers of models, builds, calls and elements that were checked."""

    models: int = 0
    builds: int = 0
    calls: int = 0
    elements: int = 0
    unknown: int = 0
    loose: int = 0
    undefined: int = 0
    unevaluated: int = 0
    excess: float = 0.0


def check(
    module: IRModule,
    calls: Sequence[Callable[[], Sequence[Any]]],
    builds: Sequence[Build],
    counts: Counts | None = None,
) -> None:
    """Check a module.

    Args:
        module: the module.
        calls: draw the inputs of each call.
        builds: the ways to build it.
        counts: the numbers to add to.

    Raises:
        FoundError: something is wrong.
    """
    counts = Counts() if counts is None else counts
    counts.models += 1
    oracles = oracles_of(module, calls, counts)
    for build in builds:
        check_build(module, oracles, build, counts)


def oracles_of(
    module: IRModule, calls: Sequence[Callable[[], Sequence[Any]]], counts: Counts
) -> list[tuple[Sequence[Any], Oracle]]:
    """Draw the inputs of each call and evaluate the module for them; calls without a defined result are left out.

    The oracles are for all builds of the module: an oracle keeps the results that it has computed.
    """
    oracles: list[tuple[Sequence[Any], Oracle]] = []
    for draw in calls:
        inputs = draw()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                oracles.append((inputs, Oracle(module, inputs)))
        except UndefinedError:
            counts.undefined += 1
        except Exception:  # a reference has no result here: the greatest of no elements
            counts.unevaluated += 1
    return oracles


def check_build(
    module: IRModule,
    oracles: Sequence[tuple[Sequence[Any], Oracle]],
    build: Build,
    counts: Counts,
    announce: Callable[[Sequence[Any] | None], None] = lambda inputs: None,
) -> None:
    """Build a module in one way and compare each call with its oracle.

    Args:
        announce: what to do with the inputs of each call before it, and with None before the build: either may end the
            process.

    Raises:
        FoundError: something is wrong.
    """
    announce(None)
    try:
        executable = build(module)
    except Exception as error:
        raise FoundError("error", build, f"build: {type(error).__name__}: {error}", None) from error
    counts.builds += 1
    for inputs, oracle in oracles:
        announce(inputs)
        _call(executable, build, inputs, oracle, counts)


def _call(executable: tw.Executable, build: Build, inputs: Sequence[Any], oracle: Oracle, counts: Counts) -> None:
    before = [np.array(array) for array in inputs]
    try:
        found = flatten(executable(*inputs))
    except Exception as error:
        raise FoundError("error", build, f"call: {type(error).__name__}: {error}", inputs) from error
    counts.calls += 1
    if not all(map(same_bits, before, inputs)):
        raise FoundError("changed", build, "an input was written to", inputs)
    again = flatten(executable(*inputs))
    if not all(map(same_bits, found, again)):
        raise FoundError("unstable", build, "a second call has another result", inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdict = oracle.judge(found, build.level)
    except UndefinedError:
        counts.undefined += 1
        return
    counts.elements += verdict.elements
    counts.unknown += verdict.unknown
    counts.loose += verdict.loose
    if verdict.wrong:
        raise FoundError("wrong", build, verdict.wrong, inputs)
    counts.excess = max(counts.excess, verdict.excess)


def check_onnx(model: OnnxModel, builds: Sequence[Build], counts: Counts | None = None) -> None:
    """Check an ONNX model: its graph's references against the results of the reference evaluator, and the builds.

    Raises:
        FoundError: something is wrong.
    """
    counts = Counts() if counts is None else counts
    imported = Build(0, 1, "import")
    try:
        module = model.module
    except Exception as error:
        raise FoundError("error", imported, f"import: {type(error).__name__}: {error}", None) from error
    main = module["main"]
    assert isinstance(main, Function)
    calls = []
    for feed, results in zip(model.feeds, model.results, strict=True):
        inputs = [feed[param.name] for param in main.params]
        calls.append(lambda inputs=inputs: inputs)
        for _, oracle in oracles_of(module, calls[-1:], Counts()):  # check counts what has no defined result
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    verdict = oracle.judge(results, 0, _IMPORTED)
            except UndefinedError:
                continue
            if verdict.wrong:
                raise FoundError("wrong", imported, f"the graph differs from the onnx package: {verdict.wrong}", inputs)
    check(module, calls, builds, counts)


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays are equal, NaN included."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if as_dtype(a.dtype).is_float:
        return bool(np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
