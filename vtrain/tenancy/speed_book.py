"""Speed tables of all jobs of a workload, each computed once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vtrain.errors import InfeasibleError, UserInputError
from vtrain.plan import RECOMPUTE
from vtrain.tenancy.curve import make_curve
from vtrain.tenancy.speed import SPEEDS, best_table, fixed_table, price_plans, state_bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from vtrain.architecture import Architecture
    from vtrain.hardware import Cluster
    from vtrain.site import SiteFactors
    from vtrain.stack import Stack
    from vtrain.tenancy.curve import Curve, SpeedTable
    from vtrain.tenancy.job import Job
    from vtrain.tenancy.speed import Priced
    from vtrain.tenancy.upkeep import Upkeep

    Reader = Callable[[str], tuple[Architecture, int | None]]


class SpeedBook:
    """Looks up how fast a job runs; keeps what it has computed."""

    def __init__(
        self,
        cluster: Cluster,
        stack: Stack,
        site: SiteFactors,
        *,
        gpus: int,
        read_model: Reader,
        recompute: tuple[str, ...] = RECOMPUTE,
    ) -> None:
        """Describe the shared cluster.

        Args:
            cluster: its nodes and links.
            stack: training software of every job.
            site: factors of the real machine.
            gpus: GPUs of the shared cluster; a whole number of nodes.
            read_model: name or file to (architecture, own sequence length).
            recompute: kinds of recomputation any plan may use.

        Raises:
            UserInputError: when `gpus` is no whole number of nodes.
        """
        node = cluster.gpus_per_node
        if gpus < node or gpus % node:
            near = max(1, round(gpus / node)) * node
            raise UserInputError(
                f"--gpus {gpus} must be whole nodes of {node}", hint=f"nearest valid: {near}"
            )
        # The user's own cluster may be larger than what its file lets one run use.
        self._cluster = replace(cluster, max_gpus=max(gpus, cluster.max_gpus))
        self._stack = stack
        self._site = site
        self._read_model = read_model
        self._recompute = recompute
        self.gpus_per_node = node
        self.cluster_nodes = gpus // node
        self._priced: dict[tuple[str, int, int], tuple[Priced, float]] = {}
        self._tables: dict[tuple[str, str, int, int], SpeedTable] = {}
        self._curves: dict[tuple[object, ...], Curve] = {}

    def own_seq_length(self, model: str) -> int | None:
        """Return the sequence length a model comes with.

        Raises:
            UserInputError: unknown model.
        """
        return self._read_model(model)[1]

    def table(self, job: Job, speed: str) -> SpeedTable:
        """Return the speed table of a job, without its own limits.

        Args:
            job: whose model, batch and sequence length count.
            speed: one of SPEEDS.

        Raises:
            UserInputError: unknown model or speed, or no plan fits.
        """
        if speed not in SPEEDS:
            raise UserInputError(f"speed {speed!r} is not known", hint=f"one of {SPEEDS}")
        key = (speed, job.model, job.global_batch_size, job.seq_length)
        if key not in self._tables:
            priced, state_bytes = self._prices(job)
            self._tables[key] = (
                best_table(priced, state_bytes) if speed == "vtrain"
                else fixed_table(priced, self._stack, state_bytes)
            )  # fmt: skip
        return self._tables[key]

    def curve(self, job: Job, speed: str, upkeep: Upkeep) -> Curve:
        """Return what a scheduler sees of a job.

        Raises:
            UserInputError: unknown model.
            InfeasibleError: no plan fits, or the job's limits leave no node count.
        """
        least = -(-job.min_gpus // self.gpus_per_node)
        most = job.max_gpus // self.gpus_per_node if job.max_gpus else self.cluster_nodes
        key = (
            speed, job.model, job.global_batch_size, job.seq_length, least, most, upkeep,
        )  # fmt: skip
        if key not in self._curves:
            table = self.table(job, speed)
            limited = table.limited(least, most)
            if limited is None:
                counts = ", ".join(str(int(n) * self.gpus_per_node) for n in table.nodes)
                raise InfeasibleError(
                    f"no plan of {job.model} lies within min_gpus={job.min_gpus} and "
                    f"max_gpus={job.max_gpus or self.cluster_nodes * self.gpus_per_node}",
                    hint=f"it runs on {counts} GPUs",
                )
            self._curves[key] = make_curve(
                limited, upkeep, cluster_nodes=self.cluster_nodes,
                gpus_per_node=self.gpus_per_node,
            )  # fmt: skip
        return self._curves[key]

    def _prices(self, job: Job) -> tuple[Priced, float]:
        key = (job.model, job.global_batch_size, job.seq_length)
        if key not in self._priced:
            architecture, own_length = self._read_model(job.model)
            seq_length = job.seq_length or own_length or 0
            if not seq_length:
                raise UserInputError(f"seq_length of {job.model} is not known", hint="state it")
            priced = price_plans(
                architecture, self._cluster, self._stack, self._site, seq_length=seq_length,
                global_batch_size=job.global_batch_size, cluster_nodes=self.cluster_nodes,
                recompute=self._recompute,
            )  # fmt: skip
            self._priced[key] = (priced, state_bytes_of(architecture))
        return self._priced[key]
