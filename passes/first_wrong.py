"""Find the step that makes a model wrong, by halving.

``NumericCheck`` searches the passes since its last check so, ``bisect_passes`` (and with it ``tilewright bisect``) the
passes of a build, ``minimize`` the operators of a graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

P = TypeVar("P")


@dataclasses.dataclass(frozen=True)
class FirstWrong(Generic[P]):
    """The first steps with which a model is wrong.

    Attributes:
        count: how many there are; the last of them is the one to blame.
        problem: what is wrong after these.
    """

    count: int
    problem: P


def first_wrong(count: int, problem_after: Callable[[int], P | None], problem: P) -> FirstWrong[P]:
    """Halve ``count`` steps, passes for example, until one is left after which a model is wrong and before which it is
    right.

    Where right and wrong take turns, it is one of the steps that make it wrong. That takes at most ``log2(count)``
    questions, rounded up.

    Args:
        count: the number of steps, at least 1. Without any the model is right, with all of them it is wrong.
        problem_after: gives what is wrong after so many steps (from 1 to ``count - 1``); None: it is right.
        problem: what is wrong after all of them.
    """
    right, wrong = 0, FirstWrong(count, problem)
    while wrong.count - right > 1:
        middle = (right + wrong.count) // 2
        found = problem_after(middle)
        if found is None:
            right = middle
        else:
            wrong = FirstWrong(middle, found)
    return wrong
