"""Scenario to Plan: who is where, who talks to whom, what a link is, and that nothing depends on chance."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan import model
from testbed.plan.build import build_plan
from testbed.plan.code import check_code
from testbed.plan.model import LinkPlan, Plan, from_json, to_json
from testbed.plan.network import default_queue_bytes
from testbed.scenario import BACK_ENDS, load, loads
from tests.for_each import for_each
from tests.kvstore.scripts import scenario
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


@pytest.mark.slow  # 2 s; by default, tests/api compares the Plans of two processes
def test_the_same_scenario_gives_the_same_bytes() -> None:
    """In another process too, whatever the hash seed is."""
    program = (
        "import sys; from testbed.scenario import load; from testbed.plan.build import build_plan; "
        "from testbed.plan.model import to_json; sys.stdout.buffer.write(to_json(build_plan(load(sys.argv[1]))))"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    other = subprocess.run(
        [sys.executable, "-c", program, str(QUICKSTART)],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, check=True, timeout=240,
    )  # fmt: skip
    assert other.stdout == to_json(build_plan(load(QUICKSTART)))


@for_each("on", BACK_ENDS)
def test_json_reads_back_the_same(on: str) -> None:
    plan = build_plan(load(QUICKSTART), on)
    assert plan.back_end == on
    assert from_json(to_json(plan)) == plan


def test_a_plan_without_infinity_is_read_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of nodes, whose JSON has ten megabytes."""
    plan = plan_of()
    monkeypatch.delattr(model, "_without_null")
    assert from_json(to_json(plan)) == plan


def test_roles_of_the_quickstart() -> None:
    plan = build_plan(load(QUICKSTART))
    roles = {role: [node.name for node in plan.with_role(role)] for role in {node.role for node in plan.nodes}}
    assert roles == {
        "worker": [f"{site}/worker{n}" for site in ("virginia", "frankfurt", "tokyo") for n in (0, 1)],
        "server": ["virginia/server0", "frankfurt/server0", "tokyo/server0"],
        "global_server": ["virginia/global0"],
        "scheduler": ["virginia/scheduler"],
    }


def test_ranks_count_within_a_role_and_children_stand_in_rank_order() -> None:
    plan = build_plan(load(QUICKSTART))
    for role in ("worker", "server", "global_server", "scheduler"):
        assert [node.rank for node in plan.with_role(role)] == list(range(len(plan.with_role(role))))
    for node in plan.nodes:
        ranks = [plan.node(child).rank for child in node.children]
        assert ranks == sorted(ranks)


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
        ("east/worker0", False), ("west/worker0", True), ("west/worker1", True),
    ]  # fmt: skip


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


def test_devices_from_the_general_to_the_particular() -> None:
    plan = plan_of(
        "device.step_time=100 ms",
        "data_centers[west].device.step_time=60 ms",
        "data_centers[west].worker_devices={worker1: {speed: 0.5}}",
    )
    times = {node.name: node.device.step_time_s for node in plan.with_role("worker")}
    assert times == {"east/worker0": 0.1, "east/worker1": 0.1, "west/worker0": 0.06, "west/worker1": 0.12}


def test_both_directions_unless_reverse_says_otherwise() -> None:
    plan = plan_of("links[0].reverse={rate: 5 Mbit/s, loss: 1 %}", "links[0].rate_trace=[{at: 0 s, rate: 9 Mbit/s}]")
    there, back = link(plan, "east>west"), link(plan, "west>east")
    assert (there.rate_bps, there.loss, there.delay_s) == (20e6, 0.0, 0.04)
    assert (back.rate_bps, back.loss, back.delay_s) == (5e6, 0.01, 0.04)
    assert there.rate_trace is not None and back.rate_trace is None


def test_traces_end_on_their_last_value_or_repeat() -> None:
    points = "[{at: 0 s, rate: 9 Mbit/s}, {at: 2 s, rate: 1 Mbit/s}]"
    once = link(plan_of(f"links[0].rate_trace={points}"), "east>west").rate_trace
    again = link(plan_of(f"links[0].rate_trace={{points: {points}, repeat_after: 5 s}}"), "east>west").rate_trace
    assert once is not None and again is not None
    assert (once.times_s, once.values, once.period_s) == ((0.0, 2.0), (9e6, 1e6), math.inf)
    assert again.period_s == 5.0


def test_a_rate_that_the_scale_makes_too_low_is_an_outage() -> None:
    """Of points as of a model: a packet would be under way for seconds."""
    points = "links[0].rate_trace=[{at: 0 s, rate: 9 Mbit/s}, {at: 2 s, rate: 5 kbit/s}, {at: 4 s, rate: 8 Mbit/s}]"
    trace = link(plan_of(points, "topology.scale=10"), "east>west").rate_trace
    assert trace is not None and trace.values == (9e5, 0.0, 8e5)


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


