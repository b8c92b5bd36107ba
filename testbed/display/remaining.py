"""An estimate of the remaining time of a run or a sweep."""

from __future__ import annotations

from math import exp

_SMOOTHED = 0.3  # share of all rounds over which the estimated time of a round is smoothed
_MEAN_ROUNDS = 5  # for so many first rounds, their mean is the estimate


class Remaining:
    """Estimates the remaining time of a run, as an upper bound, from the times at which its rounds were completed.

    The estimated time of a round starts at the mean of the first rounds, and is then smoothed exponentially over about
    a third of the run. The time before training does not count.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._memory = max(1.0, total * _SMOOTHED)
        self._before = 0
        self._done = 0
        self._at_s = 0.0
        self._began_s = 0.0
        self._round_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Start the estimate when training begins. ``now_s`` is the time on any clock, the same in all methods."""
        self._began_s = self._at_s = now_s

    def skip(self, completed: int) -> None:
        """Let this many rounds count as completed before the estimate began, as their times are unknown."""
        self._before, self._done = completed, max(self._done, completed)

    def take(self, completed: int, now_s: float) -> None:
        """Record that all workers have completed this many rounds."""
        if completed <= self._done:
            return
        if self._done - self._before < _MEAN_ROUNDS:
            self._round_s = (now_s - self._began_s) / (completed - self._before)
        else:
            assert self._round_s is not None
            latest_s = (now_s - self._at_s) / (completed - self._done)
            self._round_s = latest_s + (self._round_s - latest_s) * exp((self._done - completed) / self._memory)
        self._done = completed
        self._at_s = now_s

    def at(self, now_s: float) -> float | None:
        """Return the remaining time in s; ``None`` before the first round, or if the number of rounds is unknown (0).

        It decreases while a round is in progress.
        """
        if self._round_s is None or not self._total:
            return None
        rounds_s = (self._total - self._done) * self._round_s
        return rounds_s - min(now_s - self._at_s, self._round_s, rounds_s)
