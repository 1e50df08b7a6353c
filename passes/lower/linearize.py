"""Linearize a graph function into a list of instructions (:mod:`.instructions`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Union

from tilewright.graphir.dims import dim_equal, product, symbol
from tilewright.graphir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Loop, Tuple, TupleGetItem, Var
from tilewright.graphir.keys import IN_PLACE, ROW_PADDING
from tilewright.graphir.loop_calls import check_kernel_call, kernel_numbers, passed_numbers
from tilewright.graphir.module import IRModule
from tilewright.graphir.origins import call_formula, call_origins
from tilewright.graphir.parts import is_view
from tilewright.graphir.types import TensorType
from tilewright.graphir.visitor import post_order
from tilewright.passes.graph.walk import identity, rewrite_graph
from tilewright.passes.lower.instructions import Branch, Copy, CountedLoop, Instruction, KernelCall, Program, Value
from tilewright.passes.lower.primitive import flat_types
from tilewright.tensorir import expr as tir
from tilewright.tensorir.errors import CodegenError
from tilewright.tensorir.functor import free_vars, substitute
from tilewright.tensorir.keys import NUM_WORKSPACES, OVERWRITES, SIZES_FROM
from tilewright.tensorir.stmt import PrimFunc, SeqStmt

#: A function whose calls nest deeper than this is reported as recursive.
_MAX_CALL_DEPTH = 64

#: The value of an expression: a tensor, or a (nested) tuple of tensors.
Meaning = Union[Value, "list[Meaning]"]


def is_empty(kernel: PrimFunc) -> bool:
    """Return whether a kernel does nothing, as all parts of its result are computed in place."""
    return isinstance(kernel.body, SeqStmt) and not kernel.body.stmts


def linearize(function: Function, mod: IRModule) -> Program:
    """Return the instructions of ``function``, which calls only PrimFuncs, views, and functions that are inlined here.

    Raises:
        CodegenError: a call of an operator that was not lowered, or recursion.
        TypeInferenceError: a call does not fit the parameters of its PrimFunc.
    """
    constants = model_constants(function, mod)
    # Below opt_level 1 nothing has inlined functions that have names.
    body = function.body
    if Let in map(type, post_order(function)):
        body = rewrite_graph(body, identity, lambda value: isinstance(value, (Function, GlobalVar)))
    linearizer = _Linearizer(mod, constants)
    inputs: list[Value] = []
    environment: dict[Expr, Meaning] = {}
    for param in function.params:
        environment[param] = _fresh(param.type, inputs)
    for index, value in enumerate(inputs):
        value.role, value.index = "input", index
    instructions: list[Instruction] = []
    results = _flatten(linearizer.emit(body, environment, instructions))
    outputs: list[Value] = []
    wholes = {value.whole for value in linearizer.shared.values()}
    for index, value in enumerate(results):
        made = value.viewed
        if value.is_view and made.role == "temporary" and made.whole is None and made not in wholes:
            # The kernel writes to the memory of the result, of which its own is the view then.
            value = made.whole = Value(value.type)
            made.is_view = True
        elif value.role != "temporary" or value.whole is not None or value.row_padding:
            value = Value(value.type)
            instructions.append(Copy(results[index], value))
        value.role, value.index = "output", index
        outputs.append(value)
    return Program(inputs, constants, outputs, instructions)


def model_constants(function: Function, mod: IRModule) -> list[Constant]:
    """Return the constants in ``function`` and the functions that it calls, in the order of ``main``'s parameters.

    Integers that calls pass to kernels are not among them: they are immediates in ``main``.
    """
    found: dict[Constant, None] = {}
    seen: set[GlobalVar] = set()
    pending: list[Function] = [function]
    while pending:
        order = post_order(pending.pop(0))
        numbers = _numbers(order, mod)
        for node in order:
            if type(node) is Constant:
                if node not in numbers:
                    found[node] = None
                continue
            named = node.op if type(node) is Call else node  # a loop's body may be a function of the module too
            if type(named) is GlobalVar and named not in seen:
                seen.add(named)
                callee = mod[named]
                if isinstance(callee, Function):
                    pending.append(callee)
    return list(found)


def _numbers(order: Sequence[Expr], mod: IRModule) -> set[Expr]:
    """Return the constants that are used only as integers passed to kernels."""
    found: set[Expr] = set()
    for node in order:
        if type(node) is Call and type(node.op) is GlobalVar:
            called = mod[node.op]
            if isinstance(called, PrimFunc) and (count := passed_numbers(called)):
                found.update(node.args[len(node.args) - count :])
    if found:
        found -= {order[-1]}
        for node in order:
            callee = mod[node.op] if isinstance(node, Call) and isinstance(node.op, GlobalVar) else None
            count = passed_numbers(callee) if isinstance(callee, PrimFunc) else 0
            found.difference_update(node.children[: len(node.children) - count])
    return found


def _now(node: Expr) -> Iterable[Expr]:
    """Return the operands to compute before ``node``; branches and loop bodies are emitted later, into own lists."""
    if type(node) is Call:
        return node.args
    if isinstance(node, If):
        return (node.condition,)
    if isinstance(node, Loop):
        return (node.trip_count, *node.initial, *node.collect)
    if isinstance(node, Let):
        return (node.value, node.var, node.body)
    return () if isinstance(node, Function) else node.children


class _Linearizer:
    def __init__(self, mod: IRModule, constants: Sequence[Constant]) -> None:
        self.mod = mod
        self.constants: dict[Expr, Meaning] = {
            constant: Value(constant.tensor_type, "constant", index) for index, constant in enumerate(constants)
        }
        self.depth = 0
        #: The values of calls whose arguments are computed in place in the result, and of those arguments.
        self.shared: dict[Expr, Value] = {}

    def emit(self, root: Expr, environment: Mapping[Expr, Meaning], into: list[Instruction]) -> Meaning:
        """Append the instructions that compute ``root`` to ``into``; return its value or tuple of values."""
        known: dict[Expr, Meaning] = dict(environment)
        order = post_order(root, known=known, children_of=_now)
        bound = {node.var: node.value for node in order if isinstance(node, Let)}
        self._share(order)
        for node in order:
            if node in known:
                continue
            if isinstance(node, Var) and node in bound:
                known[node] = self.emit(bound[node], known, into)
            else:
                known[node] = self._emit_node(node, known, into)
        return known[root]

    def _emit_node(self, node: Expr, known: dict[Expr, Meaning], into: list[Instruction]) -> Meaning:
        if isinstance(node, Constant):
            return self.constants.get(node, [])  # integers that kernels are passed have no value
        if isinstance(node, Tuple):
            return [known[field] for field in node.fields]
        if isinstance(node, TupleGetItem):
            fields = known[node.value]
            assert isinstance(fields, list)
            return fields[node.index]
        if isinstance(node, Let):
            return known[node.body]
        if isinstance(node, Call):
            return self._emit_call(node, [known[arg] for arg in node.args], known, into)
        if isinstance(node, If):
            return self._emit_if(node, known, into)
        if isinstance(node, Loop):
            return self._emit_loop(node, known, into)
        what = type(node).__name__
        if isinstance(node, Var):
            what = f"variable {node.name!r} that is not defined here (each is bound by one function, and used in that)"
        raise CodegenError(f"the model holds a {what}; no code can be generated for it")

    def _callee(self, call: Call) -> object:
        return self.mod[call.op] if isinstance(call.op, GlobalVar) else call.op

    def _share(self, order: Sequence[Expr]) -> None:
        """Create the values computed by ``order`` that share memory: results and the arguments placed in them."""
        made: dict[Expr, Value] = {}
        for node in reversed(order):  # a whole is visited before its parts
            callee = self._callee(node) if type(node) is Call else None
            places = callee.attrs.get(IN_PLACE, ()) if isinstance(callee, PrimFunc) else ()
            for number, begin in places:
                assert isinstance(node, Call)
                whole = made.setdefault(node, Value(node.tensor_type))
                part = node.args[number]
                made[part] = Value(part.tensor_type, whole=whole, begin=tuple(begin))
        self.shared.update(made)

    def _emit_call(
        self, call: Call, args: list[Meaning], known: Mapping[Expr, Meaning], into: list[Instruction]
    ) -> Meaning:
        callee = self._callee(call)
        if isinstance(callee, PrimFunc):
            shared = self.shared.get(call)
            made: list[Value] = []
            result = _fresh(call.type, made) if shared is None else shared
            for value in made:
                value.row_padding = int(callee.attrs.get(ROW_PADDING, 0))
            count = len(args) - kernel_numbers(callee)
            tensors = [value for arg in args[:count] for value in _flatten(arg)]
            numbers = [_number(arg, call) for arg in call.args[count:]]
            kernel_call = _kernel_call(callee, tensors, _flatten(result), numbers)
            check_kernel_call(callee, call, dict(zip(callee.variables, kernel_call.variables, strict=True)))
            kernel_call.origins, kernel_call.formula = call_origins(call), call_formula(call)
            for number, _ in callee.attrs.get(IN_PLACE, ()):
                if kernel_call.args[number].whole is not shared:
                    raise CodegenError(
                        f"argument {number} of {call.op} was not computed in place, in the memory of the result"
                    )
            if not is_empty(callee):
                into.append(kernel_call)
            return result
        if is_view(call):
            (seen,) = args
            assert isinstance(seen, Value)
            return Value(call.tensor_type, whole=seen, is_view=True)
        if isinstance(callee, Function):
            return self._emit_function(call.op, args, known, into)
        raise CodegenError(f"a call of {call.op} was not lowered; run the pass LowerToTensorIR first")

    def _emit_if(self, node: If, known: Mapping[Expr, Meaning], into: list[Instruction]) -> Meaning:
        condition = known[node.condition]
        assert isinstance(condition, Value)
        made: list[Value] = []
        result = _fresh(node.type, made)
        bodies: list[list[Instruction]] = [[], []]
        for branch, body in zip((node.then_branch, node.else_branch), bodies, strict=True):
            for source, target in zip(_flatten(self.emit(branch, known, body)), made, strict=True):
                body.append(Copy(source, target))
        into.append(Branch(condition, *bodies))
        return result

    def _emit_loop(self, node: Loop, known: Mapping[Expr, Meaning], into: list[Instruction]) -> Meaning:
        trip_count = known[node.trip_count]
        assert isinstance(trip_count, Value)
        state: list[Value] = []
        meanings = [_fresh(value.type, state) for value in node.initial]
        for source, target in zip([v for value in node.initial for v in _flatten(known[value])], state, strict=True):
            into.append(Copy(source, target))
        rows: list[Value] = []
        stacked = [_fresh(value.type, rows) for value in node.collect]
        for value, target in zip(node.collect, rows, strict=True):
            into.append(Copy(_flatten(known[value])[0], target))
        counter = Value(TensorType((), "int64"))
        alive = None if node.condition is None else Value(TensorType((), "bool"))
        check: list[Instruction] = []
        body: list[Instruction] = []
        if node.condition is not None and alive is not None:
            asked = self._emit_function(node.condition, [counter, *meanings], known, check)
            assert isinstance(asked, Value)
            check.append(Copy(asked, alive))
        results = _flatten(self._emit_function(node.body, [counter, *meanings], known, body))
        for source, target in zip(results[len(state) :], rows, strict=True):
            body.append(Copy(source, target, counter))
        del results[len(state) :]
        kept = []
        for source in results:  # the next state may permute the old one: copy through fresh values
            if source in state:
                fresh = Value(source.type)
                body.append(Copy(source, fresh))
                source = fresh
            kept.append(source)
        for source, target in zip(kept, state, strict=True):
            body.append(Copy(source, target))
        into.append(CountedLoop(trip_count, counter, alive, check, body))
        return [*meanings, *stacked]

    def _emit_function(
        self, function: object, args: list[Meaning], known: Mapping[Expr, Meaning], into: list[Instruction]
    ) -> Meaning:
        """Inline a function at its call. A function of the module sees no variables of the caller."""
        callee: object = self.mod[function] if isinstance(function, GlobalVar) else function
        if not isinstance(callee, Function):
            raise CodegenError(f"a loop's body must be a function, found {type(callee).__name__}")
        self.depth += 1
        if self.depth > _MAX_CALL_DEPTH:
            raise CodegenError(f"function {function} calls itself; recursion is not supported")
        scope = known if callee is function else {}
        result = self.emit(callee.body, {**scope, **dict(zip(callee.params, args, strict=True))}, into)
        self.depth -= 1
        return result


def _number(arg: Expr, call: Call) -> int:
    if not isinstance(arg, Constant):
        raise CodegenError(f"a call of {call.op} passes a size as {type(arg).__name__}; expected a constant")
    return int(arg.data)


def _kernel_call(kernel: PrimFunc, args: list[Value], results: list[Value], numbers: Sequence[int] = ()) -> KernelCall:
    buffers = kernel.buffers
    count = int(kernel.attrs.get(NUM_WORKSPACES, 0))
    scratch = buffers[len(buffers) - count :] if count else ()
    if len(args) + len(results) + count != len(buffers):
        raise CodegenError(
            f"kernel {kernel.name} takes {len(buffers) - count} buffers, but is called with {len(args)} arguments "
            f"and {len(results)} results"
        )
    known: dict[tir.Var, tir.Expr] = {}
    sources = kernel.attrs.get(SIZES_FROM, ())
    for var, source in itertools.zip_longest(kernel.variables, sources):
        if source is None:
            known[var] = _value_of(var, kernel, (*args, *results))
        elif len(source) == 1:
            known[var] = tir.as_expr(numbers[source[0]])
        else:
            number, axis, *divisor = source
            size = (*args, *results)[number].type.shape[axis]
            known[var] = tir.as_expr(size // divisor[0] if divisor else size)
    workspaces = [
        Value(TensorType([substitute(extent, known) for extent in buffer.shape], buffer.dtype)) for buffer in scratch
    ]
    return KernelCall(
        kernel.name, args, results, workspaces, list(known.values()), tuple(kernel.attrs.get(OVERWRITES, ()))
    )


def _value_of(var: tir.Var, kernel: PrimFunc, values: Sequence[Value]) -> tir.Expr:
    """Return the size of a kernel's symbolic dimension in a call: the dimension itself if it is one of the model's,
    else the dimension of an argument with which the parameter has as many elements as the argument.

    Raises:
        CodegenError: it does not follow from any argument.
    """
    if var.name.isidentifier() and symbol(var.name) is var:
        return var
    for buffer, value in zip(kernel.buffers, values, strict=False):
        extent = product(buffer.shape)
        if not isinstance(extent, tir.Expr) or var not in free_vars(extent):
            continue
        for dim in value.type.shape:
            candidate = tir.as_expr(dim)
            if dim_equal(
                product(substitute(part, {var: candidate}) for part in buffer.shape), product(value.type.shape)
            ):
                return candidate
    raise CodegenError(f"kernel {kernel.name}: its dimension {var.name} does not follow from the arguments of a call")


def _fresh(found: object, into: list[Value]) -> Meaning:
    """Create a value, or a nested list of values for a tuple type, and append each to ``into``."""
    if isinstance(found, TensorType):
        into.append(Value(found))
        return into[-1]
    fields = getattr(found, "fields", None)
    if fields is None:
        flat_types(None)
    assert fields is not None
    return [_fresh(field, into) for field in fields]


def _flatten(meaning: Meaning) -> list[Value]:
    if isinstance(meaning, Value):
        return [meaning]
    return [value for field in meaning for value in _flatten(field)]
