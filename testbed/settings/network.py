"""The settings of a WAN link that scenarios and Plans share."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.declaration import derived, option, required

_CUT = "a link that loses everything is down: 'down: [{at: 10 s, until: 15 s}]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneWay:
    """One direction of a WAN link. Rates count Ethernet frames with their headers, as Linux' traffic control does."""

    name: str = derived("")
    source: str = option("", key="from", form="name", absent="")
    """Vertex where the link begins, if it has one direction."""
    target: str = option("", key="to", form="name", absent="")
    """Vertex where the link ends, if it has one direction."""
    rate_bps: float = required(unit="bit/s")
    """Bits per second, counted in whole Ethernet frames."""
    delay_s: float = required(unit="s", max=10.0)
    """One-way delay; the round trip is twice as long."""
    jitter_s: float = option(0.0, unit="s", max=10.0)
    """Standard deviation of the delay."""
    loss: float = option(0.0, unit="share", max=0.5, cure=_CUT, example="0.1 %")
    """Share of packets lost at random."""
    loss_burst_packets: float = option(1.0, min=1, max=1000, key="loss_burst")
    """Mean length of a burst of losses, in packets (Gilbert-Elliott); 1 means independent losses."""
    corruption: float = option(0.0, unit="share", max=0.5, cure=_CUT, example="0.1 %")
    """Share of packets with one wrong bit, which the receiver's checksum finds."""
    duplication: float = option(0.0, unit="share", max=0.5, cure=_CUT, example="0.1 %")
    """Share of packets that arrive twice. Emulated with netem only."""
    reordering: float = option(0.0, unit="share", max=0.5, cure=_CUT, example="0.1 %")
    """Share of packets that skip the delay, and so overtake earlier packets."""
