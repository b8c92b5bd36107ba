"""Random losses, seeded: the same sequence of packets loses the same ones.

Gilbert's two-state model (E. N. Gilbert, "Capacity of a burst-noise channel", BSTJ 1960) with all packets lost in the
bad state. With p the probability of entering the bad state and r that of leaving it, a burst has 1/r packets on
average, and the share of lost packets is p / (p + r). Given loss and burst length, r = 1/burst and
p = loss r / (1 - loss).
"""

from __future__ import annotations

from random import Random


def gilbert(loss: float, burst: float) -> tuple[float, float]:
    """Return p (good to bad) and r (bad to good) for a mean share of losses and a mean burst length in packets."""
    leave = 1.0 / burst
    return min(1.0, loss * leave / (1 - loss)) if loss < 1 else 1.0, leave


class LossModel:
    """Decides packet by packet. ``loss`` and ``burst`` may change at any time; the random stream continues."""

    def __init__(self, seed: int | str, loss: float = 0.0, burst: float = 1.0) -> None:
        self._random = Random(seed)
        self._bad = False
        self.set(loss, burst)

    def set(self, loss: float, burst: float = 1.0) -> None:
        """Set the mean share of packets lost, in [0, 1], and the mean burst length in packets.

        A burst of 1 or less means independent losses. Raise ``ValueError`` for a share outside [0, 1].
        """
        if not 0 <= loss <= 1:
            raise ValueError(f"a loss of {loss} is not a share between 0 and 1")
        self.loss, self.burst = loss, burst
        self._enter, self._leave = gilbert(loss, max(burst, 1.0))

    def lost(self) -> bool:
        """Return whether the next packet is lost."""
        if self.loss <= 0:
            self._bad = False
            return False
        draw = self._random.random()
        if self.burst <= 1:
            return draw < self.loss
        self._bad = draw >= self._leave if self._bad else draw < self._enter
        return self._bad
