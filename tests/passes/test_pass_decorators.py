"""``module_pass``, ``function_pass``, ``primfunc_pass``: on functions and classes; and ``PassInfo``."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import (
    FunctionPass,
    ModulePass,
    Pass,
    PassInfo,
    PrimFuncPass,
    function_pass,
    module_pass,
    primfunc_pass,
)

DECORATORS = pytest.mark.parametrize(
    ("decorator", "kind"), [(module_pass, ModulePass), (function_pass, FunctionPass), (primfunc_pass, PrimFuncPass)]
)


def identity(*args: Any) -> Any:
    """A pass that changes nothing: the first argument is the module or function."""
    return args[0]


@DECORATORS
def test_a_decorated_function_is_a_pass_named_after_it(decorator: Any, kind: type[Pass]) -> None:
    made = decorator(opt_level=2)(identity)
    assert isinstance(made, kind)
    assert made.info == PassInfo("identity", 2, ())


@DECORATORS
def test_name_and_required_go_into_the_info(decorator: Any, kind: type[Pass]) -> None:
    made = decorator(opt_level=1, name="Other", required=["A", "B"])(identity)
    assert made.info == PassInfo("Other", 1, ("A", "B"))


@DECORATORS
def test_the_decorator_can_be_called_with_the_function_at_once(decorator: Any, kind: type[Pass]) -> None:
    assert isinstance(decorator(identity, opt_level=1), kind)


@DECORATORS
def test_a_missing_level_is_a_value_error(decorator: Any, kind: type[Pass]) -> None:
    with pytest.raises(ValueError, match="opt_level"):
        decorator()
    with pytest.raises(ValueError, match="opt_level"):
        decorator(identity)


@DECORATORS
@pytest.mark.parametrize("required", ["A", {"A"}, 1, ["A", 2]], ids=str)
def test_required_must_be_a_list_or_tuple_of_names(decorator: Any, kind: type[Pass], required: Any) -> None:
    with pytest.raises(TypeError, match="required"):
        decorator(opt_level=1, required=required)


@DECORATORS
def test_only_functions_and_classes_can_be_decorated(decorator: Any, kind: type[Pass]) -> None:
    with pytest.raises(TypeError, match="decorates a function or a class"):
        decorator(opt_level=1)("a string")


@DECORATORS
def test_a_decorated_class_makes_passes_and_keeps_its_constructor(decorator: Any, kind: type[Pass]) -> None:
    @decorator(opt_level=1, name="Counts")
    class Counts:
        """A pass that counts."""

        limit = 7

        def __init__(self, start: int, *, step: int = 1) -> None:
            self.start, self.step = start, step

        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            return func

    made = Counts(3, step=2)
    assert isinstance(made, kind)
    assert isinstance(made, Counts)
    assert (made.start, made.step, made.limit) == (3, 2, 7)
    assert made.info == Counts.info == PassInfo("Counts", 1)  # type: ignore[attr-defined]
    assert (Counts.__name__, Counts.__doc__) == ("Counts", "A pass that counts.")
    with pytest.raises(TypeError, match="start"):
        Counts()  # type: ignore[call-arg]


def test_the_name_of_a_class_is_the_default_name_of_its_passes() -> None:
    @module_pass(opt_level=0)
    class Nothing:
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    assert Nothing().info.name == "Nothing"  # type: ignore[attr-defined]


@DECORATORS
def test_a_class_without_the_transform_method_is_refused(decorator: Any, kind: type[Pass]) -> None:
    class Empty:
        pass

    with pytest.raises(TypeError, match=r"Empty has no method transform_(module|function)\(self, "):
        decorator(opt_level=1)(Empty)


def test_a_class_that_already_is_a_pass_keeps_its_bases(mod: IRModule) -> None:
    @module_pass(opt_level=1)
    class Direct(ModulePass):
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    assert Direct().info == PassInfo("Direct", 1)
    assert Direct()(mod) is mod


def test_a_module_pass_class_cannot_become_a_function_pass() -> None:
    class Direct(ModulePass):
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    with pytest.raises(TypeError, match="cannot become a FunctionPass"):
        function_pass(opt_level=1)(Direct)


def test_one_class_decorated_twice_gives_two_independent_kinds_of_pass() -> None:
    class Direct(ModulePass):
        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    first = module_pass(Direct, opt_level=1, name="First")
    second = module_pass(Direct, opt_level=2, name="Second")
    assert (first().info.name, second().info.name) == ("First", "Second")


def test_methods_of_a_class_cannot_get_in_the_way_of_running_it(mod: IRModule) -> None:
    @module_pass(opt_level=1)
    class Awkward:
        def _run(self) -> None:
            raise AssertionError("this is not the infrastructure's method")

        def __call__(self) -> None:
            raise AssertionError("nor is this")

        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    assert Awkward()(mod) is mod  # type: ignore[call-arg, func-returns-value]


def test_a_decorated_function_keeps_its_docstring() -> None:
    assert module_pass(identity, opt_level=1).__doc__ == identity.__doc__


def test_a_pass_without_its_transform_cannot_be_made() -> None:
    class Incomplete(FunctionPass):
        info = PassInfo("Incomplete", 0)

    with pytest.raises(TypeError, match="abstract"):
        Incomplete()  # type: ignore[abstract]


def test_pass_info_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PassInfo("P", 1).name = "Q"  # type: ignore[misc]


@pytest.mark.parametrize("arguments", [(1, 1), ("P", "1"), ("P", True), ("P", 1, "Q")], ids=str)
def test_pass_info_refuses_wrong_types(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        PassInfo(*arguments)


def test_pass_info_takes_a_list_and_keeps_a_tuple() -> None:
    assert PassInfo("P", 1, ["A"]).required == ("A",)  # type: ignore[arg-type]


def test_a_pass_shows_its_kind_name_and_level() -> None:
    assert repr(function_pass(identity, opt_level=1)) == "<FunctionPass identity, opt_level 1>"
