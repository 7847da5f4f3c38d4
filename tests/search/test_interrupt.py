"""Signals stop a search where it can stop, and wait where it cannot."""

from __future__ import annotations

import os
import signal

import pytest
from vtrain_search.interrupt import interruptible, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_the_block(number: int) -> None:
    """Inside `uninterrupted` everything is still done; the interrupt follows, handlers are back."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    done = []

    def work() -> None:
        with interruptible():
            with uninterrupted():
                os.kill(os.getpid(), number)
                done.append("the rest of the block")
            done.append("what comes after it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest of the block"]
    assert {n: signal.getsignal(n) for n in before} == before


def test_an_error_of_the_block_comes_first() -> None:
    """What the block itself raises is not hidden by a signal that came meanwhile."""

    def fail() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        fail()


def test_without_a_signal_nothing_happens() -> None:
    """No signal, no interrupt; outside of it one is raised at once."""
    with uninterrupted():
        pass
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), signal.SIGINT)


def test_an_ignored_signal_stays_ignored() -> None:
    """What the program outside ignores is not turned into an interrupt by holding it back."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
