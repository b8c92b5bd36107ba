"""What an emulated link does beyond a real one, or beyond what other predictions need: its bucket, and the
acknowledgements that cross it. Only with ``simulation.host``."""

from __future__ import annotations

from testbed.simulation.acknowledgements import Acknowledgements
from testbed.simulation.bucket import Bucket


class EmulatedLink:
    """Of one direction; ``face`` sets what comes the other way."""

    __slots__ = ("_acknowledgements", "_bucket")

    def __init__(self, goodput: float) -> None:
        self._bucket, self._acknowledgements = Bucket(goodput), Acknowledgements()

    def face(self, other: EmulatedLink) -> None:
        """``other`` is this link's other direction."""
        self._acknowledgements.other = other._acknowledgements

    def enter(self, now_s: float, size_bytes: float, rate_bps: float) -> tuple[float, float]:
        """A message begins; returns how much of it passes at once, and how many bytes go with it."""
        return self._bucket.enter(now_s, size_bytes, rate_bps), self._acknowledgements.enter(size_bytes)

    def leave(self, now_s: float, size_bytes: float) -> None:
        """It has been sent."""
        self._bucket.leave(now_s)
        self._acknowledgements.leave(size_bytes)
