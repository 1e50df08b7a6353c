"""Cases of a test that are compiled together."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.tensorir.errors import add_note


def together(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each of ``values`` for its parameter, or with tuples for the parameters that ``names`` lists, as
    ``pytest.mark.parametrize`` does, but as one test: what the cases give to ``check`` becomes one model, which takes
    half the time of a model for each. An error says with which values."""
    parameters = [name.strip() for name in names.split(",")]
    cases = [value if len(parameters) > 1 else (value,) for value in values]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**given: Any) -> None:
            for case in cases:
                now = dict(zip(parameters, case, strict=True))
                try:
                    test(**given, **now)
                except Exception as error:
                    add_note(error, f"with {now}")
                    raise

        others = [each for name, each in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
