"""Which of several budgets is shown in detail."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtrain_search.problem import Problem
    from vtrain_search.report import Answer


def focus_label(problem: Problem, word: str | None) -> str | None:
    """Return the label of the budget that a word names, in any spelling; None for None.

    Args:
        problem: its cases carry the labels.
        word: a label as tables show it (`$1.00M`), or a spelling of the budget (`1e6usd`).

    Raises:
        UserInputError: when no budget of the search is meant.
    """
    from vtrain_search.budget import parse_budget

    labels = [case.label for case in problem.cases]
    if word is None or word in labels:
        return word
    try:
        label = parse_budget(word).label
    except UserInputError:
        label = word
    # With a loss to reach, a label ends with the budget that limits it.
    found = [one for one in labels if one == label or one.endswith(f" in {label}")]
    if len(found) != 1:
        raise UserInputError(
            f"--focus {word} is not one budget of this search",
            hint=f"one of {', '.join(repr(one) for one in dict.fromkeys(labels))}",
        )
    return found[0]


def focused(answers: Sequence[Answer | None], label: str | None) -> Answer:
    """Return the answer to show in detail: the last one, also where that budget has none.

    Args:
        answers: one a budget, at least one not None.
        label: from `focus_label`.
    """
    there = [answer for answer in answers if answer is not None]
    for answer in there:
        if answer.row["budget"] == label:
            return answer
    last = there[-1]
    if label is not None:
        sys.stderr.write(
            f"vtrain-search: nothing feasible for {label}: details are about {last.row['budget']}\n"
        )
    return last
