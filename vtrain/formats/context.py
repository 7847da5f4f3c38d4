"""What every writer needs to know of a design, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vtrain.errors import UserInputError
from vtrain.presets import load_cluster, load_stack, stack_names
from vtrain.validity import Context, check_plan

if TYPE_CHECKING:
    from vtrain.design import Design
    from vtrain.hardware import Cluster
    from vtrain.stack import Stack

# How the names of the stacks begin that a format's files start; "hf" carries no plan.
_FAMILIES = {
    "megatron": ("megatron-",),
    "slurm": ("megatron-",),
    "torchtitan": ("torchtitan-",),
    "deepspeed": ("deepspeed-", "megatron-deepspeed-"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A design that its framework would accept, with its cluster and stack.

    Attributes:
        design: what is trained and how.
        cluster: where.
        stack: with what.
    """

    design: Design
    cluster: Cluster
    stack: Stack

    @property
    def nodes(self) -> int:
        """Nodes the plan occupies."""
        return -(-self.design.plan.gpus // self.cluster.gpus_per_node)

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node that the plan uses."""
        return min(self.design.plan.gpus, self.cluster.gpus_per_node)

    @property
    def summary(self) -> str:
        """One line of what the file describes."""
        plan, a = self.design.plan, self.design.architecture
        tokens = "" if self.design.tokens is None else f", {self.design.tokens / 1e9:.4g}B tokens"
        return (
            f"{a.parameters / 1e9:.4g}B parameters{tokens}; {plan.gpus} GPUs of "
            f"{self.cluster.name}: tp {plan.tp}, cp {plan.cp}, pp {plan.pp}, dp {plan.dp}; figures "
            f"predicted for stack {self.stack.name}"
        )


def prepare(design: Design, cluster: str | None = None) -> Job:
    """Load cluster and stack of a design and check its plan.

    Args:
        design: what is written.
        cluster: overrides the design's own cluster.

    Raises:
        UserInputError: when the plan breaks a rule of its framework.
    """
    where = load_cluster(cluster or design.cluster)
    stack = load_stack(design.stack)
    context = Context(
        architecture=design.architecture, cluster=where, stack=stack,
        seq_length=design.seq_length,
    )  # fmt: skip
    check_plan(context, design.plan)
    return Job(design=design, cluster=where, stack=stack)


def other_software(stack: str, format: str) -> str | None:
    """Return a line where a file starts other software than its figures were predicted for.

    Args:
        stack: name or file of the stack behind the figures.
        format: what is written.
    """
    families = _FAMILIES.get(format, ())
    name = load_stack(stack).name
    if not families or name.startswith(families):
        return None
    kin = [each for each in stack_names() if each.startswith(families)]
    return (
        f"step time and memory were predicted for stack {name}, and a {format} file starts other "
        f"software: price the plan again with {' or '.join(kin)}"
    )


def refuse(name: str, feature: str, hint: str) -> UserInputError:
    """Return the error for something a format cannot carry."""
    return UserInputError(f"{name} cannot carry {feature}", hint=hint)
