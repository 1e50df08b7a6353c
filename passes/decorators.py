"""``module_pass``, ``function_pass`` and ``primfunc_pass``: passes from functions and from classes.

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

The project's own passes are all classes with defaults for all arguments, so that each is made the same way,
``FoldConstant()``, in pipelines, by users and by ``get_pass``. They also subclass the kind of pass that they are
(``class FoldConstant(FunctionPass)``), which changes nothing at run time and lets static checkers see it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

from tilewright.graphir.expr import Function
from tilewright.graphir.module import IRModule
from tilewright.passes.base import FunctionPass, ModulePass, Pass, PrimFuncPass
from tilewright.passes.context import PassContext
from tilewright.passes.info import PassInfo, name_tuple
from tilewright.tensorir.stmt import PrimFunc

C = TypeVar("C", bound=type[Any])
K = TypeVar("K", bound=Pass)


class _WrappedModulePass(ModulePass):
    """A module pass made from a function."""

    def __init__(self, transform: Callable[[IRModule, PassContext], IRModule], info: PassInfo) -> None:
        self.transform, self.info = transform, info
        functools.update_wrapper(self, transform)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.transform(mod, ctx)


class _WrappedFunctionPass(FunctionPass):
    """A pass over graph functions made from a function."""

    def __init__(self, transform: Callable[[Function, IRModule, PassContext], Function], info: PassInfo) -> None:
        self.transform, self.info = transform, info
        functools.update_wrapper(self, transform)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return self.transform(func, mod, ctx)


class _WrappedPrimFuncPass(PrimFuncPass):
    """A pass over loop-level functions made from a function."""

    def __init__(self, transform: Callable[[PrimFunc, IRModule, PassContext], PrimFunc], info: PassInfo) -> None:
        self.transform, self.info = transform, info
        functools.update_wrapper(self, transform)

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return self.transform(func, mod, ctx)


class PassDecorator(Generic[K]):
    """What the three decorators return while they wait for the function or class to decorate."""

    def __init__(
        self, what: str, kind: type[Any], wrapper: Callable[[Any, PassInfo], K], options: dict[str, Any]
    ) -> None:
        opt_level = options["opt_level"]
        if opt_level is None:
            raise ValueError(f"{what} needs opt_level, the level from which the pass is enabled: {what}(opt_level=1)")
        self._what, self._kind, self._wrapper = what, kind, wrapper
        self._opt_level: int = opt_level
        self._name: str | None = options["name"]
        self._required = name_tuple(options["required"], f"required of {what}")

    @overload
    def __call__(self, decorated: C) -> C: ...
    @overload
    def __call__(self, decorated: Callable[..., Any]) -> K: ...
    def __call__(self, decorated: Any) -> Any:
        if not callable(decorated):
            raise TypeError(f"{self._what} decorates a function or a class; found {decorated!r}")
        name = self._name if self._name is not None else getattr(decorated, "__name__", type(decorated).__name__)
        info = PassInfo(
            name,
            self._opt_level,
            self._required,
            bool(getattr(decorated, "essential", False)),
            family=getattr(decorated, "family", "passes"),
        )
        if isinstance(decorated, type):
            return self._pass_class(decorated, info)
        return self._wrapper(decorated, info)

    def _pass_class(self, cls: type[Any], info: PassInfo) -> type[Any]:
        if issubclass(cls, Pass) and not issubclass(cls, self._kind):
            raise TypeError(f"{cls.__name__} is a {cls.__mro__[1].__name__} and cannot become a {self._kind.__name__}")
        method = "transform_module" if self._kind is ModulePass else "transform_function"
        if not callable(getattr(cls, method, None)) or getattr(getattr(cls, method), "__isabstractmethod__", False):
            arguments = "mod, ctx" if self._kind is ModulePass else "func, mod, ctx"
            raise TypeError(f"{self._what}: class {cls.__name__} has no method {method}(self, {arguments})")
        namespace: dict[str, Any] = {
            "info": info,
            "__doc__": cls.__doc__,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
        }
        if issubclass(cls, Pass):
            return types.new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(namespace))
        for inner in ("__call__", "_run", "_run_instrumented", "_transform"):
            # The class comes before its new base in the order of look-up; these have to be the base's in any case.
            namespace[inner] = getattr(self._kind, inner)
        return types.new_class(cls.__name__, (cls, self._kind), exec_body=lambda body: body.update(namespace))


@overload
def module_pass(
    pass_func: C,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> C: ...
@overload
def module_pass(
    pass_func: Callable[[IRModule, PassContext], IRModule],
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> ModulePass: ...
@overload
def module_pass(
    pass_func: None = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> PassDecorator[ModulePass]: ...
def module_pass(
    pass_func: Any = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Make a ``ModulePass`` of a function ``(mod, ctx)``, or of a class with ``transform_module(self, mod, ctx)``.

    Args:
        pass_func: the function or class; left out where this is written as a decorator.
        opt_level: the level from which pipelines run the pass.
        name: the pass's name; that of the function or class by default.
        required: names of the passes that pipelines run right before this one.

    Raises:
        ValueError: ``opt_level`` is missing.
        TypeError: ``required`` is no list or tuple of names, or the class lacks its method.
    """
    options = {"opt_level": opt_level, "name": name, "required": required}
    decorator = PassDecorator("module_pass", ModulePass, _WrappedModulePass, options)
    return decorator if pass_func is None else decorator(pass_func)


@overload
def function_pass(
    pass_func: C,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> C: ...
@overload
def function_pass(
    pass_func: Callable[[Function, IRModule, PassContext], Function],
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> FunctionPass: ...
@overload
def function_pass(
    pass_func: None = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> PassDecorator[FunctionPass]: ...
def function_pass(
    pass_func: Any = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Make a ``FunctionPass`` of a function ``(func, mod, ctx)``, or of a class with ``transform_function``.

    It runs on the graph-level functions of a module. Arguments and errors are those of ``module_pass``.
    """
    options = {"opt_level": opt_level, "name": name, "required": required}
    decorator = PassDecorator("function_pass", FunctionPass, _WrappedFunctionPass, options)
    return decorator if pass_func is None else decorator(pass_func)


@overload
def primfunc_pass(
    pass_func: C,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> C: ...
@overload
def primfunc_pass(
    pass_func: Callable[[PrimFunc, IRModule, PassContext], PrimFunc],
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> PrimFuncPass: ...
@overload
def primfunc_pass(
    pass_func: None = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> PassDecorator[PrimFuncPass]: ...
def primfunc_pass(
    pass_func: Any = None,
    *,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """Make a ``PrimFuncPass`` of a function ``(func, mod, ctx)``, or of a class with ``transform_function``.

    It runs on the loop-level functions of a module. Arguments and errors are those of ``module_pass``.
    """
    options = {"opt_level": opt_level, "name": name, "required": required}
    decorator = PassDecorator("primfunc_pass", PrimFuncPass, _WrappedPrimFuncPass, options)
    return decorator if pass_func is None else decorator(pass_func)
