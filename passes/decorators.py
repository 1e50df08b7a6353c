"""``module_pass``, ``function_pass`` and ``primfunc_pass``: make passes of functions and classes.

A decorated function *is* a pass; a decorated class *makes* passes, and keeps its own constructor::

    @module_pass(opt_level=1)
    def AddMain(mod, ctx):
        ...
    mod = AddMain(mod)

    @function_pass(opt_level=1, name="ReplaceFunction")
    class ReplaceFunction:
        def __init__(self, new_func):
            self.new_func = new_func

        def transform_function(self, func, mod, ctx):
            return self.new_func
    mod = ReplaceFunction(f1)(mod)

All three are instances of :class:`PassDecorator`, which knows the kind of pass and the signature of its functions. The
project's own passes are all classes with defaults for all arguments, so that pipelines, users and ``get_pass`` make
them in the same way, by ``FoldConstant()``. They also subclass their kind of pass (``class
FoldConstant(FunctionPass)``), which changes nothing at run time but is visible to static checkers.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, TypeVar, overload

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.base import FunctionPass, ModulePass, Pass, PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.info import PassInfo, name_tuple, property_set
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError
from tilewright.tensorir.stmt import PrimFunc

C = TypeVar("C", bound=type[Any])
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=Pass)


class PassDecorator(Generic[F, K]):
    """Make passes of the kind ``K`` from functions of the type ``F`` and from classes that have such a method.

    Args:
        name: the decorator's own name, for errors.
        kind: the base class of its passes.
        method: the method that a pass of that kind defines.
        arguments: the method's arguments after ``self``, for errors.
        doc: the decorator's docstring.
    """

    def __init__(self, name: str, kind: type[Any], method: str, arguments: str, doc: str) -> None:
        self.__name__, self.__doc__ = name, doc
        self.kind = kind
        self.method = method
        self.arguments = arguments
        self._of_function = _class_of_function_passes(kind, method)

    @overload
    def __call__(
        self,
        pass_func: C,
        *,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        requires: Collection[str] = (),
        provides: Collection[str] = (),
        invalidates: Collection[str] = (),
    ) -> C: ...
    @overload
    def __call__(
        self,
        pass_func: F,
        *,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        requires: Collection[str] = (),
        provides: Collection[str] = (),
        invalidates: Collection[str] = (),
    ) -> K: ...
    @overload
    def __call__(
        self,
        pass_func: None = None,
        *,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        requires: Collection[str] = (),
        provides: Collection[str] = (),
        invalidates: Collection[str] = (),
    ) -> Decoration[K]: ...
    def __call__(
        self,
        pass_func: Any = None,
        *,
        opt_level: int | None = None,
        name: str | None = None,
        required: Sequence[str] | None = None,
        requires: Collection[str] = (),
        provides: Collection[str] = (),
        invalidates: Collection[str] = (),
    ) -> Any:
        """Decorate ``pass_func``, or return the decorator with these arguments.

        Args:
            pass_func: the function or class; left out in the form ``@decorator(...)``.
            opt_level: the level from which pipelines run the pass.
            name: the pass's name; that of the function or class by default.
            required: names of the passes that pipelines run right before this one.
            requires: properties that modules must have before the pass (``passes/properties.py``).
            provides: properties that modules have after it.
            invalidates: properties that modules no longer have after it.

        Raises:
            ValueError: ``opt_level`` is missing.
            TypeError: ``required`` is no list or tuple of names, one of the properties is no name, or the class lacks
                its method.
        """
        if opt_level is None:
            own = self.__name__
            raise ArgumentValueError(
                f"{own} needs opt_level, the level from which the pass is enabled: {own}(opt_level=1)"
            )
        stated = {
            "requires": property_set(requires, f"requires of {self.__name__}"),
            "provides": property_set(provides, f"provides of {self.__name__}"),
            "invalidates": property_set(invalidates, f"invalidates of {self.__name__}"),
        }
        decoration = Decoration(self, opt_level, name, name_tuple(required, f"required of {self.__name__}"), stated)
        return decoration if pass_func is None else decoration(pass_func)

    def make(self, function: Callable[..., Any], info: PassInfo) -> K:
        """Make the pass that calls ``function``."""
        made: K = self._of_function(function, info)
        return made

    def derive(self, cls: type[Any], info: PassInfo) -> type[Any]:
        """Make the class of passes from ``cls``.

        Raises:
            TypeError: ``cls`` is a pass of another kind, or lacks the method.
        """
        kind, method = self.kind, self.method
        if issubclass(cls, Pass) and not issubclass(cls, kind):
            raise ArgumentTypeError(
                f"{cls.__name__} is a {cls.__mro__[1].__name__} and cannot become a {kind.__name__}"
            )
        if not callable(getattr(cls, method, None)) or getattr(getattr(cls, method), "__isabstractmethod__", False):
            raise ArgumentTypeError(
                f"{self.__name__}: class {cls.__name__} has no method {method}(self, {self.arguments})"
            )
        namespace: dict[str, Any] = {
            "info": info,
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
        }
        if issubclass(cls, Pass):
            return types.new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(namespace))
        for inner in ("__call__", "_run", "_run_instrumented", "_transform"):
            # ``cls`` precedes its new base in the method resolution order; these must be the base's in any case.
            namespace[inner] = getattr(kind, inner)
        return types.new_class(cls.__name__, (cls, kind), exec_body=lambda body: body.update(namespace))


class Decoration(Generic[K]):
    """A :class:`PassDecorator` with its arguments, to be applied to a function or class."""

    def __init__(
        self,
        decorator: PassDecorator[Any, K],
        opt_level: int,
        name: str | None,
        required: tuple[str, ...],
        stated: dict[str, frozenset[str]],
    ) -> None:
        self._decorator = decorator
        self._opt_level = opt_level
        self._name = name
        self._required = required
        self._stated = stated

    @overload
    def __call__(self, decorated: C) -> C: ...
    @overload
    def __call__(self, decorated: Callable[..., Any]) -> K: ...
    def __call__(self, decorated: Any) -> Any:
        if not callable(decorated):
            raise ArgumentTypeError(f"{self._decorator.__name__} decorates a function or a class; found {decorated!r}")
        name = self._name if self._name is not None else getattr(decorated, "__name__", type(decorated).__name__)
        info = PassInfo(
            name,
            self._opt_level,
            self._required,
            bool(getattr(decorated, "essential", False)),
            family=getattr(decorated, "family", "passes"),
            requires=self._stated["requires"],
            provides=self._stated["provides"],
            invalidates=self._stated["invalidates"],
        )
        if isinstance(decorated, type):
            return self._decorator.derive(decorated, info)
        return self._decorator.make(decorated, info)


def _class_of_function_passes(kind: type[Any], method: str) -> Callable[[Callable[..., Any], PassInfo], Any]:
    """Make the class of passes of a kind whose method is a function given to the constructor."""

    def initialize(self: Any, function: Callable[..., Any], info: PassInfo) -> None:
        self.function, self.info = function, info
        functools.update_wrapper(self, function)

    def transform(self: Any, *args: Any) -> Any:
        return self.function(*args)

    namespace = {"__init__": initialize, method: transform, "__module__": __name__}
    return types.new_class(f"{kind.__name__}OfFunction", (kind,), exec_body=lambda body: body.update(namespace))


module_pass: PassDecorator[Callable[[IRModule, PassContext], IRModule], ModulePass] = PassDecorator(
    "module_pass",
    ModulePass,
    "transform_module",
    "mod, ctx",
    """Make a ``ModulePass`` of a function ``(mod, ctx)``, or of a class with ``transform_module(self, mod, ctx)``.

    Arguments and errors are those of :meth:`PassDecorator.__call__`.
    """,
)

function_pass: PassDecorator[Callable[[Function, IRModule, PassContext], Function], FunctionPass] = PassDecorator(
    "function_pass",
    FunctionPass,
    "transform_function",
    "func, mod, ctx",
    """Make a ``FunctionPass`` of a function ``(func, mod, ctx)``, or of a class with ``transform_function``.

    It runs on the graph-level functions of a module. Arguments and errors are those of ``module_pass``.
    """,
)

primfunc_pass: PassDecorator[Callable[[PrimFunc, IRModule, PassContext], PrimFunc], PrimFuncPass] = PassDecorator(
    "primfunc_pass",
    PrimFuncPass,
    "transform_function",
    "func, mod, ctx",
    """Make a ``PrimFuncPass`` of a function ``(func, mod, ctx)``, or of a class with ``transform_function``.

    It runs on the loop-level functions of a module. Arguments and errors are those of ``module_pass``.
    """,
)
