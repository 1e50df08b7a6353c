"""``register_pass``, ``get_pass``, ``list_passes``."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.graphir.module import IRModule
from tilewright.passes import (
    ModulePass,
    Pass,
    PassInfo,
    Sequential,
    function_pass,
    get_pass,
    list_passes,
    module_pass,
    primfunc_pass,
    register_pass,
    unregister_pass,
)
from tilewright.tensorir.errors import PassError, UnknownPassError

pytestmark = pytest.mark.usefixtures("scratch_registry")


def same(mod: Any, ctx: Any) -> Any:
    return mod


def test_a_pass_object_is_got_as_it_is() -> None:
    made = module_pass(same, opt_level=1, name="SomePass")
    assert register_pass(made) is made
    assert get_pass("SomePass") is made


def test_a_decorated_function_registers_by_decorator() -> None:
    @register_pass
    @primfunc_pass(opt_level=1, name="SomePass")
    def some_pass(func: Any, mod: Any, ctx: Any) -> Any:
        return func

    assert get_pass("SomePass") is some_pass


def test_a_decorated_class_registers_by_decorator_and_gives_a_new_pass_each_time(mod: IRModule) -> None:
    @register_pass
    @function_pass(opt_level=1, name="SomePass")
    class SomePass:
        def __init__(self, limit: int = 3) -> None:
            self.limit = limit

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            return func

    first, second = get_pass("SomePass"), get_pass("SomePass")
    assert isinstance(first, SomePass)
    assert first is not second
    assert first(mod) is mod
    assert SomePass(limit=4).limit == 4


def test_a_factory_is_registered_under_its_name() -> None:
    @register_pass
    def FoldEverything() -> Pass:
        return Sequential([], name="FoldEverything")

    assert get_pass("FoldEverything").info.name == "FoldEverything"


def test_an_explicit_name_wins_also_as_a_decorator() -> None:
    register_pass(module_pass(same, opt_level=1), name="First")

    @register_pass(name="Second")
    def factory() -> Pass:
        return Sequential([])

    assert get_pass("First").info.name == "same"
    assert isinstance(get_pass("Second"), Sequential)
    assert "factory" not in list_passes()


def test_list_passes_is_sorted_and_has_what_was_registered() -> None:
    for name in ("ZLast", "AFirst"):
        register_pass(module_pass(same, opt_level=1, name=name), override=True)
    listed = list_passes()
    assert listed == sorted(listed)
    assert {"ZLast", "AFirst"} <= set(listed)


def test_an_unknown_name_lists_the_closest_nearest_first() -> None:
    for name in ("SimplifyFloats", "SimplifyInts", "Vectorize"):
        register_pass(module_pass(lambda mod, ctx: mod, opt_level=1, name=name), override=True)
    with pytest.raises(UnknownPassError, match=r"unknown pass 'SimplifyInt'\. Did you mean 'SimplifyInts', 'Simplify"):
        get_pass("SimplifyInt")


def test_case_does_not_hide_the_closest_name() -> None:
    register_pass(module_pass(same, opt_level=1, name="HoistLoadsOut"))
    with pytest.raises(UnknownPassError, match="Did you mean 'HoistLoadsOut'"):
        get_pass("HOISTLOADSOUT")


@pytest.mark.parametrize("kind", [KeyError, PassError])
def test_an_unknown_name_is_a_key_error_and_a_pass_error(kind: type[Exception]) -> None:
    with pytest.raises(kind):
        get_pass("NoSuchPassAtAll")


def test_a_name_taken_by_another_definition_is_refused_unless_overridden() -> None:
    first = module_pass(same, opt_level=1, name="Taken")
    second = module_pass(lambda mod, ctx: mod, opt_level=1, name="Taken")
    register_pass(first)
    with pytest.raises(PassError, match="'Taken' is taken"):
        register_pass(second)
    assert get_pass("Taken") is first
    register_pass(second, override=True)
    assert get_pass("Taken") is second


def test_the_same_definition_run_again_replaces_itself() -> None:
    def define() -> Pass:
        @register_pass
        @module_pass(opt_level=1, name="Again")
        def again(mod: Any, ctx: Any) -> Any:
            return mod

        return again  # type: ignore[no-any-return]

    define()
    newest = define()
    assert get_pass("Again") is newest


def test_unregister_forgets_a_pass() -> None:
    register_pass(module_pass(same, opt_level=1, name="Gone"))
    unregister_pass("Gone")
    with pytest.raises(UnknownPassError):
        get_pass("Gone")
    with pytest.raises(UnknownPassError):
        unregister_pass("Gone")


def test_a_class_that_needs_arguments_is_refused_at_registration() -> None:
    class Needs(ModulePass):
        info = PassInfo("Needs", 0)

        def __init__(self, what: int) -> None:
            self.what = what

        def transform_module(self, mod: Any, ctx: Any) -> Any:
            return mod

    with pytest.raises(TypeError, match="needs arguments"):
        register_pass(Needs)
    register_pass(lambda: Needs(3), name="Needs")
    assert isinstance(get_pass("Needs"), Needs)


@pytest.mark.parametrize("thing", [3, "FoldConstant", dict], ids=str)
def test_what_is_no_pass_is_refused(thing: Any) -> None:
    with pytest.raises(TypeError):
        register_pass(thing)


def test_a_factory_that_makes_no_pass_is_an_error_when_asked() -> None:
    register_pass(lambda: 3, name="Three")
    with pytest.raises(PassError, match="'Three': expected a Pass, found int"):
        get_pass("Three")
