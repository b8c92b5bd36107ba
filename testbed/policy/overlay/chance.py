"""A seeded stream of random numbers for decisions: the same seed, the same decisions, in every world.

SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a counter and a mixer, so nothing of the platform comes in.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


class Stream:
    """Independent draws."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def bits(self) -> int:
        """64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def share(self) -> float:
        """Uniform in [0, 1)."""
        return (self.bits() >> 11) / (1 << 53)

    def below(self, count: int) -> int:
        """Uniform in 0 … count − 1, but for one part in 2^64 / count."""
        return self.bits() % count
