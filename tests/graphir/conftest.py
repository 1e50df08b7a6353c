"""Run operators four ways: their loop nests through the interpreter and as machine code, their NumPy reference, and an
oracle."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.dims import bind_dims, symbol
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.tensorir import PrimFunc
from tilewright.tensorir import tensor as te
from tilewright.tensorir.interpreter import interpret

#: How operators are compiled: plain loops, and everything, as machine code; and as Python source through numba (on one
#: thread: numba takes three times as long to compile a parallel loop; test_numba_target.py has those).
LLVM_BUILDS = ((tw.Target("llvm"), 0), (tw.Target("llvm"), 3))
NUMBA_BUILDS = ((tw.Target("numba", num_threads=1), 3),)

#: The greatest number of calls that become one model.
MOST_TOGETHER = 12

HERE = Path(__file__).parent
HALF = ("float16", "bfloat16")
TOLERANCE = {"bfloat16": 1.6e-2, "float16": 2e-3, "float32": 2e-5, "float64": 1e-11}


def bound(value: Any, sizes: Mapping[str, int]) -> Any:
    """A dimension (or an attribute that holds some) with symbolic dimensions replaced by sizes."""
    return bind_dims(value, {symbol(name): size for name, size in sizes.items()})


def decomposed(expr: gi.Expr) -> gi.Expr:
    """The expression with every operator that has no loop-level definition written in those that have one."""

    def transform(old: gi.Expr, new: gi.Expr) -> gi.Expr:
        if isinstance(new, gi.Call) and isinstance(new.op, gi.Operator) and new.op.compute is None:
            assert new.op.decompose is not None, f"{new.op.name} has neither compute nor decompose"
            return decomposed(new.op.decompose(list(new.args), new.attrs))
        return new

    return rewrite(expr, transform)


def prim_func(call: gi.Call) -> PrimFunc:
    """The loop nests of one call."""
    inputs = [te.placeholder(arg.shape, arg.dtype, f"a{number}") for number, arg in enumerate(call.args)]
    outputs = call.op.compute(inputs, call.attrs, call.type)  # type: ignore[union-attr]
    return te.create_prim_func("main", inputs, outputs if isinstance(outputs, list) else [outputs])


class Program:
    """An expression, lowered once, that runs on arrays of any size that its symbolic dimensions take."""

    def __init__(self, params: Sequence[gi.Var], body: gi.Expr) -> None:
        self.params = params
        self.body = decomposed(body)
        self.order = post_order(self.body)
        self.functions = {node: prim_func(node) for node in self.order if isinstance(node, gi.Call)}

    def __call__(self, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> Any:
        values: dict[gi.Expr, Any] = dict(zip(self.params, arrays, strict=True))
        for node in self.order:
            if isinstance(node, gi.Constant):
                values[node] = node.data
            elif isinstance(node, gi.Tuple):
                values[node] = tuple(values[field] for field in node.fields)
            elif isinstance(node, gi.TupleGetItem):
                values[node] = values[node.value][node.index]
            elif isinstance(node, gi.Call):
                outs = node.type.fields if isinstance(node.type, gi.TupleType) else [node.type]
                # What is not written shows.
                results = tuple(np.full(bound(out.shape, sizes), 77).astype(out.dtype.numpy) for out in outs)
                dims = [
                    sizes[p.name] for p in self.functions[node].params if hasattr(p, "name") and not hasattr(p, "shape")
                ]
                interpret(self.functions[node], *[values[arg] for arg in node.args], *results, *dims)
                values[node] = results if isinstance(node.type, gi.TupleType) else results[0]
        return values[self.body]


def compiled(params: Sequence[gi.Var], body: gi.Expr, target: tw.Target, opt_level: int) -> tw.Executable:
    """The expression as a model."""
    with tw.PassContext(opt_level=opt_level):
        return tw.build(gi.Function(params, body), target=target)


def close(found: Any, expected: Any, dtype: Any = None, scale: float = 1.0) -> None:
    """Check type, shape and values; the tolerance is that of the element type."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple) and len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            close(a, b, dtype, scale)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    tolerance = scale * TOLERANCE.get(found.dtype.name, 0)
    # Types that others register (2) have no promotion in NumPy 1, which comparing needs; float64 has all their values.
    wide = np.float64 if tolerance or found.dtype.isbuiltin == 2 else found.dtype
    np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=tolerance, atol=tolerance)


