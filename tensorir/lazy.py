"""Load modules on first use: lazy names of packages, and tables that modules fill.

``import tilewright`` loads nothing but this. A package writes its imports as ever, but under ``if TYPE_CHECKING:``, and
ends with (PEP 562)::

    if not TYPE_CHECKING:
        __getattr__, __dir__ = lazy_exports(__name__)

Type checkers and editors see plain imports, and the module behind a name is loaded when the name is used for the first
time. Entries that modules *register* are in a :class:`Registry`, which loads them when a key is unknown.
"""

from __future__ import annotations

import dis
import functools
import importlib
import importlib.util
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from types import CodeType, ModuleType
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: When the first module of Tilewright was loaded, in seconds since the epoch: a file that is changed later may not be
#: what runs.
FIRST_IMPORT = time.time()


def lazy_exports(
    package: str, otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``, whose ``__init__`` calls this behind its ``__all__``: its names
    are those of ``__all__`` that it imports under ``if TYPE_CHECKING:``, and its submodules.

    The names are read from the byte code of the caller, so that each is written once. Where one is also that of a
    submodule (``runtime.build``), it stands for what ``__init__`` imports, even after an import of the submodule.

    Args:
        otherwise: returns the value of any other name, which is not cached; raises an AttributeError if there is none.
    """
    code = sys._getframe(1).f_code
    module = sys.modules[package]
    module.__class__ = _Package
    listed: list[str] = vars(module)["__all__"]

    @functools.cache
    def exports() -> dict[str, tuple[str, str]]:
        places = _imported_names(code)
        return {name: places[name] for name in listed if name in places and places[name][0] != package}

    @functools.cache
    def is_submodule(name: str) -> bool:
        return not name.startswith("__") and importlib.util.find_spec(f"{package}.{name}") is not None

    def load(name: str) -> Any:
        if name in exports():
            source, original = exports()[name]
            value = getattr(importlib.import_module(source), original)
        elif is_submodule(name):
            value = importlib.import_module(f"{package}.{name}")
        elif otherwise is not None:
            return otherwise(name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        vars(module)[name] = value
        return value

    def public() -> list[str]:
        # Not what the file imports for itself.
        return sorted({*listed, *(name for name in vars(module) if name.startswith("__") and name.endswith("__"))})

    return load, public


def _imported_names(code: CodeType) -> dict[str, tuple[str, str]]:
    """Return the names that ``from module import name as other`` binds in module code: ``other: (module, name)``."""
    found: dict[str, tuple[str, str]] = {}
    module = name = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module, name = str(instruction.argval), None
        elif instruction.opname == "IMPORT_FROM":
            name = str(instruction.argval)
        elif instruction.opname == "STORE_NAME" and module is not None and name is not None:
            found[str(instruction.argval)], name = (module, name), None
    return found


class _Package(ModuleType):
    """A package with lazy names."""

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system makes every submodule an attribute, but what ``__all__`` lists comes out of ``load``.
        is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if not (is_submodule and name in vars(self).get("__all__", ())):
            super().__setattr__(name, value)


def import_all(package: str) -> None:
    """Import every module below ``package``."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


class Registry(MutableMapping[K, V]):
    """A table that modules of Tilewright fill when they are loaded, and users after that.

    A lookup of a missing key, or an iteration, loads those modules first.

    Args:
        module: its import loads them.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._complete = False
        #: The entries registered so far.
        self.loaded: dict[K, V] = {}

    def load(self) -> None:
        """Load the modules that fill the table. A lookup by one of these modules while it is loaded does nothing here;
        another thread waits until all are loaded."""
        if not self._complete:
            module = importlib.import_module(self._module)  # its lock is what another thread waits for
            self._complete = not getattr(module.__spec__, "_initializing", False)

    def registered(self, key: K, module: str) -> V | None:
        """Return the entry that has ``key`` before a definition in ``module`` takes it; None if it is free.
        Tilewright's own modules may be loaded in any order; for users' modules all of them are loaded first."""
        return self.loaded.get(key) if module.startswith("tilewright.") else self.get(key)

    def __getitem__(self, key: K) -> V:
        if key not in self.loaded:
            self.load()
        return self.loaded[key]

    def __setitem__(self, key: K, value: V) -> None:
        self.loaded[key] = value

    def __delitem__(self, key: K) -> None:
        self.load()
        del self.loaded[key]

    def __iter__(self) -> Iterator[K]:
        self.load()
        return iter(self.loaded)

    def __len__(self) -> int:
        self.load()
        return len(self.loaded)
