"""Check that a module keeps the rules of the graph IR, so that an error of a pass is found right after that pass.

The rules: the graph has no cycle; every variable is used inside the function or let that binds it, and bound once;
called functions exist and take such arguments, those of the loop IR as their buffers say; every expression has the type
that follows from its parts; a fused group holds calls of operators only and captures nothing.
"""

from __future__ import annotations

from tilewright.graphir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    infer_call_type,
)
from tilewright.graphir.keys import PRIMITIVE
from tilewright.graphir.loop_calls import loop_call
from tilewright.graphir.module import IRModule
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.types import FuncType, TensorType, Type
from tilewright.graphir.visitor import free_vars, is_recursive, post_order, recursion
from tilewright.tensorir.errors import TypeInferenceError, VerifyError
from tilewright.tensorir.invariants import Known
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.verify import verify as verify_loop_level

_MAX_SHOWN = 20


def verify(mod: IRModule) -> None:
    """Check all functions of ``mod``, those of the loop IR included.

    Raises:
        VerifyError: rules are broken; the message lists the places (the first 20), each with its line of text.
    """
    problems = [f"@{gv.name}: {problem}" for gv in mod.functions for problem in problems_of(mod, gv)]
    if problems:
        shown = problems[:_MAX_SHOWN]
        if len(problems) > _MAX_SHOWN:
            shown.append(f"... and {len(problems) - _MAX_SHOWN} more")
        raise VerifyError("the module breaks rules of the graph-level IR:\n" + "\n".join(shown))


def problems_of(mod: IRModule, gv: GlobalVar, known: Known | None = None) -> list[str]:
    """Return the rules that one function of ``mod`` breaks, each with its line of text; the errors of a loop-level
    function are one entry.

    Args:
        known: what is known of the parts of other loop-level functions.
    """
    function = mod[gv]
    if isinstance(function, Function):
        return _Verifier(mod).problems(function)
    try:
        verify_loop_level(function, known)
    except VerifyError as error:
        return [str(error)]
    return []


