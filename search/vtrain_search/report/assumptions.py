"""What every answer takes for granted, printed with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vtrain_search.problem import Problem
    from vtrain_search.space import OuterSpace


def assumptions(problem: Problem) -> dict[str, Any]:
    """Return the assumptions of a problem as plain values, in reading order."""
    from vtrain.memory_limit import format_share
    from vtrain.prices import hyperscaler_price

    space, stack = problem.space, problem.stack
    offers = {o.name: o for case in problem.cases for o in case.offers}
    clusters = {}
    for name, offer in offers.items():
        listed = hyperscaler_price(offer.cluster.name)
        clusters[name] = {
            "gpus_per_node": offer.cluster.gpus_per_node,
            "max_gpus": max(c.gpu_limit(offer) for c in problem.cases if offer in c.offers),
            "price_usd_per_gpu_hour": offer.price_usd_per_gpu_hour,
            "price_source": offer.price_source,
            "hyperscaler_price_usd_per_gpu_hour": (
                None if listed is None else listed.usd_per_gpu_hour
            ),
        }
    if space.fixed is None:
        head = "/".join(str(h) for h in space.head_dim)
        ffn = "searched" if space.ffn_ratio or space.ffn_hidden_size else "8/3 x hidden"
        kv = "pinned" if space.num_key_value_heads else _key_value_rule(space)
        block = f"RMSNorm, rotary, SwiGLU, ffn {ffn}, head size {head}, {kv}"
        vocabulary = f"{space.vocab_size:,}, padded, untied"
    else:
        block = f"fixed model {space.fixed.name or ''}".strip()
        vocabulary = f"{space.fixed.vocab_size:,}, padded"
    deadlines = sorted({case.deadline_s / 86_400.0 for case in problem.cases})
    return {
        "sequence": problem.seq_length,
        "vocabulary": vocabulary,
        "block": block,
        "precision": f"{stack.precision}, {stack.state.total:g} bytes a parameter before sharding",
        "stack": f"{stack.title} ({problem.stack_name})",
        "clusters": clusters,
        "deadline_days": deadlines[0] if len(deadlines) == 1 else deadlines,
        "memory_limit": f"peak allocated at most {format_share(problem.memory_limit_share)} of "
        "what the context leaves",
        "sanity": f"at least {problem.min_steps:,} steps, "
        f"{problem.min_tokens_per_parameter:g} token a parameter, 50M parameters",
        "law": f"{problem.loss.law.name} ({problem.loss.law.citation})",
        "loss_terms": sorted(problem.loss.active_terms),
        "unique_tokens": problem.loss.unique_tokens or "unlimited",
        "interval": 0.9,
        "mfu_convention": "model FLOPs at full s^2 over the dense peak of the precision used",
    }


def _key_value_rule(space: OuterSpace) -> str:
    """Return how many key-value heads the search's own block has; `OuterSpace.point` decides."""
    odd = any(width // size % 4 for width in space.hidden_size for size in space.head_dim)
    last = ", or else the most up to 8 that divide them" if odd else ""
    return (
        "8 key-value heads, 4 where hidden is below 4,096 or the heads are no multiple of 8"
        f"{last} (column heads/kv)"
    )
