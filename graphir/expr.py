"""Expressions of the graph-level IR.

Nodes are immutable and have identity semantics; a node that is used twice is computed once. The type of a node is
inferred when it is made, as far as the types of its parts are known, so that an error appears where the user wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.graphir.base import Expr as Expr
from tilewright.graphir.base import FrozenExpr, new_fields
from tilewright.graphir.constant import Constant as Constant
from tilewright.graphir.control_flow import If as If
from tilewright.graphir.control_flow import Loop as Loop
from tilewright.graphir.op import NoAttrs, Operator, get_operator, set_call_maker
from tilewright.graphir.types import FuncType, TensorType, TupleType, Type
from tilewright.tensorir.dtype import DataType, as_dtype
from tilewright.tensorir.errors import TypeInferenceError
from tilewright.tensorir.notebook import html_text

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Var(FrozenExpr):
    """A variable: a function's parameter, or what a ``Let`` binds. Identity is the variable; the name is for people."""

    __slots__ = ("name",)

    name: str

    def __init__(self, name: str, type: Type | None = None, span: str | None = None) -> None:
        if type is not None and not isinstance(type, Type):
            raise TypeError(f"variable {name}: expected a type, found {type!r}")
        new_fields(self, name=name, type=type, span=span)


class GlobalVar(FrozenExpr):
    """The name of a function of the module. ``type`` is that of the function where it is known."""

    __slots__ = ("name",)

    name: str

    def __init__(self, name: str, type: Type | None = None) -> None:
        new_fields(self, name=name, type=type, span=None)


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

    __slots__ = ("args", "attrs", "op")

    op: Operator | Expr
    args: tuple[Expr, ...]
    attrs: Any

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
        for number, arg in enumerate(args):
            if not isinstance(arg, Expr):
                raise TypeError(f"argument {number} of a call is no graph expression: {arg!r}; wrap values in gi.const")
        if isinstance(op, Operator):
            if attrs is None or isinstance(attrs, Mapping):
                attrs = op.make_attrs(attrs or {})
            elif not isinstance(attrs, op.Attrs):
                raise TypeError(f"{op.name}: expected attributes {op.Attrs.__name__}, found {attrs!r}")
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

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args if isinstance(self.op, (Operator, GlobalVar)) else (self.op, *self.args)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        op: Operator | Expr = self.op
        args = tuple(children)
        if not isinstance(op, (Operator, GlobalVar)):
            op, args = args[0], args[1:]
        known = self.type if _same_types(args, self.args) and op is self.op else None
        return Call(op, args, self.attrs, known, self.span)


# As calls are most of a graph, their fields are set without a look for each by its name.
_set_op, _set_args, _set_attrs = (vars(Call)[name].__set__ for name in ("op", "args", "attrs"))
_set_type, _set_span = vars(Expr)["type"].__set__, vars(Expr)["span"].__set__


def _same_types(new: Sequence[Expr], old: Sequence[Expr]) -> bool:
    """Whether types need no new inference: they are the same objects or equal. Inference costs more than comparing."""
    for a, b in zip(new, old, strict=True):
        if a.type is not b.type and (a.type is None or a.type != b.type):
            return False
    return True


def infer_call_type(op: Operator, args: Sequence[Expr], attrs: Any, span: str | None = None) -> Type | None:
    """The type of an operator's result; None if an argument's type is not known yet.

    Raises:
        TypeInferenceError: the arguments do not fit.
    """
    types = [arg.type for arg in args]
    if None in types:
        return None
    try:
        op.check_arguments(types)  # type: ignore[arg-type]
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


