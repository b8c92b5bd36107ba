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

    def fair_clock_s(self, share: float, of: int) -> float:
        """Return until when one of ``of`` simulations may run that share what is left up to ``share``."""
        return self.clock_s(share)

    @abstractmethod
    def take(self) -> None:
        """Note that a simulation begins."""


_MORE_THAN_FAIR = 1.5  # most simulations take less than their part


class Seconds(Budget):
    """Seconds from now on."""

    def __init__(self, seconds: float) -> None:
        self._begin_s = time.monotonic()
        self._seconds = seconds

    def allows(self, share: float) -> bool:
        return time.monotonic() < self.clock_s(share)

    def clock_s(self, share: float) -> float:
        return self._begin_s + share * self._seconds

    def fair_clock_s(self, share: float, of: int) -> float:
        now_s = time.monotonic()
        left_s = self.clock_s(share) - now_s
        return now_s + min(left_s, _MORE_THAN_FAIR * left_s / max(1, of))

    def take(self) -> None:
        """The clock runs by itself."""


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
