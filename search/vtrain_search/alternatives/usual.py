"""The alternatives that people ask about when they name none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.units import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain_search.problem import Case

_NEXT_RECOMPUTE = {"none": "full", "selective": "none", "full": "selective"}


def usual_alternatives(case: Case, row: Mapping[str, Any], *, fixed: bool = False) -> list[str]:
    """Return alternatives near a row: twice and half of what it chose.

    Args:
        case: its limits.
        row: the answer's row.
        fixed: the model is given, so another size is no alternative.
    """
    offer = next(o for o in case.offers if o.name == row["cluster"])
    tp, pp, gpus = int(row["tp"]), int(row["pp"]), int(row["gpus"])
    found = []
    if 2 * tp <= offer.cluster.nvlink_domain:
        found.append(f"tp={2 * tp}")
    if tp > 1:
        found.append(f"tp={tp // 2}")
    found.append("pp=1" if pp > 1 else "pp=2")
    if gpus // 2 >= offer.cluster.gpus_per_node and not (gpus // 2) % offer.cluster.gpus_per_node:
        found.append(f"{gpus // 2} GPUs")
    if 2 * gpus <= case.gpu_limit(offer):
        found.append(f"{2 * gpus} GPUs")
    if not fixed:
        # Half the size is the very model that the answer lists as such, where it lists one.
        half = next(
            (s["parameters"] for s in row.get("smaller", ()) if s["size"] == "half"),
            row["parameters"] / 2,
        )
        found += [format_count(size) for size in (half, row["parameters"] * 2)]
    found.append(f"recompute={_NEXT_RECOMPUTE[row['recompute']]}")
    return found