def _function_result(op: Expr, args: Sequence[Expr]) -> Type | None:
    signature = op.type
    if signature is None:
        return None
    name = op.name if isinstance(op, (GlobalVar, Var)) else "function"
    if not isinstance(signature, FuncType):
        raise TypeInferenceError(f"call of {name}: expected a function, found {signature}")
    if len(signature.params) != len(args):
        raise TypeInferenceError(f"{name}: expected {len(signature.params)} arguments, found {len(args)}")
    for number, (param, arg) in enumerate(zip(signature.params, args, strict=True)):
        if arg.type is not None and arg.type != param:
            raise TypeInferenceError(f"{name}: argument {number}: expected {param}, found {arg.type}")
    return signature.result


class Tuple(FrozenExpr):
    """Several values as one."""

    __slots__ = ("fields",)

    fields: tuple[Expr, ...]

    def __init__(self, fields: Iterable[Expr], span: str | None = None) -> None:
        fields = tuple(fields)
        types = [field.type for field in fields]
        new_fields(self, fields=fields, type=None if None in types else TupleType(types), span=span)  # type: ignore[arg-type]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.fields

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return Tuple(children, self.span)


class TupleGetItem(FrozenExpr):
    """One field of a tuple.

    Raises:
        TypeInferenceError: the value is no tuple, or has no such field.
    """

    __slots__ = ("index", "value")

    value: Expr
    index: int

    def __init__(self, value: Expr, index: int, span: str | None = None) -> None:
        found: Type | None = None
        if value.type is not None:
            if not isinstance(value.type, TupleType):
                raise TypeInferenceError(f"field {index}: expected a tuple, found {value.type}")
            if not 0 <= index < len(value.type.fields):
                raise TypeInferenceError(f"field {index}: the tuple has {len(value.type.fields)} fields")
            found = value.type.fields[index]
        new_fields(self, value=value, index=index, type=found, span=span)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value,)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return TupleGetItem(children[0], self.index, self.span)


class Let(FrozenExpr):
    """``var`` stands for ``value`` in ``body``."""

    __slots__ = ("body", "value", "var")

    var: Var
    value: Expr
    body: Expr

    def __init__(self, var: Var, value: Expr, body: Expr, span: str | None = None) -> None:
        if var.type is not None and value.type is not None and var.type != value.type:
            raise TypeInferenceError(f"let {var.name}: expected {var.type}, found {value.type}")
        new_fields(self, var=var, value=value, body=body, type=body.type, span=span)

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.value, self.var, self.body)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        value, var, body = children
        assert isinstance(var, Var)
        return Let(var, value, body, self.span)


class Function(FrozenExpr):
    """A function of tensors.

    Args:
        params: its parameters.
        body: its result in terms of them (and of enclosing functions' variables).
        ret_type: the declared result type; checked against the body's.
        attrs: plain data about the function (``Primitive``: a fused group; ``SkipOptimization``: leave it alone).
    """

    __slots__ = ("attrs", "body", "params", "ret_type")

    params: tuple[Var, ...]
    body: Expr
    ret_type: Type | None
    attrs: Mapping[str, Any]

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
                raise TypeError(f"a function's parameter is a variable, found {param!r}")
        if len(set(params)) != len(params):
            raise ValueError("a function's parameters must be different variables")
        if not isinstance(body, Expr):
            raise TypeError(f"a function's body is a graph expression, found {type(body).__name__}")
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

    @property
    def children(self) -> tuple[Expr, ...]:
        return (*self.params, self.body)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        *params, body = children
        return Function(params, body, self.ret_type, self.attrs, self.span)  # type: ignore[arg-type]

    def with_body(self, body: Expr) -> Function:
        """The same function with another body; itself if the body is the same."""
        return self if body is self.body else Function(self.params, body, None, self.attrs, self.span)

    def with_attr(self, name: str, value: Any) -> Function:
        """The same function with attribute ``name`` set."""
        return Function(self.params, self.body, self.ret_type, {**self.attrs, name: value}, self.span)

    def _repr_html_(self) -> str:
        return html_text(str(self))


# Making expressions from what users write.


