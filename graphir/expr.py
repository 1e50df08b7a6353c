"""Define the expressions of the graph IR.

Nodes are immutable and have identity semantics; a node that is used twice is computed once. The type of a node is
inferred when it is made, as far as the types of its parts are known, so that an error appears where the user wrote it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as Expr
from tilewright.graphir.base import FrozenExpr, new_fields
from tilewright.graphir.call_sizes import bound_sizes, with_sizes_in_type
from tilewright.graphir.constant import Constant as Constant
from tilewright.graphir.control_flow import If as If
from tilewright.graphir.control_flow import Loop as Loop
from tilewright.graphir.keys import PRIMITIVE
from tilewright.graphir.node import applied, attributes, child, children, definition, given, node, note, outer
from tilewright.graphir.op import NoAttrs, Operator, get_operator, set_call_maker
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, TypeInferenceError
from tilewright.tensorir.notebook import html_text

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@node
class Var(FrozenExpr):
    """A variable: the parameter of a function, or the variable of a ``Let``. It is compared by identity; the name is
    for readers."""

    name: str = note()
    type: Type | None = None
    span: str | None = note(default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"a variable's name is a string, found {self.name!r:.80}")
        if self.type is not None and not isinstance(self.type, Type):
            raise ArgumentTypeError(f"variable {self.name}: expected a type, found {self.type!r}")

    def __call__(self, *args: Any) -> Call:
        """Call the function that the variable stands for; numbers and arrays become constants."""
        return _call_function(self, args)


@node
class GlobalVar(FrozenExpr):
    """A reference by name to a function of the module. ``type`` is the function's where it is known."""

    by_value = True

    name: str
    type: Type | None = note(default=None)
    span: str | None = note(default=None)

    def __call__(self, *args: Any) -> Call:
        """Call the function of that name; numbers and arrays become constants."""
        return _call_function(self, args)


@node
class Call(FrozenExpr):
    """A call of an operator, or of a function (a ``Function``, a ``GlobalVar``, a ``Var`` of function type).

    Args:
        op: the operator (or its name) or the function.
        args: the arguments.
        attrs: the operator's attributes: its record, or a mapping.
        type: the result type, only for callees whose type is not known here.

    Raises:
        TypeInferenceError: the arguments do not fit.
        UnsupportedOperatorError: no operator has that name.
    """

    op: Operator | Expr = applied((Operator, GlobalVar))
    args: tuple[Expr, ...] = children()
    attrs: Any = attributes(default=None)
    type: Type | None = given(default=None)
    span: str | None = note(default=None)

    def __init__(
        self,
        op: Operator | Expr | str,
        args: Iterable[Expr],
        attrs: Any = None,
        type: Type | None = None,
        span: str | None = None,
    ) -> None:
        if isinstance(op, str):
            op = get_operator(op)
        args = tuple(args)
        for arg in args:
            if not isinstance(arg, Expr):
                number = [other is arg for other in args].index(True)
                raise ArgumentTypeError(
                    f"argument {number} of a call is no graph expression: {arg!r}; wrap values in gi.const"
                )
        if isinstance(op, Operator):
            if isinstance(attrs, op.Attrs):
                pass
            elif attrs is None or isinstance(attrs, Mapping):
                attrs = op.make_attrs(attrs or {})
            else:
                raise ArgumentTypeError(f"{op.name}: expected attributes {op.Attrs.__name__}, found {attrs!r}")
            if op.complete is not None:
                attrs = op.complete([arg.type for arg in args], attrs)
            if type is None:
                type = infer_call_type(op, args, attrs, span)
        else:
            attrs = attrs if attrs is not None else NoAttrs()
            if type is None:
                type = _function_result(op, args)
        _set_op(self, op)
        _set_args(self, args)
        _set_attrs(self, attrs)
        _set_type(self, type)
        _set_span(self, span)


# Calls are most of a graph, so their fields are set directly, without a lookup of each by its name.
_set_op, _set_args, _set_attrs, _set_type, _set_span = (
    getattr(Call, name).__set__ for name in ("op", "args", "attrs", "type", "span")
)


