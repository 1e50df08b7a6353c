"""Define a model and passes that break it, and return the failure that ``NumericCheck`` finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import graphir as gi
from tilewright.graphir.visitor import call_nodes, rewrite
from tilewright.passes import Pass, PassContext, function_pass, primfunc_pass
from tilewright.runtime.observe.numeric import Failure, NumericError
from tilewright.tensorir import For, PrimFunc
from tilewright.tensorir.expr import IntImm
from tilewright.tensorir.functor import Mutator


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(layers: int = 4, batch: int | str = 3) -> tw.IRModule:
    """Build residual layers, so that an error in one of them reaches the result, with constants to fold in each."""
    x = gi.var("x", shape=(batch, 16))
    value: Any = x
    for number in range(layers):
        weight = gi.const(random(16, 16, seed=number) / np.float32(4))
        scale = gi.exp(gi.const(random(16, seed=number + 100) / np.float32(8)))
        hidden = gi.nn.relu(gi.nn.dense(value, weight) * scale + np.float32(0.25))
        value = value + gi.tanh(hidden - value * np.float32(0.1))
    return tw.IRModule.from_expr(gi.Function([x], value))


def replace_calls(function: gi.Function, name: str, make: Any) -> gi.Function:
    """Return ``function`` with calls of an operator replaced by ``make(call)``, including those in groups."""

    def transform(old: gi.Expr, new: gi.Expr) -> gi.Expr:
        found = isinstance(new, gi.Call) and isinstance(new.op, gi.Operator) and new.op.name == name
        return make(new) if found else new

    return function.with_body(rewrite(function.body, transform))


@function_pass(opt_level=0, name="SwapOperands")
def swap_operands(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
    return replace_calls(func, "subtract", lambda call: gi.subtract(call.args[1], call.args[0]))


@function_pass(opt_level=0, name="WrongFold")
def wrong_fold(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
    def make(call: gi.Call) -> gi.Expr:
        (argument,) = call.args
        if not isinstance(argument, gi.Constant):
            return call
        folded = np.exp(argument.data)
        folded[5] *= np.float32(1.01)
        return gi.const(folded)

    return replace_calls(func, "exp", make)


@function_pass(opt_level=0, name="DropEpilogue")
def drop_epilogue(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
    return replace_calls(func, "nn.relu", lambda call: call.args[0])


class Shorter(Mutator):
    """Shorten every serial loop of 16 iterations by one."""

    def mutate_For(self, loop: For) -> For:
        extent = loop.extent
        if isinstance(extent, IntImm) and extent.value == 16 and loop.kind == "serial":
            extent = IntImm(15)
        return For(loop.var, loop.min, extent, loop.kind, self.mutate(loop.body), loop.annotations)


@primfunc_pass(opt_level=0, name="OffByOne")
def off_by_one(func: PrimFunc, mod: tw.IRModule, ctx: PassContext) -> PrimFunc:
    return func.with_body(Shorter().mutate(func.body))


def negate_subtract() -> Pass:
    @function_pass(opt_level=0, name="Negate")
    def negate(func: gi.Function, mod: tw.IRModule, ctx: PassContext) -> gi.Function:
        return replace_calls(func, "subtract", lambda call: gi.add(call.args[0], call.args[1]))

    return negate


def failure(
    check: tw.NumericCheck, mod: tw.IRModule, stage: str, broken: Pass, opt_level: int = 3, target: str = "llvm"
) -> Failure:
    with (
        pytest.raises(NumericError) as caught,
        PassContext(opt_level=opt_level, instruments=[check]),
    ):
        tw.build(mod, target=target, passes={stage: broken})
    assert check.failures == [caught.value.failure]
    return caught.value.failure


def operators(found: Failure) -> list[str]:
    assert found.minimized is not None
    return [call.op.name for call in call_nodes(found.minimized["main"])]
