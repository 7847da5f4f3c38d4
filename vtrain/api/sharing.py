"""A cluster that several jobs share: a workload played, a new job promised a date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vtrain.api.arguments import named, one_of, optional_whole, positive, some_of, whole
from vtrain.cli_options import DEFAULT_STACK

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.site import SiteFactors
    from vtrain.tenancy.commands import Played
    from vtrain.tenancy.job_file import JobText

    Jobs: TypeAlias = DataFrame | str | Path | None

DEFAULT_CLUSTER = "a100-sxm-80g"
_FRAME = "the frame of jobs"


@dataclass(frozen=True, kw_only=True, slots=True)
class TenancyRun:
    """A workload played under a policy, once or with several seeds.

    Attributes:
        played: the run and its document.
        options: what was asked, by the names of the command's options.
    """

    played: Played
    options: Mapping[str, Any]

    @property
    def document(self) -> dict[str, Any]:
        """What `vtrain tenancy run --json` prints."""
        return self.played.document

    @property
    def table(self) -> DataFrame:
        """The figures of the run by name; means and half-widths of 95 % for several seeds."""
        import pandas as pd

        from vtrain.tenancy.outcome import METRICS

        if "means" in self.document:
            found = {name: pair or {} for name, pair in self.document["means"].items()}
            columns = ["mean", "half_width_95"]
            return pd.DataFrame.from_dict(found, orient="index", columns=columns)
        names = [*METRICS, "completed", "jobs", "moves", "failures", "training_hours"]
        figures = pd.Series({name: self.document[name] for name in names}, name="value")
        return figures.astype(float).to_frame()

    @property
    def jobs(self) -> DataFrame:
        """One row a job: dates in seconds, GPU-hours, whether its deadline was met."""
        import pandas as pd

        return pd.DataFrame(self.document.get("jobs_log", []))

    @property
    def runs(self) -> DataFrame:
        """The figures of every seed, one row each; the only run's row without seeds."""
        import pandas as pd

        first = self.options["seed"]
        rows = self.document.get("runs")
        if rows is None:
            rows = [self.table["value"].to_dict()]
        index = pd.RangeIndex(first, first + len(rows), name="seed")
        return pd.DataFrame(rows, index=index)

    @property
    def timeline(self) -> DataFrame:
        """One row for every stretch a job held the same nodes; empty for several seeds."""
        import pandas as pd

        from vtrain.tenancy.outcome import segment_rows

        outcome = self.played.outcome
        return pd.DataFrame([] if outcome is None else segment_rows(outcome))

    def gantt(self) -> str:
        """Return the cluster over time as SVG; an empty string for several seeds."""
        from vtrain.tenancy.commands import gantt_of

        outcome = self.played.outcome
        if outcome is None:
            return ""
        return gantt_of(dict(self.options), outcome, self.played.gpus_per_node)

    def _repr_html_(self) -> str:
        return str(self.table.to_html()) + self.gantt()


@dataclass(frozen=True, kw_only=True, slots=True)
class Admission:
    """Whether a new job can be promised a date next to the jobs that are there.

    Attributes:
        document: what `vtrain tenancy admit --json` prints.
    """

    document: dict[str, Any]

    @property
    def promised(self) -> bool | None:
        """Whether it can be done by its deadline; None for a job without one."""
        found: bool | None = self.document["promised"]
        return found

    @property
    def earliest_s(self) -> float:
        """Earliest date that can be promised, seconds on the cluster's clock; inf if none."""
        found = self.document["earliest_s"]
        return float("inf") if found is None else float(found)

    @property
    def share(self) -> DataFrame:
        """GPUs the job may count on, one row from each date they change."""
        import pandas as pd

        return pd.DataFrame(self.document["share"], columns=["from_s", "gpus"])

    def __str__(self) -> str:
        """Return the answer in words, as the command prints it."""
        from vtrain.tenancy.commands import admit_text

        return admit_text(self.document)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def tenancy_run(
    jobs: Jobs = None,
    cluster: str | Path = DEFAULT_CLUSTER,
    *,
    gpus: int,
    generate: str | Mapping[str, Any] = "",
    policy: str = "patient",
    speed: str = "vtrain",
    failures: str = "expected",
    rescale: str | float | None = None,
    recompute: str | Sequence[str] = (),
    stack: str | Path = DEFAULT_STACK,
    site: str | SiteFactors | None = None,
    price_usd_per_gpu_hour: float | None = None,
    seed: int = 0,
    seeds: int = 1,
    workers: int = 1,
    skip_bad: bool = False,
) -> TenancyRun:
    """Play a workload on a shared cluster, as `vtrain tenancy run` does.

    Args:
        jobs: a frame or a CSV file of jobs, with the columns of `vtrain.tenancy.job_file`.
        cluster: a name or a TOML file.
        gpus: GPUs shared; whole nodes.
        generate: draw jobs instead: `jobs=64,load=0.9`, or the same as a mapping.
        policy: fifo, srtf, edf, las, elasticflow, patient.
        speed: vtrain (the best plan at every GPU count) or data-parallel (one plan, scaled).
        failures: none, expected, random.
        rescale: pause of a job that changes nodes: `10min`, or seconds.
        recompute: only plans with these kinds of recomputation.
        stack: training software of every job, a name or a TOML file.
        site: factors of `calibrate`, or their file.
        price_usd_per_gpu_hour: the cluster's default price when None.
        seed: of the jobs drawn and of random failures.
        seeds: runs from `seed` on; several give means with 95 % intervals.
        workers: processes for several seeds; more than one use Ray.
        skip_bad: leave bad rows out (they are listed in the document) instead of stopping.

    Raises:
        UserInputError: both or neither of jobs and generate, bad jobs, an unknown word.
        InfeasibleError: no plan of a job fits the cluster.
    """
    from vtrain.errors import UserInputError
    from vtrain.tenancy.cli import POLICY_NAMES
    from vtrain.tenancy.commands import play_options

    one_of("policy", policy, POLICY_NAMES)
    seed = whole("seed", seed, least=0)
    seeds, workers = whole("seeds", seeds), whole("workers", workers)
    if not isinstance(generate, str | Mapping):
        raise UserInputError(
            f"generate must be words or a mapping, got {generate!r}", hint="jobs=64,load=0.9"
        )
    recipe = generate if isinstance(generate, str) else _recipe(generate)
    price = positive("price_usd_per_gpu_hour", price_usd_per_gpu_hour)
    options = {
        **_shared(jobs, cluster, gpus, speed, failures, rescale, recompute, stack, site, skip_bad),
        "recipe": recipe or None, "policy": policy, "seed": seed, "seeds": seeds,
        "workers": workers, "price": None if price is None else str(price),
    }  # fmt: skip
    played = play_options(options, warn=lambda _: None, record=seeds == 1)
    return TenancyRun(played=played, options=options)


