"""Measure the graph passes on long chains of operators: the time for each operator, and its growth with their
number."""

from __future__ import annotations

import gc
import statistics
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes import function_pass, graph
from tilewright.passes.base import Pass
from tilewright.passes.pipelines import graph_pipeline

SIZES = {1_000: 15, 10_000: 7, 100_000: 3}  # operators: rounds
REPEATS = 3  # measurements of each single pass
LINEAR_WITHIN = 0.2
PIPELINE = "graph pipeline"


def chain(operators: int) -> tw.IRModule:
    """Build a chain of operators, of kinds that fuse, none of which folds or is eliminated."""
    x = gi.var("x", shape=(64,), dtype="float32")
    steps = (gi.tanh, lambda value: value + x, gi.nn.relu, lambda value: value * x, gi.sigmoid)
    value: Any = x
    for number in range(operators):
        value = steps[number % len(steps)](value)
    return tw.IRModule.from_expr(gi.Function([x], value))


def other_passes() -> list[Pass]:
    """Return the graph passes that the pipeline does not run."""
    known = {child.info.name for child in graph_pipeline().passes}
    made = [value() for name in graph.__all__ if isinstance(value := getattr(graph, name), type)]
    return [found for found in made if isinstance(found, Pass) and found.info.name not in known]


def run_pipeline(module: tw.IRModule) -> tuple[tw.IRModule, float]:
    """Run the graph passes; return the module and their wall time. Garbage is collected before; during the passes the
    collector runs as in any program."""
    gc.collect()
    with tw.PassContext(opt_level=3):
        start = time.perf_counter()
        result = graph_pipeline()(module)
        return result, time.perf_counter() - start


def pass_times(operators: int) -> dict[str, float]:
    """Return the seconds of each graph pass by name, the least of a few; a pass that runs twice is one entry with the
    mean."""
    runs = [_pass_times_once(operators) for _ in range(REPEATS)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def _pass_times_once(operators: int) -> dict[str, float]:
    times: dict[str, list[float]] = defaultdict(list)
    timing = tw.PassTimingInstrument()
    gc.collect()
    with tw.PassContext(opt_level=3, instruments=[timing]):
        graph_pipeline()(chain(operators))
    for span in timing.as_dict()["spans"][0]["children"]:
        times[span["name"]].append(span["duration"])
    for extra in other_passes():
        module = graph.InferType()(chain(operators))
        gc.collect()
        with tw.PassContext(opt_level=3):
            start = time.perf_counter()
            extra(module)
            times[extra.info.name].append(time.perf_counter() - start)
    return {name: statistics.mean(values) for name, values in times.items()}


@pytest.mark.parametrize("operators", SIZES)
def test_graph_pipeline(benchmark: Any, operators: int) -> None:
    """Measure ``per_operator``, the seconds of the pipeline and of each pass divided by the number of operators, and
    ``linear``, the time over ten times that of a chain of a tenth of the length, interleaved; 1 is linear."""
    smaller, larger = operators // 10, operators
    tenths: list[float] = []
    rounds = SIZES[operators]

    def turn() -> tuple[tuple[tw.IRModule], dict[str, Any]]:
        tenths.extend(run_pipeline(chain(smaller))[1] for _ in range(3))
        return (chain(larger),), {}

    own: list[float] = []
    check_result()
    benchmark.pedantic(lambda module: own.append(run_pipeline(module)[1]), setup=turn, rounds=rounds)
    times = {PIPELINE: statistics.median(own), **pass_times(operators)}
    benchmark.extra_info.update(
        title=f"{PIPELINE}, {operators:,} operators",
        threads=1,
        median=statistics.median(own),
        operators=operators,
        per_operator={name: value / operators for name, value in times.items()},
        linear=statistics.median(own) / (10 * statistics.median(tenths)),
        goals={"linear": 1 + LINEAR_WITHIN} if operators == max(SIZES) else {},
    )


def test_infrastructure(benchmark: Any) -> None:
    """Run an empty function pass on a module of one function: this measures the cost of running any pass. The goal is
    10 us on an otherwise idle core."""
    module = chain(1)
    same = function_pass(lambda func, mod, ctx: func, opt_level=0, name="Same")
    runs = 200
    assert benchmark.pedantic(same, (module,), rounds=50, iterations=runs, warmup_rounds=2) is module
    benchmark.extra_info.update(
        title="infrastructure of a pass",
        threads=1,
        median=statistics.median(benchmark.stats.stats.data),
        goals={"median": 10e-6},
    )


def check_result() -> None:
    """Check the optimized chain against NumPy in double precision."""
    with tw.PassContext(opt_level=3):
        model = tw.build(chain(40), target="llvm")
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    steps = (np.tanh, lambda v: v + x, lambda v: np.maximum(v, 0), lambda v: v * x, lambda v: 1 / (1 + np.exp(-v)))
    expected = x.astype(np.float64)
    for number in range(40):
        expected = steps[number % 5](expected)
    assert np.abs(model(x) - expected).max() < 1e-5
