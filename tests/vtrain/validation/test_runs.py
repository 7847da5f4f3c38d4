from __future__ import annotations

import pytest

from tests.vtrain.validation.conftest import line
from vtrain.errors import UserInputError
from vtrain.validation.runs import read_runs


def test_blank_cells_are_none_and_the_prefix_names_the_source(write_runs):
    """A blank number is unknown, never zero; run_id carries the source."""
    (run,) = read_runs(write_runs(line(run_id="dgxc-0007", micro_batch="", mfu="")))
    assert run.source == "dgxc"
    assert run.micro_batch is None
    assert run.mfu is None
    assert run.layers == 16.0


def test_vtrains_file_is_read_with_the_facts_of_its_repository(tmp_path):
    """Milliseconds become seconds; fp16, full recomputation and no sharding are known."""
    path = tmp_path / "multi.csv"
    path.write_text(
        "run_id,params_b,gpus,global_batch_seqs,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,"
        "iteration_ms\nvtm0000,3.6,64,512,8,3072,32,30,2048,1,64,1,3566.5\n",
        encoding="utf-8",
    )
    (run,) = read_runs(path)
    assert run.source == "vtrain_multi"
    assert run.iteration_s == pytest.approx(3.5665)
    assert (run.dtype, run.recompute, run.ffn_hidden) == ("fp16", "full", 12288.0)


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "run_id,gpus\nx,1\n"])
def test_another_csv_is_refused_by_name(tmp_path, text):
    """A file without the needed columns gets one clear line."""
    path = tmp_path / "other.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserInputError, match=r"other\.csv is no file of measured runs"):
        read_runs(path)


def test_a_word_where_a_number_belongs_names_line_and_column(write_runs):
    """The message points at the cell."""
    with pytest.raises(UserInputError, match="line 2: tp='many'"):
        read_runs(write_runs(line(tp="many")))


def test_a_missing_file_is_the_users_to_mend(tmp_path):
    """No traceback for a wrong path."""
    with pytest.raises(UserInputError, match="cannot read"):
        read_runs(tmp_path / "none.csv")
