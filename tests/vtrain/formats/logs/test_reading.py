from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from vtrain.errors import UserInputError
from vtrain.formats.logs import Log, read_log, read_log_text
from vtrain.formats.logs.steady import step_time_s


def _samples() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "log_samples", Path(__file__).with_name("samples.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["log_samples"] = module
    spec.loader.exec_module(module)
    return module


samples = _samples()
each = pytest.mark.parametrize("name", samples.LOGS)


def times(log: Log) -> list[float]:
    out = [
        step_time_s(x, tokens=samples.TOKENS, samples=samples.BATCH, gpus=samples.GPUS)
        for x in log.iterations
    ]
    assert all(value is not None for value in out)
    return [float(value) for value in out if value is not None]


@each
def test_a_log_in_its_documented_form_reads_right(name: str) -> None:
    """Trainer, step numbers and step times come out as they were printed."""
    log = read_log_text(samples.LOGS[name](), "x.log")
    assert log.format == name
    assert [x.number for x in log.iterations] == [1, 2, 3, 4, 5, 6]
    assert times(log) == pytest.approx(samples.STEPS, rel=5e-3)
    assert (log.damaged, log.duplicates, log.runs) == (0, 0, 1)


@each
def test_lines_between_change_nothing(name: str) -> None:
    """Warnings, timers and checkpoints between the iterations are passed over."""
    if name == "csv":
        pytest.skip("a table has no other lines")
    text = samples.LOGS[name]()
    # Between iterations, not inside the block of one.
    cut = text.index("[batch=4") if name == "llm-foundry" else text.index("\n") + 1
    noisy = "".join(samples.NOISE) + text[:cut] + "".join(samples.NOISE) + text[cut:]
    assert read_log_text(noisy, "x").iterations == read_log_text(text, "x").iterations


@each
def test_windows_line_ends_change_nothing(name: str) -> None:
    """CRLF reads as LF does."""
    text = samples.LOGS[name]()
    crlf = text.replace("\n", "\r\n")
    assert read_log_text(crlf, "x").iterations == read_log_text(text, "x").iterations


@each
@pytest.mark.parametrize("share", [0.55, 0.7, 0.93, 0.985])
def test_a_log_cut_off_keeps_what_is_whole(name: str, share: float) -> None:
    """A torn last line is never read with half of a number: what is read was printed."""
    text = samples.LOGS[name]()
    log = read_log_text(text[: int(share * len(text))], "x")
    whole = read_log_text(text, "x")
    assert 2 <= len(log.iterations) <= 6
    for found, true in zip(times(log), times(whole), strict=False):
        assert name == "csv" or found == pytest.approx(true, rel=1e-9)


@each
def test_a_restart_in_the_middle_is_a_second_run(name: str) -> None:
    """Steps repeated from a checkpoint stay, as a run of their own."""
    make = samples.LOGS[name]
    again = make(4)
    if name == "csv":
        again = again.split("\n", 1)[1]
    log = read_log_text(make() + again, "x")
    assert [x.number for x in log.iterations] == [1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9]
    assert [x.run for x in log.iterations] == [0] * 6 + [1] * 6
    assert log.runs == 2


def test_lines_of_several_ranks_count_once() -> None:
    """Eight ranks that print the same step are one step."""
    lines = samples.torchtitan().splitlines(keepends=True)
    log = read_log_text("".join(line * 8 for line in lines), "x")
    assert len(log.iterations) == 6
    assert log.duplicates == 42


def test_a_rank_that_lags_is_no_restart() -> None:
    """A late line of the step before is dropped, not taken for a restart."""
    lines = samples.torchtitan().splitlines(keepends=True)
    text = lines[0] * 2 + lines[1] + lines[0] + lines[1] + lines[2]
    log = read_log_text(text, "x")
    assert [x.number for x in log.iterations] == [1, 2, 3]
    assert log.runs == 1


def test_nemo_progress_bar_of_the_first_generation() -> None:
    """NeMo 1 prints a bar whose values follow an equals sign, overwritten by carriage returns."""
    bar = "\r".join(
        f"Epoch 0: :  10%|# | {i}/100 [01:23<11:00, reduced_train_loss=9.1, global_step={i}.0, "
        f"consumed_samples={i * 512}.0, train_step_timing in s=8.310]"
        for i in (1, 2, 3)
    )
    log = read_log_text(bar, "x")
    assert [(x.number, x.step_time_s, x.consumed_samples) for x in log.iterations] == [
        (1, 8.31, 512),
        (2, 8.31, 1024),
        (3, 8.31, 1536),
    ]


def test_published_lines_read_right() -> None:
    """Lines quoted in public reports: BLOOM's 149 TFLOPs, nanotron issue 390, examples PR 118."""
    bloom = (
        " [default7]: iteration    12695/  115311 | consumed samples:      9841584 | consumed "
        "tokens:  20155564032 | elapsed time per iteration (s): 105.22 | learning rate: 5.969E-05 "
        "| global batch size:  2048 | lm loss: 2.463556E+00 | grad norm: 0.174 | num zeros: 0.0 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: "
        "19.463 | TFLOPs: 149.02 |"
    )
    (line,) = read_log_text(bloom, "x").iterations
    assert (line.step_time_s, line.tflops_per_gpu, line.global_batch_size) == (105.22, 149.02, 2048)
    nano = (
        "10/17/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: "
        "85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | "
        "tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.38 | lr: 1e-05 | "
        "model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.25"
    )
    (line,) = read_log_text(nano, "x").iterations
    assert (line.step_time_s, line.tokens_per_s_per_gpu) == (11.5, 11400.0)
    composer = (
        "[batch=12/4800]:\n\t Train throughput/batches_per_sec: 0.3258\n"
        "\t Train throughput/samples_per_sec: 83.3991\n\t Train throughput/device/mfu: 0.2677\n"
    )
    (line,) = read_log_text(composer, "x").iterations
    assert line.step_time_s == pytest.approx(1 / 0.3258)
    assert (line.global_batch_size, line.mfu) == (256, 0.2677)


def test_skipped_steps_are_marked() -> None:
    """A step that the loss scale made the optimizer skip is no measured step."""
    text = samples.megatron().replace("skipped iterations:   0", "skipped iterations:   1", 1)
    assert [x.skipped for x in read_log_text(text, "x").iterations] == [True, *[False] * 5]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no log of a known trainer"),
        ("hello\nworld\n", "no log of a known trainer"),
        (" iteration 1/ 10 | consumed samples: 5 | elapsed time per it", "1 are cut off"),
        ("iteration,loss\n1,2\n", r"how fast a step was \(its columns: iteration, loss\)"),
        ("\x00\x01\x02" * 50, "no log of a known trainer"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(text: str, word: str) -> None:
    """No iteration line, no guess."""
    with pytest.raises(UserInputError, match=word) as caught:
        read_log_text(text, "x.log")
    assert "\n" not in str(caught.value)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    """A missing file and a wrong format name give one line."""
    with pytest.raises(UserInputError, match="cannot read"):
        read_log(tmp_path / "none.log")
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff\xfe" + samples.megatron().encode())
    assert len(read_log(path).iterations) == 6
    with pytest.raises(UserInputError, match="unknown log format"):
        read_log(path, "papyrus")
