"""How much may be simulated: seconds of the clock, processor time, or a number of simulations.

A number of simulations gives the same answer on every machine. Processor time gives the answer of an idle machine even
if other programs are running.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from dataclasses import replace

from analysis.advise.observation import UNLIMITED, Limits
from testbed.errors import ScenarioError

_MORE_THAN_FAIR = 1.5  # the part of a simulation over a fair one: most simulations take less than a fair part


class Budget(ABC):
    """The budget for simulations. A ``share`` is a part of the whole budget, from 0 to 1."""

    @abstractmethod
    def allows(self, share: float) -> bool:
        """Return whether less than this share has been used."""

    @abstractmethod
    def limits(self, share: float, of: int = 1, within: Limits = UNLIMITED) -> Limits:
        """Return the limits of a simulation that may use what is left of this share.

        of      number of simulations that share what is left: each may take somewhat more than a fair part
        within  other limits of the simulation, which the result includes
        """

    @abstractmethod
    def take(self) -> None:
        """Note that a simulation begins."""


class Seconds(Budget):
    """Seconds from now on. Raise ``ScenarioError`` if they are not above 0."""

    def __init__(self, seconds: float) -> None:
        if not seconds > 0:  # also not a number
            raise ScenarioError(
                f"a budget of {seconds:g} s (--budget, budget_s: the seconds of the answer, such as 120)"
            )
        self._seconds = seconds
        self._begin_s = self._now_s()

    def _now_s(self) -> float:
        return time.monotonic()

    def _left_s(self, share: float) -> float:
        return self._begin_s + share * self._seconds - self._now_s()

    def allows(self, share: float) -> bool:
        return self._left_s(share) > 0

    def limits(self, share: float, of: int = 1, within: Limits = UNLIMITED) -> Limits:
        return replace(within, clock_s=time.monotonic() + _part_s(self._left_s(share), of))

    def take(self) -> None:
        """The clock runs by itself."""


class ProcessorSeconds(Seconds):
    """Seconds of processor time per process: the time that ``jobs`` processes take if each has a core to itself."""

    def __init__(self, seconds: float, jobs: int) -> None:
        self._jobs = jobs
        super().__init__(seconds)

    def _now_s(self) -> float:
        taken = os.times()
        return (taken.user + taken.system + taken.children_user + taken.children_system) / self._jobs

    def limits(self, share: float, of: int = 1, within: Limits = UNLIMITED) -> Limits:
        return replace(within, processor_s=_part_s(self._left_s(share), of))


class Simulations(Budget):
    """A number of simulations, each of which may run to its end. Raise ``ScenarioError`` if the number is below 1."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ScenarioError(f"a budget of {count} simulations (at least 1)")
        self._count = count
        self._taken = 0

    def allows(self, share: float) -> bool:
        return self._taken < share * self._count

    def limits(self, share: float, of: int = 1, within: Limits = UNLIMITED) -> Limits:
        return within

    def take(self) -> None:
        self._taken += 1


def _part_s(left_s: float, of: int) -> float:
    return left_s if of <= 1 else min(left_s, _MORE_THAN_FAIR * left_s / of)
