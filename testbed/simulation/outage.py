"""When TCP finds a path again that was down: at its next retransmission, and those come at doubled intervals."""

from __future__ import annotations

_LONGEST_S = 120.0  # between two retransmissions (Linux, TCP_RTO_MAX)


def found_again_s(silent_s: float, up_s: float, timeout_s: float) -> float:
    """Time of the first retransmission that gets through.

    ``silent_s``: when the first segment left that was lost. ``up_s``: since when nothing is lost any more.
    ``timeout_s``: the retransmission timeout while all was well. RFC 6298, section 5.5.
    """
    at_s = silent_s + timeout_s
    while at_s < up_s:
        timeout_s = min(2 * timeout_s, _LONGEST_S)
        at_s += timeout_s
    return at_s
