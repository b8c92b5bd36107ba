"""Constants of TCP by congestion control, from the literature and the Plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.plan.model import Plan
from testbed.settings.run import Transport

# Exponent γ of a connection's share of a bottleneck, which is proportional to RTT^-γ. Reno adds one segment per RTT, so
# rates at a common loss rate go with 1/RTT (Mathis et al. 1997). CUBIC's window is a function of time, not of
# round trips: W(p, RTT) ~ (RTT/p)^(3/4) (RFC 9438, 5.1), hence r ~ RTT^(-1/4) at equal p; in FIFO queues, with its
# Reno-friendly region, it lies between that and Reno's: 0.5. BBR aims at equal rates.
_GAMMA = {"reno": 1.0, "cubic": 0.5, "bbr": 0.0}
# β: share of the window that remains after a loss (RFC 5681, 3.1; RFC 9438, 4.6; BBR ignores single losses)
_BETA = {"reno": 0.5, "cubic": 0.7, "bbr": 1.0}

LEAST_RTT_S = 1e-6  # lower bound of an RTT used as a divisor; Linux counts whole microseconds, at least 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpModel:
    """Constants of the model, printed in the ``model`` event of every run. ``of`` takes them from the Plan's transport.

    goodput                  payload per byte of Ethernet frame: 1448 of 1514 bytes, with MTU 1500 and TCP timestamps
    initial_window_bytes     10 segments (RFC 6928)
    window_limit_bytes       the smaller of the socket buffers, if the Plan sets any
    setup_round_trips        see ``testbed.simulation.flows.sending``
    setup_segments           segments that the sender of data sends during set-up: its hello and its proof
    retransmission_floor_s   RTO = RTT + this (Linux: TCP_RTO_MIN, 200 ms)
    sharing_exponent         γ
    window_after_loss        β
    slow_start               False: no congestion window at all, for closed forms in tests
    unsent_limit_bytes       bytes that the sender's kernel holds unsent (TCP_NOTSENT_LOWAT); no message overtakes them
    """

    congestion_control: str = "cubic"
    slow_start_after_idle: bool = False
    goodput: float = 1448 / 1514
    segment_bytes: int = 1448
    initial_window_bytes: float = 14_480.0
    window_limit_bytes: float = math.inf
    setup_round_trips: float = 3.0
    setup_segments: int = 2
    retransmission_floor_s: float = 0.2
    sharing_exponent: float = 0.5
    window_after_loss: float = 0.7
    slow_start: bool = True
    unsent_limit_bytes: float = 0.0

    @classmethod
    def of_plan(cls, plan: Plan) -> TcpModel:
        """Return the model for the Plan's network and transport."""
        if plan.simulation.network == "ideal":
            return cls(
                congestion_control=plan.transport.congestion_control,
                goodput=1.0,
                setup_round_trips=0.0,
                sharing_exponent=0.0,
                slow_start=False,
            )
        return cls.of(plan.transport)

    @classmethod
    def of(cls, transport: Transport) -> TcpModel:
        """Return the model for this transport. Unknown congestion controls get CUBIC's constants."""
        control = transport.congestion_control if transport.congestion_control in _GAMMA else "cubic"
        buffers = (transport.send_buffer_bytes, transport.receive_buffer_bytes)
        return cls(
            initial_window_bytes=1448.0 * (transport.initial_window_packets or 10),
            window_limit_bytes=min((float(size) for size in buffers if size is not None), default=math.inf),
            congestion_control=transport.congestion_control,
            slow_start_after_idle=transport.slow_start_after_idle,
            sharing_exponent=_GAMMA[control],
            window_after_loss=_BETA[control],
            unsent_limit_bytes=transport.unsent_limit_bytes,
        )

    @property
    def known(self) -> bool:
        """Whether this congestion control is modelled; others are simulated as CUBIC."""
        return self.congestion_control in _GAMMA

    @property
    def loss_based(self) -> bool:
        """Whether bursts are unpaced, and windows shrink by losses and idle time."""
        return self.congestion_control != "bbr"

    @property
    def is_reno(self) -> bool:
        return self.congestion_control == "reno"

    def weight(self, rtt_s: float) -> float:
        """Return the weight of a connection in max-min sharing, RTT^-γ."""
        return max(rtt_s, LEAST_RTT_S) ** -self.sharing_exponent if self.sharing_exponent else 1.0