def tenancy_admit(
    model: str | Path,
    cluster: str | Path = DEFAULT_CLUSTER,
    *,
    gpus: int,
    tokens: float,
    within: str | float | None = None,
    at: str | float = 0.0,
    global_batch_size: int = 1024,
    seq_length: int | None = None,
    max_gpus: int | None = None,
    jobs: Jobs = None,
    speed: str = "vtrain",
    failures: str = "expected",
    rescale: str | float | None = None,
    recompute: str | Sequence[str] = (),
    stack: str | Path = DEFAULT_STACK,
    site: str | SiteFactors | None = None,
    skip_bad: bool = False,
) -> Admission:
    """Say whether a new job can be promised by a date, as `vtrain tenancy admit` does.

    Args:
        model: what the new job trains, a name or a file.
        cluster: as `tenancy_run`.
        gpus: GPUs shared.
        tokens: tokens it trains on.
        within: time from `at` to its deadline: `10d`, or seconds; no deadline when None.
        at: when it is handed in, on the clock of the jobs.
        global_batch_size: sequences of one step.
        seq_length: tokens of a sequence; the model's own when None.
        max_gpus: GPUs it may be given at most.
        jobs: the jobs that are there, a frame or a CSV file.
        speed: as `tenancy_run`.
        failures: as `tenancy_run`.
        rescale: as `tenancy_run`.
        recompute: as `tenancy_run`.
        stack: as `tenancy_run`.
        site: as `tenancy_run`.
        skip_bad: as `tenancy_run`.

    Raises:
        UserInputError: bad jobs, or an unknown word.
        InfeasibleError: no plan of the job fits the cluster.
    """
    from vtrain.tenancy.commands import admit_document

    options = {
        **_shared(jobs, cluster, gpus, speed, failures, rescale, recompute, stack, site, skip_bad),
        "model": str(model), "tokens": str(tokens),
        "global_batch_size": whole("global_batch_size", global_batch_size),
        "seq_length": optional_whole("seq_length", seq_length),
        "arrival": _duration(at) or "0", "within": _duration(within),
        "max_gpus": optional_whole("max_gpus", max_gpus),
    }  # fmt: skip
    return Admission(document=admit_document(options, warn=lambda _: None))


def _shared(
    jobs: Jobs, cluster: str | Path, gpus: int, speed: str, failures: str,
    rescale: str | float | None, recompute: str | Sequence[str], stack: str | Path,
    site: str | SiteFactors | None, skip_bad: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return what both commands take, by the names of their options."""
    from vtrain.plan import RECOMPUTE
    from vtrain.site import SiteFactors
    from vtrain.tenancy.speed import SPEEDS
    from vtrain.tenancy.upkeep import FAILURE_MODES

    named("cluster", cluster)
    named("stack", stack)
    if site is not None:
        named("site", site, SiteFactors)
    one_of("speed", speed, SPEEDS)
    one_of("failures", failures, FAILURE_MODES)
    kinds = () if recompute == () else some_of("recompute", recompute, RECOMPUTE)
    return {
        "jobs_file": _jobs(jobs), "cluster": str(cluster), "gpus": whole("gpus", gpus),
        "speed": speed,
        "failures": failures, "rescale": _duration(rescale), "recompute": ",".join(kinds) or None,
        "stack": str(stack), "site": site, "skip_bad": skip_bad,
    }  # fmt: skip


def _jobs(jobs: Jobs) -> str | JobText | None:
    from vtrain.errors import UserInputError
    from vtrain.tenancy.job_file import JobText

    if jobs is None or isinstance(jobs, str | Path):
        return None if jobs is None else str(jobs)
    if not hasattr(jobs, "convert_dtypes"):
        raise UserInputError(f"jobs must be a frame or a CSV file, got {jobs!r}")
    # Whole numbers that pandas keeps as floats, because a cell is empty, are written whole.
    return JobText(name=_FRAME, text=jobs.convert_dtypes().to_csv(index=False))


def _recipe(words: Mapping[str, Any]) -> str:
    """Return the words of --generate; several models are joined by plus signs."""
    return ",".join(
        f"{key}={value if isinstance(value, str | int | float) else '+'.join(value)}"
        for key, value in words.items()
    )


def _duration(value: str | float | None) -> str | None:
    """Return words of a duration; numbers are seconds."""
    if value is None or isinstance(value, str):
        return value
    return "0" if value == 0 else f"{value}s"
