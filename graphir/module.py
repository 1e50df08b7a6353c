"""Define the unit of compilation: a module of named functions of both IRs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from tilewright.graphir.expr import Expr, Function, GlobalVar
from tilewright.graphir.visitor import free_vars
from tilewright.tensorir.errors import ArgumentTypeError, ArgumentValueError, TilewrightError
from tilewright.tensorir.notebook import html_text
from tilewright.tensorir.stmt import PrimFunc
from tilewright.tensorir.unique_names import unique_name

AnyFunction = Function | PrimFunc


class UnknownFunctionError(TilewrightError, KeyError):
    """A module has no function with the requested name."""

    def __str__(self) -> str:
        return str(self.args[0])


class IRModule:
    """A map from ``GlobalVar`` to ``Function`` (graph IR) or ``PrimFunc`` (loop IR).

    Args:
        functions: keys are ``GlobalVar`` or names.

    Only ``update`` and ``module[name] = function`` change a module; they serve to assemble one by hand. Passes never
    change their input: they use ``with_functions`` and ``without``.

    Raises:
        TypeError: a value is no function, or a key no name.
        ValueError: two keys have the same name.
    """

    def __init__(self, functions: Mapping[GlobalVar, AnyFunction] | Mapping[str, AnyFunction] | None = None) -> None:
        self._functions: dict[GlobalVar, AnyFunction] = {}
        self._names: dict[str, GlobalVar] = {}
        for key, function in (functions or {}).items():
            if (key.name if isinstance(key, GlobalVar) else key) in self._names:
                raise ArgumentValueError(f"the module has two functions named {key}")
            self._set(key, function)

    def _set(self, key: GlobalVar | str, function: AnyFunction) -> None:
        if not isinstance(function, (Function, PrimFunc)):
            raise ArgumentTypeError(f"function {key}: expected a Function or PrimFunc, found {type(function).__name__}")
        if isinstance(key, str):
            known = self._names.get(key)
            if isinstance(function, Function) and known is not None and known.type != function.type:
                known = GlobalVar(key, function.type)
            key = GlobalVar(key) if known is None else known
        elif not isinstance(key, GlobalVar):
            raise ArgumentTypeError(f"a function's key is a GlobalVar or a name, found {key!r}")
        old = self._names.get(key.name)
        if old is not None and old is not key:  # in the same place
            self._functions = {key if known is old else known: func for known, func in self._functions.items()}
        self._functions[key] = function
        self._names[key.name] = key

    @classmethod
    def from_expr(cls, expr: Expr) -> IRModule:
        """Return the module whose ``main`` is ``expr``, or a function of its free variables, in order of first use.

        Raises:
            ValueError: two different free variables have the same name.
        """
        function = expr
        if not isinstance(function, Function):
            params = free_vars(expr)
            names = [param.name for param in params]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ArgumentValueError(
                    f"from_expr: the expression has two free variables named {twice}; make a gi.Function"
                )
            function = Function(params, expr)
        return cls({GlobalVar("main", function.type): function})

    @property
    def functions(self) -> dict[GlobalVar, AnyFunction]:
        """A copy of the functions, in order of insertion."""
        return dict(self._functions)

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the key of the function ``name``.

        Raises:
            UnknownFunctionError: there is none (also a ``KeyError``).
        """
        found = self._names.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self._names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UnknownFunctionError(
                f"no function {name!r} in the module{hint} (it has: {', '.join(self._names) or 'none'})"
            )
        return found

    def __getitem__(self, key: GlobalVar | str) -> AnyFunction:
        if isinstance(key, GlobalVar) and key in self._functions:
            return self._functions[key]
        return self._functions[self.get_global_var(key.name if isinstance(key, GlobalVar) else key)]

    def __setitem__(self, key: GlobalVar | str, function: AnyFunction) -> None:
        """Add a function, or replace the one of that name."""
        self._set(key, function)

    def __contains__(self, key: object) -> bool:
        return (key.name if isinstance(key, GlobalVar) else key) in self._names

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(dict(self._functions))

    def __len__(self) -> int:
        return len(self._functions)

    def update(self, other: IRModule | Mapping[GlobalVar, AnyFunction]) -> None:
        """Add the functions of ``other`` to this module; those of the same name are replaced."""
        functions = other._functions if isinstance(other, IRModule) else other
        for key, function in functions.items():
            self._set(key, function)

    def with_functions(self, functions: Mapping[GlobalVar, AnyFunction]) -> IRModule:
        """Return a new module with these functions added; each replaces the one with the same key."""
        new = IRModule()
        new._functions = dict(self._functions)
        new._names = dict(self._names)
        for key, function in functions.items():
            if key in new._functions and isinstance(function, (Function, PrimFunc)):
                new._functions[key] = function
            else:
                new._set(key, function)
        return new

    def without(self, keys: Iterable[GlobalVar | str]) -> IRModule:
        """Return a new module without these functions."""
        dropped = {key.name if isinstance(key, GlobalVar) else key for key in keys}
        new = IRModule()
        for key, function in self._functions.items():
            if key.name not in dropped:
                new._set(key, function)
        return new

    def unique_name(self, wanted: str) -> str:
        """Return ``wanted``, with a number appended if the module has a function of that name already."""
        return unique_name(wanted, self._names)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def __str__(self) -> str:
        from tilewright.graphir.printer import to_text  # knows every node class, and this one

        return to_text(self)

    __repr__ = __str__
