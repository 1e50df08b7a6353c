"""Measure kernels, each built as a model of one or a few operators at optimization level 3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from measure import COPY, FMA, Run, Work, compare
from references import conv2d, gelu, gelu_float64, layer_norm, softmax

import tilewright as tw
from tilewright import graphir as gi
from tilewright.runtime.observe.machine import aligned
from tilewright.tensorir.dtype import DataType

FloatArray = npt.NDArray[np.float32]

THREADS = sorted({1, tw.Target("llvm").num_threads})
EPSILON = 1e-5


def compiled(
    inputs: dict[str, tuple[int, ...]], formula: Callable[..., Any], threads: int, mcpu: str | None = None
) -> tw.Executable:
    """Build a model of float32 inputs at optimization level 3."""
    params = [gi.var(name, shape=shape, dtype="float32") for name, shape in inputs.items()]
    with tw.PassContext(opt_level=3):
        return tw.build(gi.Function(params, formula(*params)), target=tw.Target("llvm", mcpu=mcpu, num_threads=threads))


def normal(*shape: int, seed: int = 0) -> FloatArray:
    """Return normally distributed numbers in page-aligned memory."""
    array = aligned(int(np.prod(shape))).reshape(shape)
    array[...] = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return array


def check(found: Any, expected: npt.NDArray[np.float64], tolerance: float) -> None:
    """Check that every element is within ``tolerance`` of the reference in double precision, relative to its largest
    element."""
    assert found.shape == expected.shape
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    assert error <= tolerance, f"largest error {error:.2e} of the largest element"


def kernels_of(model: tw.Executable) -> list[str]:
    """Return the names of the loop-level functions that the model calls."""
    heads = [line for line in model.ir("lowered").splitlines() if line.startswith("primfunc @")]
    return [head.split("@")[1].split("(")[0] for head in heads if not head.startswith("primfunc @main(")]


def call(model: tw.Executable, *arrays: FloatArray) -> Run:
    return lambda: model(*arrays)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_stack_along_the_last_axis(benchmark: Any, count: int) -> None:
    vectors = [normal(1 << 20, seed=seed) for seed in range(count)]
    names = [f"x{number}" for number in range(count)]
    model = compiled(dict.fromkeys(names, vectors[0].shape), lambda *found: gi.stack(*found, axis=-1), 1)
    check(model(*vectors), np.stack(vectors, axis=-1).astype(np.float64), 0.0)
    compare(
        benchmark,
        call(model, *vectors),
        title=f"stack of {count} vectors along the last axis",
        threads=1,
        numpy=lambda: np.stack(vectors, axis=-1),
        work=Work(COPY, 2.0 * count * vectors[0].nbytes),
    )


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("size", [512, 1024])
def test_matmul(benchmark: Any, size: int, threads: int) -> None:
    a, b = normal(size, size), normal(size, size, seed=1)
    model = compiled({"a": a.shape, "b": b.shape}, gi.matmul, threads)
    check(model(a, b), a.astype(np.float64) @ b.astype(np.float64), 1e-5)
    compare(
        benchmark,
        call(model, a, b),
        title=f"matmul {size}",
        threads=threads,
        numpy=lambda: a @ b,
        work=Work(FMA, 2 * size**3),
        goals={"share": 0.6} if size == 1024 and threads == 1 else None,
    )


@pytest.mark.parametrize(("name", "mcpu"), [("AVX2", "x86-64-v3"), ("SSE4.2", "x86-64-v2")])
def test_matmul_of_older_processors(benchmark: Any, name: str, mcpu: str) -> None:
    """Measure code for processors with shorter vectors against the multiply-adds of those vectors."""
    if not tw.Target("llvm", mcpu=mcpu).is_runnable:
        pytest.skip(f"this machine has no {name}")
    size = 1024
    a, b = normal(size, size), normal(size, size, seed=1)
    model = compiled({"a": a.shape, "b": b.shape}, gi.matmul, 1, mcpu)
    check(model(a, b), a.astype(np.float64) @ b.astype(np.float64), 1e-5)
    compare(
        benchmark,
        call(model, a, b),
        title=f"matmul {size}, {name}",
        threads=1,
        work=Work(FMA, 2 * size**3, mcpu),
        goals={"share": 0.85} if name == "AVX2" else None,
    )


@pytest.mark.parametrize(("left", "right"), [("bfloat16", "bfloat16"), ("uint8", "int8")])
def test_matmul_of_narrow_types(benchmark: Any, left: str, right: str) -> None:
    """Measure products of narrow types against the multiply-adds of float32: an instruction for bfloat16 does twice as
    many, one for bytes four times."""
    size = 1024
    target = tw.Target("llvm")
    total = "int32" if right == "int8" else "float32"
    if target.dot_products(DataType(left), DataType(right), DataType(total)) == 1:
        pytest.skip(f"this machine has no instruction for products of {left} and {right}")
    a, b = (np.round(normal(size, size, seed=seed) * 30) for seed in range(2))
    a, b = (np.abs(a) if left == "uint8" else a).astype(DataType(left).numpy), b.astype(DataType(right).numpy)
    x, y = gi.var("a", shape=a.shape, dtype=left), gi.var("b", shape=b.shape, dtype=right)
    formula = gi.matmul(x, y) if total == "float32" else gi.matmul(*(gi.cast(value, dtype=total) for value in (x, y)))
    with tw.PassContext(opt_level=3):
        model = tw.build(gi.Function([x, y], formula), target=tw.Target("llvm", num_threads=1))
    check(
        model(a, b).astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), 4e-3 if left == "bfloat16" else 0
    )
    compare(
        benchmark,
        lambda: model(a, b),
        title=f"matmul {size}, {left} x {right}",
        threads=1,
        work=Work(FMA, 2 * size**3),
        goals={"share": 1.6 if left == "bfloat16" else 3.2},
    )


@pytest.mark.parametrize("threads", THREADS)
def test_elementwise_chain(benchmark: Any, threads: int) -> None:
    """Measure ``gelu(x * a + b) + y``: it reads x and y and writes the result, each once; no intermediate goes to
    memory."""
    scale, shift, size = 0.75, 0.125, 1 << 24
    x, y = normal(size), normal(size, seed=1)
    factor, offset = np.float32(scale), np.float32(shift)

    def formula(x: Any, y: Any) -> Any:
        return gi.nn.gelu(x * gi.const(scale, "float32") + gi.const(shift, "float32")) + y

    model = compiled({"x": x.shape, "y": y.shape}, formula, threads)
    part = slice(0, 1 << 18)  # the reference takes a microsecond for each element
    check(model(x, y)[part], gelu_float64(x[part].astype(np.float64) * scale + shift) + y[part], 1e-6)
    kernels = kernels_of(model)
    assert len(kernels) == 1, f"the chain is not one pass over memory: {kernels}"
    benchmark.extra_info["kernels"] = kernels
    benchmark.extra_info["bytes"] = 3 * x.nbytes
    compare(
        benchmark,
        call(model, x, y),
        title="gelu(x * a + b) + y, 16 Mi elements",
        threads=threads,
        numpy=lambda: gelu(x * factor + offset) + y,
        work=Work(COPY, 3 * x.nbytes),
        goals={"share": 0.8, "kernels": 1} if threads == THREADS[-1] else None,
    )


@pytest.mark.parametrize("threads", THREADS)
def test_softmax(benchmark: Any, threads: int) -> None:
    x = normal(4096, 1024)
    model = compiled({"x": x.shape}, gi.nn.softmax, threads)
    check(model(x), softmax(x.astype(np.float64)), 1e-6)
    compare(
        benchmark,
        call(model, x),
        title="softmax 4096x1024",
        threads=threads,
        numpy=lambda: softmax(x),
        work=Work(COPY, 2 * x.nbytes),
        goals={"vs_numpy": 3.0} if threads == THREADS[-1] else None,
    )


@pytest.mark.parametrize("threads", THREADS)
def test_layer_norm(benchmark: Any, threads: int) -> None:
    x, gamma, beta = normal(4096, 1024), normal(1024, seed=1), normal(1024, seed=2)
    shapes = {"x": x.shape, "gamma": gamma.shape, "beta": beta.shape}
    model = compiled(shapes, lambda x, gamma, beta: gi.nn.layer_norm(x, gamma, beta, epsilon=EPSILON), threads)
    wide = [array.astype(np.float64) for array in (x, gamma, beta)]
    check(model(x, gamma, beta), layer_norm(wide[0], wide[1], wide[2], EPSILON), 1e-6)
    compare(
        benchmark,
        call(model, x, gamma, beta),
        title="layer norm 4096x1024",
        threads=threads,
        numpy=lambda: layer_norm(x, gamma, beta, EPSILON),
        work=Work(COPY, 2 * x.nbytes),
    )


@pytest.mark.parametrize("threads", THREADS)
def test_conv2d(benchmark: Any, threads: int) -> None:
    """Measure a 3x3 convolution, 64 to 64 channels, 56x56 pixels, batch 1; the weights are constants, as in a
    network."""
    x, weight = normal(1, 64, 56, 56), normal(64, 64, 3, 3, seed=1)
    model = compiled({"x": x.shape}, lambda x: gi.nn.conv2d(x, gi.const(weight), padding=(1, 1)), threads)
    check(model(x), conv2d(x.astype(np.float64), weight.astype(np.float64)), 1e-5)
    compare(
        benchmark,
        call(model, x),
        title="conv2d 3x3 64->64 at 56x56",
        threads=threads,
        numpy=lambda: conv2d(x, weight),
        work=Work(FMA, 2 * 64 * 64 * 9 * 56 * 56),
    )
