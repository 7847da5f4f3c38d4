"""Scheduling policies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrain.errors import unknown_name
from vtrain.tenancy.policies.elasticflow import ElasticFlow
from vtrain.tenancy.policies.fixed import (
    EarliestDeadline,
    FirstInFirstOut,
    LeastAttainedService,
    ShortestRemaining,
)
from vtrain.tenancy.policies.patient import Patient

if TYPE_CHECKING:
    from vtrain.tenancy.policies.base import Policy

_POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        FirstInFirstOut, ShortestRemaining, EarliestDeadline, LeastAttainedService, ElasticFlow,
        Patient,
    )
}  # fmt: skip
POLICIES = tuple(_POLICIES)


def make_policy(name: str) -> Policy:
    """Return a fresh policy; one object serves one run.

    Raises:
        UserInputError: for an unknown name.
    """
    if name not in _POLICIES:
        raise unknown_name("policy", name, POLICIES)
    return _POLICIES[name]()
