"""The JSON document of `--json`; keys are only ever added."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.report.answer import Answer

SCHEMA_VERSION = 1


def document(
    answers: Sequence[Answer | None],
    *,
    assumptions: Mapping[str, Any],
    run: Mapping[str, Any],
    frontier: Mapping[str, Any] | None = None,
    what_if: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the whole answer as plain values.

    Args:
        answers: one a budget; None where nothing was feasible.
        assumptions: what the answers take for granted.
        run: version, seed, how the search ended.
        frontier: exponents and Pareto set of a table of budgets.
        what_if: sensitivity of one answer, from `what_if_json`; that of the last answer is worked
            out when None.
    """
    there = [answer for answer in answers if answer is not None]
    if what_if is None and there:
        from vtrain_search.report.what_if import what_if_json
        from vtrain_search.sensitivity import sensitivity

        what_if = what_if_json(there[-1], sensitivity(there[-1].problem, there[-1]))
    rows = [plain(answer.row) for answer in there]
    return {
        "schema_version": SCHEMA_VERSION,
        "run": plain(run),
        "assumptions": plain(assumptions),
        "rows": rows,
        "sensitivity": plain(what_if or {}),
        "frontier": plain(frontier or {}),
    }


def plain(value: Any) -> Any:
    """Return a value that strict JSON can hold: no NaN, no infinity, no NumPy types."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
