"""Loss laws from Python are those of `vtrain-search fit-law` and `laws`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from vtrain_search.api import fit_law, laws, rules, search
from vtrain_search.fit_law.cli import fit_law_command
from vtrain_search.laws import load_law
from vtrain_search.laws.cli import laws_command

from vtrain.errors import UserInputError

TRUTH = {"E": 1.8, "A": 480.0, "B": 2100.0, "alpha": 0.35, "beta": 0.37}


def pilots() -> pd.DataFrame:
    """Runs that follow a known law to a thousandth."""
    rng = np.random.default_rng(0)
    params = np.repeat([1e8, 3e8, 1e9, 3e9], 4)
    tokens = params * np.tile([10.0, 20.0, 40.0, 80.0], 4)
    loss = TRUTH["E"] + TRUTH["A"] / params ** TRUTH["alpha"]
    loss = (loss + TRUTH["B"] / tokens ** TRUTH["beta"]) * rng.normal(1.0, 1e-3, params.size)
    return pd.DataFrame({"params": params, "tokens": tokens, "loss": loss})


def test_a_fit_is_the_commands(tmp_path: Path) -> None:
    """A frame and a file give the document of the command, and a file the same law file."""
    path = tmp_path / "pilots.csv"
    pilots().to_csv(path, index=False)
    words = [str(path), "--replicates", "100", "--seed", "3", "--exclude", "1,5"]
    target = tmp_path / "theirs" / "own.law.toml"
    target.parent.mkdir()
    words += ["--output", str(target), "--plot", str(tmp_path / "theirs.svg"), "--json"]
    printed = CliRunner().invoke(fit_law_command, words, catch_exceptions=False).stdout
    options = {"replicates": 100, "seed": 3, "exclude": (1, 5)}
    for source in (path, pilots()):
        assert json.loads(json.dumps(fit_law(source, **options).document())) == json.loads(printed)
    law = fit_law(path, **options)
    assert law.write(tmp_path / "own.law.toml").read_bytes() == target.read_bytes()
    assert law.table.loc["alpha", "value"] == pytest.approx(TRUTH["alpha"], rel=0.2)
    assert (law.table["low"] <= law.table["high"]).all()
    assert len(law.runs) == 14
    assert law.runs["error_pct"].abs().max() < 1.0
    assert law.plot().startswith("<svg")
    assert "alpha" in law._repr_html_()


def test_a_fitted_law_serves_the_search(tmp_path: Path) -> None:
    """A law file written from Python judges a search, and is not written over by another."""
    law = fit_law(pilots(), replicates=100)
    path = law.write(tmp_path / "own.law.toml")
    assert load_law(str(path)).coefficients() is not None
    few = {"recompute": "none", "micro_batch_size": 2, "virtual_stages": 1, "tp": 1}
    best = search("1e4usd", law=path, fix=few, trials=4).best
    assert best["loss"] > TRUTH["E"]
    assert law.write(path) == path
    with pytest.raises(UserInputError, match="other contents"):
        fit_law(pilots(), replicates=100, seed=1).write(path)


def test_rules_are_the_commands() -> None:
    """Laws and rules have the records that `vtrain-search laws` prints."""
    words = ["--compute", "1e24", "--json"]
    printed = CliRunner().invoke(laws_command, words, catch_exceptions=False).stdout
    records = json.loads(printed)
    assert rules(1e24).reset_index().to_dict("records") == records["rules"]
    assert "tokens" not in rules()
    assert laws().index.tolist() == [law["name"] for law in records["loss_laws"]]


@pytest.mark.parametrize(
    ("frame", "words", "message"),
    [
        (pilots().drop(columns="loss"), {}, "lacks column loss"),
        (pilots().head(3), {}, "3 runs cannot identify"),
        (pilots(), {"unit": "bytes"}, "nats or bits"),
        (pilots(), {"replicates": 3}, "at least 100"),
        (pilots(), {"exclude": (99,)}, "row 99"),
        (pilots(), {"huber_delta": 0.0}, "above zero"),
        ("no-such.csv", {}, "cannot read no-such.csv"),
    ],
)
def test_mistakes_get_one_line(
    frame: pd.DataFrame | str, words: dict[str, object], message: str
) -> None:
    """Runs that identify no law are refused with what is missing."""
    with pytest.raises(UserInputError, match=message):
        fit_law(frame, **words)
