"""How long rounds take and what they send: simulated by sizes alone, from any time of the traces on."""

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
"""Periods at the start of a run that do not count: windows open, and first sparse payloads are dense."""

PERIODS = 2
"""Of rounds that are looked at, after the warm-up."""

ASYNCHRONOUS = 4
"""Times as many rounds are looked at where workers do not wait for each other: slow ones have made some then."""

AHEAD = 5
"""The sample has this many times the rounds that workers may be ahead. In its first rounds no worker waits; in the next
ones all wait for what has piled up on the links."""

MOST_PACKETS = 1_000_000
"""Of a sample of rounds: so many are simulated one by one, even if a whole run would be simulated by flows."""

_SERIES = tuple(field.name for field in fields(LinkPlan) if field.name.endswith("_trace"))


def rounds_to_sample(plan: Plan) -> int:
    """Return how many rounds of a Plan show how long a round takes."""
    rounds = (WARM_UP + PERIODS) * period(plan) + AHEAD * ahead(plan)
    return rounds * ASYNCHRONOUS if is_asynchronous(plan) else rounds


def by_sizes(plan: Plan, rounds: int, start_s: float = 0.0) -> Plan:
    """Return a Plan that makes ``rounds`` rounds without numbers, on networks and devices as from ``start_s`` on."""
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
    """Return a Plan of some rounds by sizes alone: by packets, where these are few enough."""
    shown = by_sizes(plan, rounds, start_s)
    packets = packets_of(shown)
    if plan.simulation.network == "flows" and packets <= MOST_PACKETS:
        return replace(shown, simulation=replace(plan.simulation, network="packets"))
    return shown


def since(plan: Plan, start_s: float) -> Plan:
    """Return the Plan with the traces of its links and devices as they are from ``start_s`` on."""
    links = tuple(_link_since(link, start_s) for link in plan.network.links)
    nodes = tuple(_since(node, start_s) for node in plan.nodes)
    return replace(plan, network=replace(plan.network, links=links), nodes=nodes)


def _link_since(link: LinkPlan, start_s: float) -> LinkPlan:
    series: dict[str, Any] = {name: later(getattr(link, name), start_s) for name in _SERIES}
    return replace(link, **series)


def _since(node: NodePlan, start_s: float) -> NodePlan:
    return replace(node, device=replace(node.device, slowdown=later(node.device.slowdown, start_s)))


def later(series: Series | None, start_s: float) -> Series | None:
    """Return the series with its values from ``start_s`` on, counted from there."""
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
    """Return whether links or devices change while the run trains, so that it matters when a round is made."""
    return any(getattr(link, name) is not None for link in plan.network.links for name in _SERIES) or any(
        node.device.slowdown is not None for node in plan.nodes
    )


@dataclass(frozen=True, slots=True)
class Pace:
    """What rounds of a candidate take. ``first``: observed from the start of training; ``others``: from later on.

    period  rounds after which what is sent repeats
    ahead   rounds at the start that tell nothing, as workers do not yet wait for what they have sent
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
        """Return the mean time of a round in each period after the warm-up; of all periods, if there are no more."""
        return np.concatenate([self._per_round(each, each.ends_s) for each in (self.first, *self.others)])

    def sizes_bytes(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the mean bytes that a round sends over the WAN, likewise."""
        return np.concatenate([self._per_round(each, each.wan_bytes) for each in (self.first, *self.others)])

    def _per_round(self, seen: Observation, sums: Sequence[float]) -> np.ndarray:
        """Return the differences of ``sums``, one for each round, in each period."""
        steady = sums[: seen.steady] or sums
        ends = np.append(0.0, steady)[:: self.period]  # of whole periods
        if len(ends) < 2:
            return np.asarray([float(steady[-1]) / len(steady)])
        warm = min(WARM_UP + math.ceil(self.ahead / self.period), len(ends) - 2)
        return np.diff(ends)[warm:] / self.period

    @property
    def round_s(self) -> float:
        """The mean time of a round after the warm-up."""
        return float(self.durations_s().mean())

    def least_time_s(self, rounds: int) -> float:
        """Return when ``rounds`` rounds are over at the earliest: if all took as long as the shortest observed one.

        Where connections are cold, or have just lost packets, the first rounds may be far longer than later ones.
        """
        return self._at(rounds, self.first.ends_s, float(self.durations_s().min()))

    def time_s(self, rounds: int) -> float:
        """Return when ``rounds`` rounds are over, in s since the start of training."""
        return self._at(rounds, self.first.ends_s, self.round_s)

    def wan_bytes(self, rounds: int) -> float:
        """Return what has crossed the WAN when ``rounds`` rounds are over."""
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
        """Return the standard error of the logarithm of ``time_s(rounds)``: 0 where all of these were simulated."""
        if rounds <= self.first.rounds:
            return 0.0
        durations = self.durations_s()
        if len(durations) < 2:
            return _UNKNOWN_SPREAD
        error_s = float(durations.std(ddof=1)) / math.sqrt(len(durations)) * (rounds - self.first.rounds)
        return error_s / self.time_s(rounds)


_UNKNOWN_SPREAD = 0.1  # of a single period: cold connections, and what queues lose