def infer_call_type(op: Operator, args: Sequence[Expr], attrs: Any, span: str | None = None) -> Type | None:
    """Infer the type of an operator's result; return None if the type of an argument is not known yet.

    Raises:
        TypeInferenceError: the arguments do not fit.
    """
    types: list[Type] = []
    for arg in args:
        if arg.type is None:
            return None
        types.append(arg.type)
    try:
        op.check_arguments(types)
        found: Any = op.infer_type(types, attrs)
        if not isinstance(found, Type):
            hint = " (does it lack a return statement?)" if found is None else ""
            raise TypeInferenceError(f"{op.name}: infer_type: expected a type to be returned, found {found!r}{hint}")
        return found
    except TypeInferenceError as error:
        if span is None or getattr(error, "located", False):
            raise
        located = TypeInferenceError(f"{error} (at {span})")
        located.located = True  # type: ignore[attr-defined]
        raise located from error


def _call_function(callee: Expr, args: Sequence[Any]) -> Call:
    params = callee.type.params if isinstance(callee.type, FuncType) else ()
    dtypes = [param.dtype if isinstance(param, TensorType) else None for param in params]
    dtypes += [None] * (len(args) - len(dtypes))
    return Call(callee, [as_expr(arg, dtype) for arg, dtype in zip(args, dtypes, strict=False)])


def _function_result(op: Expr, args: Sequence[Expr]) -> Type | None:
    signature = op.type
    if signature is None:
        return None
    name = op.name if isinstance(op, (GlobalVar, Var)) else "function"
    if not isinstance(signature, FuncType):
        raise TypeInferenceError(f"call of {name}: expected a function, found {signature}")
    if len(signature.params) != len(args):
        raise TypeInferenceError(f"{name}: expected {len(signature.params)} arguments, found {len(args)}")
    fits = [arg.type is None or arg.type == param for param, arg in zip(signature.params, args, strict=True)]
    if all(fits):
        return signature.result
    sizes = bound_sizes(signature.params, [arg.type for arg in args]) if _takes_all_sizes(op) else {}
    for number, (param, arg) in enumerate(zip(signature.params, args, strict=True)):
        if arg.type is not None and arg.type != with_sizes_in_type(param, sizes):
            told = [f"{symbol!s} = {size!s}" for symbol, size in sizes.items()]
            hint = f", with {', '.join(told)} from the other dimensions" if told else ""
            raise TypeInferenceError(f"{name}: argument {number}: expected {param}, found {arg.type}{hint}")
    return with_sizes_in_type(signature.result, sizes)


def _takes_all_sizes(callee: Expr) -> bool:
    """Return whether a call may give other sizes to symbolic dimensions: those of a fused group are the model's."""
    return isinstance(callee, GlobalVar) or (isinstance(callee, Function) and not callee.attrs.get(PRIMITIVE))


@node
class Tuple(FrozenExpr):
    """A tuple of several values."""

    fields: tuple[Expr, ...] = children()
    span: str | None = note(default=None)

    def __init__(self, fields: Iterable[Expr], span: str | None = None) -> None:
        fields = tuple(fields)
        types = [field.type for field in fields]
        new_fields(self, fields=fields, type=None if None in types else TupleType(types), span=span)  # type: ignore[arg-type]


@node
class TupleGetItem(FrozenExpr):
    """One field of a tuple.

    Raises:
        TypeInferenceError: the value is no tuple, or has no such field.
    """

    value: Expr = child()
    index: int
    span: str | None = note(default=None)

    def __post_init__(self) -> None:
        found, index = self.value.type, self.index
        if found is None:
            return
        if not isinstance(found, TupleType):
            raise TypeInferenceError(f"field {index}: expected a tuple, found {found}")
        if not 0 <= index < len(found.fields):
            raise TypeInferenceError(f"field {index}: the tuple has {len(found.fields)} fields")
        new_fields(self, type=found.fields[index])


