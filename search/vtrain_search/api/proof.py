"""How far the search is from the best of a whole grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The gap between the search's answers and the best of enumerated grids.

    Attributes:
        rows: the rows of `vtrain-search verify --json`, one a problem.
    """

    rows: tuple[dict[str, Any], ...]

    @property
    def table(self) -> DataFrame:
        """One row a problem and form of the search; gaps are shares of the budget."""
        import pandas as pd

        flat = []
        for row in self.rows:
            grid = {k: v for k, v in row.items() if k != "searches"}
            searches = row.get("searches") or {"": {}}
            flat += [
                {**grid, "search": name, **{k: v for k, v in found.items() if k != "shares"}}
                for name, found in searches.items()
            ]
        return pd.DataFrame(flat)

    def document(self) -> dict[str, Any]:
        """Return what `vtrain-search verify --json` prints."""
        return {"schema_version": 1, "rows": [dict(row) for row in self.rows]}

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


def references() -> DataFrame:
    """Return the reference problems of `verify`, one row each."""
    import pandas as pd

    from vtrain_search.verify.problems import REFERENCES

    rows = [
        {"name": r.name, "what": r.what, "budget": ", ".join(r.request.budgets),
         "cluster": ", ".join(r.request.clusters)}
        for r in REFERENCES
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("name")


def verify(
    reference: str | Sequence[str] = (),
    *,
    budget: str | Sequence[str] = (),
    cluster: str | Sequence[str] = (),
    max_gpus: int | None = None,
    deadline: str = "",
    memory_limit: str | float | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    spaces: Sequence[str] = ("bilevel",),
    share: float = 0.25,
    points: float = 1e8,
    workers: int | str = 1,
    ray_address: str | None = None,
) -> Verification:
    """Enumerate whole grids and measure the search against their best, as `verify` does.

    Args:
        reference: names of reference problems, or "all".
        budget: your own question instead.
        cluster: its clusters.
        max_gpus: its GPU cap.
        deadline: its deadline.
        memory_limit: its memory limit.
        seeds: seeds of the searches.
        spaces: forms of the search: bilevel, joint.
        share: shapes up to this share of the budget off, by the scan, are in the grid.
        points: (design, plan) points a grid should hold.
        workers: processes; 1 works in this one, "auto" and more use Ray.
        ray_address: join this Ray cluster; it is never stopped.

    Raises:
        UserInputError: neither or both of reference and budget, an unknown name.
    """
    from vtrain_search.api.question import make_request
    from vtrain_search.build import build_problem
    from vtrain_search.verify.cli import SPACES, verify_problem
    from vtrain_search.verify.problems import REFERENCES
    from vtrain_search.verify.problems import reference as find

    if bool(reference) == bool(budget):
        raise UserInputError(
            "verify() needs a reference problem or a budget",
            hint=f'for example verify("{REFERENCES[0].name}"); all are in references()',
        )
    for space in spaces:
        if space not in SPACES:
            raise UserInputError(
                f"space {space!r} is not known", hint=f"one of {', '.join(SPACES)}"
            )
    if not 0.0 <= share <= 1.0:
        raise UserInputError(f"share must lie between 0 and 1, got {share}")
    if budget:
        request = make_request(
            budget, cluster=cluster, max_gpus=max_gpus, deadline=deadline,
            memory_limit=memory_limit,
        )  # fmt: skip
        named = [(", ".join(request.budgets), request)]
    else:
        names = (reference,) if isinstance(reference, str) else tuple(reference)
        chosen = REFERENCES if "all" in names else tuple(find(name) for name in names)
        named = [(item.name, item.request) for item in chosen]
    options = {
        "workers": str(workers), "ray_address": ray_address, "share": share, "points": points,
    }  # fmt: skip
    return Verification(rows=tuple(
        verify_problem(name, build_problem(request), list(seeds), list(spaces), options)
        for name, request in named
    ))  # fmt: skip
