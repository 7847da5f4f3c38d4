from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrain.architecture import default_architecture
from vtrain.errors import UserInputError
from vtrain.models import load_model
from vtrain.schedule.stages import layers_of_stages, stage_layers
from vtrain.stack import LAYER_SPLITS

LLAMA = default_architecture(hidden_size=4096, num_layers=32)


@pytest.mark.parametrize(
    ("model", "pp", "first"),
    [("nanotron-1b", 2, 11), ("nanotron-8b", 2, 18), ("nanotron-80b", 2, 41)],
)
def test_cost_rule_gives_the_first_stage_the_layers_nanotron_gave_it(
    model: str, pp: int, first: int
) -> None:
    """nanotron's build_model puts 11 of 16, 18 of 32 and 41 of 80 layers on stage 0 at pp 2."""
    assert layers_of_stages(load_model(model).architecture, "cost-rule", pp)[0] == first


def test_counted_ends_leave_one_layer_fewer_on_both_ends() -> None:
    """BLOOM-176B: 70 layers and two embedding slots over 12 stages are 5, ten times 6, 5."""
    assert layers_of_stages(load_model("bloom-176b").architecture, "counted-ends", 12).tolist() == [
        5, *[6] * 10, 5,
    ]  # fmt: skip


def test_even_split_gives_the_remainder_to_the_earliest_stages() -> None:
    """10 layers over 4 stages are 3, 3, 2, 2."""
    shape = default_architecture(hidden_size=1024, num_layers=10)
    assert layers_of_stages(shape, "even", 4).tolist() == [3, 3, 2, 2]


@given(
    layers=st.integers(2, 130), pp=st.integers(1, 32), split=st.sampled_from(LAYER_SPLITS),
    hidden=st.sampled_from([1024, 4096, 8192]),
)  # fmt: skip
def test_every_layer_is_on_exactly_one_stage(layers: int, pp: int, split: str, hidden: int) -> None:
    """The layers of the stages sum to the layers of the model, none negative where pp fits."""
    shape = default_architecture(hidden_size=hidden, num_layers=layers)
    held = layers_of_stages(shape, split, pp)
    assert held.sum() == layers
    assert len(held) == pp
    if 2 * pp <= layers:
        assert held.min() >= 0


@given(pp=st.lists(st.integers(1, 16), min_size=1, max_size=8), split=st.sampled_from(LAYER_SPLITS))
def test_table_of_stages_agrees_with_single_plans(pp: list[int], split: str) -> None:
    """The look-up for many plans gives each plan its own first, inner and last stage."""
    table = stage_layers(LLAMA, split, np.array(pp))
    for row, degree in enumerate(pp):
        held = layers_of_stages(LLAMA, split, degree)
        inner = held[1:-1]
        assert table.first[row] == held[0]
        assert table.last[row] == held[-1]
        assert table.second[row] == (inner[0] if len(inner) else 0)
        assert table.middle[row] == (inner.max() if len(inner) else 0)
        if len(inner):
            assert held[table.middle_index[row]] == inner.max()


def test_unknown_split_names_the_nearest() -> None:
    """A split nobody implements is refused with the known ones."""
    with pytest.raises(UserInputError, match="even"):
        layers_of_stages(LLAMA, "evn", 2)
