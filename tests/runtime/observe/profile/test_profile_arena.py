"""Test the timeline of a model's arena: the offsets and lifetimes of values."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
from both_targets import on_both_targets
from hypothesis import given, settings
from profiled_models import looping, perceptron, weights

import tilewright as tw
from tilewright import graphir as gi
from tilewright.passes.lower.kernel_calls import kernel_calls
from tilewright.passes.pipelines import STAGES
from tilewright.runtime.dims import compile_dims
from tilewright.runtime.observe.profile.arena import Allocation, allocations, live_bytes
from tilewright.tensorir import PrimFunc
from tilewright.tensorir.stmt import sequence

SIDE = 128
BYTES = SIDE * SIDE * 4


def timeline(mod: tw.IRModule, *sizes: int, fuse: bool = True) -> tuple[list[Allocation], int, list[str]]:
    """Return the values in the arena of a lowered model, its bytes, and the kernels that are called."""
    target = tw.Target("llvm", num_threads=1)
    with target, tw.PassContext(opt_level=2, disabled_pass=() if fuse else ["FuseOps"]):
        for pipeline in STAGES.values():
            mod = pipeline(target)(mod)
    main = mod["main"]
    assert isinstance(main, PrimFunc)
    (total,) = compile_dims([main.attrs["arena_bytes"]], main.variables)(*sizes)
    return allocations(main, sizes), total, [call.kernel for call in kernel_calls(mod)]


def lives(values: Sequence[Allocation]) -> list[tuple[int, int]]:
    return [(value.first, value.last) for value in values if not value.workspace]


def matrix(name: str = "x") -> gi.Var:
    return gi.var(name, shape=(SIDE, SIDE))


def product(value: gi.Expr, seed: int = 0) -> gi.Expr:
    """Return a product, which no kernel computes in place or together with another operator."""
    return gi.matmul(value, weights(SIDE, SIDE, seed=seed))


def model(result: gi.Expr, *inputs: gi.Var) -> tw.IRModule:
    return tw.IRModule.from_expr(gi.Function(inputs, result))


def test_a_value_of_a_chain_lives_until_the_next_is_made() -> None:
    x = matrix()
    values, total, kernels = timeline(model(product(product(product(x, 1), 2), 3), x))
    assert len(kernels) == 3
    assert lives(values) == [(0, 1), (1, 2)]
    assert [value.size for value in values] == [BYTES] * 2 and total == 2 * BYTES
    assert live_bytes(values, 3) == [BYTES, 2 * BYTES, BYTES]


def test_both_sides_of_a_diamond_live_until_they_meet() -> None:
    x = matrix()
    top = product(x, 1)
    values, _, kernels = timeline(model(gi.matmul(product(top, 2), product(top, 3)), x))
    assert len(kernels) == 4
    assert sorted(lives(values)) == [(0, 2), (1, 3), (2, 3)]


def test_a_skip_connection_keeps_its_value_until_it_is_added() -> None:
    x = matrix()
    value = first = product(x, 1)
    for seed in range(2, 7):
        value = product(value, seed)
    values, _, kernels = timeline(model(gi.matmul(value, first), x))
    assert len(kernels) == 7
    assert lives(values)[0] == (0, 6)
    assert lives(values)[1:] == [(number, number + 1) for number in range(1, 6)]


def test_a_value_that_is_overwritten_lives_until_the_call_that_takes_its_memory() -> None:
    x = matrix()
    values, total, kernels = timeline(model(product(gi.exp(gi.tanh(product(x, 1))), 2), x), fuse=False)
    assert len(kernels) == 4
    # The product, tanh and exp share one offset, one after the other.
    assert lives(values) == [(0, 0), (1, 1), (2, 3)]
    assert {value.offset for value in values} == {0} and total == BYTES
    assert live_bytes(values, 4) == [BYTES] * 4


def test_parts_that_are_computed_in_place_are_one_value_from_the_first_on() -> None:
    x = matrix()
    parts = gi.concatenate([product(x, 1), product(x, 2)], axis=0)
    values, _, kernels = timeline(model(gi.matmul(weights(4, 2 * SIDE), parts), x))
    (whole,) = [value for value in values if value.size == 2 * BYTES]
    assert (whole.first, whole.last) == (0, len(kernels) - 1)
    assert whole.kernel == kernels[0]


def test_what_a_loop_reads_and_carries_lives_until_its_end() -> None:
    x = matrix()
    outside = product(x, 1)
    i, state = gi.var("i", shape=(), dtype="int64"), matrix("state")
    step = gi.Function([i, state], gi.Tuple([gi.matmul(gi.matmul(state, outside), weights(SIDE, SIDE))]))
    loop = gi.TupleGetItem(gi.Loop(gi.const(3), None, step, [product(x, 2)]), 0)
    values, _, kernels = timeline(model(product(loop, 3), x))
    copies = [number for number, kernel in enumerate(kernels) if kernel == "tilewright_copy"]
    begin, end = copies[0] + 1, copies[1]  # the state is copied into its place before the loop, and at its end
    born = {(value.kernel, value.first): value.last for value in values if value.size == BYTES}
    packed = next(number for number, kernel in enumerate(kernels) if kernel == "layout_transform")
    assert born["layout_transform", packed] == end  # the right side of the product, though it is read at the beginning
    assert born["tilewright_copy", begin - 1] == len(kernels) - 1
    assert born[kernels[begin], begin] < end  # the loop's own
    (counter,) = [value for value in values if value.size == 8]
    assert (counter.first, counter.last) == (begin, end)


def test_symbolic_sizes_are_numbers() -> None:
    for rows in (1, 7, 100):
        values, total, _ = timeline(perceptron(), rows)
        assert next(value.size for value in values if not value.workspace) == rows * 32 * 4
        assert max(value.end for value in values) <= total


def test_a_model_that_was_changed_by_hand_has_no_timeline() -> None:
    """The numbers of calls would be wrong."""
    mod = perceptron()
    target = tw.Target("llvm", num_threads=1)
    with target:
        for pipeline in STAGES.values():
            mod = pipeline(target)(mod)
    main = mod["main"]
    assert isinstance(main, PrimFunc) and allocations(main, [3])
    twice = main.with_body(sequence(main.body, main.body))
    assert allocations(twice, [3]) == []


def check(values: Sequence[Allocation], total: int, calls: int) -> None:
    """Check that values that live at the same time do not overlap and are within the arena."""
    for number, one in enumerate(values):
        assert 0 <= one.first <= one.last < calls
        assert one.offset >= 0 and one.end <= total
        for other in values[:number]:
            together = one.first <= other.last and other.first <= one.last
            assert not (together and one.offset < other.end and other.offset < one.end), (one, other)
    assert max(live_bytes(values, calls), default=0) <= total


@on_both_targets
def test_the_timeline_of_a_profile_fits_into_its_arena(target: tw.Target) -> None:
    built = tw.build(looping(), target)
    found = built.profile(np.ones((5, 16), "f4"), np.array(True), repeat=1)
    assert found.arena_bytes == built.arena_bytes(n=5)
    assert found.allocations
    check(found.allocations, found.arena_bytes, len(found.live_bytes()))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_values_that_live_at_the_same_time_never_overlap(data: st.DataObject) -> None:
    x = gi.var("x", shape=("n", 8))
    values: list[gi.Expr] = [x]
    for seed in range(data.draw(st.integers(2, 8))):
        one, other = data.draw(st.sampled_from(values)), data.draw(st.sampled_from(values))
        kind = data.draw(st.sampled_from(["product", "sum", "tanh", "softmax", "parts"]))
        if kind == "product":
            values.append(gi.matmul(one, weights(8, 8, seed=seed)))
        elif kind == "sum":
            values.append(one + other)
        elif kind == "tanh":
            values.append(gi.tanh(one))
        elif kind == "softmax":
            values.append(gi.nn.softmax(one))
        else:
            values.append(gi.concatenate([one, other], axis=1)[:, 4:12])
    results = [values[-1], *data.draw(st.lists(st.sampled_from(values[1:]), max_size=2))]
    found, total, kernels = timeline(model(gi.Tuple(results), x), 5, fuse=data.draw(st.booleans()))
    check(found, total, len(kernels))