def test_a_direct_link_that_nobody_takes_is_said() -> None:
    plan = build_plan(load(QUICKSTART, ["links[2].delay=200 ms"]))
    assert plan.network.routes["frankfurt>tokyo"] == ("frankfurt>virginia", "virginia>tokyo")
    assert any(warning.startswith("link frankfurt>tokyo (and 1 more): traffic goes") for warning in plan.warnings)


def star(sites: int, workers: int = 1) -> str:
    generator = f"generator: {{kind: star, data_centers: {sites}, workers: {workers}, rate: 10 Mbit/s, delay: 30 ms}}"
    training = "training: {model: cnn, data: digits, rounds: 5}"
    return f"version: 1\nname: star\nseed: 1\nrun: {{on: simulate}}\ntopology:\n  {generator}\n{training}\n"


def test_generated_star() -> None:
    plan = plan_of(text=star(4))
    assert [site.name for site in plan.network.sites if site.central] == ["dc0"]
    assert plan.network.routes["dc1>dc3"] == ("dc1>dc0", "dc0>dc3")
    assert {(link.rate_bps, link.delay_s) for link in plan.network.links} == {(10e6, 0.03)}


def test_small_networks_have_all_routes_and_large_ones_those_to_the_centre() -> None:
    assert len(plan_of(text=star(64)).network.routes) == 64 * 63
    large = plan_of(text=star(65)).network.routes
    assert len(large) == 2 * 64
    assert all("dc0" in name.split(">") for name in large)


def test_thousands_of_data_centers() -> None:
    plan = plan_of(text=star(3000, workers=4))
    assert len(plan.nodes) == 3000 * 5 + 2
    assert len(plan.network.routes) == 2 * 2999


def test_too_many_for_real_processes() -> None:
    with pytest.raises(ScenarioError) as caught:
        plan_of(text=star(100, workers=4), on="emulate")
    message = "--on emulate: topology: 502 nodes in total, limit 256 with 'on: emulate' (use fewer, or 'on: simulate')"
    assert str(caught.value) == message


def test_unknown_back_end() -> None:
    with pytest.raises(ScenarioError, match="--on: 'cloud' is not one of emulate, simulate, local"):
        plan_of(on="cloud")


def test_modelled_compute_stays_in_the_simulator() -> None:
    text = star(4).replace("rounds: 5", "rounds: 5, compute: modelled")
    assert plan_of(text=text).training.compute == "modelled"
    with pytest.raises(ScenarioError, match=r"--on local: training\.compute: 'modelled' computes nothing"):
        plan_of(text=text, on="local")


def test_settings_without_effect_are_said() -> None:
    assert plan_of().warnings == ()
    assert any("no effect on 'local'" in warning for warning in plan_of(on="local").warnings)
    changed = plan_of("transport.mac=crc32c", "device.pace=measured", on="simulate")
    assert [warning.split(":")[0] for warning in changed.warnings] == ["transport.mac", "device.pace"]


@for_each(
    ("rounds", "said"),
    [
        (5, "training.rounds is 5: no data centre hears of another, and no byte crosses the WAN"),
        (15, "the last 5 of 15 stay inside data centres"),
        (20, ""),
    ],
)
def test_rounds_that_stay_inside_data_centres_at_the_end_are_said(rounds: int, said: str) -> None:
    hfa = ("sync={kind: hfa, k2: 10}", "optimizer={kind: sgd, at: worker}", f"training.rounds={rounds}")
    warnings = plan_of(*hfa, on="simulate").warnings
    assert any(said in warning for warning in warnings) if said else not warnings


def test_servers_without_servers_are_said() -> None:
    two = "topology.data_centers[0].global_servers=2"
    assert "global_servers: has no effect" in plan_of(two, "paradigm=allreduce", on="simulate").warnings[0]
    assert plan_of(two, on="simulate").warnings == ()


@for_each("on", ["cluster", "simulate"])
def test_machines_of_a_data_centre_that_a_generator_does_not_make_are_refused(on: str) -> None:
    ring = "topology={generator: {kind: ring, data_centers: 3, workers: 1}}"
    assert plan_of(ring, "cluster.data_centers={dc1: {machines: 2}}", on=on)
    with pytest.raises(
        ScenarioError, match=r"cluster\.data_centers\.dc9: there is no data centre 'dc9' \(did you mean"
    ):
        plan_of(ring, "cluster.data_centers={dc9: {machines: 2}}", on=on)