def float64(array: np.ndarray) -> np.ndarray:
    """Convert the input of an oracle: floats to double precision, others unchanged."""
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


@dataclasses.dataclass
class Checker:
    """Compares loop nests, reference and oracle.

    numba takes a fifth of a second for the smallest kernel, LLVM a hundredth. So numba compiles only cases that add
    something: an operator with element types of a kind that it did not have before in this test file (integers,
    floats; tests/codegen has every operation for every type), with scalars, vectors or arrays where it had none, or
    with a value of an attribute that differs from all earlier ones in more than its numbers and how many they are.
    Which values go together is the operator's matter, and LLVM's loops show it. In half types an operator differs by
    the conversions of what it loads and stores, so numba compiles those of one operator of each fusion kind.

    Attributes:
        all_combinations: whether numba compiles every case.
        exhaustive_part: whether numba alone does, and what runs without ``--all-combinations`` is left out.
        known: the features that numba has compiled before.
        waiting: the calls of the running test, which are compiled at its end.
    """

    all_combinations: bool = False
    exhaustive_part: bool = False
    known: set[object] = dataclasses.field(default_factory=set)
    waiting: list[Case] = dataclasses.field(default_factory=list)

    def builds(self, call: gi.Call) -> list[tuple[tw.Target, int]]:
        """Return the targets and levels to compile ``call`` for."""
        if self.exhaustive_part:
            return [*NUMBA_BUILDS]
        case: set[object] = {call.op}
        if call.op.compute is not None:  # others are written in operators that have cases of their own
            types = [_family(str(arg.dtype)) for arg in call.args]
            case.add((call.op.kind if "half" in types else call.op, "types", *types))
            case.add((call.op, "ranks", *(min(arg.ndim, 2) for arg in call.args)))
            for name in call.op.attr_names:
                case.add((call.op, name, re.sub(r"[-\d.,()\s]+", "0", repr(getattr(call.attrs, name)))))
        new = not case <= self.known
        self.known |= case
        return [*LLVM_BUILDS, *(NUMBA_BUILDS if new or self.all_combinations else ())]

    def __call__(
        self,
        name: str,
        types: Sequence[tuple[Sequence[Any], str]],
        attrs: Mapping[str, Any],
        oracle: Callable[..., Any],
        values: Callable[[np.random.Generator, tuple[int, ...], np.dtype], np.ndarray] | None = None,
        sizes: Sequence[Mapping[str, int]] = ({},),
        scale: float = 1.0,
        interpreted: bool = True,
    ) -> None:
        """Compare reference, oracle and, if ``interpreted``, which takes a microsecond for each step of a formula, the
        interpreter; compiled code is compared by :meth:`finish`."""
        op = gi.get_operator(name)
        prefix = f"c{len(self.waiting)}_a"
        params = [gi.var(f"{prefix}{n}", shape=shape, dtype=dtype) for n, (shape, dtype) in enumerate(types)]
        call = op(*params, **attrs)
        assert isinstance(call, gi.Call)
        program = Program(params, call)
        rng = np.random.default_rng(7)
        runs = []
        for sizes_now in sizes:
            arrays = [(values or numbers)(rng, bound(param.shape, sizes_now), param.dtype.numpy) for param in params]
            given = dataclasses.replace(
                call.attrs, **{n: bound(getattr(call.attrs, n), sizes_now) for n in op.attr_names}
            )
            reference = op.reference(arrays, given)
            got = reference if isinstance(reference, tuple) else (reference,)
            for out, array in zip(results_of(call.type), got, strict=True):
                assert bound(out.shape, sizes_now) == array.shape
                assert out.dtype.numpy == array.dtype
            with np.errstate(all="ignore"):
                expected = oracle(*[float64(array) for array in arrays])
            close(reference, expected, scale=scale)
            if interpreted and not self.exhaustive_part:
                close(program(arrays, sizes_now), reference, scale=scale)
            runs.append((arrays, got))
        # A size that only the attributes mention is not known to a model, which learns sizes from its inputs.
        if all(any(symbol(name) in param.shape for param in params) for name in sizes[0]):
            self.waiting.append(Case(f"{name} of {types} with {dict(attrs)}", params, call, list(sizes), runs, scale))

    def finish(self) -> None:
        """Compile the calls that wait, together where they are called with the same sizes, and compare their results.
        A model of several calls takes half the time of one for each."""
        # Cases in half types come after others, in which numba compiles the operator.
        waiting, self.waiting = sorted(self.waiting, key=lambda case: case.is_half), []
        for _, cases in itertools.groupby(sorted(waiting, key=lambda case: repr(case.sizes)), lambda case: case.sizes):
            builds: dict[tuple[tw.Target, int], list[Case]] = {}
            for case in cases:
                for build in self.builds(case.call):
                    builds.setdefault(build, []).append(case)
            for build, together in builds.items():
                for start in range(0, len(together), MOST_TOGETHER):
                    compare(together[start : start + MOST_TOGETHER], *build)