class _Verifier:
    """Collect the problems of one function."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.found: list[str] = []

    def problems(self, function: Function) -> list[str]:
        try:
            order = post_order(function, children_of=self.parts)
        except VerifyError as error:
            return [*self.found, str(error)]
        for node in order:
            self.fields(node)
        if self.found:  # the checks that follow rely on them
            return self.found
        self.variables(function, order)
        for node in order:
            self.expression(node)
        return self.found

    def report(self, node: Expr, message: str) -> None:
        try:
            line = summary(node)
        except Exception:  # a broken rule may leave a node without text
            line = f"a {type(node).__name__}"
        self.found.append(f"{message}\n    {line}")

    def parts(self, node: Expr) -> list[Expr]:
        """Return the parts of a node that are expressions, and report the others."""
        found = []
        for part in node.children:
            if isinstance(part, Expr):
                found.append(part)
            else:
                self.report(node, f"expected an expression as a part of a {type(node).__name__}, found {part!r:.80}")
        return found

    def fields(self, node: Expr) -> None:
        """Check the fields that are no parts, and the classes of those that must be variables."""
        if node.type is not None and not isinstance(node.type, Type):
            self.report(node, f"expected a type, found {node.type!r:.80}")
        for var in node.bound:
            if not isinstance(var, Var):
                self.report(node, f"a {type(node).__name__} binds variables, found {var!r:.80}")
        if isinstance(node, Call):
            if not isinstance(node.op, (Operator, Expr)):
                self.report(node, f"expected an operator or a function to be called, found {node.op!r:.80}")
            elif isinstance(node.op, Operator) and not isinstance(node.attrs, node.op.Attrs):
                self.report(
                    node, f"{node.op.name}: expected attributes {node.op.Attrs.__name__}, found {node.attrs!r:.80}"
                )
        elif isinstance(node, Constant) and node.is_computed:
            data = node.data
            if node.type != TensorType(data.shape, data.dtype):
                self.report(node, f"the type of a constant is {node.type}, its value is {data.dtype}{list(data.shape)}")

    def variables(self, function: Function, order: list[Expr]) -> None:
        """Check that every variable is bound, once, and used inside its binder."""
        binders: dict[Var, list[Expr]] = {}
        for node in order:
            for var in node.bound:
                binders.setdefault(var, []).append(node)
        for var, places in binders.items():
            if len(places) > 1:
                self.report(places[1], f"variable %{var.name} is bound {len(places)} times")
        for var in free_vars(function):
            self.report(var, f"variable %{var.name} is used, but nothing binds it")
        self.scopes(function, order, binders)

    def scopes(self, function: Function, order: list[Expr], binders: dict[Var, list[Expr]]) -> None:
        """Check that every path from the root to a variable passes through its binder."""
        users: dict[Expr, list[Expr]] = {}
        for node in order:
            for child in node.children:
                users.setdefault(child, []).append(node)
        for var, places in binders.items():
            if len(places) != 1 or places[0] is function:
                continue
            escaped = self.escape(var, places[0], users, function)
            if escaped is not None and isinstance(places[0], Let) and is_recursive(places[0]):
                self.report(places[0], recursion(places[0]))
            elif escaped is not None:
                self.report(escaped, f"variable %{var.name} is used outside of the function or let that binds it")

    @staticmethod
    def escape(var: Var, binder: Expr, users: dict[Expr, list[Expr]], function: Function) -> Expr | None:
        """Return an expression that uses ``var`` and is reached from the root by a path that bypasses ``binder``."""
        seen: set[Expr] = {var}
        stack: list[Expr] = [var]
        while stack:
            node = stack.pop()
            for user in users.get(node, ()):
                if user is binder:
                    if node in binder.outside:
                        return node
                    continue
                if user is function:
                    return node
                if user not in seen:
                    seen.add(user)
                    stack.append(user)
        return None

    def expression(self, node: Expr) -> None:
        if isinstance(node, (Constant, Var)):
            return
        if isinstance(node, GlobalVar):
            self.global_function(node, node)
            return
        if isinstance(node, Function):
            self.function(node)
            return
        try:
            if isinstance(node, Call):
                self.call(node)
            else:
                self.compare(node, node.with_children(node.children))  # the constructor checks the types of the parts
        except (TypeInferenceError, TypeError, ValueError) as error:
            self.report(node, str(error))

    def compare(self, node: Expr, again: Expr) -> None:
        if node.type is not None and again.type is not None and node.type != again.type:
            self.report(node, f"the type is {node.type}, but follows as {again.type}")

    def call(self, node: Call) -> None:
        if isinstance(node.op, Operator):
            found = infer_call_type(node.op, node.args, node.attrs)
            if found is not None and node.type is not None and found is not node.type and found != node.type:
                self.report(node, f"the type is {node.type}, but follows as {found}")
            return
        callee: Expr = node.op
        if isinstance(callee, GlobalVar) and callee in self.mod and isinstance(self.mod[callee], PrimFunc):
            self.loop_level_call(node, callee)
            return
        if isinstance(callee, GlobalVar):
            signature = self.global_function(callee, node)
            if signature is None:
                return
            callee = GlobalVar(callee.name, signature)
        elif callee.type is not None and not isinstance(callee.type, FuncType):
            self.report(node, f"the callee has type {callee.type}; expected a function type")
            return
        self.compare(node, Call(callee, node.args, node.attrs, None))

    def loop_level_call(self, node: Call, callee: GlobalVar) -> None:
        function = self.mod[callee]
        assert isinstance(function, PrimFunc)
        loop_call(function, node)
        if isinstance(callee.type, FuncType):
            self.compare(node, Call(callee, node.args, node.attrs, None))

    def global_function(self, gv: GlobalVar, place: Expr) -> FuncType | None:
        """Return the signature of a function of the module, if it is known."""
        if gv not in self.mod:
            names = ", ".join(f"@{other.name}" for other in self.mod) or "none"
            self.report(place, f"function @{gv.name} does not exist (the module has: {names})")
            return None
        function = self.mod[gv]
        if isinstance(function, Function):
            return function.type if isinstance(function.type, FuncType) else None
        return None

    def function(self, function: Function) -> None:
        try:
            again = Function(function.params, function.body, function.ret_type, function.attrs)
        except (TypeInferenceError, TypeError, ValueError) as error:
            self.report(function, str(error))
            return
        self.compare(function, again)
        if function.attrs.get(PRIMITIVE):
            self.group(function)

    def group(self, function: Function) -> None:
        captured = free_vars(function)
        if captured:
            names = ", ".join(f"%{var.name}" for var in captured)
            self.report(function, f"a fused group captures {names}; values that it uses must be its parameters")
        for node in post_order(function.body):
            fine = isinstance(node, (Var, Constant, Tuple, TupleGetItem))
            if not fine and not (isinstance(node, Call) and isinstance(node.op, Operator)):
                self.report(node, f"a fused group holds a {type(node).__name__}; expected calls of operators only")
