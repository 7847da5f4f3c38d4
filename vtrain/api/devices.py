"""Constants of the shipped devices from measured tables, and how many products a profile needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain.latency.fit.devices import Scored


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFits:
    """Constants of shipped devices and clusters, fitted to measured tables.

    Attributes:
        devices: content of each device file, by name.
        clusters: content of each cluster file, by name.
        scores: held-out error of every operator and model.
    """

    devices: dict[str, dict[str, Any]]
    clusters: dict[str, dict[str, Any]]
    scores: tuple[Scored, ...]

    @property
    def table(self) -> DataFrame:
        """Held-out error by device, operator and model, in percent."""
        import pandas as pd

        from vtrain.latency.fit.writer import score_rows

        columns = ["device", "operator", "model", "rows", "mape_pct", "median_ape_pct"]
        return pd.DataFrame(score_rows(list(self.scores)), columns=columns)

    def write(self, folder: str | Path) -> None:
        """Write devices/NAME.toml and clusters/NAME.toml, as --out does."""
        from vtrain.latency.fit.writer import write_fits

        write_fits(Path(folder), self.devices, self.clusters)

    def report(self, folder: str | Path) -> None:
        """Write operators.csv and README.md, as --report does."""
        from vtrain.latency.fit.writer import write_report

        write_report(Path(folder), list(self.scores))

    def _repr_html_(self) -> str:
        return str(self.table.round(1).to_html(index=False))


def profile_budget(
    tables: str | Path, *, devices: str | Sequence[str] = (), shapes: int | Sequence[int] = ()
) -> DataFrame:
    """Return held-out error against the number of products profiled, in percent.

    Args:
        tables: folder with a published gemm.csv.
        devices: shipped devices; those of the published table if none.
        shapes: numbers of products; 30, 120, 1000 and 4000 if none.

    Raises:
        UserInputError: no such table, or fewer than 15 products.
    """
    import pandas as pd

    from vtrain.profiler.budget import DEVICES, profiling_budget

    names = (devices,) if isinstance(devices, str) else tuple(devices)
    counts = (shapes,) if isinstance(shapes, int) else tuple(shapes)
    for count in counts:
        if count < 15:
            raise UserInputError(f"shapes must be at least 15, got {count}")
    rows: list[dict[str, Any]] = []
    for name in names or DEVICES:
        for found in profiling_budget(Path(tables), name, counts or (30, 120, 1000, 4000)):
            errors = {
                f"{model}_{key}": value
                for model in ("saturating", "tiles", "residual")
                if (error := getattr(found, model)) is not None
                for key, value in asdict(error).items() if key != "rows"
            }  # fmt: skip
            rows.append({"device": found.device, "shapes": found.shapes, **errors})
    return pd.DataFrame(rows)


def fit_devices(
    profiles: str | Path,
    *,
    devices: str | Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> DeviceFits:
    """Fit constants of the shipped devices to measured tables, as `vtrain fit-devices` does.

    Args:
        profiles: folder with gemm.csv, attention.csv, collectives.csv and elementwise.csv.
        devices: fit these only; all if none.
        progress: called with each name before it is fitted.

    Raises:
        UserInputError: an unknown device, or a table that is missing.
    """
    from vtrain.latency.fit.writer import fit_all, fit_order

    names = fit_order((devices,) if isinstance(devices, str) else tuple(devices))
    found, clusters, scores = fit_all(Path(profiles), names, progress or (lambda _: None))
    return DeviceFits(devices=found, clusters=clusters, scores=tuple(scores))
