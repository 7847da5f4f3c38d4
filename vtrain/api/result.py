"""One simulated plan as an object with frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pandas import DataFrame

    from vtrain.cli_options import Setting
    from vtrain.design import Design
    from vtrain.plan import Plan
    from vtrain.simulation.timeline import Timeline


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """One plan on one cluster: its step, its memory, and where both go.

    Attributes:
        setting: architecture, cluster, stack, sequence length, site factors.
        plan: how the model is spread.
        document: what `vtrain simulate --json` prints.
        cluster: name or file of the cluster.
        stack: name or file of the stack.
    """

    setting: Setting
    plan: Plan
    document: dict[str, Any]
    cluster: str
    stack: str

    @property
    def step_time_s(self) -> float:
        """Seconds of one optimizer step (closed form)."""
        return float(self.document["step_time_s"])

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, causal attention at full s^2, against the dense peak."""
        return float(self.document["mfu"])

    @property
    def mem_peak_bytes(self) -> float:
        """Peak allocated bytes on the heaviest rank."""
        return float(self.document["mem_peak_bytes"])

    @property
    def fits(self) -> bool:
        """Whether the verdict on its memory is not "OOM"."""
        from vtrain.memory import VERDICTS

        return bool(self.document["verdict"] != VERDICTS[-1])

    @property
    def table(self) -> DataFrame:
        """The plan and its figures, one row."""
        import pandas as pd

        return pd.DataFrame([{k: v for k, v in self.document.items() if k != "breakdown_s"}])

    def timeline(self) -> Timeline:
        """Return the step played task by task."""
        from vtrain.simulate import simulate as play

        s = self.setting
        return play(
            s.architecture, s.cluster, s.stack, self.plan, seq_length=s.seq_length, site=s.site
        )

    def time_by_stage(self) -> DataFrame:
        """Return seconds by kind of work, one row a pipeline rank; rows sum to the played step."""
        import pandas as pd

        frame = pd.DataFrame(dict(self.timeline().breakdown_s))
        frame.index.name = "stage"
        return frame.loc[:, (frame != 0.0).any()]

    def memory_by_stage(self) -> DataFrame:
        """Return GiB at the worst moment by item, one row a pipeline rank."""
        import pandas as pd

        from vtrain.memory import memory_breakdown
        from vtrain.units import GIB

        s = self.setting
        stages = memory_breakdown(s.architecture, s.stack, self.plan, seq_length=s.seq_length)
        rows = [
            {
                "layers": stage.layers,
                "moment": stage.moment,
                **{f"{name}_gib": size / GIB for name, size in stage.items_bytes.items()},
                "peak_gib": stage.peak_bytes / GIB,
            }
            for stage in stages
        ]
        frame = pd.DataFrame(rows).rename_axis(index="stage")
        # Stages that peak at different moments have different items.
        items = [c for c in frame if c.endswith("_gib") and c != "peak_gib"]
        frame[items] = frame[items].fillna(0.0)
        return frame[["layers", "moment", *items, "peak_gib"]]

    def spans(self) -> DataFrame:
        """Return every span of the played step: rank, kind, micro-batch, chunk, start, end."""
        import pandas as pd

        from vtrain.simulation.events import SPAN_KINDS

        events = self.timeline().events
        frame = pd.DataFrame(events._asdict())
        frame["kind"] = [SPAN_KINDS[kind] for kind in events.kind]
        return frame

    def explain(self) -> str:
        """Return in words where time and memory go and, if it does not fit, what would."""
        from vtrain.explain import explain_plan

        return explain_plan(self.setting, self.plan)

    def trace(
        self, path: str | Path, *, ranks: Sequence[int] | None = None, full: bool = False
    ) -> int:
        """Write the played step for Perfetto, as `vtrain trace` does.

        Args:
            path: file to write.
            ranks: pipeline ranks to draw; the ends and the middle of a long pipeline when None.
            full: draw every micro-batch of a long step.

        Returns:
            How many events the file holds.

        Raises:
            UserInputError: a file that cannot be written, or a rank the pipeline does not have.
        """
        from vtrain.step_trace import trace_step

        return trace_step(self.setting, self.plan, path, ranks=ranks, full=full)[1]

    def design(self, *, tokens: int | None = None) -> Design:
        """Return the design, for `export`; tokens are those of a whole run."""
        from vtrain.design import Design

        s = self.setting
        return Design(
            architecture=s.architecture, plan=self.plan, cluster=self.cluster,
            stack=self.stack, seq_length=s.seq_length, tokens=tokens,
        )  # fmt: skip

    def _repr_html_(self) -> str:
        shown = self.table.T
        shown.columns = [""]
        return str(shown.to_html())
