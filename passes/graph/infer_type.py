"""``InferType``: infer the type of every expression, and check declared types.

Before::

    def @main(%x: Tensor[(n, 4), float32]) {        # the type of @f was not known when the call was made
      %0 = @f(%x)
      %0
    }

After: ``%0 = @f(%x) : Tensor[(n, 4), float32]``. The type of a called function is that of the module's function; one
that calls itself, directly or through others, must declare its result type.
"""

from __future__ import annotations

from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, Let, Var, infer_call_type
from tilewright.graphir.loop_calls import loop_call
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import FuncType
from tilewright.graphir.visitor import is_recursive, post_order, recursion
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.location import set_ir_location
from tilewright.passes.properties import TYPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.stmt import PrimFunc


@register_pass
@module_pass(opt_level=0, name="InferType", provides={TYPED})
class InferType(ModulePass):
    """Infer and check the types of all graph functions.

    Raises:
        TypeInferenceError: a type does not fit, is missing on a parameter, or cannot be found without a declaration.
    """

    essential = True

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with every expression typed; ``mod`` itself if all were."""
        inference = _Inference(mod, ctx)
        updates = {}
        for gv, function in mod.functions.items():
            if isinstance(function, Function):
                inferred = inference.function(gv)
                if inferred is not function:
                    updates[gv] = inferred
        return mod.with_functions(updates) if updates else mod


class _Inference:
    def __init__(self, mod: IRModule, ctx: PassContext) -> None:
        self.mod = mod
        self.ctx = ctx
        self.inferred: dict[str, Function] = {}
        self.running: set[str] = set()

    def function(self, gv: GlobalVar) -> Function:
        """Return the typed function of that name; callees without a declared result type are typed before it."""
        pending = [gv]
        while pending:
            name = pending[-1].name
            function = self.mod[pending[-1]]
            assert isinstance(function, Function)
            if name in self.inferred:
                pending.pop()
                continue
            self.running.add(name)
            unknown = [] if name in self.inferred else self.undeclared(function)
            if unknown:
                pending.extend(unknown)
                continue
            with self.ctx.in_function(name):
                self.inferred[name] = self.infer(function)
            self.running.discard(name)
            pending.pop()
        return self.inferred[gv.name]

    def undeclared(self, function: Function) -> list[GlobalVar]:
        """Return the called functions whose type is known only after inference."""
        found: dict[str, GlobalVar] = {}
        for node in post_order(function):
            callee = node.op if isinstance(node, Call) else node
            if not isinstance(callee, GlobalVar) or callee.name in self.inferred or callee not in self.mod:
                continue
            called = self.mod[callee]
            if isinstance(called, Function) and _declared_type(called) is None:
                if callee.name in self.running:
                    raise TypeInferenceError(f"@{callee.name} calls itself; declare its result type (ret_type=...)")
                found[callee.name] = callee
        return list(found.values())

    def type_of(self, gv: GlobalVar) -> FuncType | None:
        if gv not in self.mod:
            raise TypeInferenceError(f"no function @{gv.name} in the module")
        function = self.inferred.get(gv.name, self.mod[gv])
        if isinstance(function, Function):
            return _declared_type(function)
        return gv.type if isinstance(gv.type, FuncType) else None

    def infer(self, function: Function) -> Function:
        order = post_order(function)
        lets = {node.var: node for node in order if isinstance(node, Let)} if Let in map(type, order) else {}
        done: dict[Expr, Expr] = {}
        for node in order:
            try:
                done[node] = self.expression(node, done, lets, order)
            except TypeInferenceError as error:
                set_ir_location(error, node)
                raise
        result = done[function]
        assert isinstance(result, Function)
        return result

    def expression(self, node: Expr, done: dict[Expr, Expr], lets: dict[Var, Let], order: list[Expr]) -> Expr:
        if isinstance(node, Var):
            let = lets.get(node)
            if let is not None and let.value not in done and is_recursive(let):
                raise TypeInferenceError(recursion(let))
            if node.type is not None:
                return node
            if let is None:
                is_parameter = any(node in function.params for function in order if isinstance(function, Function))
                what = "parameter" if is_parameter else "free variable"
                raise TypeInferenceError(f"{what} %{node.name} has no type; give it one where it is made")
            return Var(node.name, done[let.value].type, node.span)
        if isinstance(node, GlobalVar):
            found = self.type_of(node)
            return node if found is None or node.type == found else GlobalVar(node.name, found)
        new: list[Expr] = []
        changed = False
        for child in node.children:
            made = done[child]
            new.append(made)
            if made is not child:
                changed = True
        if isinstance(node, Call):
            return self.call(node, new, changed)
        if changed or node.type is None:
            node = node.with_children(new)
        if node.type is None:
            raise TypeInferenceError(f"the type of {summary(node)} cannot be inferred")
        return node

    def call(self, node: Call, parts: list[Expr], changed: bool) -> Call:
        op = node.op
        if isinstance(op, Operator):
            found = infer_call_type(op, parts, node.attrs, node.span)
            if node.type is not None and node.type is not found and node.type != found:
                raise TypeInferenceError(f"{op.name}: the result is declared as {node.type}, but is {found}")
            return Call(op, parts, node.attrs, found, node.span) if changed or node.type is None else node
        called = self.mod[op] if isinstance(op, GlobalVar) and op in self.mod else None
        if isinstance(op, GlobalVar) and isinstance(called, PrimFunc):
            return self.loop_level_call(node, op, called, parts, changed)
        if isinstance(op, GlobalVar):
            signature = self.type_of(op)
            if signature is None:
                return node if node.type is not None and not changed else self.untyped(op)
            if op.type != signature:
                op, changed = GlobalVar(op.name, signature), True
        elif changed:
            op, parts = parts[0], parts[1:]
        else:
            parts = parts[1:]
        checked = Call(op, parts, node.attrs, None, node.span)  # which compares the arguments with the signature
        if checked.type is None:
            return self.untyped(op)
        if node.type is not None and node.type != checked.type:
            raise TypeInferenceError(f"the result of {summary(node)} is declared as {node.type}, but is {checked.type}")
        return checked if changed or node.type is None else node

    def loop_level_call(self, node: Call, op: GlobalVar, called: PrimFunc, parts: list[Expr], changed: bool) -> Call:
        """A call of a loop-level function: its parameters say what fits, and where the call declares no type, what the
        result is."""
        declared = node.type
        if isinstance(op.type, FuncType):
            declared = Call(op, parts, node.attrs, None, node.span).type  # compares the arguments with that type
            if node.type is not None and node.type != declared:
                raise TypeInferenceError(f"the result of {summary(node)} is declared as {node.type}, but is {declared}")
        typed = Call(op, parts, node.attrs, declared, node.span) if changed or declared is not node.type else node
        found = loop_call(called, typed, memory=True)
        if found is None:
            return self.untyped(op)
        if typed.type is not None:
            return typed
        return Call(op, parts, node.attrs, found.result, node.span)

    @staticmethod
    def untyped(op: Expr) -> Call:
        raise TypeInferenceError(f"the result type of a call of {summary(op)} cannot be inferred; declare it")


def _declared_type(function: Function) -> FuncType | None:
    return function.type if isinstance(function.type, FuncType) else None
