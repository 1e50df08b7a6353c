"""A lowered model records the operators of the graph that each call of a kernel computes."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.origins import Origin
from tilewright.passes import PassContext, Sequential
from tilewright.passes.graph import FuseOps
from tilewright.passes.lower import LowerToTensorIR, PlanMemory
from tilewright.passes.lower.kernel_calls import CalledKernel, kernel_calls
from tilewright.runtime.process_caches import fresh_caches, process_caches
from tilewright.tensorir import parse, structural_equal, structural_hash
from tilewright.tensorir.errors import VerifyError
from tilewright.tensorir.keys import CALLS, OPERATORS
from tilewright.tensorir.stmt import PrimFunc

LOWER = Sequential([FuseOps(), LowerToTensorIR(), PlanMemory()])


def named(operator: str, label: str | None, *args: gi.Expr) -> gi.Call:
    return gi.Call(operator, args, span=label)


def two_layers(labels: tuple[str | None, ...] = ("product1", "activation1", "product2", "activation2")) -> gi.IRModule:
    """Two layers of one shape, so that they share a kernel."""
    value: gi.Expr = gi.var("x", shape=(4, 8))
    x = value
    weight = gi.const(np.ones((8, 8), "f4"))
    for number in range(0, len(labels), 2):
        value = named("nn.relu", labels[number + 1], named("matmul", labels[number], value, weight))
    return gi.IRModule.from_expr(gi.Function([x], value))


def test_each_call_of_a_shared_kernel_names_its_own_operators() -> None:
    with PassContext(opt_level=1):
        calls = kernel_calls(LOWER(two_layers()))
    assert calls == [
        CalledKernel("matmul_relu", (Origin("matmul", f"product{n}"), Origin("nn.relu", f"activation{n}")))
        for n in (1, 2)
    ]


def test_the_text_of_a_build_says_it_after_all_passes() -> None:
    with PassContext(opt_level=3):
        calls = kernel_calls(gi.parse(tw.build(two_layers()).ir("lowered")))
    labels = [origin.label for call in calls for origin in call.origins]
    assert labels == ["product1", "activation1", "product2", "activation2"]


def test_an_operator_without_a_name_has_no_label() -> None:
    with PassContext(opt_level=1):
        (first, _) = kernel_calls(LOWER(two_layers((None, "activation1", "product2", "activation2"))))
    assert first.origins == (Origin("matmul", None), Origin("nn.relu", "activation1"))


def test_calls_inside_loops_and_branches_are_listed_in_order_of_the_text() -> None:
    x, i, state = gi.var("x", shape=(4,)), gi.var("i", shape=(), dtype="int64"), gi.var("s", shape=(4,))
    alive = gi.Function([i, state], named("less", "check", gi.sum(state), gi.const(np.float32(9))))
    body = gi.Function([i, state], gi.Tuple([named("tanh", "inside", state)]))
    loop = gi.Loop(gi.const(np.int64(3)), alive, body, [named("exp", "before", x)])
    mod = gi.IRModule.from_expr(gi.Function([x], named("sigmoid", "behind", gi.TupleGetItem(loop, 0))))
    with PassContext(opt_level=0):
        lowered = Sequential([LowerToTensorIR(), PlanMemory()])(mod)
    calls = kernel_calls(lowered)
    labels = [origin.label for call in calls for origin in call.origins if origin.label]
    assert labels == ["before", "check", "inside", "behind"]
    text = str(lowered["main"])
    places = [text.index(f"@{name}(") for name in ("exp", "less", "tanh", "sigmoid")]
    assert places == sorted(places)
    assert next(call.origins for call in calls if call.kernel == "tilewright_copy") == ()


def test_a_module_that_is_not_lowered_has_no_calls_of_kernels() -> None:
    with pytest.raises(VerifyError, match="stage 'lowered'"):
        kernel_calls(two_layers())


def test_labels_are_left_out_where_calls_were_changed() -> None:
    with PassContext(opt_level=1):
        lowered = LOWER(two_layers())
    main = lowered["main"]
    assert isinstance(main, PrimFunc)
    changed = lowered.with_functions({lowered.get_global_var("main"): main.with_attr(CALLS, main.attrs[CALLS][:1])})
    assert [origin.label for call in kernel_calls(changed) for origin in call.origins] == [None] * 4


def kernel(text: str) -> PrimFunc:
    return parse(f"primfunc @k(A: Buffer[(4,), float32]) attrs {text} {{ A[0] = float32(1.0) }}")


def test_kernels_that_differ_in_their_origin_only_are_equal() -> None:
    a, b = kernel(f'{{"n": 1, "{OPERATORS}": ("exp",)}}'), kernel('{"n": 1}')
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    assert not structural_equal(a, kernel('{"n": 2}'))


def test_models_that_differ_in_labels_only_share_their_code() -> None:
    # without the builds that are kept on disk
    with fresh_caches(), PassContext(instruments=[tw.PassTimingInstrument()]):
        tw.build(two_layers())
        tw.build(two_layers(("a", "b", "c", "d")))
        assert len(process_caches().models._models) == 1


def test_lowered_graphs_that_differ_in_labels_only_are_equal() -> None:
    with PassContext(opt_level=1):
        first, second = (LowerToTensorIR()(two_layers(labels)) for labels in (("a", "b"), ("c", "d")))
    assert gi.structural_equal(first, second)
    assert gi.structural_hash(first) == gi.structural_hash(second)
