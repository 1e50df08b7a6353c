"""Properties: passes say what they require, provide and take away, and a pipeline in a wrong order is not made."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tilewright import graphir as gi
from tilewright.graphir.module import IRModule
from tilewright.passes import Pass, PassContext, PassInfo, Sequential, module_pass, pipelines, primfunc_pass
from tilewright.passes.graph import FoldConstant, FuseOps, InferType
from tilewright.passes.properties import FLAT, GRAPH, TYPED
from tilewright.passes.tensor import (
    DotProduct,
    FlattenBuffer,
    LowerBlocks,
    ParallelizeLoop,
    StorageRewrite,
    tensor_pipeline,
)
from tilewright.passes.tensor.findings import sharing
from tilewright.tensorir import interpret, parse, verify
from tilewright.tensorir.errors import PassError
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.target import Target

#: Has instructions that add several products; nothing is run on it.
TARGET = Target("llvm", mcpu="znver4", mtriple="x86_64-unknown-linux-gnu", num_threads=2)
NUMBA = Target("numba")


def stating(pass_name: str, **stated: set[str]) -> Pass:
    return module_pass(lambda mod, ctx: mod, opt_level=0, name=pass_name, **stated)


def made(passes: list[Pass], **options: Any) -> str:
    """Return the error of a pipeline that can't be made; an empty text if it can."""
    try:
        Sequential(passes, name="mine", **options)
    except PassError as error:
        return str(error)
    return ""


# -- statements -------------------------------------------------------------------------------------------------------


def test_what_a_pass_states_is_in_its_info() -> None:
    @primfunc_pass(opt_level=1, requires={"flat"}, provides=["short"], invalidates=("vectors",))
    def Shorten(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func

    assert (Shorten.info.requires, Shorten.info.provides) == ({"flat"}, {"short"})
    assert Shorten.info.invalidates == {"vectors"}
    assert DotProduct().info.requires >= {FLAT}


@pytest.mark.parametrize("wrong", ["flat", {1}, None])
def test_properties_are_sets_of_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match="requires of"):
        stating("A", requires=wrong)
    with pytest.raises(TypeError, match="provides of pass 'A'"):
        PassInfo("A", 0, provides=wrong)


# -- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_names_the_pass_the_property_and_who_provides_it_later() -> None:
    assert made([DotProduct(), FlattenBuffer()]) == (
        "pipeline 'mine': pass DotProduct requires 'flat'; pass FlattenBuffer provides it, and comes later"
    )


def test_an_error_names_who_takes_a_property_away() -> None:
    assert made([stating("A", invalidates={"x"}), stating("B"), stating("C", requires={"x"})]) == (
        "pipeline 'mine': pass C requires 'x', which pass A invalidates before it"
    )


def test_an_error_names_registered_passes_that_would_provide_it() -> None:
    assert made([DotProduct()], given={"vectors", "formulas"}).endswith("it is provided by FlattenBuffer")


def test_passes_without_statements_go_anywhere() -> None:
    names = [child.info.name for child in tensor_pipeline().passes]
    for place in range(len(names) + 1):
        passes = list(tensor_pipeline().passes)
        passes.insert(place, stating("Mine"))
        assert not made(passes, given=tensor_pipeline().given)


def test_what_no_pass_of_a_pipeline_provides_is_required_of_modules() -> None:
    pipeline = Sequential([LowerBlocks(), stating("A", requires={"mine"}, provides={"other"})])
    assert pipeline.info.requires == {"blocks", "mine"}
    assert pipeline.info.provides == {"statements", "other"} and pipeline.info.invalidates == {"blocks"}


def test_a_pipeline_in_a_pipeline_is_checked_as_one_pass() -> None:
    inner = Sequential([stating("A", requires={"x"}, invalidates={"x"})], name="inner")
    assert made([stating("X", provides={"x"}), inner]) == ""
    assert "requires 'x', which pass inner invalidates" in made([inner, inner])


def test_graphs_may_be_typed_and_folded_from_the_start() -> None:
    assert not made([FuseOps(), InferType(), FoldConstant()])
    assert "requires 'typed'; pass InferType provides it" in made([FuseOps(), InferType()], given=GRAPH | {"folded"})


def test_a_pass_that_is_required_by_name_provides_before() -> None:
    needs = module_pass(lambda mod, ctx: mod, opt_level=0, name="A", required=["B"], requires={"x"})
    assert not made([needs, stating("B", provides={"x"})])
    assert not made([needs, stating("C", provides={"x"})])  # B is not known yet
    assert made([needs, stating("B"), stating("C", provides={"x"})])


