"""Impairments, outages and background traffic: what is accepted, what is refused and where, and what the Plan has."""

from __future__ import annotations

import math
import re
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
        "links[0].loss=1 %", "links[0].loss_burst=4", "links[0].corruption=0.1 %", "links[0].duplication=2 %",
        "links[0].reordering=3 %", "links[0].down=[{at: 10 s, until: 12 s}, {at: 20 s, until: 21 s}]",
    )  # fmt: skip
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
        ("links[0].reverse={loss_trace: {model: sine}}", ".reverse.loss_trace.model: has no effect, as 'loss' is 0"),
        ("links[0].reverse={delay: 0 s, queue: 2 bdp}", ".reverse.queue: has no length"),
        ("background=[{kind: tcp, from: east, to: wes}]", "no data centre named 'wes'"),
        ("background=[{kind: tcp, from: east, to: east}]", "both ends are 'east'"),
        ("background=[{kind: tcp, from: east, to: west, rate: 5 Mbit/s}]", "has no effect on tcp"),
        ("background=[{kind: constant, from: east, to: west}]", "constant traffic has no rate"),
        ("background=[{kind: on_off, from: east, to: west, rate: 5 Mbit/s, streams: 2}]", "has no effect on on_off"),
        ("background=[{kind: constant, from: east, to: west, rate: 5 Mbit/s, off: 2 s}]", "off: has no effect on"),
        ("background=[{kind: tcp, from: east, to: west, start: 9 s, stop: 3 s}]", "does not come after the start"),
        ("transport.initial_window=0", "0 is outside [1, 1000]"),
    ],
)
def test_what_is_refused(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(override)
    assert message in str(caught.value)


def test_a_model_follows_the_rate_of_its_direction_and_points_do_not() -> None:
    model, points = "{model: sine}", "[{at: 0 s, rate: 2 Mbit/s}, {at: 1 s, rate: 3 Mbit/s}]"
    one, other = plan_of(f"links[0].rate_trace={model}", "links[0].reverse={rate: 5 Mbit/s}").network.links
    assert one.rate_trace is not None and other.rate_trace is not None
    assert max(other.rate_trace.values) < max(one.rate_trace.values)
    _, other = plan_of(f"links[0].rate_trace={points}", "links[0].reverse={rate: 5 Mbit/s}").network.links
    assert other.rate_trace is None
    _, other = plan_of(
        "links[0].loss=1 %", f"links[0].loss_trace={model}", "links[0].reverse={loss: 0 %}"
    ).network.links
    assert other.loss == 0 and other.loss_trace is None


@for_each(("queue", "written"), [("1.23456789 bdp", "1.23456789 bdp"), ("10.0 bdp", "10 bdp")])
def test_a_queue_is_written_as_it_was(queue: str, written: str) -> None:
    scenario = loads(GOOD, overrides=[f"links[0].queue={queue}"])
    assert scenario.resolved()["topology"]["links"][0]["queue"] == written
    assert loads(scenario.to_yaml()) == scenario


def test_background_in_the_plan() -> None:
    plan = plan_of(f"background=[{TCP}, {{kind: constant, from: west, to: east, rate: 5 Mbit/s, stop: 9 s}}]",
                   "transport.parallel_streams=6")  # fmt: skip
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
        (
            "emulate",
            "links[0].rate_trace=[{at: 0 s, rate: 1 Mbit/s}, {at: 1 s, rate: 10 kbit/s}]",
            "rates below 64 kbit/s",
        ),
        ("emulate", "transport.parallel_streams=4", "training has one connection for each pair"),
        ("simulate", "links[0].duplication=1 %", "duplication has no effect on 'simulate'"),
        ("simulate", "links[0].loss_burst=3", "loss_burst has no effect on 'simulate'"),
        ("simulate", "links[0].jitter=1 ms", "jitter has no effect on 'simulate'"),
        ("simulate", FAULT.format("kind: loss, loss: 1 %, burst: 3"), "loss_burst has no effect on 'simulate'"),
        ("simulate", FAULT.format("kind: down, for: 1 s"), "as a pause until TCP's next retransmission"),
        ("emulate", FAULT.format("kind: rate, rate: 30 kbit/s, for: 1 s"), "rates below 64 kbit/s are emulated as 64"),
        ("simulate", "links[0].down=[{at: 1 s, until: 2 s}]", "as a pause until TCP's next retransmission"),
        ("local", "transport.initial_window=20", "transport.initial_window: has no effect on 'local'"),
        ("local", f"background=[{TCP}]", "background: has no effect on 'local'"),
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
        ("tcp", FAULT.format("kind: loss, loss: 100 %, for: 1 s"), "down from 1 s until 2 s, simulated as a pause"),
        ("emulated", FAULT.format("kind: down, for: 1 s"), ""),
        ("emulated", "links[0].loss_burst=3", "no effect on 'simulate', where each packet is lost by itself"),
        ("emulated", "links[0].rate=32 kbit/s", "rates below 64 kbit/s are emulated as 64 kbit/s"),
        ("tcp", "links[0].rate=32 kbit/s", ""),
        ("tcp", "links[0].loss_burst=3", "no effect on 'simulate', where losses are a mean"),
    ],
)
def test_what_is_said_depends_on_the_simulated_network(network: str, override: str, warning: str) -> None:
    patience = "timeouts.dead_after=3 h"  # the queues of such links take minutes to drain
    found = plan_of(override, patience, f"simulation.network={network}", on="simulate").warnings
    assert bool(found) == bool(warning)
    assert all(warning in line for line in found)


def test_one_warning_is_for_all_links() -> None:
    (found,) = plan_of("links[*].jitter=1 ms", on="simulate").warnings
    assert re.fullmatch(r"link \S+ \(and \d more\): jitter has no effect on 'simulate'", found)


def test_transport_in_the_plan() -> None:
    plan = plan_of("transport.send_buffer=1 MiB", "transport.receive_buffer=64 KiB", "transport.initial_window=20")
    transport = plan.transport
    assert (transport.send_buffer_bytes, transport.receive_buffer_bytes) == (1 << 20, 1 << 16)
    assert transport.initial_window_packets == 20
    assert plan_of().transport.send_buffer_bytes is None
