"""Test the accelerated wheel: compiled classes behave as interpreted ones, for their users and for subclasses.

These run on the source too (what they ask for holds there), and on the wheel by ``make wheel``.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import pickle
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from tilewright import graphir as gi
from tilewright import tensorir as te
from tilewright.graphir.visitor import post_order, rewrite
from tilewright.passes import primfunc_pass
from tilewright.tensorir import expr, stmt, tensor
from tilewright.tensorir.dtype import INT64
from tilewright.tensorir.errors import ScheduleError
from tilewright.tensorir.expr import BinaryOp, Buffer, BufferLoad, Expr, IntImm, Var
from tilewright.tensorir.functor import Mutator, Visitor, leaves, walk
from tilewright.tensorir.node import Node
from tilewright.tensorir.schedule import LoopRef, Schedule
from tilewright.tensorir.stmt import BufferStore, For, PrimFunc

COMPILED = (
    "tensorir.node",
    "tensorir.arithmetic",
    "tensorir.expr",
    "tensorir.stmt",
    "tensorir.functor",
    "tensorir.arith.analyzer",
    "tensorir.schedule.schedule",
    "graphir.types",
    "passes.graph.fuse_ops",
    "passes.lower.plan_memory",
    "passes.schedule.contraction",
    "passes.tensor.simplify",
    "passes.tensor.intrin.exp_log",
    "codegen.llvm.function",
)


def is_compiled(module: str) -> bool:
    path = importlib.import_module(f"tilewright.{module}").__file__ or ""
    return path.endswith(tuple(EXTENSION_SUFFIXES))


def example() -> PrimFunc:
    source, target = Buffer("a", (IntImm(8),)), Buffer("b", (IntImm(8),))
    i = Var("i")
    store = BufferStore(target, source[i] + 1.0, (i,))
    return PrimFunc("f", (source, target), For(i, IntImm(0), IntImm(8), "serial", store))


@pytest.mark.skipif("TILEWRIGHT_EXPECTS_COMPILED" not in os.environ, reason="not the accelerated wheel")
@pytest.mark.parametrize("module", COMPILED)
def test_the_core_is_compiled(module: str) -> None:
    assert is_compiled(module)


def test_all_or_nothing_is_compiled() -> None:
    assert len({is_compiled(module) for module in COMPILED}) == 1


def test_fields_cannot_be_set() -> None:
    node = Var("i") + 1
    assert isinstance(node, BinaryOp)
    for name, value in {"op": "sub", "a": node, "dtype": INT64}.items():
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(node, name, value)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
            delattr(node, name)


def test_no_other_attribute_can_be_set() -> None:
    with pytest.raises((AttributeError, TypeError)):
        Var("i").unknown = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        object.__setattr__(Var("i"), "unknown", 1)


def test_dataclasses_know_the_fields() -> None:
    names = [field.name for field in dataclasses.fields(BufferLoad)]  # type: ignore[arg-type]
    assert names == ["buffer", "indices", "predicate", "dtype"]
    assert BufferLoad.__match_args__ == ("buffer", "indices", "predicate")  # type: ignore[attr-defined]
    old = example().body
    new = dataclasses.replace(old, kind="parallel")  # type: ignore[type-var]
    assert isinstance(old, For) and isinstance(new, For)
    assert (new.kind, new.body, new.var) == ("parallel", old.body, old.var)


def test_every_node_has_derived_functions() -> None:
    nodes = [kind for module in (expr, stmt) for kind in vars(module).values() if isinstance(kind, type)]
    for kind in nodes:
        if issubclass(kind, Node) and kind.node_fields:
            fields = dataclasses.fields(kind)  # type: ignore[arg-type]
            roles = {field.name: field.metadata.get("role", "data") for field in fields}
            assert dict(kind.node_fields) == {name: role for name, role in roles.items() if role != "derived"}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda node: pickle.loads(pickle.dumps(node))])
def test_expressions_are_copied_and_pickled(duplicate: object) -> None:
    i = Var("i")
    node = Buffer("a", (IntImm(8),))[(i + 1) * 2]
    assert callable(duplicate)
    made = duplicate(node)
    assert type(made) is BufferLoad
    assert str(made) == str(node) and made.dtype is node.dtype
    assert {str(leaf) for leaf in leaves(made)} == {str(leaf) for leaf in leaves(node)}


def test_fields_are_given_by_name_and_defaults_hold() -> None:
    var = Var(name="i")
    assert var.dtype is INT64
    made = BufferLoad(indices=(var,), buffer=Buffer(shape=(IntImm(4),), name="a"))
    assert made.predicate is None
    assert made.buffer.strides == ()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Var("i", "int63"), ValueError),
        (lambda: BinaryOp("plus", Var("i"), Var("j")), ValueError),
        (lambda: BinaryOp("add", Var("i"), Var("x", "float32")), TypeError),
        (lambda: IntImm(300, "uint8"), ValueError),
        (lambda: BufferLoad(Buffer("a", (IntImm(4),)), ()), TypeError),
        (lambda: Var(), TypeError),
        (lambda: bool(Var("i") > 0), TypeError),
    ],
)
def test_wrong_nodes_are_refused(make: object, error: type[Exception]) -> None:
    assert callable(make)
    with pytest.raises(error):
        make()


def test_python_classes_extend_visitors_and_mutators() -> None:
    class Names(Visitor):
        def __init__(self) -> None:
            self.found: list[str] = []

        def visit_Var(self, var: Var) -> None:
            self.found.append(var.name)

        def visit_buffer(self, buffer: Buffer) -> None:
            self.found.append(buffer.name)

    class Twice(Mutator):
        def mutate_FloatImm(self, value: expr.FloatImm) -> Expr:
            return expr.const(2 * value.value, value.dtype)

    class Thrice(Twice):
        def mutate_FloatImm(self, value: expr.FloatImm) -> Expr:
            return expr.const(3 * super().mutate_FloatImm(value).value, value.dtype)  # type: ignore[attr-defined]

    body = example().body
    names = Names()
    names.visit(body)
    assert sorted(names.found) == ["a", "b", "i", "i"]
    assert "2.0" in str(Twice().mutate(body)) and "6.0" in str(Thrice().mutate(body))
    assert Mutator().mutate(body) is body


def test_a_pass_of_python_runs_between_compiled_ones() -> None:
    import tilewright as tw
    from tilewright.passes.tensor import Simplify

    @primfunc_pass(opt_level=0, name="Rename")
    def rename(func: PrimFunc, mod: tw.IRModule, ctx: tw.PassContext) -> PrimFunc:
        return func.with_attr("renamed", True)

    mod = tw.IRModule({"f": example()})
    done = rename(Simplify()(mod))
    (found,) = done.functions.values()
    assert found.attrs["renamed"] is True


def matmul(rows: int, columns: int, steps: int) -> PrimFunc:
    a, b = te.placeholder((rows, steps), name="a"), te.placeholder((steps, columns), name="b")
    k = te.reduce_axis(steps)
    product = te.compute((rows, columns), lambda i, j: tensor.sum(a[i, k] * b[k, j], k), name="product")
    return te.create_prim_func("main", [a, b], [product])


def test_python_classes_extend_schedules() -> None:
    class Tiled(Schedule):
        def __init__(self, func: PrimFunc) -> None:
            super().__init__(func)
            self.tiles = 0

        def tile_rows(self, size: int) -> LoopRef:
            outer, inner = self.split(self.get_loops(self.get_block("product"))[0], [None, size])
            self.vectorize(inner)
            self.tiles += 1
            return outer

        def parallel(self, loop: LoopRef) -> None:
            super().parallel(loop)
            self.tiles += 10

    schedule = Tiled(matmul(8, 4, 16))
    schedule.parallel(schedule.tile_rows(4))
    assert schedule.tiles == 11
    assert [step.name for step in schedule.trace.instructions][-3:] == ["split", "vectorize", "parallel"]
    kinds = [loop.kind for loop in walk(schedule.func.body) if isinstance(loop, For)]
    assert sorted(kinds) == ["parallel", "serial", "serial", "vectorized"]


def test_a_step_that_fails_leaves_the_schedule_as_it_was() -> None:
    schedule = Schedule(matmul(8, 4, 16))
    before = schedule.func
    loops = schedule.get_loops(schedule.get_block("product"))
    with pytest.raises(ScheduleError, match="expected a loop, as get_loops\\(\\) gives it; found BlockRef"):
        schedule.parallel(schedule.get_block("product"))  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="there is no block sum in"):
        schedule.get_block("sum")
    with pytest.raises(ScheduleError):
        schedule.parallel(loops[2])  # the sum
    assert schedule.func is before


def test_a_layout_is_a_function_of_python() -> None:
    schedule = Schedule(matmul(8, 4, 16))
    copied = schedule.cache_read(schedule.get_block("product"), "a", "arena")
    schedule.transform_layout(copied, 0, lambda row, step: (step, row))
    assert "transform_layout" in str(schedule.trace) and "lambda row, step" in str(schedule.trace)


def test_types_are_values() -> None:
    one, same, other = gi.TensorType((2, "n")), gi.TensorType((2, "n"), "float32"), gi.TensorType((3, "n"))
    assert one == same and hash(one) == hash(same) and one != other and one != 1
    assert repr(one) == str(one) == "Tensor[(2, n), float32]"
    assert repr(gi.TupleType([one])) == "(Tensor[(2, n), float32],)"
    assert pickle.loads(pickle.dumps(gi.TensorType((2, 3)))) == gi.TensorType((2, 3))
    with pytest.raises(TypeError, match="a tensor's element type is one of"):
        gi.TensorType((2,), "handle")


def test_graphs_are_rewritten_by_functions_of_python() -> None:
    x = gi.var("x", shape=(4,))
    func = gi.Function([x], gi.exp(gi.tanh(x)))

    def change(old: gi.Expr, new: gi.Expr) -> gi.Expr:
        is_tanh = isinstance(new, gi.Call) and getattr(new.op, "name", "") == "tanh"
        return gi.nn.relu(new.children[0]) if is_tanh else new

    assert "nn.relu" in str(rewrite(func, change)) and "tanh" not in str(rewrite(func, change))
    assert rewrite(func, lambda old, new: new) is func
    assert len(post_order(func)) == 4


def test_nodes_are_told_apart_by_identity_and_hash() -> None:
    a, b = Var("i"), Var("i")
    assert a != b and a == a and len({a, b, a}) == 2
    assert len(list(walk(a + b))) == 3
