"""How many plans a second one core enumerates and estimates, time and memory together."""

from __future__ import annotations

import time

import numpy as np

from vtrain.architecture import Architecture
from vtrain.enumeration import default_space, enumerate_plans
from vtrain.estimate import Estimate, estimate
from vtrain.plan import PlanTable
from vtrain.presets import load_cluster, load_stack

# Brown et al. 2020 (arXiv 2005.14165), table 2.1.
GPT3 = Architecture(
    num_layers=96,
    hidden_size=12_288,
    num_attention_heads=96,
    num_key_value_heads=96,
    head_dim=128,
    ffn_hidden_size=4 * 12_288,
    gated_mlp=False,
    vocab_size=51_200,
    tied_embeddings=True,
    position="learned",
    max_positions=2_048,
    norm="layernorm",
    name="gpt3-175b",
)
CLUSTER, STACK = load_cluster("h100"), load_stack("megatron-core-2025")
REPEATS = 9


def plans_of(batches: np.ndarray) -> PlanTable:
    table, _ = enumerate_plans(
        GPT3, CLUSTER, stack=STACK, seq_length=2_048, gpus=np.full(len(batches), 1_024),
        global_batch_size=batches, space=default_space(CLUSTER, STACK),
    )  # fmt: skip
    return table


def timed(batches: np.ndarray) -> tuple[float, float, PlanTable, Estimate]:
    start = time.process_time()
    table = plans_of(batches)
    middle = time.process_time()
    answer = estimate(GPT3, CLUSTER, STACK, table, seq_length=2_048)
    return middle - start, time.process_time() - middle, table, answer


def test_half_a_million_distinct_plans_a_second():
    """Enumeration, step time and memory of GPT-3 175B on 1,024 GPUs, batches of 20,000 and more.

    Two batch sizes take turns, so that a slow moment of the machine meets both; the best of each
    counts. The bound here is loose for shared machines; the figure is in results/validation.
    """
    sizes = {n: 512 * np.arange(1, n + 1) for n in (32, 64)}
    best = dict.fromkeys(sizes, np.inf)
    rows = {}
    for _ in range(REPEATS):
        for count, batches in sizes.items():
            listing, costing, table, answer = timed(batches)
            best[count] = min(best[count], listing + costing)
            rows[count] = len(table)
            assert np.all(answer.step_time_s > 0.0)
            assert np.all(answer.mem_peak_bytes > 0.0)
    distinct = np.unique(
        np.stack([table.tp, table.pp, table.dp, table.virtual_stages, table.micro_batch_size,
                  table.global_batch_size, table.recompute]), axis=1,
    )  # fmt: skip
    assert distinct.shape[1] == len(table)
    for count, seconds in best.items():
        assert rows[count] >= 20_000
        print(f"{rows[count]} plans in {seconds:.4f} s: {rows[count] / seconds:,.0f} a second")
    assert max(rows[n] / best[n] for n in best) > 250_000


def test_a_million_sequences_cost_no_more_than_two_thousand():
    """The closed form does not walk micro-batches."""
    small, large = np.full(8, 2_048), np.full(8, 1_048_576)
    best = {"small": np.inf, "large": np.inf}
    for _ in range(REPEATS):
        for name, batches in (("small", small), ("large", large)):
            _, seconds, table, _ = timed(batches)
            best[name] = min(best[name], seconds / len(table))
    assert best["large"] < 1.25 * best["small"]
