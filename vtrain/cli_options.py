"""Options that several commands share, and how they become a design."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vtrain.memory_limit import SHARE_FITS, parse_memory_limit

if TYPE_CHECKING:
    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.plan import Plan
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_STACK = "megatron-core-2025"
DEFAULT_SEQ_LENGTH = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What is trained, where, with what and within which memory: everything but the plan."""

    architecture: Architecture
    cluster: Cluster
    stack: Stack
    site: SiteFactors
    seq_length: int
    memory_limit_share: float = SHARE_FITS


def _apply(options: list[Callable[[F], F]], function: F) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def setting_options(function: F) -> F:
    """Add --model, --cluster, --stack, --seq and --site."""
    return _apply(
        [
            click.option(
                "--model",
                metavar="NAME|FILE",
                help="A shipped model, a Hugging Face config.json, a Megatron-LM argument "
                "file, a torchtitan TOML, or one of vtrain's own files.",
            ),
            click.option(
                "--cluster",
                metavar="NAME|FILE",
                default="h100-sxm-80g",
                show_default=True,
                help="Where it runs.",
            ),
            click.option(
                "--stack",
                metavar="NAME|FILE",
                default=DEFAULT_STACK,
                show_default=True,
                help="Training software.",
            ),
            click.option(
                "--seq",
                "seq_length",
                type=int,
                metavar="TOKENS",
                help="Sequence length; the model file's own, else 4096.",
            ),
            click.option(
                "--site", metavar="FILE", help="Site factors written by `vtrain calibrate`."
            ),
        ],
        function,
    )


def memory_limit_option(function: F) -> F:
    """Add --memory-limit."""
    return click.option(
        "--memory-limit",
        metavar="SHARE",
        help="Largest share of what the context leaves that may be allocated, for example 0.85 "
        f"or 85%. [default: {SHARE_FITS:.2f}]",
    )(function)


def plan_options(function: F) -> F:
    """Add the degrees of one plan."""
    whole = click.IntRange(min=1)
    return _apply(
        [
            click.option(
                "--gpus",
                type=whole,
                metavar="N",
                help="GPUs; data parallelism takes what tp x cp x pp leaves.",
            ),
            click.option(
                "--tp", type=whole, default=1, show_default=True, help="Tensor-parallel degree."
            ),
            click.option("--pp", type=whole, default=1, show_default=True, help="Pipeline stages."),
            click.option(
                "--cp", type=whole, default=1, show_default=True, help="Context-parallel degree."
            ),
            click.option(
                "--vpp",
                "virtual_stages",
                type=whole,
                default=1,
                show_default=True,
                help="Virtual stages (interleaving).",
            ),
            click.option(
                "--micro-batch",
                "micro_batch_size",
                type=whole,
                default=1,
                show_default=True,
                help="Sequences of one micro-batch.",
            ),
            click.option(
                "--global-batch",
                "global_batch_size",
                type=whole,
                metavar="SEQUENCES",
                help="Sequences of one step.",
            ),
            click.option(
                "--recompute",
                type=click.Choice(["none", "selective", "full"]),
                help="Activation recomputation; the stack's habit.",
            ),
            click.option(
                "--sharding",
                type=click.Choice(["none", "zero1", "zero2", "zero3"]),
                help="Sharding over replicas; the stack's habit.",
            ),
            click.option(
                "--sequence-parallel/--no-sequence-parallel",
                default=None,
                help="Split activations between blocks over tp; the stack's habit.",
            ),
            click.option(
                "--schedule",
                type=click.Choice(["1f1b", "gpipe", "zb-h1"]),
                default="1f1b",
                show_default=True,
                help="Pipeline schedule.",
            ),
        ],
        function,
    )


def read_site(site: str | SiteFactors | None) -> SiteFactors:
    """Read a site file; without one the shipped constants stand, and factors stay themselves.

    Raises:
        UserInputError: when the file cannot be read.
    """
    from vtrain.site import SHIPPED, SiteFactors

    if site is None:
        return SHIPPED
    if isinstance(site, SiteFactors):
        return site
    from vtrain.calibrate import load_site

    return load_site(site)


def load_setting(
    *,
    model: str | None,
    cluster: str,
    stack: str,
    seq_length: int | None,
    site: str | None,
    memory_limit: str | None = None,
) -> Setting:
    """Read the files behind the options of `setting_options` and `memory_limit_option`.

    Raises:
        UserInputError: when something is missing or unknown.
    """
    from vtrain.errors import UserInputError
    from vtrain.formats import load_architecture
    from vtrain.presets import load_cluster, load_stack

    if model is None:
        raise UserInputError("--model is needed", hint="for example --model llama3-8b")
    architecture, own_length = load_architecture(model)
    if seq_length is None:
        length = own_length or DEFAULT_SEQ_LENGTH
    elif seq_length >= 1:
        length = seq_length
    else:
        raise UserInputError(
            f"--seq must be at least 1, got {seq_length}", hint="leave it out for the model's own"
        )
    return Setting(
        architecture=architecture,
        cluster=load_cluster(cluster),
        stack=load_stack(stack),
        site=read_site(site),
        seq_length=length,
        memory_limit_share=parse_memory_limit(memory_limit),
    )


def build_plan(setting: Setting, **options: Any) -> Plan:
    """Turn the options of `plan_options` into a plan that its framework would accept.

    Raises:
        UserInputError: with the broken rule and the nearest valid choice.
    """
    from vtrain.errors import UserInputError
    from vtrain.plan import Plan
    from vtrain.validity import Context, check_batch, check_gpus, check_structure

    gpus, tp, pp, cp = (options[key] for key in ("gpus", "tp", "pp", "cp"))
    shards = tp * pp * cp
    if gpus is None:
        raise UserInputError("--gpus is needed", hint=f"for example --gpus {shards}")
    if options["global_batch_size"] is None:
        raise UserInputError("--global-batch is needed", hint="for example --global-batch 1024")
    sequence_parallel = options["sequence_parallel"]
    if sequence_parallel is None:
        sequence_parallel = setting.stack.default_sequence_parallel and tp > 1
    sizes = {
        key: options[key]
        for key in ("tp", "cp", "pp", "virtual_stages", "micro_batch_size", "schedule")
    }
    habits = {
        "recompute": setting.stack.default_recompute, "sharding": setting.stack.default_sharding,
    }  # fmt: skip
    settings = {
        "sequence_parallel": sequence_parallel,
        **{k: habit if options[k] is None else options[k] for k, habit in habits.items()},
    }
    context = Context(
        architecture=setting.architecture,
        cluster=setting.cluster,
        stack=setting.stack,
        seq_length=setting.seq_length,
    )
    # A degree the model cannot be split by is the first thing to say: no GPU count mends it.
    one_replica = Plan(**sizes, **settings, dp=1, global_batch_size=sizes["micro_batch_size"])
    batch = options["global_batch_size"]
    check_structure(context, one_replica, gpus)
    check_gpus(context, one_replica, gpus, batch)
    check_batch(context, one_replica, gpus // shards, batch)
    return Plan(**sizes, **settings, dp=gpus // shards, global_batch_size=batch)
