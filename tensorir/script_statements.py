"""Read the statements of loops that are written as Python: each is a call of the builder.

A name that is assigned is a let, or what Python knows. One that a loop, a block or a branch assigns, and that has a
value before, is a buffer with one element in a register, so that it may change.
"""

from __future__ import annotations

import ast
import contextlib
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tilewright.tensorir import script_words
from tilewright.tensorir.builder import Builder
from tilewright.tensorir.dtype import DataType
from tilewright.tensorir.expr import Buffer, Call, Expr, FloatImm, IntImm, Var, as_expr, binary, cast
from tilewright.tensorir.script_expressions import Cell, ExpressionReader
from tilewright.tensorir.script_source import Source

_PLAIN = (Var, IntImm, FloatImm)


def changing_names(body: Sequence[ast.stmt], around: frozenset[str] = frozenset()) -> set[str]:
    """Return the names that are assigned in a body and again, or before, in a body inside of it."""
    own = set(around)
    found: set[str] = set()
    for stmt in body:
        assigned = set(_assigned(stmt))
        found |= assigned & around
        own |= assigned
        for inner in _bodies(stmt):
            found |= changing_names(inner, frozenset(own))
    return found


def _bodies(stmt: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(stmt, (ast.For, ast.With, ast.If)):
        yield stmt.body
    if isinstance(stmt, (ast.For, ast.If)):
        yield stmt.orelse


def _assigned(stmt: ast.stmt) -> Iterator[str]:
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [getattr(stmt, "target", None)]
    if isinstance(stmt, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        for target in targets:
            for part in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
                if isinstance(part, ast.Name):
                    yield part.id


class StatementReader(ExpressionReader):
    """Reads the statements of a function into a builder."""

    def __init__(self, source: Source, builder: Builder, parameters: Mapping[str, Buffer | Var]) -> None:
        super().__init__(source, builder)
        self.scopes[0].update(parameters)
        #: The names that are buffers of one element.
        self.changing = changing_names(source.tree.body, frozenset(parameters))
        #: What cannot be assigned.
        self.fixed: dict[Var, str] = {var: "a parameter" for var in parameters.values() if isinstance(var, Var)}

    def body(self, stmts: Iterable[ast.stmt]) -> None:
        """Read statements, which are in the scope that is open."""
        for stmt in stmts:
            self.statement(stmt)

    def statement(self, stmt: ast.stmt) -> None:
        read = _STATEMENTS.get(type(stmt))
        if read is None:
            what = type(stmt).__name__
            raise self.error(stmt, f"{what} cannot stand in loops; expected for, if, with, assignments and calls")
        before, self.builder.origin = self.builder.origin, stmt
        read(self, stmt)
        self.builder.origin = before

    def inside(self, stmts: Iterable[ast.stmt], names: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Read a body with a scope of its own, which begins with ``names``."""
        self.scopes.append(dict(names))
        self.body(stmts)
        self.ended.update(self.scopes.pop())

    # -- loops ----------------------------------------------------------------------------------------------------

    def for_loop(self, stmt: ast.For) -> None:
        if stmt.orelse:
            raise self.error(stmt.orelse[0], "a loop has no else")
        iterated = stmt.iter
        function = self.value(iterated.func) if isinstance(iterated, ast.Call) else None
        if not isinstance(iterated, ast.Call) or not any(function is word for word in script_words.LOOPS):
            self.repeat(stmt)
            return
        args = [self.checked(iterated, arg) for arg in self.elements(iterated.args)]
        given = {str(item.arg): self.value(item.value) for item in iterated.keywords}
        kind = script_words.LOOPS[function]
        if kind is None:
            self.grid(stmt, iterated, args, given)
            return
        step = args.pop() if function is range and len(args) == 3 else 1
        if not 1 <= len(args) <= 2 or given.keys() - {"stop", "annotations"}:
            raise self.error(
                iterated, f"{ast.unparse(iterated.func)}: expected a number of iterations, or start and stop"
            )
        if not isinstance(stmt.target, ast.Name):
            raise self.error(stmt.target, "expected one name for the variable of the loop")
        name = stmt.target.id
        if isinstance(step, int) and step == 1:
            with self.opened(iterated, self.builder.loop(*args, name=name, kind=kind, **given)) as var:
                self.loop_body(stmt, {name: var})
            return
        if not isinstance(step, int) or step <= 0:
            raise self.error(iterated, f"expected a positive number as step, found {step!s}")
        begin, end = args
        count = self.make(
            iterated, lambda: binary("floordiv", binary("add", end, binary("sub", step - 1, begin)), step)
        )
        with self.opened(iterated, self.builder.loop(count, name=f"{name}_step", kind=kind)) as var:
            value = self.make(iterated, lambda: binary("add", begin, var * step))
            self.loop_body(stmt, {name: self.builder.let(value, name)})

    def grid(self, stmt: ast.For, iterated: ast.Call, extents: list[Any], given: dict[str, Any]) -> None:
        targets = stmt.target.elts if isinstance(stmt.target, (ast.Tuple, ast.List)) else [stmt.target]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if given or not extents:
            raise self.error(iterated, "grid: expected extents, one for each loop")
        if len(names) != len(targets) or len(names) != len(extents):
            loops = "1 loop: expected 1 name" if len(extents) == 1 else f"{len(extents)} loops: expected as many names"
            raise self.error(stmt.target, f"grid of {loops}")
        with self.opened(iterated, self.builder.grid(*extents, names=names)) as variables:
            self.loop_body(stmt, dict(zip(names, variables, strict=True)))

    def loop_body(self, stmt: ast.For, names: dict[str, Var]) -> None:
        for name in names:
            if any(name in scope for scope in self.scopes):  # behind the loop Python would have its last value
                raise self.error(stmt.target, f"{name} has a value already; give the loop's variable another name")
        self.fixed.update(dict.fromkeys(names.values(), "the variable of a loop"))
        self.inside(stmt.body, names)

    def repeat(self, stmt: ast.For) -> None:
        """Read a body once for each item of what Python knows now."""
        value = self.value(stmt.iter)
        if isinstance(value, (Expr, Buffer)) or not hasattr(value, "__iter__"):
            raise self.error(
                stmt.iter, "expected range, grid, serial, parallel, vectorized, unrolled, or a tuple known now"
            )
        for item in value:
            self.unpack(stmt.target, item)
            self.body(stmt.body)

    @contextlib.contextmanager
    def opened(self, node: ast.AST, context: Any) -> Iterator[Any]:
        """Enter a context of the builder; what it refuses is an error at ``node``."""
        inner = self.make(node, context.__enter__)
        try:
            yield inner
        except BaseException as error:
            context.__exit__(type(error), error, error.__traceback__)
            raise
        self.make(node, context.__exit__, None, None, None)

    # -- other statements with bodies -----------------------------------------------------------------------------

    def with_block(self, stmt: ast.With) -> None:
        with contextlib.ExitStack() as stack:
            for item in stmt.items:
                stack.enter_context(self.opened(item.context_expr, self.scope(item)))
            self.inside(stmt.body)

    def scope(self, item: ast.withitem) -> Any:
        node = item.context_expr
        function: Any = self.value(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or not any(function is word for word in script_words.SCOPES):
            raise self.error(node, "expected block(name) or init() in a with")
        if item.optional_vars is not None:
            raise self.error(item.optional_vars, f"{function.__name__} gives nothing; axes() gives iteration variables")
        args = list(self.elements(node.args))
        given = {str(keyword.arg): self.value(keyword.value) for keyword in node.keywords}
        if function is script_words.block and not (args and isinstance(args[0], str)):
            raise self.error(node, "block: expected a name")
        return self.make(node, getattr(self.builder, function.__name__), *args, **given)

    def if_else(self, stmt: ast.If) -> None:
        condition = self.condition(stmt.test)
        if not isinstance(condition, Expr):
            self.body(stmt.body if condition else stmt.orelse)
            return
        with self.opened(stmt.test, self.builder.if_(condition)):
            self.inside(stmt.body)
        if stmt.orelse:
            with self.opened(stmt.test, self.builder.else_()):
                self.inside(stmt.orelse)

    # -- assignments ----------------------------------------------------------------------------------------------

    def assign(self, stmt: ast.Assign) -> None:
        if len(stmt.targets) != 1:
            raise self.error(stmt, "expected one target of an assignment")
        self.assign_value(stmt.targets[0], self.named_value(stmt.targets[0], stmt.value), stmt.value)

    def named_value(self, target: ast.expr, value: ast.expr) -> Any:
        """The value of an assignment, which may take the names that it goes to."""
        targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        if isinstance(value, ast.Call):
            self.targets = tuple(part.id for part in targets if isinstance(part, ast.Name))
        self.expected = self.type_of(target)
        found = self.value(value)
        self.targets, self.expected = (), None
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and self.value(value.func) is script_words.axes:
            return found[0] if len(found) == 1 else found
        return found

    def type_of(self, target: ast.expr) -> DataType | None:
        """The type of the elements that an assignment goes to, where it is that of a buffer."""
        held: Any = None
        if isinstance(target, ast.Subscript):
            held = self.value(target.value)
        elif isinstance(target, ast.Name):
            held = next((scope[target.id] for scope in reversed(self.scopes) if target.id in scope), None)
        buffer = held.buffer if isinstance(held, Cell) else held
        return buffer.dtype if isinstance(buffer, Buffer) else None

    def annotated(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is None or not isinstance(stmt.target, ast.Name):
            raise self.error(stmt, "expected a name, a data type and a value")
        dtype = self.value(stmt.annotation)
        value = self.scalar(stmt.value)
        typed = self.make(stmt.annotation, cast, dtype, value) if isinstance(value, Expr) else None
        self.assign_value(stmt.target, self.make(stmt, as_expr, value, dtype) if typed is None else typed, stmt.value)

    def augmented(self, stmt: ast.AugAssign) -> None:
        target, node = stmt.target, stmt.value
        if isinstance(target, ast.Attribute):
            raise self.error(target, "expected a name or an element of a buffer")
        held = self.value(target)
        self.expected = self.type_of(target)
        result = self.combine(stmt, type(stmt.op), (target, held), (node, self.value(node)))
        self.expected = None
        self.assign_value(target, result, node)

    def assign_value(self, target: ast.expr, value: Any, node: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self.store(target, self.checked(node, value), node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = self.make(node, tuple, value)
            if len(values) != len(target.elts):
                raise self.error(target, f"expected {len(target.elts)} values, found {len(values)}")
            for part, item in zip(target.elts, values, strict=True):
                self.assign_value(part, item, node)
        elif isinstance(target, ast.Name):
            self.assign_name(target, value, node)
        else:
            raise self.error(target, "expected a name or an element of a buffer")

    def store(self, target: ast.Subscript, value: Any, node: ast.expr) -> None:
        buffer = self.value(target.value)
        if not isinstance(buffer, Buffer):
            raise self.error(target.value, f"expected a buffer, found {type(buffer).__name__}")
        indices = self.indices(target)
        if any(isinstance(index, slice) for index in indices):
            raise self.error(target, "expected an element; a loop stores to a slice")
        self.make(target, buffer.__getitem__, indices)
        value = self.constant_of(node, value, buffer.dtype)
        if value.dtype is not buffer.dtype:
            message = f"the elements of {buffer.name} are {buffer.dtype!s}, the value is {value.dtype!s}: cast it"
            raise self.error(node, message)
        self.make(target, self.builder.store, buffer, indices, value)

    def assign_name(self, target: ast.Name, value: Any, node: ast.expr) -> None:
        name = target.id
        held = next((scope[name] for scope in reversed(self.scopes) if name in scope), None)
        if isinstance(held, Var) and held in self.fixed and held.name == name:
            raise self.error(target, f"{name} is {self.fixed[held]}, and cannot be assigned")
        if isinstance(held, Cell):
            self.change(held, value, node)
        elif name in self.changing and held is not None and name not in self.scopes[-1]:
            raise self.error(
                target, f"{name} is a {type(held).__name__} from outside of this body, which cannot change"
            )
        elif name in self.changing and isinstance(value, (Expr, numbers.Number)):
            first = self.make(node, as_expr, value)
            cell = Cell(self.make(target, self.builder.alloc, (), first.dtype, name=name, scope="register"))
            self.builder.store(cell.buffer, (), first)
            self.scopes[-1][name] = cell
        elif isinstance(value, Expr) and not isinstance(value, _PLAIN):
            self.scopes[-1][name] = self.make(node, self.builder.let, value, name)
        else:
            self.scopes[-1][name] = value

    def change(self, cell: Cell, value: Any, node: ast.expr) -> None:
        buffer = cell.buffer
        value = self.constant_of(node, self.checked(node, value), buffer.dtype)
        if value.dtype is not buffer.dtype:
            message = (
                f"{buffer.name} is {buffer.dtype!s} from its first value on, this one is {value.dtype!s}: cast one"
            )
            raise self.error(node, message)
        self.builder.store(buffer, (), value)

    # -- others ---------------------------------------------------------------------------------------------------

    def expression(self, stmt: ast.Expr) -> None:
        if isinstance(stmt.value, ast.Constant):
            return  # a docstring
        value = self.value(stmt.value)
        if isinstance(value, Call) and not value.is_pure:
            self.builder.evaluate(value)
        elif value is not None:
            raise self.error(stmt, "the value is used nowhere")

    def passing(self, stmt: ast.Pass) -> None:
        pass

    def returning(self, stmt: ast.Return) -> None:
        raise self.error(stmt, "a function of loops returns nothing: it writes to buffers among its parameters")


_STATEMENTS: dict[type[ast.AST], Callable[[StatementReader, Any], None]] = {
    ast.For: StatementReader.for_loop,
    ast.With: StatementReader.with_block,
    ast.If: StatementReader.if_else,
    ast.Assign: StatementReader.assign,
    ast.AnnAssign: StatementReader.annotated,
    ast.AugAssign: StatementReader.augmented,
    ast.Expr: StatementReader.expression,
    ast.Pass: StatementReader.passing,
    ast.Return: StatementReader.returning,
}