def var(name: str, type: Type | None = None, *, shape: Iterable[Any] | None = None, dtype: Any = "float32") -> Var:
    """A variable: ``var("x", TensorType(...))``, or ``var("x", shape=("batch", 784), dtype="float32")``.

    Strings in ``shape`` name symbolic dimensions.
    """
    if type is not None and not isinstance(type, Type):
        raise TypeError(f"variable {name}: expected a type, found {type!r}; give a shape as shape=...")
    if type is not None and shape is not None:
        raise TypeError(f"variable {name}: give a type or a shape, not both")
    return Var(name, TensorType(shape, dtype) if shape is not None else type)


def const(value: Any, dtype: Any = None) -> Constant:
    """A constant from an array, a scalar or nested lists; Python floats are float32, integers int64.

    Arrays are shared, not copied, unless ``dtype`` asks for a conversion.

    Raises:
        TypeError: the value is no array of numbers.
    """
    if isinstance(value, Constant):
        value = value.data
    wanted = None if dtype is None else as_dtype(dtype).numpy
    if isinstance(value, (bool, int, float)) and wanted is None:
        wanted = np.dtype(bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float32)
    elif not hasattr(value, "dtype") and wanted is None:
        array = np.asarray(value)
        wanted = np.dtype(np.float32) if array.dtype == np.float64 else array.dtype
    array = np.asarray(value) if wanted is None else np.asarray(value).astype(wanted, copy=False)
    try:
        as_dtype(array.dtype)
    except ValueError as error:
        raise TypeError(f"a constant holds numbers, found an array of {array.dtype}: {error}") from None
    return Constant(array)


def as_expr(value: Any, like: DataType | None = None) -> Expr:
    """``value`` as an expression. A Python number takes the element type ``like`` of the tensor beside it.

    Raises:
        TypeInferenceError: a Python float beside an integer tensor, which would lose its fraction.
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
    """The element type that Python numbers among ``args`` take: that of the first tensor, else of the first array."""
    tensors = args[op.literals_from :]
    for arg in tensors:
        if isinstance(arg, Expr) and isinstance(arg.type, TensorType):
            return arg.type.dtype
    for arg in tensors:
        if isinstance(arg, (np.ndarray, np.generic)):
            return as_dtype(arg.dtype)
    return None


def _unpack(sequence: Any) -> list[Any] | None:
    """The parts of a list, a tuple or a tuple-typed expression; None for anything else."""
    if isinstance(sequence, Tuple):
        return list(sequence.fields)
    if isinstance(sequence, (list, tuple)):
        return list(sequence)
    if isinstance(sequence, Expr) and isinstance(sequence.type, TupleType):
        return [TupleGetItem(sequence, number) for number in range(len(sequence.type.fields))]
    return None


def make_call(op: Operator, args: Sequence[Any], attrs: Mapping[str, Any]) -> Expr:
    """A call of ``op`` on what the user gave: expressions, arrays, numbers; keywords name arguments or attributes."""
    attrs = dict(attrs)
    given = list(args)
    if op.variadic and len(given) > op.required:
        parts = _unpack(given[op.required])
        if parts is not None:  # concatenate([x, y], 1): the list is the arguments, attributes may follow it
            free = [name for name in op.attr_names if name not in attrs]
            attrs.update(zip(free, given[op.required + 1 :], strict=False))
            given[op.required :] = parts
    names = [name.rstrip("?") for name in op.arguments if not name.startswith("*")]
    for position, name in enumerate(names):
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
    like = _element_type(op, given)
    try:
        exprs = [as_expr(arg, like) for arg in given]
    except TypeInferenceError as error:
        raise TypeInferenceError(f"{op.name}: {error}") from None
    if len(exprs) < op.required:
        missing = ", ".join(op.arguments[len(exprs) : op.required])
        raise TypeInferenceError(f"{op.name}: missing argument {missing}")
    return Call(op, exprs, op.make_attrs(attrs))


set_call_maker(make_call)
