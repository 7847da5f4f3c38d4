"""Loss laws: those that ship, and one fitted to your own runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError

if TYPE_CHECKING:
    from pandas import DataFrame

    from vtrain_search.fit_law.pilot_fit import PilotFit


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedLaw:
    """A loss law fitted to pilot runs.

    Attributes:
        fit: coefficients, bootstrap draws, errors.
        name: what the pilots are called.
        content: the pilots as a CSV file holds them, for the fingerprint in the law file.
    """

    fit: PilotFit
    name: str
    content: bytes

    @property
    def table(self) -> DataFrame:
        """Each coefficient with its 90 % bootstrap interval."""
        import pandas as pd

        edges = self.fit.interval90()
        rows = {name: (value, *edges[name]) for name, value in self.fit.coefficients().items()}
        return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "low", "high"])

    @property
    def runs(self) -> DataFrame:
        """One row a fitted run: size, tokens, measured and fitted loss (effective sizes)."""
        import numpy as np
        import pandas as pd

        points = self.fit.points
        fitted = self.fit.fitted.predict_ln(points)
        return pd.DataFrame({
            "params": np.exp(points.ln_n), "tokens": np.exp(points.ln_d),
            "loss": np.exp(points.ln_loss), "fitted_loss": np.exp(fitted),
            "error_pct": 100.0 * (np.exp(fitted - points.ln_loss) - 1.0),
        }, index=pd.Index(self.fit.pilots.rows, name="row"))  # fmt: skip

    def tokens_per_parameter(self, compute_flop: float) -> tuple[float, float, float]:
        """Return (low, point, high) compute-optimal tokens a parameter, 90 %, for C = 6ND."""
        return self.fit.tokens_per_parameter(compute_flop)

    def document(self) -> dict[str, Any]:
        """Return what `vtrain-search fit-law --json` prints."""
        from vtrain_search.fit_law.cli import report

        return report(self.fit)

    def write(self, path: str | Path, *, force: bool = False) -> Path:
        """Write a law file, for `law=` of `search`, and return its path.

        Raises:
            UserInputError: a file with other contents, and not `force`; or one that cannot be
                written.
        """
        from vtrain_search.fit_law.cli import law_text, write_once

        target = Path(path)
        with _file(self.name, self.content) as pilots:
            text = law_text(self.fit, pilots, target)
        write_once(target, text, force=force)
        return target

    def plot(self) -> str:
        """Return the runs and the fit as SVG."""
        from vtrain_search.fit_law.plot import svg

        return svg(self.fit, self.name)

    def _repr_html_(self) -> str:
        return str(self.table.to_html()) + self.plot()


def fit_law(
    pilots: DataFrame | str | Path,
    *,
    unit: str | None = None,
    vocab_size: int = 0,
    exclude: Sequence[int] = (),
    drop_lowest_ratio: int = 0,
    replicates: int = 1000,
    seed: int = 0,
    huber_delta: float | None = None,
) -> FittedLaw:
    """Fit L = E + A/N^alpha + B/D^beta to your own runs, as `vtrain-search fit-law` does.

    Args:
        pilots: a frame or a CSV file with columns params, tokens, loss and, where known, width,
            depth, batch_tokens: their effect is taken out with the shipped terms first.
        unit: nats or bits of the loss a token; found out when None.
        vocab_size: rows of the one embedding that params include; 0 when they exclude it.
        exclude: row numbers to leave out, from 1.
        drop_lowest_ratio: leave out so many runs with the fewest tokens a parameter.
        replicates: bootstrap refits.
        seed: of the bootstrap.
        huber_delta: log residual at which the loss turns linear; 1e-3, or 5e-3 below 100 runs,
            when None.

    Raises:
        UserInputError: a cell that is no number, or runs that cannot identify the law.
    """
    from vtrain_search.fit_law.cli import run_fit

    if unit not in (None, "nats", "bits"):
        raise UserInputError(f"unit {unit!r} is not known", hint="nats or bits")
    for name, value, least in (
        ("vocab_size", vocab_size, 0), ("drop_lowest_ratio", drop_lowest_ratio, 0),
        ("replicates", replicates, 100), ("seed", seed, 0),
    ):  # fmt: skip
        if value < least:
            raise UserInputError(f"{name} must be at least {least}, got {value}")
    if huber_delta is not None and not huber_delta > 0.0:
        raise UserInputError(f"huber_delta must be above zero, got {huber_delta}")
    name, content = _pilots(pilots)
    words = ",".join(str(row) for row in exclude)
    with _file(name, content) as path:
        fit = run_fit(
            path, unit, vocab_size, words, drop_lowest_ratio, replicates, seed, huber_delta
        )  # fmt: skip
    return FittedLaw(fit=fit, name=name, content=content)


def laws() -> DataFrame:
    """Return the shipped loss laws with formula, convention, data and source, one row each."""
    import pandas as pd

    from vtrain_search.laws import law_names, load_law
    from vtrain_search.laws.cli import law_record

    return pd.DataFrame([law_record(load_law(name)) for name in law_names()]).set_index("name")


def rules(compute_flop: float | None = None) -> DataFrame:
    """Return the shipped allocation rules, one row each, with N and D at a compute if given."""
    import pandas as pd

    from vtrain_search.laws import load_rule, rule_names
    from vtrain_search.laws.cli import rule_record

    if compute_flop is not None and not compute_flop > 0.0:
        raise UserInputError(f"compute_flop must be above zero, got {compute_flop}")
    records = [rule_record(load_rule(name), compute_flop) for name in rule_names()]
    return pd.DataFrame(records).set_index("name")


def _pilots(pilots: DataFrame | str | Path) -> tuple[str, bytes]:
    """Return the name and the CSV content of pilot runs."""
    if not isinstance(pilots, str | Path):
        return "frame.csv", pilots.to_csv(index=False).encode()
    path = Path(pilots)
    try:
        return path.name, path.read_bytes()
    except OSError as error:
        raise UserInputError(f"cannot read {path}: {error.strerror}") from None


@contextmanager
def _file(name: str, content: bytes) -> Iterator[Path]:
    """Yield a file of that name: pilots are checked, and told apart, as files."""
    with tempfile.TemporaryDirectory(prefix="vtrain-") as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        yield path
