"""``SpecializeCalls``: give each set of sizes that a function is called with a function of its own.

Before::

    def @main(%x: Tensor[(3, 8), float32]) { %0 = @f(%x) : Tensor[(3, 8), float32]; %0 }
    def @f(%p: Tensor[(n, 8), float32]) -> Tensor[(n, 8), float32] { ... }

After: ``@main`` calls ``@f_3``, which is ``@f`` with 3 in the place of ``n``; so the types of parameters are those of
arguments in every call, as all later passes expect.
"""

from __future__ import annotations

from tilewright.graphir.call_sizes import bound_sizes
from tilewright.graphir.dims import Dim
from tilewright.graphir.expr import Call, Expr, Function, GlobalVar
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.specialize import with_sizes
from tilewright.graphir.visitor import post_order
from tilewright.passes.base import ModulePass
from tilewright.passes.context import PassContext
from tilewright.passes.decorators import module_pass
from tilewright.passes.graph.call_graph import callees, recursive_functions
from tilewright.passes.graph.walk import is_primitive, rewrite_body
from tilewright.passes.properties import TYPED
from tilewright.passes.registry import register_pass
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.expr import Expr as ScalarExpr


@register_pass
@module_pass(opt_level=0, name="SpecializeCalls", requires={TYPED})
class SpecializeCalls(ModulePass):
    """Make functions for the sizes that calls give to symbolic dimensions.

    Raises:
        TypeInferenceError: a function calls itself with other sizes; or it captures a variable of such a size.
    """

    essential = True

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return ``mod`` with all calls of the types of what they call; ``mod`` itself if they were."""
        return _Specializer(mod, ctx).module()


class _Specializer:
    def __init__(self, mod: IRModule, ctx: PassContext) -> None:
        self.mod = mod
        self.ctx = ctx
        self.recursive: set[str] | None = None
        #: The functions that were made, by the name of the original and the sizes.
        self.made: dict[tuple[str, tuple[tuple[str, str], ...]], GlobalVar] = {}
        self.waiting: list[GlobalVar] = []

    def module(self) -> IRModule:
        self.waiting = [gv for gv, function in self.mod.functions.items() if isinstance(function, Function)]
        while self.waiting:
            gv = self.waiting.pop(0)
            function = self.mod[gv]
            assert isinstance(function, Function)
            with self.ctx.in_function(gv.name):
                new = self.function(function)
            if new is not function:
                self.mod = self.mod.with_functions({gv: new})
        return self.mod

    def function(self, function: Function) -> Function:
        calls = [node for node in post_order(function) if type(node) is Call and not isinstance(node.op, Operator)]
        if not any(map(self.sizes, calls)):
            return function
        return rewrite_body(function, self.call)

    def sizes(self, node: Expr) -> dict[ScalarExpr, Dim]:
        """Return the sizes that an expression gives to the function that it calls."""
        if not isinstance(node, Call) or isinstance(node.op, Operator):
            return {}
        called: object = node.op
        if isinstance(called, GlobalVar) and called in self.mod:
            called = self.mod[called]
        if not isinstance(called, Function) or is_primitive(called):
            return {}
        return bound_sizes([param.type for param in called.params], [arg.type for arg in node.args])

    def call(self, node: Expr) -> Expr:
        sizes = self.sizes(node)
        if not sizes:
            return node
        assert isinstance(node, Call)
        if isinstance(node.op, GlobalVar):
            return Call(self.specialized(node.op, sizes), node.args, node.attrs, None, node.span)
        assert isinstance(node.op, Function)
        # Calls in its body may give other sizes now.
        return Call(self.function(with_sizes(node.op, sizes)), node.args, node.attrs, None, node.span)

    def specialized(self, gv: GlobalVar, sizes: dict[ScalarExpr, Dim]) -> GlobalVar:
        key = gv.name, tuple((str(symbol), str(size)) for symbol, size in sizes.items())
        if key not in self.made:
            if self.recursive is None:
                graphs = {other.name: f for other, f in self.mod.functions.items() if isinstance(f, Function)}
                self.recursive = recursive_functions(self.mod, {name: callees(f) for name, f in graphs.items()})
            if gv.name in self.recursive:
                given = ", ".join(f"{symbol!s} = {size!s}" for symbol, size in sizes.items())
                raise TypeInferenceError(f"@{gv.name} calls itself, and is called with {given}; give it its own sizes")
            called = self.mod[gv]
            assert isinstance(called, Function)
            function = with_sizes(called, sizes)
            numbers = "_".join(str(size) for size in sizes.values() if str(size).isidentifier() or str(size).isdigit())
            name = self.mod.unique_name("_".join(filter(None, (gv.name, numbers))))
            self.made[key] = GlobalVar(name, function.type)
            self.mod = self.mod.with_functions({self.made[key]: function})
            self.waiting.append(self.made[key])
            self.ctx.remark(f"@{name} made of @{gv.name} for {', '.join(f'{a} = {b}' for a, b in key[1])}", "applied")
        return self.made[key]
