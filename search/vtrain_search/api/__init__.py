"""The search from Python: one call, results as frames.

    from vtrain_search.api import search

    result = search("1e6usd")
    result.table            # the scaling table, one row a budget
    result.best["loss"]     # the recommended design, as a row of `vtrain-search --json`
    result.report("plan.html")

What the simulator can do alone is in `vtrain.api`.
"""

from __future__ import annotations

from vtrain_search.api.lawbook import FittedLaw, fit_law, laws, rules
from vtrain_search.api.proof import Verification, references, verify
from vtrain_search.api.result import SearchResult
from vtrain_search.api.searching import dry_run, search

__all__ = [
    "FittedLaw", "SearchResult", "Verification", "dry_run", "fit_law", "laws", "references",
    "rules", "search", "verify",
]  # fmt: skip
