"""Give sizes to the symbolic dimensions of a graph function."""

from __future__ import annotations

from tilewright.graphir.call_sizes import Sizes, with_sizes_in_attributes, with_sizes_in_type
from tilewright.graphir.expr import Call, Expr, Function, GlobalVar, Var
from tilewright.graphir.op import Operator
from tilewright.graphir.printer import summary
from tilewright.graphir.visitor import free_vars, post_order
from tilewright.tensorir.errors import TypeInferenceError


def with_sizes(function: Function, sizes: Sizes) -> Function:
    """Return ``function`` for sizes of its symbolic dimensions: in the types of its variables, and in attributes. Its
    variables are new ones.

    Raises:
        TypeInferenceError: an operator does not take these sizes; or the function captures a variable whose type has
            one of the dimensions, which is another size where it is defined.
    """
    for var in free_vars(function):
        if var.type is not None and with_sizes_in_type(var.type, sizes) is not var.type:
            names = ", ".join(f"{symbol!s} = {size!s}" for symbol, size in sizes.items())
            raise TypeInferenceError(
                f"a function is called with {names}, but captures %{var.name}: {var.type}; make it a parameter"
            )
    done: dict[Expr, Expr] = {}
    order = post_order(function)
    for var in (var for node in order for var in node.bound):
        done[var] = Var(var.name, None if var.type is None else with_sizes_in_type(var.type, sizes), var.span)
    for node in order:
        if node not in done:
            done[node] = _with_sizes(node, sizes, done)
    result = done[function]
    assert isinstance(result, Function)
    return result


def _with_sizes(node: Expr, sizes: Sizes, done: dict[Expr, Expr]) -> Expr:
    """Return one expression, whose parts are done."""
    if isinstance(node, Function):
        params = [done[param] for param in node.params]
        result = None if node.ret_type is None else with_sizes_in_type(node.ret_type, sizes)
        return Function(params, done[node.body], result, node.attrs, node.span)  # type: ignore[arg-type]  # variables
    if isinstance(node, Call):
        args = [done[arg] for arg in node.args]
        if isinstance(node.op, Operator):
            return Call(node.op, args, with_sizes_in_attributes(node.attrs, sizes), None, node.span)
        op = node.op if isinstance(node.op, GlobalVar) else done[node.op]
        found = Call(op, args, node.attrs, None, node.span)
        if found.type is None and node.type is not None:  # declared, as of a loop-level function
            return Call(op, args, node.attrs, with_sizes_in_type(node.type, sizes), node.span)
        return found
    parts = [done[part] for part in node.children]
    same = all(new is old for new, old in zip(parts, node.children, strict=True))
    try:
        return node if same else node.with_children(parts)
    except TypeInferenceError as error:
        raise TypeInferenceError(f"{summary(node)}: {error}") from error
