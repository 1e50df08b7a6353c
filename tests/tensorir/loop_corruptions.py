"""Corruptions of loop-level functions. Each breaks a rule of the IR for certain, as a wrong pass could.

A corruption is a function of a random generator and a function of the IR; it returns the corrupted function, or None
where it finds no place. Nodes are copied without their constructors, which would refuse most of it; the copies stay out
of the table of hash-consed nodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.tensorir.dtype import BOOL, FLOAT32, FLOAT64, INT32, INT64
from tilewright.tensorir.expr import (
    BinaryOp,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Expr,
    FloatImm,
    IntImm,
    Ramp,
    Select,
    UnaryOp,
    Var,
    const,
)
from tilewright.tensorir.node import Node
from tilewright.tensorir.stmt import (
    Allocate,
    Block,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
)

#: The fields that lead from the function to a node: names, and places in tuples.
Path = tuple[tuple[str, int | None], ...]
Corruption = Callable[[random.Random, PrimFunc], PrimFunc | None]

CORRUPTIONS: dict[str, Corruption] = {}


def corruption(function: Corruption) -> Corruption:
    """Add a corruption to the table."""
    CORRUPTIONS[function.__name__] = function
    return function


# -- nodes and their places -------------------------------------------------------------------------------------------


def places(func: PrimFunc) -> Iterator[tuple[Path, Node]]:
    """All nodes below the body, with their paths; parameters and buffers are not entered."""
    stack: list[tuple[Path, Node]] = [((("body", None),), func.body)]
    while stack:
        path, node = stack.pop()
        yield path, node
        for name, role in node.node_fields:
            value = getattr(node, name)
            if role == "child" and isinstance(value, Node):
                stack.append(((*path, (name, None)), value))
            elif role == "children":
                stack.extend(((*path, (name, number)), part) for number, part in enumerate(value))


def find(func: PrimFunc, *kinds: type[Node], where: Callable[[Any], bool] | None = None) -> list[tuple[Path, Any]]:
    return [(path, node) for path, node in places(func) if isinstance(node, kinds) and (where is None or where(node))]


def choose(rng: random.Random, found: list[Any]) -> Any:
    return rng.choice(found) if found else None


def copied(node: Node, **fields: Any) -> Any:
    """A copy of ``node`` with other fields, none of which is checked."""
    made = object.__new__(type(node))
    object.__setattr__(made, "_leaves", None)
    for name in {name for name, _ in node.node_fields} | ({"dtype"} if isinstance(node, Expr) else set()):
        object.__setattr__(made, name, fields[name] if name in fields else getattr(node, name))
    return made


def replaced(root: Any, path: Path, new: Any) -> Any:
    """``root`` with ``new`` in that place; the nodes on the way are copied unchecked."""
    if not path:
        return new
    (name, number), rest = path[0], path[1:]
    value = getattr(root, name)
    if number is None:
        return copied(root, **{name: replaced(value, rest, new)})
    parts = list(value)
    parts[number] = replaced(parts[number], rest, new)
    return copied(root, **{name: tuple(parts)})


def ancestors(func: PrimFunc, path: Path) -> list[Node]:
    """The nodes above that place, outermost first."""
    found: list[Node] = []
    node: Any = func
    for name, number in path:
        found.append(node)
        value = getattr(node, name)
        node = value if number is None else value[number]
    return found


def unguarded(func: PrimFunc, path: Path) -> bool:
    """Return whether the place is reached for certain: through loops of constant, positive extents and no condition."""
    for node in ancestors(func, path):
        if isinstance(node, IfThenElse) or (isinstance(node, Block) and node.predicate is not None):
            return False
        if isinstance(node, For) and not (isinstance(node.extent, IntImm) and node.extent.value > 0):
            return False
        if isinstance(node, (BufferLoad, BufferStore)) and node.predicate is not None:
            return False
        if isinstance(node, Call) and node.name == "prefetch":
            return False
    return True


def other_type(dtype: Any) -> Any:
    return (FLOAT64 if dtype.element is FLOAT32 else FLOAT32).with_lanes(dtype.lanes)


def swap(rng: random.Random, func: PrimFunc, found: list[tuple[Path, Any]], make: Callable[[Any], Any]) -> Any:
    """Replace one of the nodes by what ``make`` makes of it."""
    chosen = choose(rng, found)
    return None if chosen is None else replaced(func, chosen[0], make(chosen[1]))


def scalar_uses(func: PrimFunc, dtype: Any) -> list[tuple[Path, Any]]:
    """Places of scalar expressions of the type that are evaluated."""
    return [
        (path, node)
        for path, node in places(func)
        if isinstance(node, Expr) and node.dtype is dtype and not isinstance(node, IntImm | FloatImm)
    ]


# -- variables --------------------------------------------------------------------------------------------------------


@corruption
def variable_undefined(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, Var), lambda var: Var("nowhere", var.dtype))


@corruption
def variable_out_of_scope(rng: random.Random, func: PrimFunc) -> Any:
    binders = find(func, For, LetStmt)
    chosen = choose(rng, binders)
    if chosen is None:
        return None
    inside, binder = chosen
    elsewhere = [(path, node) for path, node in scalar_uses(func, binder.var.dtype) if path[: len(inside)] != inside]
    return swap(rng, func, elsewhere, lambda node: binder.var)


@corruption
def loop_variable_in_its_own_extent(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, For), lambda loop: copied(loop, extent=loop.var))


@corruption
def variable_defined_twice(rng: random.Random, func: PrimFunc) -> Any:
    loops = find(func, For, LetStmt)
    chosen = choose(rng, loops)
    if chosen is None:
        return None
    path, outer = chosen
    return replaced(func, path, copied(outer, body=LetStmt(outer.var, const(0, outer.var.dtype), outer.body)))


@corruption
def variable_of_the_block_around(rng: random.Random, func: PrimFunc) -> Any:
    blocks = [
        (path, block, [node.var for node in ancestors(func, path) if isinstance(node, For) and node.var.dtype is INT64])
        for path, block in find(func, Block)
    ]
    chosen = choose(rng, [each for each in blocks if each[2]])
    if chosen is None:
        return None
    path, block, outer = chosen
    return replaced(func, path, copied(block, body=SeqStmt((Evaluate(rng.choice(outer) + 1), block.body))))


@corruption
def parameter_twice(rng: random.Random, func: PrimFunc) -> Any:
    again = rng.choice(func.params)
    return copied(func, params=(again, *func.params) if isinstance(again, Buffer) else (*func.params, again))


@corruption
def parameter_of_floats(rng: random.Random, func: PrimFunc) -> Any:
    return copied(func, params=(*func.params, Var("scale", rng.choice((FLOAT32, BOOL)))))


@corruption
def buffer_after_a_variable(rng: random.Random, func: PrimFunc) -> Any:
    return copied(func, params=(*func.params, Var("m"), Buffer("late", (4,))))


@corruption
def parameter_that_is_none(rng: random.Random, func: PrimFunc) -> Any:
    wrong = rng.choice((None, "x", 4, IntImm(4)))
    return copied(func, params=(*func.params, wrong))


# -- buffers ----------------------------------------------------------------------------------------------------------


def _of_buffers(func: PrimFunc) -> list[tuple[Path, Any]]:
    return find(func, BufferLoad, BufferStore)


@corruption
def buffer_undefined(rng: random.Random, func: PrimFunc) -> Any:
    def other(node: Any) -> Any:
        old = node.buffer
        return copied(node, buffer=Buffer("lost", old.shape, old.dtype, old.scope))

    return swap(rng, func, _of_buffers(func), other)


@corruption
def allocation_removed(rng: random.Random, func: PrimFunc) -> Any:
    used = {node.buffer for _, node in _of_buffers(func)}
    return swap(rng, func, find(func, Allocate, where=lambda node: node.buffer in used), lambda node: node.body)


@corruption
def allocated_twice(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, Allocate), lambda node: Allocate(node.buffer, node))


@corruption
def allocation_of_a_parameter(rng: random.Random, func: PrimFunc) -> Any:
    return copied(func, body=Allocate(rng.choice(func.buffers), func.body))


@corruption
def index_missing(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BufferLoad, BufferStore, where=lambda node: node.indices)
    return swap(rng, func, found, lambda node: copied(node, indices=node.indices[:-1]))


@corruption
def index_too_many(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, _of_buffers(func), lambda node: copied(node, indices=(*node.indices, IntImm(0))))


@corruption
def index_of_floats(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BufferLoad, BufferStore, where=lambda node: node.indices)
    return swap(rng, func, found, lambda node: copied(node, indices=(*node.indices[:-1], const(0.0, FLOAT32))))


def _constant_extents(node: Any) -> bool:
    return bool(node.indices) and isinstance(node.buffer.shape[-1], IntImm)


@corruption
def index_behind_the_end(rng: random.Random, func: PrimFunc) -> Any:
    found = [
        (path, node)
        for path, node in find(func, BufferLoad, BufferStore, where=_constant_extents)
        if node.predicate is None and unguarded(func, path)
    ]
    return swap(
        rng,
        func,
        found,
        lambda node: copied(node, indices=(*node.indices[:-1], node.buffer.shape[-1] + rng.randint(0, 3))),
    )


@corruption
def index_before_the_beginning(rng: random.Random, func: PrimFunc) -> Any:
    found = [
        (path, node)
        for path, node in find(func, BufferLoad, BufferStore, where=lambda node: node.indices)
        if node.predicate is None and unguarded(func, path)
    ]
    return swap(rng, func, found, lambda node: copied(node, indices=(IntImm(-rng.randint(1, 9)), *node.indices[1:])))


@corruption
def input_written(rng: random.Random, func: PrimFunc) -> Any:
    attrs = func.attrs
    if "num_outputs" not in attrs:
        return None
    results = attrs["num_outputs"] + attrs.get("num_workspaces", 0)
    inputs = func.buffers[: len(func.buffers) - results]
    if not inputs:
        return None
    target = rng.choice(inputs)
    store = BufferStore(target, const(0, target.dtype), tuple(IntImm(0) for _ in target.shape))
    return copied(func, body=SeqStmt((IfThenElse(const(True, BOOL), store), func.body)))


@corruption
def alignment_of_three(rng: random.Random, func: PrimFunc) -> Any:
    return _with_allocated(rng, func, lambda old: copied(old, alignment=rng.choice((3, -64, 48))))


@corruption
def extent_of_floats(rng: random.Random, func: PrimFunc) -> Any:
    return _with_allocated(rng, func, lambda old: copied(old, shape=(const(4.0, FLOAT32), *old.shape[1:])))


@corruption
def extent_negative(rng: random.Random, func: PrimFunc) -> Any:
    return _with_allocated(rng, func, lambda old: copied(old, shape=(IntImm(-4), *old.shape[1:])))


@corruption
def extent_of_an_unknown_size(rng: random.Random, func: PrimFunc) -> Any:
    return _with_allocated(rng, func, lambda old: copied(old, shape=(Var("unknown"), *old.shape[1:])))


@corruption
def scope_unknown(rng: random.Random, func: PrimFunc) -> Any:
    return _with_allocated(rng, func, lambda old: copied(old, scope="shared"))


@corruption
def strides_missing(rng: random.Random, func: PrimFunc) -> Any:
    return _with_allocated(rng, func, lambda old: copied(old, strides=tuple(IntImm(1) for _ in range(old.ndim + 1))))


def _with_allocated(rng: random.Random, func: PrimFunc, make: Callable[[Buffer], Any]) -> Any:
    """Add an allocation of a buffer that ``make`` makes of a good one."""
    shape = tuple(IntImm(rng.randint(1, 5)) for _ in range(rng.randint(1, 3)))
    return copied(func, body=Allocate(make(Buffer("wrong", shape)), func.body))


# -- types ------------------------------------------------------------------------------------------------------------


@corruption
def operand_of_another_type(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BinaryOp, Compare)
    return swap(rng, func, found, lambda node: copied(node, b=const(1, other_type(node.b.dtype))))


@corruption
def type_that_does_not_follow(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BinaryOp, UnaryOp, Select, Compare, Ramp, Broadcast, BufferLoad)
    return swap(rng, func, found, lambda node: copied(node, dtype=other_type(node.dtype)))


@corruption
def operation_unknown(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, BinaryOp, UnaryOp, Compare), lambda node: copied(node, op="frobnicate"))


@corruption
def operation_on_floats_that_takes_integers(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BinaryOp, where=lambda node: node.dtype.is_float)
    return swap(rng, func, found, lambda node: copied(node, op=rng.choice(("floordiv", "bitand", "shl", "and"))))


@corruption
def division_of_integers_as_floats(rng: random.Random, func: PrimFunc) -> Any:
    return swap(
        rng, func, find(func, BinaryOp, where=lambda n: n.dtype.is_integer), lambda node: copied(node, op="div")
    )


@corruption
def constant_out_of_range(rng: random.Random, func: PrimFunc) -> Any:
    return swap(
        rng, func, find(func, IntImm), lambda node: copied(node, value=1 << (node.dtype.bits + rng.randint(0, 4)))
    )


@corruption
def integer_constant_that_is_a_float(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, IntImm), lambda node: copied(node, value=node.value + 0.5))


@corruption
def float_constant_that_is_not_rounded(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, FloatImm, where=lambda node: node.dtype is FLOAT32)
    return swap(rng, func, found, lambda node: copied(node, value=0.1))


@corruption
def value_of_another_type_stored(rng: random.Random, func: PrimFunc) -> Any:
    return swap(
        rng, func, find(func, BufferStore), lambda node: copied(node, value=const(1, other_type(node.value.dtype)))
    )


@corruption
def vector_stored_as_a_scalar(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BufferStore, where=lambda node: node.value.dtype.lanes == 1)
    return swap(rng, func, found, lambda node: copied(node, value=Broadcast(node.value, 4)))


@corruption
def predicate_of_numbers(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, _of_buffers(func), lambda node: copied(node, predicate=const(1, INT32)))


@corruption
def condition_of_numbers(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, IfThenElse, Select)
    return swap(rng, func, found, lambda node: copied(node, condition=const(1, INT64)))


@corruption
def condition_of_several_lanes(rng: random.Random, func: PrimFunc) -> Any:
    return copied(func, body=IfThenElse(const(True, BOOL.with_lanes(4)), func.body))


@corruption
def bounds_of_another_type(rng: random.Random, func: PrimFunc) -> Any:
    name = rng.choice(("min", "extent"))
    return swap(rng, func, find(func, For), lambda loop: copied(loop, **{name: const(1, INT32)}))


@corruption
def loop_over_floats(rng: random.Random, func: PrimFunc) -> Any:
    zero = const(0.0, FLOAT32)
    return copied(func, body=For(Var("f", FLOAT32), zero, zero, "serial", func.body))


@corruption
def loop_of_no_kind(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, For), lambda loop: copied(loop, kind="threads"))


@corruption
def let_of_another_type(rng: random.Random, func: PrimFunc) -> Any:
    return copied(func, body=copied(LetStmt(Var("v"), IntImm(0), func.body), value=const(0.0, FLOAT32)))


@corruption
def intrinsic_unknown(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, Call, where=lambda node: not node.name.startswith("@"))
    if found:
        return swap(rng, func, found, lambda node: copied(node, name="frobnicate"))
    good = Call("exp", (const(1.0, FLOAT32),))
    return copied(func, body=SeqStmt((Evaluate(copied(good, name="frobnicate")), func.body)))


@corruption
def argument_missing(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, Call, where=lambda node: node.args and not node.name.startswith("@"))
    if found:
        return swap(rng, func, found, lambda node: copied(node, args=()))
    good = Call("pow", (const(1.0, FLOAT32), const(1.0, FLOAT32)))
    return copied(func, body=SeqStmt((Evaluate(copied(good, args=good.args[:1])), func.body)))


@corruption
def lanes_that_are_not_those_of_the_type(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, Ramp, Broadcast), lambda node: copied(node, lanes=node.lanes * 2))


@corruption
def ramp_of_one_lane(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, Ramp, Broadcast), lambda node: copied(node, lanes=1))


@corruption
def conversion_that_changes_lanes(rng: random.Random, func: PrimFunc) -> Any:
    return swap(
        rng,
        func,
        find(func, Cast),
        lambda node: copied(node, dtype=node.dtype.element.with_lanes(node.dtype.lanes * 2)),
    )


# -- structure --------------------------------------------------------------------------------------------------------


@corruption
def part_missing(rng: random.Random, func: PrimFunc) -> Any:
    owners = [
        (path, node, name)
        for path, node in places(func)
        for name, role in node.node_fields
        if role == "child" and getattr(node, name) is not None
        if (type(node).__name__, name) not in _OPTIONAL
    ]
    path, node, name = rng.choice(owners)
    return replaced(func, path, copied(node, **{name: None}))


_OPTIONAL = {
    ("BufferLoad", "predicate"),
    ("BufferStore", "predicate"),
    ("IfThenElse", "else_body"),
    ("Block", "predicate"),
    ("Block", "init"),
    ("Block", "needed"),
}


@corruption
def expression_in_place_of_a_statement(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, Stmt), lambda stmt: IntImm(0))


@corruption
def statement_in_place_of_an_expression(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, Expr), lambda expr: SeqStmt(()))


@corruption
def number_in_place_of_a_node(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, [(path, node) for path, node in places(func)], lambda node: rng.choice((0, "x", 1.5, [])))


@corruption
def two_blocks_of_one_name(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, Block)
    if not found:
        return None
    other = Block(found[0][1].name, (), None, (), (), None, SeqStmt(()))
    return copied(func, body=SeqStmt((other, func.body)))


@corruption
def iteration_variable_of_no_kind(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, IterVar), lambda item: copied(item, kind="parallel"))


@corruption
def iteration_variable_with_another_type_of_value(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, IterVar), lambda item: copied(item, value=const(0, INT32)))


@corruption
def iteration_variable_of_floats(rng: random.Random, func: PrimFunc) -> Any:
    return swap(rng, func, find(func, IterVar), lambda item: copied(item, var=Var("f", FLOAT32)))


@corruption
def block_condition_of_numbers(rng: random.Random, func: PrimFunc) -> Any:
    name = rng.choice(("predicate", "needed"))
    return swap(rng, func, find(func, Block), lambda block: copied(block, **{name: const(1, INT64)}))


@corruption
def region_with_another_number_of_ranges(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BufferRegion, where=lambda node: node.ranges)
    return swap(rng, func, found, lambda region: copied(region, ranges=region.ranges[:-1]))


@corruption
def region_of_an_undefined_buffer(rng: random.Random, func: PrimFunc) -> Any:
    found = find(func, BufferRegion)
    return swap(rng, func, found, lambda region: copied(region, buffer=Buffer("lost", region.buffer.shape)))


@corruption
def more_results_than_buffers(rng: random.Random, func: PrimFunc) -> Any:
    return func.with_attr("num_outputs", len(func.buffers) + rng.randint(1, 5))


@corruption
def number_of_results_that_is_none(rng: random.Random, func: PrimFunc) -> Any:
    return func.with_attr("num_outputs", rng.choice((-1, "one", None, 1.5)))
