"""What acknowledgements take from a link: those of the messages that come the other way at the same time.

TCP acknowledges every second segment by a frame of its own (RFC 1122, 4.2.3.2): 2.2 % of the bytes that come the other
way. Rates that are exact to a per cent need it, so it is part of predicting an emulation (``simulation.host``).
"""

from __future__ import annotations

_FRAME_BYTES = 1514  # Ethernet, IP, TCP with timestamps
_ACKNOWLEDGEMENT_BYTES = 66
SHARE = _ACKNOWLEDGEMENT_BYTES / (2 * _FRAME_BYTES)


class Acknowledgements:
    """Of one direction of a link. ``other``: the other direction, set by the maker of both, if there is one."""

    __slots__ = ("_under_way_bytes", "other")

    def __init__(self) -> None:
        self._under_way_bytes = 0.0
        self.other: Acknowledgements | None = None

    def enter(self, size_bytes: float) -> float:
        """A message begins; returns how many bytes go with it for what is coming the other way."""
        self._under_way_bytes += size_bytes
        return SHARE * min(size_bytes, self.other._under_way_bytes) if self.other else 0.0

    def leave(self, size_bytes: float) -> None:
        """It has been sent."""
        self._under_way_bytes -= size_bytes
