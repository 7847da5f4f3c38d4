"""Names, files or objects, and what they become."""

from __future__ import annotations

from pathlib import Path

from vtrain.api.arguments import named, optional_whole
from vtrain.architecture import Architecture
from vtrain.cli_options import DEFAULT_SEQ_LENGTH, Setting, read_site
from vtrain.hardware import Cluster
from vtrain.memory_limit import parse_memory_limit
from vtrain.site import SiteFactors
from vtrain.stack import Stack

DEFAULT_CLUSTER = "h100-sxm-80g"
Model = str | Path | Architecture


def make_setting(
    model: Model,
    cluster: str | Path | Cluster,
    stack: str | Path | Stack,
    seq_length: int | None,
    site: str | SiteFactors | None,
    memory_limit: str | float | None = None,
) -> Setting:
    """Return what is trained, where, with what and within which memory.

    Raises:
        UserInputError: an unknown name, an unreadable file, a sequence length below 1, or
            a memory limit that is no share.
    """
    from vtrain.formats import load_architecture
    from vtrain.presets import load_cluster, load_stack

    named("model", model, Architecture)
    named("cluster", cluster, Cluster)
    named("stack", stack, Stack)
    if site is not None:
        named("site", site, SiteFactors)
    own_length = None
    if isinstance(model, Architecture):
        architecture = model
    else:
        architecture, own_length = load_architecture(str(model))
    length = optional_whole("seq_length", seq_length) or own_length or DEFAULT_SEQ_LENGTH
    return Setting(
        architecture=architecture,
        cluster=cluster if isinstance(cluster, Cluster) else load_cluster(cluster),
        stack=stack if isinstance(stack, Stack) else load_stack(stack),
        site=read_site(site),
        seq_length=length,
        memory_limit_share=parse_memory_limit(memory_limit),
    )


def reference(thing: str | Path | Cluster | Stack) -> str:
    """Return the words by which a cluster or stack can be loaded again."""
    return thing.name if isinstance(thing, Cluster | Stack) else str(thing)
