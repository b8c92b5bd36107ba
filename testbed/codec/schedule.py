"""The number of elements of a key that is sent in each of its rounds."""

from __future__ import annotations

from typing import Protocol

ROUNDING = 1e-9  # so that 0.29 of 100 elements are 29, although 0.29·100 is a little less in float64


def entries(size: int, ratio: float) -> int:
    """⌊ratio·size⌋, but at least one."""
    return max(1, int(size * ratio + ROUNDING))


def words(size: int, ratio: float) -> int:
    """32-bit words of GeoMX's payload for that ratio: ⌊2·ratio·size⌋, the odd one unused."""
    return max(2 * entries(size, ratio), int(2 * size * ratio + ROUNDING))


class RatioSchedule(Protocol):
    """The ratio over a key's rounds, counted from 0."""

    highest: float

    def ratio(self, round_: int) -> float: ...


class ConstantRatio:
    """The same ratio from the first round on."""

    def __init__(self, ratio: float) -> None:
        self.highest = ratio

    def ratio(self, round_: int) -> float:
        return self.highest


class WarmUp:
    """DGC's exponential warm-up (Lin et al., 2018, section 3.3): ratio^((s+1)/(stages+1)) in stage s, then ratio."""

    def __init__(self, ratio: float, stages: int, stage_rounds: int) -> None:
        self._ratio, self._stages, self._stage_rounds = ratio, stages, stage_rounds
        # pairs for more than half of the elements would be larger than the tensor
        self.highest = self.ratio(0)

    def ratio(self, round_: int) -> float:
        stage = min(round_ // self._stage_rounds, self._stages)
        return min(0.5, float(self._ratio ** ((stage + 1) / (self._stages + 1))))
