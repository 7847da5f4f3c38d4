"""Progress on stderr: a live line on a terminal, one line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from vtrain.units import format_count

if TYPE_CHECKING:
    from types import TracebackType

    from vtrain_search.driver import Progress

TYPICAL_TRIALS = 110
"""Architectures a search of one budget tries before its stop rule holds, measured from $10k to
$10M."""
_LINE_EVERY_S = 10.0
_REDRAW_EVERY_S = 0.2


class ProgressLine:
    """Says how far a search is; a context manager that leaves the terminal clean."""

    def __init__(self, cases: int, *, quiet: bool = False) -> None:
        """Prepare a silent or speaking line.

        Args:
            cases: budgets searched.
            quiet: say nothing.
        """
        self._cases = cases
        self._quiet = quiet
        self._live = not quiet and sys.stderr.isatty()
        self._start = time.monotonic()
        self._last = self._start
        self._status: Any = None
        self._state: Progress | None = None

    def __enter__(self) -> ProgressLine:
        """Open the live line where there is a terminal."""
        if self._live:
            from rich.console import Console

            self._status = Console(stderr=True).status("searching")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Erase the live line."""
        self._quiet = self._quiet or kind is not None
        self.stop()

    def stop(self) -> None:
        """Erase the live line and say what the search came to; nothing is shown after that."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._state is not None and not self._quiet:
            elapsed_s = time.monotonic() - self._start
            self._write(describe(self._state, cases=self._cases, elapsed_s=elapsed_s, over=True))
        self._quiet = True

    def _write(self, text: str) -> None:
        sys.stderr.write(f"vtrain-search: {text}\n")
        sys.stderr.flush()

    def __call__(self, progress: Progress) -> None:
        """Show the state of the search, unless it was shown a moment ago."""
        now = time.monotonic()
        self._state = progress
        every = _REDRAW_EVERY_S if self._live else _LINE_EVERY_S
        if self._quiet or now - self._last < every:
            return
        self._last = now
        text = describe(progress, cases=self._cases, elapsed_s=now - self._start)
        if self._status is not None:
            self._status.update(text)
        else:
            self._write(text)


def describe(progress: Progress, *, cases: int, elapsed_s: float, over: bool = False) -> str:
    """Return one line: trials, best so far, feasible share, rate, time.

    Args:
        progress: counts of the search.
        cases: budgets searched.
        elapsed_s: seconds since the start.
        over: the search has ended: no time is left.
    """
    done = max(progress.evaluated, 1)
    parts = [f"{progress.evaluated} architectures, {format_count(progress.plans)} plans"]
    if not progress.evaluated and progress.trials:
        # A finished part of a resumed run.
        parts = [f"{progress.trials} trials played back"]
    if progress.best:
        last = progress.best[max(progress.best)]
        parts.append(f"best loss {last:.4f}" if cases == 1 else f"best losses to {last:.4f}")
    if progress.evaluated:
        parts.append(f"{100 * progress.feasible / done:.0f} % feasible")
    if cases > 1:
        parts.append(f"{progress.cases_done}/{cases} budgets done")
    rate = (progress.evaluated or progress.trials) / max(elapsed_s, 1e-9)
    parts.append(f"{rate:.1f}/s, {elapsed_s:.0f} s{' in all' if over else ''}")
    ahead = TYPICAL_TRIALS * cases - progress.evaluated
    if progress.evaluated and ahead > 0 and not over:
        parts.append(f"about {ahead / rate:.0f} s left")
    return ", ".join(parts)
