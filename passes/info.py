"""``PassInfo``: the description of a pass: its name, its level, its requirements and its effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.tensorir.errors import ArgumentTypeError


@dataclass(frozen=True)
class PassInfo:
    """The description of one pass, as given to instruments and trace callbacks.

    Attributes:
        name: the name that ``disabled_pass``, ``required_pass``, ``required`` and the registry use.
        opt_level: the pass is enabled in contexts of this level and above. 0 is needed for correctness; 1 simplifies
            and fuses; 2 chooses layouts, tiles and memory; 3 also rounds differently.
        required: names of the passes that a pipeline runs right before this one.
        essential: whether code generation needs the pass; other passes may be left out.
        pipeline: whether it only runs other passes, which have their own descriptions.
        family: the logger of its messages is ``tilewright.<family>``.
        requires: properties that modules must have before the pass (see ``passes/properties.py``).
        provides: properties that modules have after it.
        invalidates: properties that modules no longer have after it.

    Raises:
        TypeError: ``name`` is no string, ``opt_level`` no integer, ``required`` no list or tuple of names, or one of
            the last three no collection of names.
    """

    name: str
    opt_level: int
    required: tuple[str, ...] = ()
    essential: bool = field(default=False, compare=False)
    pipeline: bool = field(default=False, compare=False)
    family: str = field(default="passes", compare=False)
    requires: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    provides: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    invalidates: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentTypeError(f"the name of a pass is a string; found {self.name!r}")
        if isinstance(self.opt_level, bool) or not isinstance(self.opt_level, int):
            raise ArgumentTypeError(f"opt_level of pass {self.name!r} is an integer; found {self.opt_level!r}")
        object.__setattr__(self, "required", name_tuple(self.required, f"required of pass {self.name!r}"))
        for name in ("requires", "provides", "invalidates"):
            object.__setattr__(self, name, property_set(getattr(self, name), f"{name} of pass {self.name!r}"))


def name_tuple(names: object, what: str) -> tuple[str, ...]:
    """Convert ``names`` to a tuple; None means none. A single string is rejected: it would silently become its letters.

    Raises:
        TypeError: ``names`` is neither None, a list nor a tuple, or holds something else than strings.
    """
    if names is None:
        return ()
    if not isinstance(names, (list, tuple)):
        raise ArgumentTypeError(
            f"{what} must be a list or a tuple of pass names; found {type(names).__name__}: {names!r}"
        )
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{what} must hold pass names; found {type(name).__name__}: {name!r}")
    return tuple(names)


def property_set(names: object, what: str) -> frozenset[str]:
    """Convert ``names`` to a set. A single string is rejected: it would silently become its letters.

    Raises:
        TypeError: ``names`` is a string or no collection, or holds something else than strings.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentTypeError(f"{what} must be a set of property names; found {type(names).__name__}: {names!r}")
    found = frozenset(names)
    for name in found:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{what} must hold property names; found {type(name).__name__}: {name!r}")
    return found