def test_files_of_techniques_from_outside_are_in_the_plan_and_must_not_change(tmp_path: Path) -> None:
    file = tmp_path / "slow.py"
    file.write_text("from testbed.policy.sync.fsa import Fsa\n\n\nclass Slow(Fsa):\n    pass\n")
    text = f"{GOOD}sync: {{kind: {file}:Slow}}\n"
    plan = build_plan(loads(text))
    (code,) = plan.code
    assert (code.axis, code.path) == ("sync", str(file)) and from_json(to_json(plan)).code == plan.code
    check_code(plan)
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(ScenarioError, match=r"slow\.py: has changed since this run was planned"):
        check_code(plan)
    assert build_plan(loads(text)).code != plan.code


def test_a_run_that_ends_before_its_first_checkpoint_is_warned_of() -> None:
    told = "checkpoint.every: 7, and training.rounds is 6: no checkpoint is written"
    assert told in plan_of("training.rounds=6", "checkpoint.every=7").warnings
    assert not any("checkpoint" in line for line in plan_of("training.rounds=7", "checkpoint.every=7").warnings)


@for_each(
    ("technique", "told"),
    [("sync=tap", True), ("paradigm={kind: gossip, algorithm: adpsgd}", True), ("paradigm=gossip", False)],
)
def test_checkpoints_at_which_workers_meet_are_told(technique: str, told: bool) -> None:
    warnings = plan_of(technique, "checkpoint.every=2", on="simulate").warnings
    assert any("wait for each other at every checkpoint" in each for each in warnings) == told


def test_compensation_for_delays_is_warned_of_where_there_are_none() -> None:
    delayed = "optimizer={kind: dcasgd, learning_rate: 0.02}"
    for others in ((), ("paradigm=allreduce",), ("paradigm=ps", "sync=bsp")):
        (warning,) = plan_of(delayed, *others, on="simulate").warnings
        assert warning.startswith("optimizer: 'dcasgd'") and "the steps of 'sgd'" in warning
    for sync in ("mixedsync", "{tier1: ssp, tier2: tap}"):
        assert not plan_of(delayed, f"sync={sync}", on="simulate").warnings


SPARSE = "codec={tier1: none, tier2: {kind: bisparse, pull: dense}}"


@for_each(
    ("overrides", "cure"),
    [
        (("optimizer={kind: adam}",), "write 0 for the momentum in 'optimizer' and in the codec"),
        (("optimizer={kind: sgd, momentum: 0.9}", "codec.tier2.momentum=0"), "write 0 for the momentum in 'optimizer'"),
        (("sync=diloco", "optimizer={kind: adam, at: worker}"), "write 0 for the momentum in 'sync'"),
        (("paradigm=ps", "codec={kind: bisparse, momentum: 0}"), "write 0 for the momentum in 'optimizer'"),
    ],
)
def test_momentum_that_repeats_sparse_sums_is_warned_of(overrides: tuple[str, ...], cure: str) -> None:
    (warning,) = plan_of(SPARSE, *overrides).warnings
    assert warning.startswith("codec.tier2: 'bisparse'") and warning.endswith(cure)


@for_each("algorithm", ["hitopk", "flat_topk"])
def test_momentum_that_repeats_sums_of_a_sparse_algorithm_is_warned_of(algorithm: str) -> None:
    paradigm = f"paradigm={{kind: allreduce, algorithm: {algorithm}}}"
    (warning,) = plan_of(paradigm, "optimizer={kind: sgd, momentum: 0.9}").warnings
    assert warning.startswith(f"paradigm.algorithm: '{algorithm}' sends an element once in a while")
    assert not plan_of(paradigm, "optimizer=sgd").warnings


@for_each(
    "overrides",
    [("optimizer={kind: adam, beta1: 0}",), ("optimizer=sgd",), ("optimizer=adam", "codec.tier2=fp16")],
)
def test_nothing_is_said_where_no_momentum_repeats_them(overrides: tuple[str, ...]) -> None:
    assert plan_of(SPARSE, *overrides).warnings == ()


def test_nothing_is_said_of_an_optimizer_that_a_script_does_not_have(tmp_path: Path) -> None:
    assert not build_plan(load(scenario(tmp_path, ""), [SPARSE])).warnings


SPARSE_SHIPPED = [*ROOT.glob("scenarios/geomx/*.yaml"), ROOT / "scenarios/paradigms/hitopk.yaml"]


@for_each("path", sorted(SPARSE_SHIPPED))
def test_shipped_scenarios_have_no_such_warning(path: Path) -> None:
    assert not [warning for warning in build_plan(load(path)).warnings if "repeats it" in warning]
