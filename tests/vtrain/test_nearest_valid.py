"""What a refusal names as the nearest valid choice is accepted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrain.cli_options import Setting, build_plan, load_setting
from vtrain.errors import UserInputError
from vtrain.nearest_valid import nearest_count
from vtrain.plan import Plan
from vtrain.validity import Context, check_plan, is_valid

SETTINGS = [
    load_setting(model=model, cluster=cluster, stack=stack, seq_length=length, site=None)
    for model, cluster, stack, length in (
        ("llama3-70b", "h100-sxm-80g", "megatron-core-2025", 8192),
        ("llama3-8b", "h100-sxm-80g", "nanotron-2024", 4096),
        ("llama3-405b", "h100-sxm-80g", "torchtitan-2024", 8192),
        ("gpt3-175b", "a100-sxm-80g", "megatron-lm-2022", 2048),
    )
]
DEFAULTS = {
    "tp": 1, "pp": 1, "cp": 1, "virtual_stages": 1, "micro_batch_size": 1, "schedule": "1f1b",
    "recompute": None, "sharding": None, "sequence_parallel": None,
}  # fmt: skip


def follow(setting: Setting, wanted: dict[str, object], hints: int) -> list[str]:
    """Apply every hint until the plan is accepted; fail when that takes more than `hints`."""
    followed: list[str] = []
    while (error := refusal(setting, wanted)) is not None:
        hint = error.hint or ""
        assert "nearest valid: " in hint, str(error)
        assert len(followed) < hints, (followed, str(error))
        followed.append(str(error))
        wanted = wanted | {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", hint)}
        if "sequence parallelism off" in hint:
            wanted["sequence_parallel"] = False
    return followed


def refusal(setting: Setting, wanted: dict[str, object]) -> UserInputError | None:
    """Return why a plan is refused, None where it is not."""
    try:
        build_plan(setting, **{**DEFAULTS, **wanted})
    except UserInputError as error:
        return error
    return None


@pytest.mark.parametrize(("wanted", "said"), [
    ({"gpus": 128, "tp": 128}, "nearest valid: tp=8"),
    ({"gpus": 100, "tp": 2}, "nearest valid: gpus=96"),
    ({"gpus": 12, "tp": 4}, "nearest valid: gpus=8"),
    ({"gpus": 64, "tp": 8, "pp": 7}, "nearest valid: pp=8"),
    ({"gpus": 64, "tp": 8, "pp": 8, "virtual_stages": 3}, "nearest valid: virtual_stages=2"),
    ({"gpus": 40, "tp": 8}, "nearest valid: global_batch_size=95"),
])  # fmt: skip
def test_one_hint_is_enough(wanted: dict[str, object], said: str) -> None:
    """One wrong value has one nearest valid one, which the other values go with."""
    followed = follow(SETTINGS[0], {"global_batch_size": 96, **wanted}, hints=1)
    assert said in followed[0]


@settings(deadline=None, max_examples=60)
@given(
    setting=st.sampled_from(SETTINGS), gpus=st.integers(1, 3000), tp=st.integers(1, 130),
    pp=st.integers(1, 20), cp=st.integers(1, 6), virtual_stages=st.integers(1, 6),
    micro_batch_size=st.integers(1, 5), global_batch_size=st.integers(1, 3000),
)  # fmt: skip
def test_hints_lead_to_a_plan(setting: Setting, **wanted: int) -> None:
    """Degrees, then GPUs, then batch: each is refused at most once, whatever was asked."""
    follow(setting, wanted, hints=3)


@settings(deadline=None, max_examples=60)
@given(
    setting=st.sampled_from(SETTINGS), tp=st.integers(1, 16), pp=st.integers(1, 10),
    dp=st.integers(1, 20), virtual_stages=st.integers(1, 4), rounds=st.integers(1, 20),
    sequence_parallel=st.booleans(),
)  # fmt: skip
def test_valid_is_what_is_not_refused(setting: Setting, rounds: int, **sizes: int) -> None:
    """`is_valid` and `check_plan` agree."""
    context = Context(
        architecture=setting.architecture, cluster=setting.cluster, stack=setting.stack,
        seq_length=setting.seq_length,
    )  # fmt: skip
    plan = Plan(**sizes, global_batch_size=rounds * sizes["dp"])
    try:
        check_plan(context, plan)
    except UserInputError:
        assert not is_valid(context, plan)
    else:
        assert is_valid(context, plan)


def test_more_gpus_than_the_cluster_has() -> None:
    """Where no count is valid the refusal says so instead of naming one."""
    wanted = {**DEFAULTS, "gpus": 80000, "pp": 80, "cp": 4096, "global_batch_size": 96}
    with pytest.raises(UserInputError, match="take smaller degrees"):
        build_plan(SETTINGS[0], **wanted)
    cluster = SETTINGS[0].cluster
    assert nearest_count(cluster, 10**6) == cluster.max_gpus
    assert nearest_count(cluster, 12) in (8, 16)
