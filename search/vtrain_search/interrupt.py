"""Ctrl-C ends a search with what it has, also where a shell started it in the background."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_STOPS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT and SIGTERM inside the block.

    A shell starts background commands with SIGINT ignored, and a job scheduler ends jobs with
    SIGTERM; both should leave a partial result instead of none.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(interrupt):
        yield


@contextlib.contextmanager
def uninterrupted(doing: str = "") -> Iterator[None]:
    """Hold SIGINT and SIGTERM back inside the block; deliver after it the first that came.

    For calls into libraries with threads of their own: an exception raised in the middle of
    starting or stopping Ray leaves its native worker half made, and the process dies of a
    segmentation fault at exit. A signal is dropped where the block itself fails: what it raised
    ends the program as well.

    Args:
        doing: said on stderr when a signal has to wait; empty says nothing.
    """
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        if doing and not came:
            sys.stderr.write(f"vtrain-search: {doing}, then it stops\n")
        came.append(number)

    with _handled_by(keep):
        yield
    if came:
        # Whoever handles signals outside decides what it means: an interrupt, death, nothing.
        signal.raise_signal(came[0])


@contextlib.contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install one handler for both signals; only the main thread can, elsewhere do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _STOPS}
    for number in _STOPS:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old or signal.SIG_DFL)
