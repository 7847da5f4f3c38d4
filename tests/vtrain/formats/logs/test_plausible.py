from __future__ import annotations

import pytest

from vtrain.errors import UserInputError
from vtrain.formats.logs import Iteration, Log
from vtrain.formats.logs.plausible import Claim, Flag, flags
from vtrain.formats.logs.steady import steady_steps
from vtrain.mfu import Work
from vtrain.models import load_model

H100, A100 = 989.4e12, 312e12


def check(*, model: str = "llama3-8b", seq: int = 8192, gpus: int = 8, batch: int = 32,
          peak: float = H100, **line: float) -> list[Flag]:  # fmt: skip
    work = Work(architecture=load_model(model).architecture, seq_length=seq)
    claim = Claim(
        work=work, gpus=gpus, global_batch_size=batch, peak_flops=peak,
        peaks={"h100 bf16": H100, "a100 bf16": A100},
    )  # fmt: skip
    lines = tuple(
        Iteration(number=at, consumed_samples=at * 32, **line)  # type: ignore[arg-type]
        for at in range(1, 11)
    )
    log = Log(format="x", iterations=lines, source="x.log")
    steady = steady_steps(log, global_batch_size=batch, seq_length=seq, gpus=gpus)
    return flags(steady, claim)


def step_at(mfu: float, *, seq: int = 8192, gpus: int = 8, batch: int = 32) -> float:
    architecture = load_model("llama3-8b").architecture
    return batch * seq * architecture.training_flops_per_token(seq) / (gpus * H100 * mfu)


def test_a_sound_log_is_not_flagged() -> None:
    """Forty percent of an H100 with a matching count of FLOPs raises nothing."""
    seconds = step_at(0.40)
    assert check(step_time_s=seconds, tflops_per_gpu=0.40 * H100 / 1e12, mfu=0.40) == []


def test_faster_than_the_chip_is_fatal_with_the_arithmetic() -> None:
    """A step above the dense peak even at the causal count cannot be."""
    (flag,) = [f for f in check(step_time_s=step_at(1.6)) if f.fatal]
    assert "of the dense peak" in flag.text
    assert "2.621e+05 tokens" in flag.text


def test_the_a100_peak_on_an_h100_is_recognised() -> None:
    """PC-72, nanoGPT issue 464: 104 % on an H100 is the peak of an A100 in the denominator."""
    mfu = 1.04 * A100 / H100
    (flag,) = check(step_time_s=step_at(mfu), mfu=1.04)
    assert flag.text.startswith("impossible: the log prints 104.0% MFU")
    assert "a100 bf16" in flag.text
    assert "32.8%" in flag.text


def test_the_sparse_peak_is_recognised() -> None:
    """PC-72, Megatron-LM issue 1276: 20 % where it is 40 % is the sparse peak."""
    (flag,) = check(step_time_s=step_at(0.40), mfu=0.20)
    assert "sparse peak of h100 bf16" in flag.text


def test_tflops_above_the_peak_are_fatal() -> None:
    """A printed rate above the dense peak is a wrong count or a wrong chip."""
    found = check(step_time_s=step_at(0.55), tflops_per_gpu=1100.0)
    assert any(f.fatal and "above the dense peak" in f.text for f in found)


def test_another_flop_convention_is_named() -> None:
    """Causal attention counted at half, as Megatron-LM does since 2025, is named."""
    work = Work(architecture=load_model("llama3-8b").architecture, seq_length=8192)
    ours = work.architecture.training_flops_per_token(8192)
    theirs = work.architecture.training_flops_per_token(8192, causal=True)
    seconds = step_at(0.40)
    printed = 0.40 * H100 / 1e12 * theirs / ours
    (flag,) = check(step_time_s=seconds, tflops_per_gpu=printed)
    assert not flag.fatal
    assert "another FLOP convention" in flag.text


def test_an_unknown_count_says_by_how_much() -> None:
    """A count 1.5 times ours follows no known convention."""
    (flag,) = check(step_time_s=step_at(0.40), tflops_per_gpu=1.5 * 0.40 * H100 / 1e12)
    assert "no known FLOP convention" in flag.text
    assert "1.50 x" in flag.text


def test_a_wrong_batch_is_fatal() -> None:
    """Consumed samples grow by the batch, whatever the user says it is."""
    found = check(step_time_s=2 * step_at(0.40), batch=64)
    (flag,) = [f for f in found if f.fatal]
    assert "grow by 32 a step, the plan has global_batch_size=64" in flag.text


def test_a_batch_that_no_line_has_is_refused() -> None:
    """The batch printed by the log wins over the plan's."""
    with pytest.raises(UserInputError, match="wrong batch"):
        check(step_time_s=5.0, global_batch_size=16)


def test_tokens_of_one_gpu_taken_for_all_are_flagged() -> None:
    """A rate eight times off names batch, sequence length and GPU count."""
    seconds = step_at(0.40)
    (flag,) = check(step_time_s=seconds, tokens_per_s=32 * 8192 / seconds / 8)
    assert flag.fatal
    assert "0.12 x" in flag.text


def test_warm_up_and_outliers_are_left_out_and_counted() -> None:
    """Two lines after each start, a slow checkpoint and a torn clock do not speak."""
    times = [9.0, 5.0, 4.0, 4.01, 3.99, 4.0, 4.0, 20.0, 4.02, 4.0]
    lines = [Iteration(number=i, step_time_s=t) for i, t in enumerate(times)]
    log = Log(format="x", iterations=tuple(lines))
    steady = steady_steps(log, global_batch_size=8, seq_length=128, gpus=1)
    assert (steady.warm_up, steady.outliers) == (2, 1)
    assert steady.median_s == pytest.approx(4.0)
    again = [Iteration(number=i, step_time_s=t, run=1) for i, t in enumerate(times)]
    twice = Log(format="x", iterations=(*lines, *again))
    assert steady_steps(twice, global_batch_size=8, seq_length=128, gpus=1).warm_up == 4


def test_ramping_batches_do_not_count() -> None:
    """Only steps of the plan's batch are used."""
    lines = [
        Iteration(number=i, step_time_s=2.0 if i < 5 else 4.0, global_batch_size=4 if i < 5 else 8)
        for i in range(10)
    ]
    log = Log(format="x", iterations=tuple(lines))
    steady = steady_steps(log, global_batch_size=8, seq_length=128, gpus=1)
    assert (steady.other_batch, steady.median_s) == (3, 4.0)
