"""Impairments, outages and background traffic: what is accepted, what is refused and where, and what the Plan has."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import Plan, from_json, to_json
from testbed.scenario import loads
from testbed.traffic import bursts
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

TCP = "{kind: tcp, from: east, to: west}"
FAULT = "faults=[{{link: 'east<>west', at: 1 s, {}}}]"


def plan_of(*overrides: str, on: str | None = None) -> Plan:
    return build_plan(loads(GOOD, overrides=overrides), on)


def test_impairments_reach_both_directions_of_the_plan() -> None:
    plan = plan_of(
        "links[0].loss=1 %",
        "links[0].loss_burst=4",
        "links[0].corruption=0.1 %",
        "links[0].duplication=2 %",
        "links[0].reordering=3 %",
        "links[0].down=[{at: 10 s, until: 12 s}, {at: 20 s, until: 21 s}]",
    )
    for link in plan.network.links:
        assert (link.loss, link.loss_burst_packets, link.corruption) == (0.01, 4.0, 0.001)
        assert (link.duplication, link.reordering) == (0.02, 0.03)
        assert link.state_trace is not None
        assert link.state_trace.times_s == (0.0, 10.0, 12.0, 20.0, 21.0)
        assert link.state_trace.values == (1.0, 0.0, 1.0, 0.0, 1.0)
    assert from_json(to_json(plan)) == plan
    first = plan_of("links[0].down=[{at: 0 s, until: 2 s}]").network.links[0].state_trace
    assert first is not None and (first.times_s, first.values) == ((0.0, 2.0), (0.0, 1.0))


@for_each(
    ("override", "message"),
    [
        ("links[0].down=[{at: 5 s, until: 5 s}]", "down[0].until: 5 s does not come after 5 s"),
        ("links[0].down=[{at: 5 s, until: 9 s}, {at: 8 s, until: 10 s}]", "8 s comes before the end of the one before"),
        ("links[0].loss_burst=0.5", "0.5 is outside [1, 1000]"),
        ("links[0]={between: [east, west], rate: 1 Mbit/s, delay: 0 s, queue: 2 bdp}", ".queue: has no length"),
        (
            "links[0]={between: [east, west], rate: 1 Mbit/s, delay: 0 s, delay_trace: {model: sine}}",
            ".delay_trace.model: has no effect, as 'delay' is 0",
        ),
        ("background=[{kind: tcp, from: east, to: wes}]", "no data centre named 'wes'"),
        ("background=[{kind: tcp, from: east, to: east}]", "both ends are 'east'"),
        ("background=[{kind: tcp, from: east, to: west, rate: 5 Mbit/s}]", "has no effect on tcp"),
        ("background=[{kind: constant, from: east, to: west}]", "constant traffic has no rate"),
        ("background=[{kind: tcp, from: east, to: west, start: 9 s, stop: 3 s}]", "does not come after the start"),
    ],
)
def test_what_is_refused(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(override)
    assert message in str(caught.value)


def test_background_in_the_plan() -> None:
    plan = plan_of(
        f"background=[{TCP}, {{kind: constant, from: west, to: east, rate: 5 Mbit/s, stop: 9 s}}]",
        "transport.parallel_streams=6",
    )
    tcp, constant = plan.background
    assert (tcp.kind, tcp.streams, tcp.stop_s) == ("tcp", 6, math.inf)
    assert (constant.rate_bps, constant.stop_s) == (5e6, 9.0)
    assert tcp.seed != constant.seed
    with pytest.raises(ScenarioError, match="tcp traffic cannot be simulated"):
        plan_of(f"background=[{TCP}]", on="simulate")


def test_bursts_come_from_the_seed_and_have_their_means() -> None:
    plan = plan_of(
        "background=[{kind: on_off, from: east, to: west, rate: 1 Mbit/s, on: 2 s, off: 6 s, stop: 20000 s}]"
    )
    found = list(bursts(plan.background[0]))
    assert found == list(bursts(plan.background[0]))
    lengths = [end - begin for begin, end in found]
    assert sum(lengths) / len(lengths) == pytest.approx(2.0, rel=0.1)
    assert sum(lengths) / 20_000 == pytest.approx(0.25, rel=0.1)
    assert all(end <= later for (_, end), (later, _) in pairwise(found)) and found[-1][1] <= 20_000


@for_each(
    ("on", "override", "warning"),
    [
        ("emulate", "topology.lan.rate=10 Gbit/s", "its LAN is left unshaped"),
        ("emulate", "links[0].rate=32 kbit/s", "emulated as 64 kbit/s"),
        ("emulate", "transport.parallel_streams=4", "training has one connection for each pair"),
        ("simulate", "links[0].duplication=1 %", "duplication has no effect on 'simulate'"),
        ("simulate", FAULT.format("kind: loss, loss: 1 %, burst: 3"), "loss_burst has no effect on 'simulate'"),
        ("local", "transport.initial_window=20", "transport.initial_window: has no effect on 'local'"),
    ],
)
def test_what_has_no_effect_is_said(on: str, override: str, warning: str) -> None:
    patience = "timeouts.dead_after=3 h"  # the queues of such links take minutes to drain
    assert any(warning in line for line in plan_of(override, patience, on=on).warnings)
    assert not any(warning in line for line in plan_of(on=on).warnings)


@for_each(
    ("network", "override", "warning"),
    [
        ("ideal", "transport.unsent_limit=16 KiB", "transport.unsent_limit: has no effect with 'simulation: {network"),
        ("tcp", "transport.unsent_limit=16 KiB", ""),
        ("flows", FAULT.format("kind: loss, loss: 100 %, for: 1 s"), "down from 1 s until 2 s, simulated as a pause"),
        ("packets", FAULT.format("kind: down, for: 1 s"), ""),
        ("packets", "links[0].loss_burst=3", "no effect on 'simulate', where packets are lost independently"),
        ("emulated", "links[0].rate=32 kbit/s", "rates below 64 kbit/s are emulated as 64 kbit/s"),
        ("packets", "links[0].queue=100 bytes", "of 100 bytes is smaller than a frame of 1514 bytes"),
        ("flows", "links[0].queue=10 us", "is smaller than a frame"),
        ("packets", "links[0].queue=1514 bytes", ""),
    ],
)
def test_what_is_said_depends_on_the_simulated_network(network: str, override: str, warning: str) -> None:
    patience = "timeouts.dead_after=3 h"  # the queues of such links take minutes to drain
    found = plan_of(override, patience, f"simulation.network={network}", on="simulate").warnings
    assert bool(found) == bool(warning)
    assert all(warning in line for line in found)
