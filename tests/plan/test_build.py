"""Scenario to Plan: who is where, who talks to whom, what a link is, and that nothing depends on chance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.plan.model import LinkPlan, Plan, from_json, to_json
from testbed.plan.network import default_queue_bytes
from testbed.scenario import BACK_ENDS, load, loads
from tests.for_each import for_each
from tests.scenario.test_bad import GOOD

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden" / "two_data_centers.json"
QUICKSTART = ROOT / "scenarios" / "quickstart.yaml"


def plan_of(*overrides: str, text: str = GOOD, on: str | None = None) -> Plan:
    return build_plan(loads(text, overrides=overrides), on)


def link(plan: Plan, name: str) -> LinkPlan:
    return next(link for link in plan.network.links if link.name == name)


def test_golden() -> None:
    """The whole Plan of two data centres. After a wanted change: look at the difference, then write the file anew."""
    assert to_json(plan_of()).decode() == GOLDEN.read_text(encoding="utf-8")


@for_each("on", BACK_ENDS)
def test_json_reads_back_the_same(on: str) -> None:
    plan = build_plan(load(QUICKSTART), on)
    assert plan.back_end == on
    assert from_json(to_json(plan)) == plan


def test_parents_and_children_are_the_same_edges() -> None:
    plan = plan_of("data_centers[east].global_servers=3")
    up = {(node.name, parent) for node in plan.nodes for parent in node.parents}
    down = {(child, node.name) for node in plan.nodes for child in node.children}
    assert up == down
    assert plan.node("west/server0").parents == ("east/global0", "east/global1", "east/global2")
    assert plan.node("east/global0").parents == ()


def test_a_central_data_center_without_workers_has_a_master_that_does_not_train() -> None:
    plan = plan_of("data_centers[east].workers=0")
    assert [(node.name, node.trains) for node in plan.with_role("worker")] == [
        ("east/worker0", False),
        ("west/worker0", True),
        ("west/worker1", True),
    ]


def test_addresses_only_where_they_mean_something() -> None:
    emulated, local, simulated = (plan_of(on=on) for on in ("emulate", "local", "simulate"))
    addresses = [node.address for node in emulated.nodes]
    assert len(set(addresses)) == len(addresses)
    assert emulated.node("west/worker1").address == "10.2.0.2"
    assert emulated.site("west").subnet == "10.2.0.0/16"
    assert all((node.address, node.port) == ("127.0.0.1", 0) for node in local.nodes)
    assert {node.address for node in simulated.nodes} == {None}


def test_a_crowded_site_never_takes_the_gateways_address() -> None:
    addresses = [
        node.address for node in plan_of("data_centers[east].workers=1", "data_centers[west].workers=249").nodes
    ]
    assert len(set(addresses)) == len(addresses) == 254
    assert "10.2.0.250" in addresses and "10.2.0.254" not in addresses


def test_both_directions_unless_reverse_says_otherwise() -> None:
    plan = plan_of("links[0].reverse={rate: 5 Mbit/s, loss: 1 %}", "links[0].rate_trace=[{at: 0 s, rate: 9 Mbit/s}]")
    there, back = link(plan, "east>west"), link(plan, "west>east")
    assert (there.rate_bps, there.loss, there.delay_s) == (20e6, 0.0, 0.04)
    assert (back.rate_bps, back.loss, back.delay_s) == (5e6, 0.01, 0.04)
    assert there.rate_trace is not None and back.rate_trace is None


def test_a_rate_that_the_scale_makes_too_low_is_an_outage() -> None:
    """Of points as of a model: a packet would be under way for seconds."""
    points = "links[0].rate_trace=[{at: 0 s, rate: 9 Mbit/s}, {at: 2 s, rate: 5 kbit/s}, {at: 4 s, rate: 8 Mbit/s}]"
    trace = link(plan_of(points, "topology.scale=10"), "east>west").rate_trace
    assert trace is not None and trace.values == (9e5, 0.0, 8e5)


def test_the_speed_divides_the_times_of_a_model() -> None:
    """The values are those of the same draw."""
    walk = "links[0].rate_trace={model: {kind: walk, seed: 3}}"
    own = link(plan_of(walk), "east>west").rate_trace
    fast = link(plan_of(walk, "topology.speed=4"), "east>west").rate_trace
    assert own is not None and fast is not None and own.times_s[1] > 0
    assert fast.times_s == tuple(time_s / 4 for time_s in own.times_s)
    assert (fast.values, fast.period_s) == (own.values, own.period_s / 4)
    assert own.source == "synthetic: walk, seed 3"


@for_each(
    ("queue", "size_bytes"),
    [("256 KiB", 262_144), ("50 ms", 125_000), ("1 bdp", 200_000), ("1.5 bdp", 300_000), ("null", 250_000)],
)
def test_queues_in_four_ways(queue: str, size_bytes: int) -> None:
    assert link(plan_of(f"links[0].queue={queue}"), "east>west").queue_bytes == size_bytes


def test_a_short_slow_link_has_a_queue_of_some_packets() -> None:
    assert default_queue_bytes(1e6, 0.001) == 65_536


def test_routes_go_through_routers_by_least_delay() -> None:
    text = GOOD.replace("  links:", "  routers: [core, far]\n  links:").replace(
        "    - {between: [east, west], rate: 20 Mbit/s, delay: 40 ms}",
        "".join(
            f"    - {{between: [{a}, {b}], rate: 20 Mbit/s, delay: {delay} ms}}\n"
            for a, b, delay in (("east", "far", 1), ("far", "west", 50), ("east", "core", 20), ("core", "west", 30))
        ),
    )
    assert plan_of(text=text).network.routes == {
        "east>west": ("east>core", "core>west"),
        "west>east": ("west>core", "core>east"),
    }


def star(sites: int, workers: int = 1) -> str:
    generator = f"generator: {{kind: star, data_centers: {sites}, workers: {workers}, rate: 10 Mbit/s, delay: 30 ms}}"
    training = "training: {model: cnn, data: digits, rounds: 5}"
    return f"version: 1\nname: star\nseed: 1\nrun: {{on: simulate}}\ntopology:\n  {generator}\n{training}\n"


def test_small_networks_have_all_routes_and_large_ones_those_to_the_centre() -> None:
    assert len(plan_of(text=star(64)).network.routes) == 64 * 63
    large = plan_of(text=star(65)).network.routes
    assert len(large) == 2 * 64
    assert all("dc0" in name.split(">") for name in large)


def test_too_many_for_real_processes() -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(text=star(100, workers=4), on="emulate")
    message = "--on emulate: topology: 502 nodes in total, limit 256 with 'on: emulate' (use fewer, or 'on: simulate')"
    assert str(caught.value) == message


LLAMA = ("training.model={kind: declared, name: llama2-7b}", "training.data=none", "training.compute=modelled")
HFA = ("sync={kind: hfa, k2: 10}", "optimizer={kind: sgd, at: worker}")
DELAYED = "optimizer={kind: dcasgd, learning_rate: 0.02}"
SPARSE = "codec={tier1: none, tier2: {kind: bisparse, pull: dense}}"
REPEATED = "^codec.tier2: 'bisparse'.*write 0 for the momentum in"
MEET = "wait for each other at every checkpoint"


@for_each(
    ("overrides", "warning", "is_told"),
    [
        ((), "", False),
        (("transport.mac=none",), "^transport.mac: ", True),
        (("device.pace=measured",), "^device.pace: ", True),
        (("topology.links[0].rate=2 Gbit/s",), "^topology.lan: 1 Gbit/s by default, slower than", True),
        (("topology.links[0].rate=2 Gbit/s", "topology.lan.rate=1.5 Gbit/s"), "topology.lan", False),
        ((*HFA, "training.rounds=5"), "data centres exchange nothing, and no byte crosses the WAN", True),
        ((*HFA, "training.rounds=15"), "the last 5 of 15 stay inside data centres", True),
        ((*HFA, "training.rounds=20"), "", False),
        (("training.rounds=6", "checkpoint.every=7"), "every: 7, but training.rounds is 6: no checkpoint is", True),
        (("training.rounds=7", "checkpoint.every=7"), "checkpoint", False),
        (("sync=tap", "checkpoint.every=2"), MEET, True),
        (("paradigm=gossip", "checkpoint.every=2"), MEET, False),
        (("paradigm={kind: gossip, algorithm: adpsgd}", "checkpoint.every=2"), f"'adpsgd' workers {MEET}", True),
        ((DELAYED,), "^optimizer: 'dcasgd'.*the steps of 'sgd'", True),
        ((DELAYED, "paradigm=ps", "sync=bsp"), "^optimizer: 'dcasgd'.*the steps of 'sgd'", True),
        ((DELAYED, "sync={tier1: ssp, tier2: tap}"), "", False),
        ((SPARSE, "optimizer={kind: adam}"), f"{REPEATED} 'optimizer' and in the codec$", True),
        ((SPARSE, "sync=diloco", "optimizer={kind: adam, at: worker}"), f"{REPEATED} 'sync'$", True),
        ((SPARSE, "paradigm=ps", "codec={kind: bisparse, momentum: 0}"), f"{REPEATED} 'optimizer'$", True),
        ((SPARSE, "optimizer={kind: adam, beta1: 0}"), "", False),
        ((SPARSE, "optimizer=adam", "codec.tier2=fp16"), "", False),
    ],
)
def test_what_is_in_vain_or_does_harm_is_told(overrides: tuple[str, ...], warning: str, is_told: bool) -> None:
    told = plan_of(*overrides, on="simulate").warnings
    assert any(re.search(warning, each) for each in told) == is_told
    assert any("no effect on 'local'" in each for each in plan_of(on="local").warnings)


def test_an_optimizer_at_a_processors_speed_beside_short_steps_is_told() -> None:
    about = "simulation.costs: a step of 'adam' takes 32.1 s beside a training step of 10 s"
    for step_time, is_told in (("10 s", True), ("100 s", False)):
        told = plan_of(
            "run.on=simulate",
            "topology.links[0].rate=1 Gbit/s",
            *LLAMA,
            "optimizer=adam",
            f"device.step_time={step_time}",
        ).warnings
        assert any(each.startswith(about) for each in told) == is_told
        assert any(each.startswith("simulation.costs") for each in told) == is_told


NCCL = "paradigm={kind: hips, inside: nccl}"
UNSHAPED = "topology.lan={rate: 10 Gbit/s, delay: 0 ms}"


@for_each("lan", ["{rate: 1 Gbit/s, delay: 0 ms}", "{rate: 10 Gbit/s, delay: 0.1 ms}"])
def test_sums_inside_would_bypass_a_shaped_lan(lan: str) -> None:
    cure = r"the emulated LAN of east \(write 'ring' or 'gloo', or leave that LAN unshaped"
    with pytest.raises(ScenarioError, match=cure) as refused:
        plan_of(NCCL, f"topology.lan={lan}", on="emulate")
    assert "paradigm.inside" in str(refused.value)


@for_each("on", ["emulate", "exact"])
def test_sums_over_all_would_bypass_the_wan(on: str) -> None:
    with pytest.raises(ScenarioError, match=r"paradigm.backend: .* the emulated WAN \(write 'gloo', or .*inside: nccl"):
        plan_of("paradigm={kind: gloo, backend: nccl}", UNSHAPED, on=on)


@for_each(
    ("settings", "workers"),
    [
        (("sync=fsa", "optimizer={kind: sgd, at: global}"), 4),
        (("sync=fsa", "optimizer={kind: sgd, at: worker}"), 1),
        (("sync=fsa", "optimizer={kind: adam, at: global}"), 1),
        (("sync=hfa", "optimizer=sgd"), 1),
        (("sync={tier1: fsa, tier2: mixedsync}", "optimizer={kind: dcasgd, at: global}"), 2),
        (("paradigm=ps", "sync=tap", "optimizer={kind: sgd, at: global}"), 1),
        (("paradigm=allreduce", "optimizer={kind: sgd, at: global}"), 4),
        (("paradigm=gossip", "optimizer=sgd"), 1),
    ],
)
def test_a_plan_says_how_many_gradients_a_step_of_the_optimizer_adds_up(
    settings: tuple[str, ...], workers: int
) -> None:
    assert plan_of(*settings).summed_gradients == workers
