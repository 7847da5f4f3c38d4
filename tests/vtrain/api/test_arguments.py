"""Arguments of a wrong type or size are refused as the command line refuses words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vtrain.api as vt
from vtrain.api.arguments import positive, whole, wholes
from vtrain.errors import UserInputError

PLAN = {"gpus": 8, "global_batch_size": 8}
SHARED = {"gpus": 64, "generate": "jobs=1,models=megatron-18.4b"}
NEW = {"model": "llama3-8b", "gpus": 64, "tokens": 1e9}
RATE = {"gpus": 8, "tokens_per_s": 1e5}


@pytest.mark.parametrize(("call", "given", "names"), [
    (vt.simulate, {"model": "llama3-8b", **PLAN}, "gpus tp recompute sharding seq_length stack"),
    (vt.plans, {"model": "llama3-8b", **PLAN}, "gpus tp pp recompute sharding tokens seq_length"),
    (vt.explain_plans, {"model": "llama3-8b", **PLAN}, "gpus global_batch_size cluster site"),
    (vt.mfu, {"model": "llama3-8b", **RATE}, "gpus tp precision recompute peak_flops_per_s"),
    (vt.read_file, {"path": "none.toml"}, "path gpus vocab_size row"),
    (vt.export, {"design": "none.toml", "format": "hf"}, "design format gpus"),
    (vt.tenancy_run, SHARED, "gpus generate seed seeds policy recompute failures jobs"),
    (vt.tenancy_admit, NEW, "gpus global_batch_size seq_length max_gpus site within"),
])  # fmt: skip
@pytest.mark.parametrize("value", ["x", "", 0, {}, [object()]])
def test_wrong_types_are_user_errors(
    call: Callable[..., Any], given: dict[str, Any], names: str, value: Any
) -> None:
    """No argument of the wrong type, and no size of 0, ends in another exception or a default."""
    for name in names.split():
        if (call, name, value) == (vt.tenancy_run, "seed", 0):
            continue
        with pytest.raises(UserInputError):
            call(**{**given, name: value})


def test_text_that_is_a_number_is_named_as_one() -> None:
    """`gpus="64"` is refused with the number that was meant."""
    with pytest.raises(UserInputError, match=r"gpus must be .* got '64'; nearest valid: 64"):
        vt.simulate("llama3-8b", gpus="64", global_batch_size=64)  # type: ignore[arg-type]


def test_numbers_of_other_libraries_count() -> None:
    """NumPy's whole numbers and floats are taken as Python's."""
    assert wholes("gpus", np.array([8, 16])) == (8, 16)
    assert type(whole("tp", np.int32(4))) is int
    assert positive("tokens", np.float32(2.5)) == 2.5
    run = vt.simulate("llama3-8b", gpus=np.int64(8), global_batch_size=np.int64(8))  # type: ignore[arg-type]
    assert run.plan.gpus == 8
