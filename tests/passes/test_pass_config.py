"""Test options of passes: registration, the values that a context accepts, and the errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

import numpy as np
import pytest

from tilewright.passes import PassContext, register_config_option
from tilewright.tensorir.errors import PassError

pytestmark = pytest.mark.usefixtures("scratch_registry")

KEY = "test.UnrollSomething"


@dataclass(frozen=True)
class UnrollConfig:
    """The limits of unrolling."""

    auto_max_step: int = field(default=0, metadata={"doc": "unroll loops of at most this many steps"})
    factor: float = 1.5
    explicit: bool = False
    mode: Literal["fast", "small"] = "fast"
    target: Optional[str] = None  # noqa: UP045  both spellings have to work
    limit: int | None = None
    tiles: tuple[int, ...] = (4, 4)
    pair: tuple[str, int] = ("a", 1)
    names: list[str] = field(default_factory=list)
    table: Mapping[str, int] = field(default_factory=dict)
    anything: Any = None


@pytest.fixture(autouse=True)
def registered(scratch_registry: None) -> None:
    register_config_option(KEY, UnrollConfig)


def test_unset_options_have_their_defaults() -> None:
    assert PassContext().get_config(KEY) == UnrollConfig()


def test_a_mapping_sets_some_fields_and_leaves_the_others() -> None:
    ctx = PassContext(config={KEY: {"auto_max_step": 16}})
    assert ctx.get_config(KEY) == UnrollConfig(auto_max_step=16)
    assert dict(ctx.config) == {KEY: UnrollConfig(auto_max_step=16)}


def test_an_instance_of_the_dataclass_is_a_value_too() -> None:
    assert PassContext(config={KEY: UnrollConfig(explicit=True)}).get_config(KEY) == UnrollConfig(explicit=True)


def test_the_pass_reads_the_options_of_the_context_it_runs_in() -> None:
    with PassContext(config={KEY: {"auto_max_step": 8}}):
        assert PassContext.current().get_config(KEY).auto_max_step == 8
    assert PassContext.current().get_config(KEY).auto_max_step == 0


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("auto_max_step", np.int64(3), 3),
        ("factor", 2, 2.0),
        ("factor", np.float32(0.5), 0.5),
        ("explicit", True, True),
        ("mode", "small", "small"),
        ("target", None, None),
        ("target", "llvm", "llvm"),
        ("limit", 3, 3),
        ("tiles", [1, 2, 3], (1, 2, 3)),
        ("pair", ("b", 2), ("b", 2)),
        ("names", ["a", "b"], ["a", "b"]),
        ("table", {"a": 1}, {"a": 1}),
        ("anything", object, object),
    ],
)
def test_values_of_the_declared_type_are_kept(name: str, value: Any, kept: Any) -> None:
    found = getattr(PassContext(config={KEY: {name: value}}).get_config(KEY), name)
    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("auto_max_step", "16", "int"),
        ("auto_max_step", 1.0, "int"),
        ("auto_max_step", True, "int"),
        ("factor", "2", "float"),
        ("explicit", 1, "bool"),
        ("mode", "slow", "'fast' | 'small'"),
        ("target", 3, "str | None"),
        ("limit", "3", "int | None"),
        ("tiles", (1, "2"), "tuple[int, ...]"),
        ("tiles", 3, "tuple[int, ...]"),
        ("pair", ("a", 1, 2), "tuple[str, int]"),
        ("names", ("a",), "list[str]"),
        ("table", {"a": "b"}, "Mapping[str, int]"),
    ],
)
def test_a_wrong_type_names_key_field_expected_and_found(name: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError) as error:
        PassContext(config={KEY: {name: value}})
    assert str(error.value) == (
        f"config option '{KEY}': field '{name}': expected {expected}, found {type(value).__name__} ({value!r})"
    )
    assert isinstance(error.value, PassError)


def test_the_fields_of_an_instance_are_checked_as_well() -> None:
    with pytest.raises(TypeError, match="field 'auto_max_step': expected int, found str"):
        PassContext(config={KEY: UnrollConfig(auto_max_step="16")})  # type: ignore[arg-type]


def test_an_unknown_key_is_an_attribute_error_that_lists_the_candidates_nearest_first() -> None:
    register_config_option("test.VectorizeSomething", UnrollConfig)
    with pytest.raises(AttributeError) as error:
        PassContext(config={"test.UnrolSomething": {}})
    message = str(error.value)
    assert "unknown config option 'test.UnrolSomething'" in message
    assert message.index("test.UnrollSomething") < message.index("test.VectorizeSomething")
    assert isinstance(error.value, PassError)


def test_asking_for_an_unknown_key_is_an_attribute_error_too() -> None:
    with pytest.raises(AttributeError, match=r"nearest first: .*test.UnrollSomething"):
        PassContext().get_config("test.Unknown")


def test_an_unknown_field_lists_the_fields_nearest_first() -> None:
    with pytest.raises(AttributeError, match=r"no field 'auto_max_stp'\. Fields, nearest first: auto_max_step, "):
        PassContext(config={KEY: {"auto_max_stp": 16}})


@pytest.mark.parametrize("value", [16, None, "fast", object()], ids=["int", "none", "str", "object"])
def test_a_value_that_is_no_mapping_and_no_instance_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="expected a mapping or UnrollConfig, found"):
        PassContext(config={KEY: value})


def test_the_config_must_be_a_mapping() -> None:
    with pytest.raises(TypeError, match="config: expected a mapping"):
        PassContext(config=[KEY])  # type: ignore[arg-type]


def test_list_configs_gives_type_default_and_doc_of_each_field() -> None:
    fields = PassContext.list_configs()[KEY]
    assert fields["auto_max_step"] == {"type": "int", "default": 0, "doc": "unroll loops of at most this many steps"}
    assert fields["tiles"] == {"type": "tuple[int, ...]", "default": (4, 4), "doc": ""}
    assert fields["names"]["default"] == []
    assert list(fields)[:3] == ["auto_max_step", "factor", "explicit"]


def test_registration_works_as_a_class_decorator() -> None:
    @register_config_option("test.Decorated")
    @dataclass
    class Options:
        level: int = 1

    assert PassContext().get_config("test.Decorated") == Options()


def test_an_error_of_the_dataclass_itself_names_the_key() -> None:
    @register_config_option("test.Checked")
    @dataclass
    class Checked:
        step: int = 1

        def __post_init__(self) -> None:
            if self.step < 1:
                raise ValueError("step must be positive")

    with pytest.raises(ValueError, match="positive") as error:
        PassContext(config={"test.Checked": {"step": 0}})
    assert "in config option 'test.Checked'" in error.value.__notes__


def test_only_dataclasses_with_defaults_can_be_registered() -> None:
    @dataclass
    class NoDefault:
        step: int

    with pytest.raises(TypeError, match="needs a dataclass"):
        register_config_option("test.Bad", int)
    with pytest.raises(TypeError, match="'step' of NoDefault has no default"):
        register_config_option("test.Bad", NoDefault)


def test_a_key_belongs_to_one_class() -> None:
    @dataclass
    class Other:
        step: int = 1

    register_config_option(KEY, UnrollConfig)  # again: fine
    with pytest.raises(PassError, match="already registered with UnrollConfig"):
        register_config_option(KEY, Other)


def test_a_key_may_name_one_field() -> None:
    options = {"tensorir.UnrollLoop": {"auto_max_step": 4}, "tensorir.UnrollLoop.max_unroll": 8}
    for config in (options, dict(reversed(options.items()))):
        found = PassContext(config=config).get_config("tensorir.UnrollLoop")
        assert (found.auto_max_step, found.max_unroll) == (4, 8)
    with pytest.raises(
        AttributeError, match=r"'tensorir.UnrollLoop' has no field 'max'. Fields, nearest first: max_unr"
    ):
        PassContext(config={"tensorir.UnrollLoop.max": 8})
    with pytest.raises(AttributeError, match=r"unknown config option 'nothing\.at_all'"):
        PassContext(config={"nothing.at_all": 8})
