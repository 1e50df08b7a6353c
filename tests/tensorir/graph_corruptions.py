"""Corruptions of graphs. Each breaks a rule of the graph IR for certain, as a wrong pass could.

A corruption takes a random generator and a module, and returns the corrupted module, or None where it finds no place.
Nodes are copied without their constructors, which would refuse most of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import graphir as gi
from tilewright.graphir.constant import Constant
from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator, get_operator
from tilewright.graphir.types import FuncType, TensorType, TupleType
from tilewright.graphir.visitor import post_order

Corruption = Callable[[random.Random, IRModule], IRModule | None]

CORRUPTIONS: dict[str, Corruption] = {}


def corruption(function: Corruption) -> Corruption:
    """Add a corruption to the table."""
    CORRUPTIONS[function.__name__] = function
    return function


def copied(node: Expr, **fields: Any) -> Any:
    """A copy of ``node`` with other fields, none of which is checked."""
    made = object.__new__(type(node))
    names = ["_value"] if isinstance(node, Constant) else [name for name, _ in node.node_fields]
    for name in {*names, "type", "span"}:
        object.__setattr__(made, name, fields[name] if name in fields else getattr(node, name, None))
    return made


def replaced(mod: IRModule, old: Expr, new: Any) -> IRModule:
    """The module with ``new`` in place of ``old``; the nodes above are copied unchecked."""
    functions = {}
    for key, function in mod.functions.items():
        if not isinstance(function, Function):
            functions[key] = function
            continue
        done: dict[Expr, Any] = {old: new}
        for node in post_order(function):
            if node in done:
                continue
            fields = {}
            for name, role in node.node_fields:
                value = getattr(node, name)
                if isinstance(value, Expr) and role != "note":
                    fields[name] = done.get(value, value)  # a name of a function is no part
                elif isinstance(value, tuple) and value and all(isinstance(part, Expr) for part in value):
                    fields[name] = tuple(done.get(part, part) for part in value)
            same = all(
                now is getattr(node, name)
                if not isinstance(now, tuple)
                else all(a is b for a, b in zip(now, getattr(node, name), strict=True))
                for name, now in fields.items()
            )
            done[node] = node if same else copied(node, **fields)
        functions[key] = done[function]
    made = IRModule()
    made._functions = functions
    made._names = {key.name: key for key in functions}
    return made


def nodes(mod: IRModule, *kinds: type[Expr], where: Callable[[Any], bool] | None = None) -> list[Any]:
    """The nodes of the classes in the bodies of graph functions."""
    found = [
        node
        for function in mod.functions.values()
        if isinstance(function, Function)
        for node in post_order(function.body)
    ]
    return [node for node in found if isinstance(node, kinds) and (where is None or where(node))]


def swap(rng: random.Random, mod: IRModule, found: list[Any], make: Callable[[Any], Any]) -> IRModule | None:
    """Replace one of the nodes by what ``make`` makes of it."""
    if not found:
        return None
    old = rng.choice(found)
    return replaced(mod, old, make(old))


def operator_calls(mod: IRModule) -> list[Any]:
    return nodes(mod, Call, where=lambda node: isinstance(node.op, Operator))


def tensor_calls(mod: IRModule) -> list[Any]:
    return nodes(mod, Call, where=lambda node: isinstance(node.type, TensorType))


def other_shape(found: TensorType) -> TensorType:
    return TensorType((*found.shape, 7), found.dtype)


def other_dtype(found: TensorType) -> TensorType:
    return TensorType(found.shape, "float64" if str(found.dtype) != "float64" else "int8")


# -- variables --------------------------------------------------------------------------------------------------------


@corruption
def variable_undefined(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: Var("nowhere", node.type))


@corruption
def parameter_replaced(rng: random.Random, mod: IRModule) -> Any:
    def renamed(function: Function) -> Any:
        return copied(function, params=(Var("new", function.params[0].type), *function.params[1:]))

    found = [
        function for function in functions(mod) if function.params and function.params[0] in post_order(function.body)
    ]
    return swap(rng, mod, found, renamed)


def functions(mod: IRModule) -> list[Any]:
    """The functions of the module, and those in them."""
    return [f for f in mod.functions.values() if isinstance(f, Function)] + nodes(mod, Function)


@corruption
def parameter_twice(rng: random.Random, mod: IRModule) -> Any:
    found = [function for function in functions(mod) if function.params]
    return swap(rng, mod, found, lambda function: copied(function, params=(*function.params, function.params[0])))


@corruption
def parameter_that_is_no_variable(rng: random.Random, mod: IRModule) -> Any:
    wrong = rng.choice((gi.const(1.0), None, "x", 3))
    return swap(rng, mod, functions(mod), lambda function: copied(function, params=(*function.params, wrong)))


@corruption
def variable_bound_again(rng: random.Random, mod: IRModule) -> Any:
    main = mod["main"]
    assert isinstance(main, Function)
    param = rng.choice(main.params)
    return swap(rng, mod, tensor_calls(mod), lambda node: Let(param, gi.var("other", param.type), node))


@corruption
def variable_outside_of_its_let(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    var = Var("v", chosen.type)
    bound = Let(var, chosen, gi.tanh(var) if chosen.dtype.is_float else var)
    return replaced(mod, chosen, copied(Tuple([bound, var]), type=chosen.type))


@corruption
def let_that_is_recursive(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    var = Var("v", chosen.type)
    return replaced(mod, chosen, copied(Let(var, chosen, chosen), value=copied(Tuple([var]), type=chosen.type)))


@corruption
def let_of_another_type(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    good = Let(Var("v", chosen.type), chosen, chosen)
    return replaced(mod, chosen, copied(good, var=Var("v", other_shape(chosen.type))))


@corruption
def let_of_no_variable(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    good = Let(Var("v", chosen.type), chosen, chosen)
    return replaced(mod, chosen, copied(good, var=gi.const(1.0)))


# -- types ------------------------------------------------------------------------------------------------------------


@corruption
def shape_that_does_not_follow(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: copied(node, type=other_shape(node.type)))


@corruption
def element_type_that_does_not_follow(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: copied(node, type=other_dtype(node.type)))


@corruption
def tuple_in_place_of_a_tensor(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: copied(node, type=TupleType([node.type])))


@corruption
def type_that_is_no_type(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: copied(node, type=rng.choice((7, "float32", (4,)))))


@corruption
def constant_of_another_type(rng: random.Random, mod: IRModule) -> Any:
    found = nodes(mod, Constant)
    return swap(rng, mod, found, lambda node: copied(node, type=rng.choice((other_shape, other_dtype))(node.type)))


@corruption
def constant_of_another_value(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, nodes(mod, Constant), lambda node: copied(node, _value=np.zeros((3, 1, 5), "int16")))


@corruption
def result_of_another_type(rng: random.Random, mod: IRModule) -> Any:
    def wrong(function: Function) -> Any:
        assert isinstance(function.type, FuncType)
        return copied(function, type=FuncType(function.type.params, TensorType((99,), "int8")))

    return swap(rng, mod, functions(mod), wrong)


@corruption
def declared_result_of_another_type(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, functions(mod), lambda function: copied(function, ret_type=TensorType((99,), "int8")))


@corruption
def tuple_of_another_type(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    return replaced(mod, chosen, copied(Tuple([chosen, chosen]), type=TupleType([chosen.type])))


@corruption
def field_that_is_not_there(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    good = TupleGetItem(Tuple([chosen]), 0)
    return replaced(mod, chosen, copied(good, index=rng.choice((1, -1, 5, "0"))))


@corruption
def field_of_a_tensor(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    return replaced(mod, chosen, copied(TupleGetItem(Tuple([chosen]), 0), value=chosen))


# -- calls ------------------------------------------------------------------------------------------------------------


@corruption
def argument_missing(rng: random.Random, mod: IRModule) -> Any:
    found = [node for node in operator_calls(mod) if node.args and not node.op.variadic]
    return swap(rng, mod, found, lambda node: copied(node, args=node.args[: node.op.required - 1]))


@corruption
def argument_too_many(rng: random.Random, mod: IRModule) -> Any:
    found = [node for node in operator_calls(mod) if not node.op.variadic and len(node.args) == len(node.op.arguments)]
    return swap(rng, mod, found, lambda node: copied(node, args=(*node.args, node.args[0])))


@corruption
def argument_that_is_a_tuple(rng: random.Random, mod: IRModule) -> Any:
    found = [node for node in operator_calls(mod) if node.args]
    return swap(rng, mod, found, lambda node: copied(node, args=(Tuple([node.args[0]]), *node.args[1:])))


@corruption
def argument_that_is_no_expression(rng: random.Random, mod: IRModule) -> Any:
    wrong = rng.choice((None, 1.0, "x", np.ones(3)))
    found = [node for node in operator_calls(mod) if node.args]
    return swap(rng, mod, found, lambda node: copied(node, args=(wrong, *node.args[1:])))


@corruption
def attributes_of_another_operator(rng: random.Random, mod: IRModule) -> Any:
    other = get_operator("nn.conv2d").make_attrs({})
    found = [node for node in operator_calls(mod) if type(node.attrs) is not type(other)]
    return swap(rng, mod, found, lambda node: copied(node, attrs=other))


@corruption
def attributes_missing(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, operator_calls(mod), lambda node: copied(node, attrs=rng.choice((None, {}, "axis=1"))))


@corruption
def callee_that_is_none(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, operator_calls(mod), lambda node: copied(node, op=rng.choice((None, "add", 3))))


@corruption
def callee_that_is_a_tensor(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, operator_calls(mod), lambda node: copied(node, op=gi.const(1.0)))


@corruption
def function_unknown(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: Call(GlobalVar("nothing"), node.args, type=node.type))


@corruption
def function_called_with_another_argument(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    p = Var("p", chosen.type)
    good = Call(Function([p], p), [chosen])
    return replaced(mod, chosen, copied(good, args=(gi.var("q", other_shape(chosen.type)),)))


@corruption
def function_called_without_arguments(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    p = Var("p", chosen.type)
    return replaced(mod, chosen, copied(Call(Function([p], p), [chosen]), args=()))


@corruption
def loop_level_function_called_with_another_shape(rng: random.Random, mod: IRModule) -> Any:
    names = {key.name for key, function in mod.functions.items() if not isinstance(function, Function)}
    found = nodes(mod, Call, where=lambda node: isinstance(node.op, GlobalVar) and node.op.name in names)
    found = [node for node in found if node.args and isinstance(node.args[0].type, TensorType)]
    wrong = gi.const(np.zeros((3, 1, 1, 1, 1, 2), "int16"))
    return swap(rng, mod, found, lambda node: copied(node, args=(wrong, *node.args[1:])))


# -- structure --------------------------------------------------------------------------------------------------------


@corruption
def cycle(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(nodes(mod, Call, where=lambda node: node.args))
    looped = copied(chosen)
    around = copied(chosen, args=(looped, *chosen.args[1:]))
    object.__setattr__(looped, "args", (around, *chosen.args[1:]))
    return replaced(mod, chosen, around)


@corruption
def condition_that_is_no_bool(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    good = If(gi.const(True), chosen, chosen)
    return replaced(mod, chosen, copied(good, condition=rng.choice((gi.const(1.0), gi.const(np.ones(2, bool))))))


@corruption
def branches_of_different_types(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    good = If(gi.const(True), chosen, chosen)
    return replaced(mod, chosen, copied(good, else_branch=gi.const(np.zeros((9, 9, 9), "int16"))))


@corruption
def loop_whose_body_returns_another_state(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    i, s = gi.var("i", shape=(), dtype="int64"), Var("s", chosen.type)
    good = Loop(gi.const(3, "int64"), None, Function([i, s], Tuple([s])), [chosen])
    other = Function([i, s], Tuple([gi.const(np.zeros((9, 9, 9), "int16"))]))
    return replaced(mod, chosen, copied(TupleGetItem(good, 0), value=copied(good, body=other)))


@corruption
def loop_that_counts_with_floats(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    i, s = gi.var("i", shape=(), dtype="int64"), Var("s", chosen.type)
    good = Loop(gi.const(3, "int64"), None, Function([i, s], Tuple([s])), [chosen])
    return replaced(mod, chosen, copied(TupleGetItem(good, 0), value=copied(good, trip_count=gi.const(3.0))))


@corruption
def group_that_captures(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice([node for node in tensor_calls(mod) if node.args])
    p = Var("p", chosen.type)
    main = mod["main"]
    assert isinstance(main, Function)
    captured = rng.choice(main.params)
    group = Function([p], Tuple([p, captured]), attrs={"Primitive": True})
    return replaced(mod, chosen, TupleGetItem(Call(group, [chosen]), 0))


@corruption
def group_that_holds_control_flow(rng: random.Random, mod: IRModule) -> Any:
    chosen = rng.choice(tensor_calls(mod))
    p, v = Var("p", chosen.type), Var("v", chosen.type)
    body = rng.choice((Let(v, p, v), If(gi.const(True), p, p), Call(Function([v], v), [p])))
    return replaced(mod, chosen, Call(Function([p], body, attrs={"Primitive": True}), [chosen]))


@corruption
def body_missing(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, functions(mod), lambda function: copied(function, body=rng.choice((None, 3, "x"))))


@corruption
def type_in_place_of_a_node(rng: random.Random, mod: IRModule) -> Any:
    return swap(rng, mod, tensor_calls(mod), lambda node: node.type)