@node
class Let(FrozenExpr):
    """A binding: ``var`` stands for ``value`` in ``body``."""

    var: Var = definition()
    value: Expr = outer()
    body: Expr = child()
    span: str | None = note(default=None)

    def __post_init__(self) -> None:
        var, value = self.var, self.value
        if var.type is not None and value.type is not None and var.type != value.type:
            raise TypeInferenceError(f"let {var.name}: expected {var.type}, found {value.type}")
        new_fields(self, type=self.body.type)


@node
class Function(FrozenExpr):
    """A function of tensors, tuples and functions.

    Args:
        params: its parameters.
        body: its result in terms of them (and of enclosing functions' variables).
        ret_type: the declared result type; checked against the body's.
        attrs: plain data about the function (``Primitive``: a fused group; ``SkipOptimization``: leave it alone).
    """

    params: tuple[Var, ...] = definition()
    body: Expr = child()
    ret_type: Type | None = note(default=None)
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=lambda: _EMPTY)
    span: str | None = note(default=None)

    def __init__(
        self,
        params: Iterable[Var],
        body: Expr | Sequence[Expr],
        ret_type: Type | None = None,
        attrs: Mapping[str, Any] | None = None,
        span: str | None = None,
    ) -> None:
        params = tuple(params)
        if isinstance(body, (tuple, list)):
            body = Tuple(body)
        for param in params:
            if not isinstance(param, Var):
                raise ArgumentTypeError(f"a function's parameter is a variable, found {param!r}")
        if len(set(params)) != len(params):
            raise ArgumentValueError("a function's parameters must be different variables")
        if not isinstance(body, Expr):
            raise ArgumentTypeError(f"a function's body is a graph expression, found {type(body).__name__}")
        if ret_type is not None and body.type is not None and ret_type != body.type:
            raise TypeInferenceError(f"function: result: expected {ret_type}, found {body.type}")
        result = body.type if body.type is not None else ret_type
        types = [param.type for param in params]
        found = None if result is None or None in types else FuncType(types, result)  # type: ignore[arg-type]
        new_fields(
            self,
            params=params,
            body=body,
            ret_type=ret_type,
            attrs=MappingProxyType(dict(attrs)) if attrs else _EMPTY,
            type=found,
            span=span,
        )

    def __call__(self, *args: Any) -> Call:
        """Call the function; numbers and arrays become constants.

        Raises:
            TypeInferenceError: the arguments do not fit.
        """
        return _call_function(self, args)

    def with_body(self, body: Expr) -> Function:
        """Return the same function with another body; itself if the body is the same."""
        return self if body is self.body else Function(self.params, body, None, self.attrs, self.span)

    def with_attr(self, name: str, value: Any) -> Function:
        """Return the same function with attribute ``name`` set."""
        return Function(self.params, self.body, self.ret_type, {**self.attrs, name: value}, self.span)

    def _repr_html_(self) -> str:
        return html_text(str(self))


# Construct expressions from users' values.


def var(name: str, type: Type | None = None, *, shape: Iterable[Any] | None = None, dtype: Any = "float32") -> Var:
    """Return a variable: ``var("x", TensorType(...))``, or ``var("x", shape=("batch", 784), dtype="float32")``.

    Strings in ``shape`` name symbolic dimensions.
    """
    if type is not None and not isinstance(type, Type):
        raise ArgumentTypeError(f"variable {name}: expected a type, found {type!r}; give a shape as shape=...")
    if type is not None and shape is not None:
        raise ArgumentTypeError(f"variable {name}: give a type or a shape, not both")
    return Var(name, TensorType(shape, dtype) if shape is not None else type)


def const(value: Any, dtype: Any = None) -> Constant:
    """Return a constant with the value of an array, a scalar or nested lists; Python floats become float32, integers
    int64.

    Arrays are shared, not copied, unless ``dtype`` asks for a conversion.

    Raises:
        TypeError: the value is no array of numbers.
    """
    if isinstance(value, Constant):
        value = value.data
    wanted = None if dtype is None else as_dtype(dtype).numpy
    try:
        if isinstance(value, (bool, int, float)) and wanted is None:
            wanted = np.dtype(bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float32)
        elif not hasattr(value, "dtype") and wanted is None:
            array = np.asarray(value)
            wanted = np.dtype(np.float32) if array.dtype == np.float64 else array.dtype
        array = np.asarray(value) if wanted is None else np.asarray(value).astype(wanted, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"a constant is an array of numbers, found {value!r:.80}: {error}") from None
    try:
        as_dtype(array.dtype)
    except ValueError as error:
        raise ArgumentTypeError(f"a constant holds numbers, found an array of {array.dtype}: {error}") from None
    return Constant(array)