@dataclasses.dataclass
class Case:
    """A call of an operator, with its inputs and the results of its reference for each of ``sizes``."""

    name: str
    params: Sequence[gi.Var]
    call: gi.Call
    sizes: Sequence[Mapping[str, int]]
    runs: Sequence[tuple[Sequence[np.ndarray], tuple[np.ndarray, ...]]]
    scale: float

    @property
    def is_half(self) -> bool:
        return any(str(param.dtype) in HALF for param in self.params)


def compare(cases: Sequence[Case], target: tw.Target, opt_level: int) -> None:
    """Compile the calls as one model, and compare its results with the references."""
    params = [param for case in cases for param in case.params]
    results: list[gi.Expr] = []
    for case in cases:
        several = isinstance(case.call.type, gi.TupleType)
        count = len(results_of(case.call.type))
        results += [gi.TupleGetItem(case.call, n) for n in range(count)] if several else [case.call]
    model = compiled(params, results[0] if len(results) == 1 else gi.Tuple(results), target, opt_level)
    for number in range(len(cases[0].sizes)):
        found = model(*[array for case in cases for array in case.runs[number][0]])
        left = iter(found if isinstance(found, tuple) else (found,))
        for case in cases:
            expected = case.runs[number][1]
            try:
                close(tuple(itertools.islice(left, len(expected))), expected, scale=case.scale)
            except AssertionError as error:
                error.args = (f"{case.name}, {case.sizes[number]}, {target} at level {opt_level}: {error}",)
                raise


def results_of(kind: Any) -> Sequence[gi.TensorType]:
    """The types of the results of a call whose type is ``kind``."""
    return kind.fields if isinstance(kind, gi.TupleType) else [kind]


def _family(dtype: str) -> str:
    """Return the kind of type in which numba computes values of an element type."""
    return "half" if dtype in HALF else dtype.rstrip("0123456789").removeprefix("u")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Small numbers of any element type."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -6, 7, shape).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the cases of a test in half types after its others, in which numba compiles the operator."""
    tests = itertools.groupby(items, lambda item: (item.path, getattr(item, "function", None)))
    items[:] = [item for _, cases in tests for item in sorted(cases, key=_in_half_types)]


def _in_half_types(item: pytest.Item) -> bool:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return HERE in item.path.parents and any(isinstance(value, str) and value in HALF for value in values)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Compile what a test has given to ``check``, at its end."""
    done = yield
    check = pyfuncitem.funcargs.get("check")
    if isinstance(check, Checker):
        check.finish()
    return done


@pytest.fixture(scope="module")
def checker(request: pytest.FixtureRequest) -> Checker:
    return Checker(request.config.getoption("--all-combinations"), request.config.getoption("--exhaustive-part"))


@pytest.fixture
def check(checker: Checker) -> Checker:
    """Compares an operator's loop nests, reference and oracle: ``check(name, types, attrs, oracle, ...)``."""
    checker.waiting.clear()
    return checker


@pytest.fixture
def run() -> Callable[..., Any]:
    """Runs an expression on arrays: ``run(params, body, arrays, **sizes)``."""
    return lambda params, body, arrays, **sizes: Program(params, body)(arrays, sizes)
