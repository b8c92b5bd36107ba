"""Constants of TCP by congestion control: what ``tcp`` takes from the literature and the Plan."""

from __future__ import annotations

import math
from dataclasses import dataclass

from testbed.plan.model import Plan, TransportPlan

# Exponent γ of a connection's share of a bottleneck, which is proportional to RTT^-γ. Reno adds one segment per RTT, so
# rates at a common loss rate go with 1/RTT (Mathis et al. 1997). CUBIC's window is a function of time, not of
# round trips: W(p, RTT) ~ (RTT/p)^(3/4) (RFC 9438, 5.1), hence r ~ RTT^(-1/4) at equal p; in FIFO queues, with its
# Reno-friendly region, it lies between that and Reno's: 0.5. BBR aims at equal rates.
_GAMMA = {"reno": 1.0, "cubic": 0.5, "bbr": 0.0}
# β: what is left of the window after a loss (RFC 5681, 3.1; RFC 9438, 4.6; BBR does not react to single losses)
_BETA = {"reno": 0.5, "cubic": 0.7, "bbr": 1.0}

# The share of losses that end in a timeout is so many times p, at most a third. Over packets, transfers of 300 to 3000
# segments then took 0.67 to 1.17 times the predicted time, with 1, 2, 5, 10 and 20 % lost both ways and RTTs of 10, 40
# and 100 ms. Without selective acknowledgements and tail loss probes (RFC 8985) it is min(1, 3·sqrt(3p/8)).
_TIMEOUTS, _MOST_TIMEOUTS = 4.0, 1 / 3

LEAST_RTT_S = 1e-6  # wherever something is divided by an RTT; Linux counts microseconds, from 1 on
_SHORTEST_RTT_S = 1e-4  # for the loss formulas, which diverge at 0: what host and switch take


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpModel:
    """Constants of the model, printed in the ``model`` event of every run. ``of`` takes them from the Plan's transport.

    goodput                  payload per byte of Ethernet frame: 1448 of 1514 bytes, with MTU 1500 and TCP timestamps
    initial_window_bytes     10 segments (RFC 6928)
    window_limit_bytes       the smaller of the socket buffers, if the Plan sets any
    setup_round_trips        see ``testbed.simulation.tcp``
    setup_segments           what the sender of data sends meanwhile: its hello, and its proof
    retransmission_floor_s   RTO = RTT + this (Linux: TCP_RTO_MIN, 200 ms)
    sharing_exponent         γ
    window_after_loss        β
    slow_start               False: no congestion window at all, for closed forms in tests
    unsent_limit_bytes       what the sender's kernel holds unsent (TCP_NOTSENT_LOWAT): nothing overtakes it
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
        """Return the model that the Plan asks for."""
        if plan.simulation.network == "ideal":
            return cls(
                congestion_control=plan.transport.congestion_control, goodput=1.0, setup_round_trips=0.0,
                sharing_exponent=0.0, slow_start=False,
            )  # fmt: skip
        return cls.of(plan.transport)

    @classmethod
    def of(cls, transport: TransportPlan) -> TcpModel:
        """Return the model of this congestion control; CUBIC's constants for one that is not known here."""
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
    def hystart(self) -> bool:
        """Whether slow start ends before the queue is full."""
        return self.congestion_control not in ("bbr", "reno")

    @property
    def loss_based(self) -> bool:
        """Whether bursts are unpaced, and windows shrink by losses and idle time."""
        return self.congestion_control != "bbr"

    def weight(self, rtt_s: float) -> float:
        """Return the weight of a connection in max-min sharing, RTT^-γ."""
        return max(rtt_s, LEAST_RTT_S) ** -self.sharing_exponent if self.sharing_exponent else 1.0

    def any_lost(self, loss: float, size_bytes: float) -> float:
        """Return the probability that any packet of so many bytes is lost, where a share ``loss`` of packets is."""
        return 1.0 - math.pow(1.0 - loss, size_bytes / self.segment_bytes)

    def rate_limit(self, rtt_s: float, loss: float, capacity: float) -> float:
        """Return the rate that window limit and random loss p allow, in bytes per second.

        Reno: sqrt(3/2)·MSS / (RTT·sqrt(p)) (Mathis, Semke, Mahdavi and Ott 1997). CUBIC: the larger of that and
        (C·(3 + β) / (4·(1 - β)))^(1/4)·(RTT/p)^(3/4)·MSS / RTT, with C = 0.4 and β = 0.7 (RFC 9438, 5.1): the first
        factor is 1.054. Both lose time to timeouts besides: RTO·p·(1 + 32·p²) per segment times the share of losses
        that end in one (Padhye, Firoiu, Towsley and Kurose 1998, with this share from packets). BBR: capacity·(1 - p).
        """
        limit = self.window_limit_bytes / rtt_s if rtt_s > 0 else math.inf
        if loss <= 0:
            return limit
        if self.congestion_control == "bbr":
            return min(limit, capacity * (1 - loss))
        rtt_s = max(rtt_s, _SHORTEST_RTT_S)
        rate = math.sqrt(1.5) * self.segment_bytes / (rtt_s * math.sqrt(loss))
        if self.congestion_control == "cubic":
            rate = max(rate, 1.054 * (rtt_s / loss) ** 0.75 * self.segment_bytes / rtt_s)
        timeout_s = rtt_s + self.retransmission_floor_s
        waiting_s = timeout_s * loss * (1 + 32 * loss**2) * min(_MOST_TIMEOUTS, _TIMEOUTS * loss)  # for each segment
        return min(limit, self.segment_bytes / (self.segment_bytes / rate + waiting_s))