def as_expr(value: Any, like: DataType | None = None) -> Expr:
    """Convert ``value`` to an expression. A Python number takes ``like``, the element type of the tensor beside it.

    Raises:
        TypeInferenceError: a Python float stands beside an integer tensor, which would lose its fraction.
    """
    if isinstance(value, Expr):
        return value
    if like is not None and isinstance(value, (bool, int, float)):
        if isinstance(value, float) and not like.is_float:
            raise TypeInferenceError(f"expected a number of type {like!s}, found {value!r}; cast the tensor to a float")
        if isinstance(value, int) and not isinstance(value, bool) and like.is_bool:
            raise TypeInferenceError(f"expected a bool, found {value!r}")
        return const(value, like)
    return const(value)


def _element_type(op: Operator, args: Sequence[Any]) -> DataType | None:
    """Return the element type of Python numbers among ``args``: that of the first tensor, else of the first array."""
    tensors = args[op.literals_from :]
    for arg in tensors:
        if isinstance(arg, Expr) and isinstance(arg.type, TensorType):
            return arg.type.dtype
    for arg in tensors:
        if isinstance(arg, (np.ndarray, np.generic)):
            return as_dtype(arg.dtype)
    return None


def _unpack(sequence: Any) -> list[Any] | None:
    """Return the parts of a list, a tuple or a tuple-typed expression; None for anything else."""
    if isinstance(sequence, Tuple):
        return list(sequence.fields)
    if isinstance(sequence, (list, tuple)):
        return list(sequence)
    if isinstance(sequence, Expr) and isinstance(sequence.type, TupleType):
        return [TupleGetItem(sequence, number) for number in range(len(sequence.type.fields))]
    return None


def make_call(op: Operator, args: Sequence[Any], attrs: Mapping[str, Any]) -> Expr:
    """Build a call of ``op`` from expressions, arrays and numbers; keywords name arguments or attributes."""
    attrs = dict(attrs)
    given = list(args)
    if op.variadic and len(given) > op.required:
        parts = _unpack(given[op.required])
        if parts is not None:  # concatenate([x, y], 1): the list is the arguments, attributes may follow it
            free = [name for name in op.attr_names if name not in attrs]
            attrs.update(zip(free, given[op.required + 1 :], strict=False))
            given[op.required :] = parts
    for position, name in enumerate(op.argument_names if attrs else ()):
        if name in attrs and name not in op.attr_names:
            if position != len(given):
                problem = "is given twice" if position < len(given) else "leaves out an argument before it"
                raise TypeInferenceError(f"{op.name}: argument {name!r} {problem}")
            given.append(attrs.pop(name))
    while given and given[-1] is None and len(given) > op.required:
        given.pop()
    if not op.variadic and len(given) > len(op.arguments):
        extra = len(given) - len(op.arguments)
        free = [name for name in op.attr_names if name not in attrs]
        if extra > len(free):
            raise TypeInferenceError(
                f"{op.name}: expected {len(op.arguments)} arguments ({', '.join(op.arguments)}), found {len(given)}"
            )
        for name, value in zip(free, given[len(op.arguments) :], strict=False):
            attrs[name] = value
        del given[len(op.arguments) :]
    if [arg for arg in given if not isinstance(arg, Expr)]:
        like = _element_type(op, given)
        try:
            given = [as_expr(arg, like) for arg in given]
        except TypeInferenceError as error:
            raise TypeInferenceError(f"{op.name}: {error}") from None
    if len(given) < op.required:
        missing = ", ".join(op.arguments[len(given) : op.required])
        raise TypeInferenceError(f"{op.name}: missing argument {missing}")
    return Call(op, given, op.make_attrs(attrs))


set_call_maker(make_call)
