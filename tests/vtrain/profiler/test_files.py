from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vtrain.errors import UserInputError
from vtrain.profiler.importer import import_tables
from vtrain.profiler.meta import read_meta, write_meta
from vtrain.profiler.prediction import load_profile
from vtrain.profiler.rows import COLUMNS, read_rows, write_rows

Make = Callable[..., Path]


def test_a_profile_head_is_read_as_written(make_profile: Make) -> None:
    """meta.toml round-trips."""
    folder = make_profile()
    meta = read_meta(folder)
    write_meta(folder, meta)
    assert read_meta(folder) == meta


@pytest.mark.parametrize("table", COLUMNS)
def test_tables_round_trip(tmp_path: Path, table: str) -> None:
    """A row comes back as it was written, an extra column with it."""
    row = dict.fromkeys(COLUMNS[table], "7") | {"spread_pct": "3.1"}
    write_rows(tmp_path, table, [row])
    (back,) = read_rows(tmp_path / f"{table}.csv", table)
    assert {key: back[key] for key in row} == row


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "schema_version None"),
        ("schema_version = 2\n", "schema_version 2"),
        ("schema_version = 1\ncolour = 'red'\n", "unknown keys: colour"),
        ("schema_version = 1\nname = 'x'\n", "is damaged"),
        ("schema_version = [", "is damaged"),
    ],
)
def test_a_foreign_head_is_refused(make_profile: Make, text: str, word: str) -> None:
    """A head of another schema, or none, gives one line."""
    folder = make_profile()
    (folder / "meta.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UserInputError, match=word) as caught:
        read_meta(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_without_profile_says_so(tmp_path: Path) -> None:
    """No folder, an empty one, and one that was never fitted are told apart."""
    with pytest.raises(UserInputError, match="is not a folder"):
        load_profile(tmp_path / "none")
    with pytest.raises(UserInputError, match="holds no profile"):
        load_profile(tmp_path)


def test_an_unfitted_profile_names_the_command(make_profile: Make) -> None:
    """Rows alone predict nothing."""
    with pytest.raises(UserInputError, match="vtrain profile fit"):
        load_profile(make_profile())


@pytest.mark.parametrize("value", ["", "abc", "-3", "0", "nan", "inf"])
def test_a_damaged_number_names_its_line(make_profile: Make, value: str) -> None:
    """A time that is none is named with file and line."""
    folder = make_profile()
    rows = read_rows(folder / "gemm.csv", "gemm")
    rows[4]["time_us"] = value
    write_rows(folder, "gemm", rows)
    with pytest.raises(UserInputError, match=r"gemm\.csv, line 6: time_us must be"):
        read_rows(folder / "gemm.csv", "gemm")


def test_a_table_of_something_else_names_the_columns(tmp_path: Path) -> None:
    """A CSV without the columns, or no CSV at all, is refused."""
    path = tmp_path / "gemm.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UserInputError, match="lacks the columns"):
        read_rows(path, "gemm")
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UserInputError, match="not UTF-8"):
        read_rows(path, "gemm")


def test_tables_from_elsewhere_become_a_profile(make_profile: Make, tmp_path: Path) -> None:
    """Tables in the published column format are imported, one device's rows only."""
    source = make_profile("source")
    rows = read_rows(source / "gemm.csv", "gemm")
    for row in rows:
        row["dtype"] = "bf16"
    foreign = [{**row, "gpu": "Other"} for row in rows[:5]]
    write_rows(source, "gemm", [*rows, *foreign])
    meta = import_tables(source, tmp_path / "out", gpu="Made-up CPU", base="h100-sxm-80g")
    assert meta.base == "h100-sxm-80g"
    assert {row["gpu"] for row in read_rows(tmp_path / "out" / "gemm.csv", "gemm")} == {
        "Made-up CPU"
    }
    with pytest.raises(UserInputError, match="already holds a profile"):
        import_tables(source, tmp_path / "out", gpu="Made-up CPU", base=None)
    with pytest.raises(UserInputError, match="no bf16 products of gpu 'H900'"):
        import_tables(source, tmp_path / "other", gpu="H900", base=None)
