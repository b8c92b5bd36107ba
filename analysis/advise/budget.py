"""How much may be simulated: seconds of the clock, or a number of simulations, which is the same on every machine."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod


class Budget(ABC):
    """What is left to simulate with. ``share`` is a part of the whole, from 0 to 1."""

    @abstractmethod
    def allows(self, share: float) -> bool:
        """Return whether less than this share has been used."""

    @abstractmethod
    def clock_s(self, share: float) -> float:
        """Return when, on the monotonic clock, this share will have been used."""

    def take(self) -> None:  # noqa: B027 - of some kinds only
        """A simulation begins."""


class Seconds(Budget):
    """Seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._begin_s = time.monotonic()
        self._seconds = seconds

    def allows(self, share: float) -> bool:
        return time.monotonic() < self.clock_s(share)

    def clock_s(self, share: float) -> float:
        return self._begin_s + share * self._seconds


class Simulations(Budget):
    """A number of simulations, each to its end."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._taken = 0

    def allows(self, share: float) -> bool:
        return self._taken < share * self._count

    def clock_s(self, share: float) -> float:
        return math.inf

    def take(self) -> None:
        self._taken += 1