# -- the pipelines of this project ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [TARGET, NUMBA], ids=["llvm", "numba"])
def test_the_stages_fit_each_other(target: Target) -> None:
    stages = [pipeline(target) for pipeline in pipelines.STAGES.values()]
    assert Sequential(stages, given=GRAPH).info.provides >= {TYPED, "main"}
    _, lower, schedule, kernels = stages
    assert "pass lower requires 'typed'" in made([lower, schedule, kernels], given=GRAPH)
    assert "pass schedule requires 'blocks'" in made([stages[0], schedule, kernels], given=GRAPH)
    assert not made([stages[0], lower, kernels], given=GRAPH)  # loops as formulas say them run as well


#: The neighbours that can't change places: what fails then, and of which property.
SWAPS = {
    "graph": {
        ("InferType", "SpecializeCalls"): ("SpecializeCalls", "typed"),
        ("FoldScaleAxis", "FoldConstant"): ("AlterOpLayout", "folded"),
        ("FoldConstant", "AlterOpLayout"): ("AlterOpLayout", "folded"),
        ("AlterOpLayout", "FoldConstant"): ("Winograd", "folded"),
        ("FoldConstant", "Winograd"): ("Winograd", "folded"),
        ("Winograd", "FoldConstant"): ("PlaceParts", "folded"),
        ("PlaceParts", "FuseOps"): ("PlaceParts", "ungrouped"),
        ("FuseOps", "PadRows"): ("PadRows", "groups"),
    },
    "schedule": {
        ("CollapseDims", "ScheduleKernels"): ("CollapseDims", "unscheduled"),
        ("ScheduleKernels", "SkipUnseen"): ("SkipUnseen", "scheduled"),
    },
    "tensor": {
        ("LowerBlocks", "CompactBuffer"): ("CompactBuffer", "statements"),
        ("CompactBuffer", "LowerTensorIntrin"): ("LowerTensorIntrin", "compact"),
        ("TransposeTiles", "VectorizeLoop"): ("TransposeTiles", "vector loops"),
        ("VectorizeLoop", "ParallelizeLoop"): ("VectorizeLoop", "parallel wishes"),
        ("CommonSubexprElim", "HoistInvariant"): ("HoistInvariant", "named"),
        ("CheckBounds", "FlattenBuffer"): ("CheckBounds", "dimensions"),
        ("FlattenBuffer", "StorageRewrite"): ("FlattenBuffer", "allocated"),
        ("StorageRewrite", "Simplify"): ("InterleaveStores", "simple"),
        ("PrefetchEpilogue", "LowerIntrin"): ("PrefetchEpilogue", "formulas"),
        ("LowerIntrin", "RemoveNoOp"): ("UnrollLoop", "effective"),
    },
}
PIPELINES = {
    "graph": pipelines.graph_pipeline,
    "schedule": pipelines.schedule_pipeline,
    "tensor": tensor_pipeline,
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_neighbours_change_places_unless_one_needs_the_other(kind: str) -> None:
    pipeline = PIPELINES[kind](TARGET)
    found = {}
    for place in range(len(pipeline.passes) - 1):
        passes = list(pipeline.passes)
        first, second = passes[place], passes[place + 1]
        passes[place], passes[place + 1] = second, first
        error = made(passes, given=pipeline.given)
        if error:
            words = error.split("pass ")[1].split()
            found[first.info.name, second.info.name] = words[0], error.split("'")[3]
    assert found == SWAPS[kind]


@functools.cache
def kernels() -> dict[str, PrimFunc]:
    """Small scheduled loop nests: a product of bytes, a softmax, a transpose, and a layout of an unknown size."""
    a, b = (gi.var(name, shape=shape, dtype=d) for name, shape, d in (("a", (20, 8), "uint8"), ("b", (8, 40), "int8")))
    x, y, z = gi.var("x", shape=(6, 50)), gi.var("y", shape=(40, 20)), gi.var("z", shape=("n", 32, "h", "w"))
    graphs = {
        "product": gi.Function([a, b], gi.matmul(gi.cast(a, dtype="int32"), gi.cast(b, dtype="int32"))),
        "softmax": gi.Function([x], gi.nn.softmax(gi.tanh(x))),
        "transpose": gi.Function([y], gi.transpose(y)),
        "layout": gi.Function([z], gi.layout_transform(gi.exp(z), src_layout="NCHW", dst_layout="NCHW16c")),
    }
    found = {}
    for name, graph in graphs.items():
        mod = IRModule.from_expr(graph)
        with TARGET, PassContext(opt_level=3):
            for stage in ("optimized", "tensor", "scheduled"):
                mod = pipelines.STAGES[stage](TARGET)(mod)
        (found[name],) = [func for func in mod.functions.values() if isinstance(func, PrimFunc)]
    return found


def through(passes: list[Pass], func: PrimFunc) -> PrimFunc:
    """``func`` after ``passes`` in this order, whatever they state."""
    mod = IRModule({"f": func})
    with TARGET, PassContext(opt_level=3), sharing():
        for each in passes:
            mod = each(mod)
    return mod["f"]  # type: ignore[return-value]


def results(func: PrimFunc, count: int) -> list[np.ndarray]:
    """Return the first ``count`` buffers after ``func`` has run on random numbers."""
    rng = np.random.default_rng(7)
    arrays = [np.zeros([n.value for n in buffer.shape], buffer.dtype.numpy) for buffer in func.buffers]
    for array in arrays[:count]:
        array[...] = (rng.standard_normal(array.shape) * 3).astype(array.dtype)
    interpret(func, *arrays)
    return arrays[:count]


def moved(place: int, to: int) -> list[Pass]:
    passes = list(tensor_pipeline(TARGET).passes)
    passes.insert(to, passes.pop(place))
    return passes


NAMES = [child.info.name for child in tensor_pipeline(TARGET).passes]


def accepted(place: int) -> list[int]:
    """The places that a pass may be moved to."""
    given = tensor_pipeline(TARGET).given
    return [to for to in range(len(NAMES)) if not made(moved(place, to), given=given)]


@pytest.mark.parametrize("kernel", ["product", "softmax"])
def test_an_order_that_is_accepted_computes_the_same(kernel: str) -> None:
    """Each pass as far forwards and as far back as it may go."""
    func = kernels()[kernel]
    usual = through(moved(0, 0), func)
    expected = results(usual, len(func.buffers))
    for place in range(len(NAMES)):
        for to in {accepted(place)[0], accepted(place)[-1]} - {place}:
            after = through(moved(place, to), func)
            if str(after) == str(usual):
                continue
            verify(after)
            for one, other in zip(expected, results(after, len(func.buffers)), strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "to", "kernel", "what"),
    [
        ("LowerBlocks", 24, "product", "raises"),
        ("StorageRewrite", 24, "product", "raises"),
        ("VerifyMemory", 0, "softmax", "raises"),
        ("CompactBuffer", 24, "product", "buffers as large as all of an operand"),
        ("LoopPartition", 24, "softmax", "conditions in loops"),
        ("TransposeTiles", 24, "transpose", "no exchange in registers"),
        ("ParallelizeLoop", 0, "product", "other loops are parallel"),
        ("VectorizeLoop", 24, "softmax", "scalars unrolled"),
        ("DotProduct", 0, "product", "no instruction"),
        ("InterleaveStores", 14, "product", "stores with steps"),
        ("FlattenBuffer", 24, "product", "no instruction"),
        ("Simplify", 24, "softmax", "what was written for a processor is rewritten"),
        ("LowerIntrin", 0, "layout", "divisions that are no longer simplified"),
        ("UnrollLoop", 0, "product", "raises"),
        ("UnrollLoop", 6, "product", "copies that are looked at one by one"),
    ],
)
def test_an_order_that_is_refused_does_another_thing(name: str, to: int, kernel: str, what: str) -> None:
    order = moved(NAMES.index(name), to)
    assert made(order, given=tensor_pipeline().given)
    usual = str(through(moved(0, 0), kernels()[kernel]))
    if what == "raises":
        with pytest.raises(Exception):  # noqa: B017 - which one is the matter of the pass that finds it
            through(order, kernels()[kernel])
    else:
        assert str(through(order, kernels()[kernel])) != usual


def test_a_loop_that_becomes_serial_late_has_memory_for_every_thread() -> None:
    """StorageRewrite requires that parallel loops are decided on."""
    func = parse(
        """
primfunc @f(A: Buffer[(2000,), float32], B: Buffer[(2000,), float32]) attrs {"num_outputs": 1} {
  for i in parallel(2) {
    allocate T: Buffer[(1000,), float32, arena]
    for j in range(1000) {
      T[j] = A[i * 1000 + j]
    }
    B[i] = T[999]
  }
}
"""
    )
    order = [ParallelizeLoop(), StorageRewrite()]
    assert "requires 'parallel'" in made(order[::-1])
    assert "T: Buffer[(1000,)" in str(through(order, func))
    assert "T: Buffer[(2016,)" in str(through(order[::-1], func))
