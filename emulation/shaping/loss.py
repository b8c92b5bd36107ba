"""Loss models: seeded, so that the same run loses the same packets.

Gilbert's two-state model (E. N. Gilbert, "Capacity of a burst-noise channel", BSTJ 1960): in the bad state every
packet is lost. Given by the mean share lost and the mean length of a burst of losses.
"""

from __future__ import annotations

from random import Random


class LossModel:
    """Decides packet by packet. ``loss`` and ``burst`` may change at any time; the random stream goes on."""

    def __init__(self, seed: int | str, loss: float = 0.0, burst: float = 1.0) -> None:
        self._random = Random(seed)
        self._bad = False
        self.set(loss, burst)

    def set(self, loss: float, burst: float = 1.0) -> None:
        """Mean share of packets lost, in [0, 1); mean burst length in packets, 1 or less means independent losses."""
        if not 0 <= loss <= 1:
            raise ValueError(f"a loss of {loss} is not a share between 0 and 1")
        self.loss, self.burst = loss, burst
        self._leave = 1.0 / burst if burst > 1 else 1.0
        self._enter = min(1.0, loss * self._leave / (1 - loss)) if loss < 1 else 1.0

    def lost(self) -> bool:
        """Whether the next packet is lost."""
        if self.loss <= 0:
            self._bad = False
            return False
        draw = self._random.random()
        if self.burst <= 1:
            return draw < self.loss
        self._bad = draw >= self._leave if self._bad else draw < self._enter
        return self._bad
