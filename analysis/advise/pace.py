"""How long rounds take and how many bytes they send, from short simulations that start anywhere in the traces.

The simulations are "by sizes": messages have sizes but no tensors, so nothing is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from analysis.advise.mathematics import ahead, period
from analysis.advise.observation import Observation
from testbed.plan.asynchronous import is_asynchronous
from testbed.plan.model import LinkPlan, NodePlan, Plan
from testbed.plan.packets import packets_of
from testbed.settings.job import Choice
from testbed.settings.series import Series

WARM_UP = 1
"""Periods at the start of a run that do not count: congestion windows are still growing, and the first payloads of
sparse codecs are dense."""

PERIODS = 2
"""Periods of rounds that are simulated after the warm-up."""

ASYNCHRONOUS = 4
"""Where workers do not wait for each other, the number of rounds is multiplied by this, so that slow workers make some
of them too."""

AHEAD = 5
"""For each round that workers may be ahead, the sample contains this many more. In its first rounds no worker waits; in
the next ones all wait for the messages that have piled up on the links."""

MOST_PACKETS = 1_000_000
"""A sample with at most this many packets is simulated packet by packet, even if whole runs are simulated by flows."""

_SERIES = tuple(field.name for field in fields(LinkPlan) if field.name.endswith("_trace"))


def rounds_to_sample(plan: Plan) -> int:
    """Return how many rounds of a Plan to simulate to find out how long a round takes."""
    rounds = (WARM_UP + PERIODS) * period(plan) + AHEAD * ahead(plan)
    return rounds * ASYNCHRONOUS if is_asynchronous(plan) else rounds


def by_sizes(plan: Plan, rounds: int, start_s: float = 0.0) -> Plan:
    """Return a Plan of ``rounds`` rounds by sizes, with the traces of links and devices beginning at ``start_s``."""
    training = replace(
        plan.training,
        compute="modelled",
        split=Choice(kind="iid"),
        rounds=rounds,
        evaluate_every=rounds,
    )
    shown = replace(plan, training=training.aiming_at(None))
    return shown if start_s <= 0 else since(shown, start_s)


def sampled(plan: Plan, rounds: int, start_s: float) -> Plan:
    """Return a Plan of ``rounds`` rounds by sizes from ``start_s`` on, packet by packet if there are few packets."""
    shown = by_sizes(plan, rounds, start_s)
    packets = packets_of(shown)
    if plan.simulation.network == "flows" and packets <= MOST_PACKETS:
        return replace(shown, simulation=replace(plan.simulation, network="packets"))
    return shown


def since(plan: Plan, start_s: float) -> Plan:
    """Return the Plan with the traces of its links and devices beginning at ``start_s``."""
    links = tuple(_link_since(link, start_s) for link in plan.network.links)
    nodes = tuple(_since(node, start_s) for node in plan.nodes)
    return replace(plan, network=replace(plan.network, links=links), nodes=nodes)


def _link_since(link: LinkPlan, start_s: float) -> LinkPlan:
    series: dict[str, Any] = {name: later(getattr(link, name), start_s) for name in _SERIES}
    return replace(link, **series)


def _since(node: NodePlan, start_s: float) -> NodePlan:
    return replace(node, device=replace(node.device, slowdown=later(node.device.slowdown, start_s)))


def later(series: Series | None, start_s: float) -> Series | None:
    """Return the series without its values before ``start_s``, which becomes its time 0."""
    if series is None or start_s <= 0:
        return series
    until_s = math.inf
    if series.repeats:
        until_s = max(start_s, series.repeats_from_s) + series.period_s
    times: list[float] = []
    values: list[float] = []
    for begin_s, end_s, value in series.segments(start_s):
        if begin_s >= until_s:
            break
        times.append(max(begin_s - start_s, 0.0))
        values.append(value)
        if math.isinf(end_s):
            break
    repeats_from_s = max(series.repeats_from_s - start_s, 0.0) if series.repeats else 0.0
    return replace(series, times_s=tuple(times), values=tuple(values), repeats_from_s=repeats_from_s)


def varies(plan: Plan) -> bool:
    """Return whether links or devices change over time, so that the duration of a round depends on its start."""
    return any(getattr(link, name) is not None for link in plan.network.links for name in _SERIES) or any(
        node.device.slowdown is not None for node in plan.nodes
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a candidate's rounds take and how many bytes they send, from observed rounds.

    period  number of rounds after which the sizes of messages repeat
    first   rounds observed from the start of training
    others  rounds observed from later times
    ahead   rounds at the start that do not count, as workers do not yet wait for replies to their pushes
    """

    period: int
    first: Observation
    others: tuple[Observation, ...] = ()
    ahead: int = 0

    @classmethod
    def of(cls, plan: Plan, first: Observation) -> Pace:
        return cls(period(plan), first, ahead=ahead(plan))

    @property
    def steps(self) -> float:
        """Training steps of a worker in a round."""
        return self.first.steps

    @property
    def samples(self) -> float:
        """Training samples of all workers in a round."""
        return self.first.samples

    def durations_s(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the mean time of a round in each period after the warm-up, over all observations.

        An observation shorter than a period gives one value, its mean. One that ends during the warm-up gives the
        value of its last whole period.
        """
        return np.concatenate([self._per_round(each, each.ends_s) for each in (self.first, *self.others)])

    def sizes_bytes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the mean bytes of a round over the WAN for the same periods."""
        return np.concatenate([self._per_round(each, each.wan_bytes) for each in (self.first, *self.others)])

    def _per_round(self, seen: Observation, sums: Sequence[float]) -> np.ndarray:
        """Return the mean increase per round in each period after the warm-up. ``sums``: totals after each round."""
        steady = sums[: seen.steady] or sums
        ends = np.append(0.0, steady)[:: self.period]  # totals at the ends of whole periods
        if len(ends) < 2:
            return np.asarray([float(steady[-1]) / len(steady)])
        warm = min(WARM_UP + math.ceil(self.ahead / self.period), len(ends) - 2)
        return np.diff(ends)[warm:] / self.period

    @property
    def round_s(self) -> float:
        """The mean time of a round after the warm-up."""
        return float(self.durations_s().mean())

    def least_time_s(self, rounds: int) -> float:
        """Return the earliest time (s) at which ``rounds`` rounds may be over.

        Rounds beyond the observed ones count as the shortest observed period: on cold connections, or after packet
        loss, the first rounds may be far longer than later ones.
        """
        return self._at(rounds, self.first.ends_s, float(self.durations_s().min()))

    def time_s(self, rounds: int) -> float:
        """Return when ``rounds`` rounds are over (s since the start of training)."""
        return self._at(rounds, self.first.ends_s, self.round_s)

    def wan_bytes(self, rounds: int) -> float:
        """Return the bytes that have crossed the WAN when ``rounds`` rounds are over."""
        return self._at(rounds, self.first.wan_bytes, float(self.sizes_bytes().mean()))

    def _at(self, rounds: int, sums: tuple[float, ...], each: float) -> float:
        if rounds <= 0:
            return 0.0
        steady = sums[: self.first.steady] or sums
        if rounds <= len(steady):
            return float(steady[rounds - 1])
        whole = len(steady) // self.period * self.period or len(steady)
        left = rounds - whole
        return float(steady[whole - 1]) + left * each

    def spread(self, rounds: int) -> float:
        """Return the standard error of the logarithm of ``time_s(rounds)``: 0 if all these rounds were simulated."""
        if rounds <= self.first.rounds:
            return 0.0
        durations = self.durations_s()
        if len(durations) < 2:
            return _UNKNOWN_SPREAD
        error_s = float(durations.std(ddof=1)) / math.sqrt(len(durations)) * (rounds - self.first.rounds)
        return error_s / self.time_s(rounds)


_UNKNOWN_SPREAD = 0.1  # assumed for a single period, because of cold connections and losses in queues
