"""``first_wrong`` halves steps until it has the one that makes a model wrong."""

from __future__ import annotations

import math

import pytest

from tilewright.passes.first_wrong import FirstWrong, first_wrong


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_the_first_wrong_step_is_found_in_log2_questions(count: int) -> None:
    for guilty in range(1, count + 1):
        asked: list[int] = []

        def problem_after(steps: int, guilty: int = guilty, asked: list[int] = asked) -> str | None:
            asked.append(steps)
            return f"wrong after {steps}" if steps >= guilty else None

        assert first_wrong(count, problem_after, f"wrong after {count}") == FirstWrong(guilty, f"wrong after {guilty}")
        assert len(asked) <= math.ceil(math.log2(count))
        assert len(set(asked)) == len(asked)
        assert not {0, count} & set(asked)  # what is known is not asked


def test_where_right_and_wrong_take_turns_it_is_a_step_from_right_to_wrong() -> None:
    wrong = {3, 4, 8, 11, 12}
    found = first_wrong(12, lambda steps: steps if steps in wrong else None, 12)
    assert found.count in wrong and found.count - 1 not in wrong
    assert found.problem == found.count
