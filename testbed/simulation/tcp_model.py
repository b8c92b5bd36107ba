"""Constants of TCP by congestion control: what ``tcp`` takes from the literature and the Plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.plan.model import TransportPlan

_GAMMA = {"reno": 1.0, "cubic": 0.5, "bbr": 0.0}
_BETA = {"reno": 0.5, "cubic": 0.7, "bbr": 1.0}  # RFC 5681, RFC 9438


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpModel:
    """Constants of the model; printed with every result. ``of`` takes them from the Plan's transport."""

    congestion_control: str = "cubic"
    slow_start_after_idle: bool = False
    goodput: float = 1448 / 1514  # payload per byte of Ethernet frame: MTU 1500, TCP timestamps
    segment_bytes: int = 1448
    initial_window_bytes: float = 14_480.0
    window_limit_bytes: float = math.inf
    setup_round_trips: float = 3.0
    retransmission_floor_s: float = 0.2  # RTO = RTT + this (Linux)
    sharing_exponent: float = 0.5
    window_after_loss: float = 0.7
    slow_start: bool = True

    @classmethod
    def of(cls, transport: TransportPlan) -> TcpModel:
        """The model of this congestion control; one not known here is taken for CUBIC."""
        control = transport.congestion_control if transport.congestion_control in _GAMMA else "cubic"
        buffers = (transport.send_buffer_bytes, transport.receive_buffer_bytes)
        return cls(
            initial_window_bytes=1448.0 * (transport.initial_window_packets or 10),
            window_limit_bytes=min((float(size) for size in buffers if size is not None), default=math.inf),
            congestion_control=transport.congestion_control,
            slow_start_after_idle=transport.slow_start_after_idle,
            sharing_exponent=_GAMMA[control],
            window_after_loss=_BETA[control],
        )

    @property
    def loss_based(self) -> bool:
        """Whether bursts are unpaced and idle windows decay."""
        return self.congestion_control != "bbr"

    def weight(self, rtt_s: float) -> float:
        """Share of a bottleneck relative to other connections."""
        return max(rtt_s, 1e-6) ** -self.sharing_exponent if self.sharing_exponent else 1.0

    def rate_limit(self, rtt_s: float, loss: float, capacity: float) -> float:
        """Bytes per second that windows and random loss allow."""
        limit = self.window_limit_bytes / rtt_s if rtt_s > 0 else math.inf
        if loss <= 0:
            return limit
        if self.congestion_control == "bbr":
            return min(limit, capacity * (1 - loss))
        rtt_s = max(rtt_s, 1e-4)
        rate = math.sqrt(1.5) * self.segment_bytes / (rtt_s * math.sqrt(loss))
        if self.congestion_control == "cubic":
            rate = max(rate, 1.054 * (rtt_s / loss) ** 0.75 * self.segment_bytes / rtt_s)
        return min(limit, rate)
