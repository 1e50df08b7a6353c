"""Find the step that makes a model wrong, by bisection.

``NumericCheck`` searches the passes since its last check this way, ``bisect_passes`` (and ``tilewright bisect``) the
passes of a build, and ``minimize`` the operators of a graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar

P = TypeVar("P")


@dataclasses.dataclass(frozen=True)
class FirstWrong(Generic[P]):
    """The shortest wrong sequence of steps that bisection has found.

    Attributes:
        count: the number of these steps; the last of them makes the model wrong.
        problem: the problem after these steps.
    """

    count: int
    problem: P


def first_wrong(count: int, problem_after: Callable[[int], P | None], problem: P) -> FirstWrong[P]:
    """Bisect ``count`` steps, passes for example, for one after which a model is wrong and before which it is right.

    If right and wrong alternate, it is one of the steps that make the model wrong. This takes at most ``log2(count)``
    calls of ``problem_after``, rounded up.

    Args:
        count: the number of steps, at least 1. Without any the model is right, with all of them it is wrong.
        problem_after: returns the problem after a number of steps (from 1 to ``count - 1``); None: the model is right.
        problem: the problem after all steps.
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
