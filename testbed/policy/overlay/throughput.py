"""Throughput between any two nodes, as measured: bytes over wall time of what really travelled; it grows old."""

from __future__ import annotations


class Throughput:
    """The latest measurement per directed pair; forgotten ``expiry`` rounds after the round it was made in."""

    def __init__(self, expiry: int) -> None:
        self._expiry = expiry
        self._measured: dict[tuple[str, str], tuple[float, int]] = {}

    def add(self, source: str, target: str, bytes_per_s: float, round_: int) -> None:
        """A transfer has ended in ``round_``."""
        self._measured[source, target] = (bytes_per_s, round_)

    def get(self, source: str, target: str, round_: int) -> float | None:
        """Bytes per second, or ``None`` if it is unknown, or forgotten by ``round_``."""
        bytes_per_s, made = self._measured.get((source, target), (0.0, -1))
        return bytes_per_s if made >= 0 and round_ - made <= self._expiry else None
