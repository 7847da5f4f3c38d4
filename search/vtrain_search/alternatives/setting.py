"""From a row of an answer back to what the simulator takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrain.cli_options import Setting
from vtrain.design import Design
from vtrain_search.space import Point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vtrain_search.problem import Case, Offer, Problem


def offer_of(case: Case, row: Mapping[str, Any]) -> Offer:
    """Return the offer whose cluster a row was planned for."""
    return next(offer for offer in case.offers if offer.name == row["cluster"])


def setting_of(problem: Problem, case: Case, row: Mapping[str, Any]) -> Setting:
    """Return model, cluster, stack and site of a row, for `vtrain`'s own functions."""
    return Setting(
        architecture=Design.from_row(row).architecture,
        cluster=offer_of(case, row).cluster,
        stack=problem.stack,
        site=problem.site,
        seq_length=problem.seq_length,
        memory_limit_share=problem.memory_limit_share,
    )


def point_of(row: Mapping[str, Any]) -> Point:
    """Return the architecture of a row as a point of the outer space."""
    return Point(
        int(row["hidden_size"]), int(row["layers"]), int(row["ffn_hidden_size"]),
        int(row["num_key_value_heads"]), int(row["head_dim"]),
    )  # fmt: skip
