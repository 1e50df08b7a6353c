"""Records written out for the compiler are what they were, and constants of modules are marked as such."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
import sys
from pathlib import Path
from types import ModuleType

import accelerated
import pytest
from records import write_out

from tilewright.tensorir.arith import interval

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''from __future__ import annotations

import dataclasses
from typing import NamedTuple


class Place(NamedTuple):
    """Somewhere."""

    name: str
    weight: float = float(
        "-inf"
    )

    @property
    def known(self) -> bool:
        return self.weight >= 0

    def __repr__(self) -> str:
        return f"<{self.name}>"


@dataclasses.dataclass(frozen=True)
class Pair:
    left: Place
    right: Place | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass
class Listed:
    items: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Checked:
    size: int

    def __post_init__(self) -> None:
        assert self.size
'''


@pytest.fixture(params=["source", "written out"])
def records(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # Compiled code sets fields in memory, whatever a frozen dataclass refuses.
    text = SOURCE if request.param == "source" else write_out(SOURCE).replace("(frozen=True)", "(unsafe_hash=True)")
    module = ModuleType("some_records")
    monkeypatch.setitem(sys.modules, "some_records", module)
    exec(compile(text, "some_records.py", "exec"), vars(module))
    return module


def test_named_tuples_are_compared_and_taken_apart_as_ever(records: ModuleType) -> None:
    place = records.Place("here", 1 << 60)
    assert place == records.Place(name="here", weight=1 << 60) and place == ("here", 1 << 60)
    assert place != records.Place("there", 1 << 60) and place != "here"
    assert len({place, records.Place("here", 1 << 60)}) == 1 and hash(place) == hash(("here", 1 << 60))
    name, weight = place
    assert (name, weight, place[0], len(place)) == ("here", 1 << 60, "here", 2)
    assert not records.Place("nowhere").known
    assert place._replace(name="there") == ("there", 1 << 60)
    assert repr(place) == "<here>"
    assert pickle.loads(pickle.dumps(place)) == copy.copy(place) == place


def test_dataclasses_are_made_as_ever(records: ModuleType) -> None:
    here, there = records.Place("here"), records.Place("there")
    assert records.Pair(here, there) == records.Pair(left=here)
    assert records.Pair(here).right is None
    assert records.Listed().items is not records.Listed().items
    with pytest.raises(AssertionError):
        records.Checked(0)


def test_only_a_constructor_that_sets_fields_is_written_out() -> None:
    text = write_out(SOURCE)
    made = {node.name: ast.unparse(node) for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    assert ["def __init__" in made[name] for name in ("Place", "Pair", "Listed", "Checked")] == [1, 1, 0, 0]
    assert "NamedTuple" not in made["Place"]
    assert "weight: int | float\n" in made["Place"]  # compiled code would make a float of an integer


def test_what_has_no_records_stays_as_it_is() -> None:
    text = "from __future__ import annotations\n\nclass Plain:\n    x: int\n"
    assert write_out(text) is text


def test_intervals_take_the_same_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("written_out")
    monkeypatch.setitem(sys.modules, "written_out", module)
    text = write_out((ROOT / "tensorir" / "arith" / "interval.py").read_text(encoding="utf-8"))
    exec(compile(text, "interval.py", "exec"), vars(module))
    given = inspect.signature(module.Interval).parameters
    assert list(given) == list(inspect.signature(interval.Interval).parameters)
    assert module.add(module.Interval(1, 2), module.Interval(3, 4)) == interval.Interval(4, 6)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("LIMIT = 1 << 10", "LIMIT: typing.Final = 1 << 10"),
        ("TABLE: dict[str, int] = {}", "TABLE: typing.Final[dict[str, int]] = {}"),
        ("NAMES = ('a', 'b')", "NAMES: typing.Final = ('a', 'b')"),
        ("NUMBERS = (1.5, 2)", None),
        ("PAIR: tuple[float, int] = f()", None),
        ("MANY: tuple[float, ...] = f()", "MANY: typing.Final[tuple[float, ...]] = f()"),
        ("_set = object.__setattr__", "_set: typing.Final = object.__setattr__"),
        ("Number = int | float", None),
        ('T = TypeVar("T")', None),
        ("Alias = dict[str, int]", None),
        ("known: Final = 3", None),
        ("changed = 3", None),
        ("twice = 3", None),
        ("nothing = None", None),
    ],
)
def test_names_that_are_set_once_are_constants(line: str, read: str | None) -> None:
    later = "def f():\n    global changed\n    changed = 4\n\n\nif T:\n    twice = 4\n"
    text = f"from __future__ import annotations\n\n{line}\n\n\n{later}"
    assert accelerated.rewritten(text).split("\n")[2] == (read or line)


def test_a_constant_that_compiled_code_would_not_find_is_refused() -> None:
    wrong = """    if (likely(cpy_r_r0.f0 != -113.0 && PyErr_Occurred())) goto CPyL3;
    PyErr_SetString(PyExc_NameError, "value for final name \\"_LOG\\" was not set");
"""
    with pytest.raises(ValueError, match="_LOG is a constant that begins with a float"):
        accelerated._refuse_miscompiled(wrong)
    accelerated._refuse_miscompiled(wrong.replace("-113.0 && PyErr_Occurred()", "NULL"))


def test_fields_of_nodes_are_set_in_memory() -> None:
    text = 'from __future__ import annotations\n\ndef f(node):\n    _set(node, "_kinds", g(1, 2))\n'
    assert "    node._kinds = g(1, 2)\n" in accelerated.rewritten(text)
