"""Define the base class of operators: each operator is one class in one place.

A class states the operator's name, argument names, attributes, fusion kind, type inference, and either a loop-level
definition (``compute``) with a NumPy reference or a decomposition into other operators (``decompose``). Passes use
these facts and never the name. The single instance of the class is the function that users call: ``gi.add(x, y)``
builds a ``Call`` of it.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tilewright.graphir.traits import Traits
from tilewright.graphir.types import TensorType, Type
from tilewright.tensorir.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    TypeInferenceError,
    UnsupportedOperatorError,
)
from tilewright.tensorir.lazy import Registry

if TYPE_CHECKING:
    from tilewright.graphir.expr import Expr
    from tilewright.tensorir.tensor import Tensor

#: The fusion kinds of operators, from the easiest to fuse to the hardest. ``elementwise``: an output element depends on
#: the input elements at the same place; ``broadcast``: the same after broadcasting; ``injective``: each output element
#: depends on one element anywhere; ``reduction``: on many; ``contraction``: a sum of products over two inputs;
#: ``opaque``: nothing is known.
FUSION_KINDS = ("elementwise", "broadcast", "injective", "reduction", "contraction", "opaque")


@dataclasses.dataclass(frozen=True)
class NoAttrs:
    """The attributes of an operator that has none."""


class Operator(Traits):
    """Base of all operators. :class:`Traits` has the further facts that passes use.

    Class attributes:
        name: the name in the API and in IR text (``add``, ``nn.conv2d``).
        arguments: names of the tensor arguments, for errors; a last name with ``*`` takes any number more, a name with
            ``?`` may be left out.
        kind: one of :data:`FUSION_KINDS`.
        Attrs: frozen dataclass of the attributes; its ``__post_init__`` normalizes and checks them.
        num_outputs: 1, or the length of the result tuple.
        literals_from: Python numbers among the arguments take the element type of the first tensor at this position or
            after it.
        pure: whether calls may be removed, merged and computed at build time.
        bounded_reference: whether ``reference`` needs memory and time in proportion to its arguments and its result,
            whatever the attributes are, so that it can compute constants while a model is read.
        total_reference: whether ``reference`` has a result of the inferred type for any arguments of types that fit,
            whatever their values are, so that it can be evaluated lazily, where an error would be unexpected.
    """

    name: ClassVar[str] = ""
    arguments: ClassVar[tuple[str, ...]] = ()
    kind: ClassVar[str] = "opaque"
    Attrs: ClassVar[type] = NoAttrs
    num_outputs: ClassVar[int] = 1
    literals_from: ClassVar[int] = 0
    pure: ClassVar[bool] = True
    bounded_reference: ClassVar[bool] = True
    total_reference: ClassVar[bool] = False

    def __init__(self) -> None:
        fields = dataclasses.fields(self.Attrs)
        self.attr_names: tuple[str, ...] = tuple(field.name for field in fields)
        self.required = sum(not argument.endswith(("?", "*")) for argument in self.arguments)
        #: The names of the arguments, but that of any number more.
        self.argument_names = tuple([name.rstrip("?") for name in self.arguments if not name.startswith("*")])
        self.variadic = bool(self.arguments) and self.arguments[-1].startswith("*")
        if self.variadic:
            self.required = len(self.arguments) - 1
        # Of its own, so that ``help`` shows this text and not the class with what passes read of it.
        self.__doc__ = _documentation(self)
        self.__name__ = self.name.rpartition(".")[2]

    @property
    def __signature__(self) -> inspect.Signature:
        """The arguments and attributes, as ``help`` and editors show them."""
        kind = inspect.Parameter
        parameters: list[inspect.Parameter] = []
        for argument in self.arguments:
            if argument.startswith("*"):
                parameters.append(kind(argument[1:], kind.VAR_POSITIONAL))
            elif argument.endswith("?"):
                parameters.append(kind(argument[:-1], kind.POSITIONAL_OR_KEYWORD, default=None))
            else:
                parameters.append(kind(argument, kind.POSITIONAL_OR_KEYWORD))
        place = kind.KEYWORD_ONLY if self.variadic else kind.POSITIONAL_OR_KEYWORD
        for field in dataclasses.fields(self.Attrs):
            default = kind.empty if _is_required(field) else _default(field)
            if default is kind.empty and any(found.default is not kind.empty for found in parameters):
                place = kind.KEYWORD_ONLY  # behind what may be left out
            parameters.append(kind(field.name, place, default=default))
        return inspect.Signature(parameters)

    # Stated by the operator's class.

    def infer_type(self, args: Sequence[Any], attrs: Any) -> Type:
        """Infer the result type for argument types ``args`` (``TensorType`` unless :meth:`check_arguments` allows
        others).

        Raises:
            TypeInferenceError: they do not fit; use :meth:`error`.
        """
        raise NotImplementedError(f"operator {self.name} states no type inference")

    def reference(self, args: Sequence[Any], attrs: Any) -> Any:
        """Compute the result on NumPy arrays: an array, or a tuple of arrays if there are several outputs.

        An operator with a decomposition states none: its result is that of the decomposition. It states one all the
        same if the decomposition would be wrong or take much longer, with the reason beside it.
        """
        if self.decompose is None:
            raise NotImplementedError(f"operator {self.name} states neither a NumPy reference nor a decomposition")
        from tilewright.graphir.interpreter import evaluate_decomposition  # stands above the operators

        return evaluate_decomposition(self, args, attrs)

    #: Loop-level definition: ``compute(args: list[Tensor], attrs, out: Type) -> Tensor | list[Tensor]``.
    compute: ClassVar[Callable[..., Tensor | list[Tensor]] | None] = None
    #: Decomposition into other operators: ``decompose(args: list[Expr], attrs) -> Expr``.
    decompose: ClassVar[Callable[..., Expr] | None] = None

    #: What a call's attributes are once the types of its arguments are known: ``complete(args: list[Type], attrs) ->
    #: attrs``. For defaults that depend on the types: types that become narrower later do not change what is meant.
    complete: ClassVar[Callable[..., Any] | None] = None

    # Called by users and passes.

    def __call__(self, *args: Any, **attrs: Any) -> Expr:
        """Build a call of the operator. Numbers and arrays become constants; keywords that name arguments are
        arguments."""
        return _make_call(self, args, attrs)

    def make_attrs(self, attrs: Mapping[str, Any]) -> Any:
        """Build the attribute record.

        Raises:
            TypeInferenceError: an attribute is unknown, missing or of a wrong value.
        """
        for name in attrs:
            if name not in self.attr_names:
                close = difflib.get_close_matches(name, self.attr_names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                known = ", ".join(self.attr_names) or "none"
                raise TypeInferenceError(f"{self.name}: unknown attribute {name!r}{hint} (its attributes: {known})")
        try:
            return self.Attrs(**attrs)
        except TypeInferenceError:
            raise
        except (TypeError, ValueError) as error:
            raise TypeInferenceError(f"{self.name}: {error}") from error

    def check_arguments(self, args: Sequence[Type]) -> None:
        """Check the number of arguments and that each is a tensor.

        Raises:
            TypeInferenceError: otherwise.
        """
        if len(args) < self.required or (not self.variadic and len(args) > len(self.arguments)):
            expected = f"at least {self.required}" if self.variadic else str(len(self.arguments))
            names = ", ".join(self.arguments)
            raise TypeInferenceError(f"{self.name}: expected {expected} arguments ({names}), found {len(args)}")
        for arg in args:
            if not isinstance(arg, TensorType):
                number = [other is arg for other in args].index(True)
                raise self.error(number, "a tensor", arg)

    def argument_name(self, number: int) -> str:
        """Return the name of argument ``number`` for errors."""
        if number < len(self.arguments) and not self.arguments[number].startswith("*"):
            return self.arguments[number].rstrip("?")
        last = self.arguments[-1].strip("*") if self.arguments else "argument"
        return f"{last}[{number - (len(self.arguments) - 1)}]"

    def error(self, argument: int | str, expected: object, found: object) -> TypeInferenceError:
        """Return the error with operator, argument, expected and found."""
        name = self.argument_name(argument) if isinstance(argument, int) else argument
        return TypeInferenceError(f"{self.name}: {name}: expected {expected}, found {found}")

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (get_operator, (self.name,))


def _documentation(op: Operator) -> str:
    """Return the text of an operator for ``help``: how it is called, what it computes, and its attributes."""
    cls = type(op)
    text = f"{op.name}{op.__signature__}\n\n{inspect.cleandoc(cls.__doc__ or '')}"
    for attrs in op.Attrs.__mro__:
        doc = inspect.cleandoc(attrs.__doc__ or "")
        if "\nAttributes:\n" in doc:
            return f"{text}\n\nAttributes:\n{doc.partition(chr(10) + 'Attributes:' + chr(10))[2]}"
    return text


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


#: The operators by name; those of this project are in ``graphir.ops``.
OPERATORS: Registry[str, Operator] = Registry("tilewright.graphir.ops")

O = TypeVar("O", bound=Operator)


def register_operator(cls: type[O]) -> O:
    """Register the operator's single instance, and put it in the place of the class (a class decorator).

    A class defined anew by the same code (a notebook cell run twice) replaces the old one.

    Raises:
        TypeError: it decorates something else than a subclass of ``Operator``, or ``Attrs`` is no frozen dataclass.
        ValueError: the class states no name, one that is taken, or an unknown fusion kind.
    """
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise ArgumentTypeError(f"register_operator decorates a subclass of Operator; found {cls!r}")
    if not cls.name:
        raise ArgumentValueError(f"operator class {cls.__name__} states no name")
    module = cls.__module__
    known = OPERATORS.registered(cls.name, module) or ALIASES.registered(cls.name, module)
    if known is not None and not _is_same_definition(cls, type(known)):
        raise ArgumentValueError(f"operator {cls.name!r} is already registered")
    if cls.kind not in FUSION_KINDS:
        raise ArgumentValueError(
            f"operator {cls.name}: unknown fusion kind {cls.kind!r}; one of {', '.join(FUSION_KINDS)}"
        )
    if not (dataclasses.is_dataclass(cls.Attrs) and cls.Attrs.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        raise ArgumentTypeError(
            f"operator {cls.name}: Attrs: expected a dataclass with frozen=True, found {cls.Attrs!r}"
        )
    instance = cls()
    OPERATORS[cls.name] = instance
    return instance


def _is_same_definition(a: type[Any], b: type[Any]) -> bool:
    return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


#: Aliases by which users may call operators; IR text has the operator's own name.
ALIASES: Registry[str, Operator] = Registry("tilewright.graphir.ops")


def register_alias(name: str, operator: Operator) -> None:
    """Register ``name`` as an alias of ``operator``.

    Raises:
        ValueError: the name is taken.
    """
    if name in OPERATORS or name in ALIASES:
        raise ArgumentValueError(f"operator {name!r} is already registered")
    ALIASES[name] = operator


def get_operator(name: str) -> Operator:
    """Return the operator ``name``.

    Raises:
        UnsupportedOperatorError: there is none; the message suggests the closest names.
    """
    OPERATORS.load()
    found = OPERATORS.get(name) or ALIASES.get(name)
    if found is None:
        close = difflib.get_close_matches(name, OPERATORS, 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UnsupportedOperatorError(f"unknown operator {name!r}{hint}")
    return found


def list_operators() -> list[str]:
    """Return the names of all operators, sorted."""
    return sorted(OPERATORS)


def _unset(*_: Any) -> Any:
    raise RuntimeError("tilewright.graphir.expr has not been imported")


_make_call: Callable[[Operator, Sequence[Any], Mapping[str, Any]], Expr] = _unset


def set_call_maker(maker: Callable[[Operator, Sequence[Any], Mapping[str, Any]], Expr]) -> None:
    """Set the function that builds calls; called once, by the module of the expression classes, which imports this
    one."""
    global _make_call
    _make_call = maker
