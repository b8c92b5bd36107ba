"""A slow and plain max-min network: the reference that the fast one is held against. Shares no code with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.simulation.clock import Clock
from testbed.simulation.flows.network import FlowClass, FlowNetwork


class Flow(NamedTuple):
    """One flow: its start, the links it crosses, its size, and its class' cap and weight."""

    start_s: float
    path: tuple[int, ...]
    size_bytes: float
    cap: float = math.inf
    weight: float = 1.0


class Change(NamedTuple):
    """A link's capacity from a time on."""

    at_s: float
    link: int
    capacity: float


@dataclass
class Case:
    """Links, flows and capacity changes."""

    capacities: list[float]
    flows: list[Flow]
    changes: list[Change]


def shares(capacities: list[float], flows: list[Flow]) -> list[float]:
    """Weighted max-min rates by the textbook: raise all, freeze whoever meets a limit, repeat."""
    rates = [0.0] * len(flows)
    free = set(range(len(flows)))
    left = list(capacities)
    while free:
        level = min(flows[i].cap / flows[i].weight for i in free)
        for link in range(len(left)):
            weights = math.fsum(flows[i].weight for i in free if link in flows[i].path)
            if weights > 0:
                level = min(level, max(left[link], 0.0) / weights)
        frozen = [i for i in sorted(free) if _meets_limit(flows, i, level, left, free)]
        for i in frozen:
            rates[i] = level * flows[i].weight
        for i in frozen:
            free.remove(i)
            for link in flows[i].path:
                left[link] -= rates[i]
    return rates


def _meets_limit(flows: list[Flow], i: int, level: float, left: list[float], free: set[int]) -> bool:
    if flows[i].cap / flows[i].weight <= level * (1 + 1e-12):
        return True
    for link in flows[i].path:
        weights = math.fsum(flows[j].weight for j in free if link in flows[j].path)
        if max(left[link], 0.0) / weights <= level * (1 + 1e-12):
            return True
    return False


def finish_times(case: Case) -> list[float]:
    """When each flow ends, by re-solving everything at every event; checks the bottleneck property on the way."""
    capacities = list(case.capacities)
    end = [math.inf] * len(case.flows)
    left: dict[int, float] = {}
    events = sorted(
        [(flow.start_s, 0, i) for i, flow in enumerate(case.flows)]
        + [(change.at_s, 1, i) for i, change in enumerate(case.changes)]
    )
    now, position = 0.0, 0
    while position < len(events) or left:
        active = sorted(left)
        rates = shares(capacities, [case.flows[i] for i in active])
        ends = [now + left[i] / rate if rate > 0 else math.inf for i, rate in zip(active, rates, strict=True)]
        then = min([*ends, events[position][0] if position < len(events) else math.inf])
        for i, rate, at in zip(active, rates, ends, strict=True):
            left[i] -= rate * (then - now)
            if at <= then * (1 + 1e-13):
                end[i] = then
                del left[i]
        now = then
        while position < len(events) and events[position][0] <= now:
            _, kind, i = events[position]
            position += 1
            if kind == 0:
                left[i] = case.flows[i].size_bytes
            else:
                capacities[case.changes[i].link] = case.changes[i].capacity
    return end


def run_network(case: Case, compiled: bool | None = False) -> tuple[list[float], FlowNetwork]:
    """The same by ``FlowNetwork``; flows of equal path, cap and weight share a class, made when one starts.

    Times are floats, as in a simulation: for integers, numba would compile the solver once more.
    """
    clock = Clock()
    network = FlowNetwork(clock, case.capacities, compiled)
    classes: dict[tuple[tuple[int, ...], float, float], FlowClass] = {}
    end = [math.inf] * len(case.flows)

    def start(i: int) -> None:
        flow = case.flows[i]
        key = flow.path, flow.cap, flow.weight
        if key not in classes:
            classes[key] = network.flow_class(flow.path, flow.weight, flow.cap)
        network.start(classes[key], flow.size_bytes, lambda: end.__setitem__(i, clock.now))

    for i, flow in enumerate(case.flows):
        clock.at(float(flow.start_s), lambda _, i=i: start(i))
    for change in case.changes:
        clock.at(float(change.at_s), lambda _, c=change: network.set_capacity(c.link, c.capacity))
    clock.run()
    return end, network


def random_case(seed: int) -> Case:
    """A random dynamic case: 1-11 links, 1-39 flows in 1-7 classes, up to 5 capacity changes."""
    rng = np.random.default_rng(seed)
    links, flows = int(rng.integers(1, 12)), int(rng.integers(1, 40))
    capacities = [float(c) for c in rng.uniform(1, 100, links)]
    kinds = []
    for _ in range(int(rng.integers(1, 8))):
        hops = min(links, int(rng.integers(1, 5)))
        path = tuple(int(link) for link in rng.choice(links, size=hops, replace=False))
        kinds.append((path, float(rng.choice([math.inf, 5.0, 20.0])), float(rng.choice([1.0, 2.0, 0.5]))))
    drawn = []
    for _ in range(flows):
        path, cap, weight = kinds[int(rng.integers(len(kinds)))]
        start_s = float(rng.choice([0.0, round(float(rng.uniform(0, 20)), 1), float(rng.uniform(0, 20))]))
        drawn.append(Flow(start_s, path, float(rng.choice([50.0, float(rng.uniform(1, 500))])), cap, weight))
    changes = [
        Change(float(rng.uniform(0, 30)), int(rng.integers(links)), float(rng.uniform(1, 100)))
        for _ in range(int(rng.integers(0, 6)))
    ]
    return Case(capacities, drawn, changes)
