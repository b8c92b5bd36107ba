"""Go on degraded: the others finish without the dead, the loss is accounted for, and who comes back takes part."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine import sync_setup
from testbed.errors import RunFailed, ScenarioError
from testbed.execution.host import attempt
from testbed.plan.asynchronous import shares_rounds
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.scenario.load import load
from tests.engine.runs import THREE_SITES
from tests.faults.runs import CONTINUE, Ended, faults, plan_of, rounds_of_all, run
from tests.for_each import for_each
from tests.pairs import in_turn

LAST = 9
AT_WORKER = "optimizer={kind: adam, learning_rate: 0.01, at: worker}"
TECHNIQUES: dict[str, tuple[str, ...]] = {
    "fsa": (),
    "fsa at workers": (AT_WORKER,),
    "ps": ("paradigm=ps",),
    "mixedsync": ("sync=mixedsync",),
    "hfa": ("sync={kind: hfa, k1: 2, k2: 3}", AT_WORKER),
    "diloco": ("sync={kind: diloco, h: 2}", AT_WORKER),
    "esync": ("sync=esync", AT_WORKER),
    "tap": ("sync=tap",),
    "ssp": ("paradigm=ps", "sync={kind: ssp, staleness: 1}"),
    "bisparse": ("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.1}}",),
    "multigps": ("shard={kind: multigps, bound: 100}", "data_centers[hub].global_servers=2"),
    "p3": ("order={kind: p3, slice: 512 bytes, overlap: layers}",),
    "dgt": ("order={kind: dgt, block: 128 bytes, k: 0.2, adaptive: false, deadline: 5 ms, late: retransmit}",),
    "tree": ("overlay={tier1: {kind: tree, degree: 1}, tier2: {kind: tree, degree: 1}}",),
    "tsengine": ("overlay={kind: tsengine, ports: 1, chunk: 1 KB}", "data_centers[hub].global_servers=2"),
}
SAME_VALUES = (
    "fsa",
    "fsa at workers",
    "ps",
    "diloco",
    "esync",
    "bisparse",
    "multigps",
    "p3",
    "tree",
    "tsengine",
)  # where all hold the same at the end
KILLS = {
    "worker": "kind: kill, node: east/worker1, round: 4",
    "evaluator": "kind: kill, node: hub/worker0, round: 4",
    "data centre": "kind: kill, data_center: east, round: 4",
}


def agree(ended: Ended) -> bool:
    """Whether all hold the same at the end; of several global servers each holds its part."""
    parts, others = len(ended.plan.with_role("global_server")), without_model(ended.plan)
    held = {event.get("parameters_sha256") for event in ended.events("final") if event["node"] not in others} - {None}
    if sums_come_down(ended.plan):
        return len(held) == 1
    return len(held) == 1 and len(ended.hashes()) == (parts + 1 if parts > 1 else 1)


def without_model(plan: Plan) -> set[str]:
    """Global servers, of which each may hold a part; with an optimizer of the workers, all servers: they hold sums."""
    roles = ("global_server", "server") if sums_come_down(plan) else ("global_server",)
    return {node.name for role in roles for node in plan.with_role(role)}


def sums_come_down(plan: Plan) -> bool:
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    return gradients and plan.technique.optimizer.options.get("at") == "worker"


def others(ended: Ended) -> list[str]:
    (fault,) = ended.plan.faults
    return [node.name for node in ended.plan.with_role("worker") if node.name not in fault.targets]


def finished(ended: Ended) -> None:
    assert ended.error is None
    for worker in others(ended):
        assert ended.rounds(worker) == rounds_of_all(ended, worker, LAST), worker


@pytest.mark.sample(2)  # of 17, which take 5 s
@pytest.mark.parametrize(("name", "kill"), in_turn(TECHNIQUES, KILLS))  # 0.4 s each
def test_the_others_finish(tmp_path: Path, name: str, kill: str) -> None:
    ended = run(tmp_path, *TECHNIQUES[name], CONTINUE, faults(KILLS[kill]))
    finished(ended)
    assert agree(ended) or name not in SAME_VALUES
    left = {name for epoch in ended.events("epoch") for name in epoch["targets"].split(", ")}
    assert left.issuperset(ended.plan.faults[0].targets) and not any(epoch["begins"] for epoch in ended.events("epoch"))
    assert [epoch["number"] for epoch in ended.events("epoch")] == list(range(1, len(ended.events("epoch")) + 1))


@pytest.mark.sample(2)  # of 17, which take 7 s
@pytest.mark.parametrize(("name", "kill"), in_turn(TECHNIQUES, KILLS, shift=1))  # 0.4 s each
def test_who_comes_back_takes_part_again(tmp_path: Path, name: str, kill: str) -> None:
    ended = run(tmp_path, *TECHNIQUES[name], CONTINUE, faults(f"{KILLS[kill]}, for: 200 ms"))
    finished(ended)
    assert agree(ended) or name not in SAME_VALUES
    for worker in (name for name in ended.plan.faults[0].targets if "worker" in name):
        rounds = ended.rounds(worker)
        if name != "hfa":  # a data centre that comes back begins after the last round that went over the WAN
            assert rounds == sorted(set(rounds)), "none twice, none out of order"
        if not shares_rounds(ended.plan):  # else others may have made most of them meanwhile
            assert len(rounds) > 5 and rounds[-1] == LAST
    assert any(epoch["begins"] for epoch in ended.events("epoch"))


def test_workers_that_are_replaced_one_after_the_other_go_on_where_their_server_is(tmp_path: Path) -> None:
    """No worker of the data centre has been there all the time, but its server has, with rounds that it has summed."""
    first = "kind: kill, node: east/worker0, at: 344 ms, for: 83 ms"
    second = "kind: kill, node: east/worker1, at: 502 ms, for: 318 ms"
    ended = run(tmp_path, "sync={kind: hfa, k1: 2, k2: 3}", AT_WORKER, CONTINUE, faults(first, second))
    assert ended.error is None
    assert ended.rounds("hub/worker0") == list(range(LAST + 1))
    assert ended.rounds("east/worker0") == [0, *range(2, LAST + 1)], "round 1, which the other one made, is over"
    assert not any("server" in epoch["targets"] for epoch in ended.events("epoch"))


def test_a_server_comes_back_with_its_workers(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults("kind: kill, node: east/server0, round: 4, for: 200 ms"))
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("east/worker0")[-1] == ended.rounds("east/worker1")[-1] == LAST


def test_no_round_counts_for_less(tmp_path: Path) -> None:
    """Every worker's gradient of round r is applied once or not at all, and those of the others stand for it."""
    ended = run(
        tmp_path, CONTINUE, faults(KILLS["worker"], KILLS["data centre"].replace("east, round: 4", "west, round: 8"))
    )
    partial = {(each["node"], each["round"]): each for each in ended.events("partial")}
    assert {round_ for node, round_ in partial if node == "east/server0"} == set(range(5, LAST + 1))
    assert {each["factor"] for (node, _), each in partial.items() if node == "east/server0"} == {2.0}
    whole = {each["factor"] for (node, _), each in partial.items() if node == "hub/global0"}
    assert whole == {4 / 3}, "three of four workers' weight is there, as east's survivor stands for two"
    for update in ended.events("update"):
        gone = "west/server0" if (update["node"], update["round"]) in partial else None
        assert ("west/server0" in update["contributors"]) == (gone is None)


def test_versions_never_go_back(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults(f"{KILLS['data centre']}, for: 200 ms"))
    for key in range(4):
        versions = [update["version"] for update in ended.events("update") if update["key"] == key]
        assert versions == list(range(1, LAST + 2))


def test_a_node_that_stood_still_for_too_long_is_dropped(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults("kind: pause, node: west/worker0, at: 500 ms, for: 30 s"))
    finished_by = [event["t"] for event in ended.events("final", node="hub/worker0")]
    assert ended.error is None and 10 < finished_by[0] < 15
    assert ended.rounds("west/worker0")[-1] < LAST


def test_a_data_centre_that_is_cut_off_does_not_train_alone(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults("kind: down, link: west<>hub, at: 500 ms, for: 30 s"))
    assert ended.error is None and len(ended.hashes()) == 1
    alone = [event for event in ended.events("round", node="west/worker0") if event["t"] > 2]
    assert alone == []


def test_the_last_worker_is_the_end(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults("kind: kill, node: '*/worker*', round: 4"))
    assert isinstance(ended.error, RunFailed) and "no other training worker is left" in str(ended.error)


def test_the_result_says_that_nodes_were_lost(tmp_path: Path) -> None:
    outcome = attempt(plan_of(CONTINUE, faults(KILLS["worker"])), tmp_path, lambda event: None)
    assert (outcome.status, outcome.message, outcome.exit_code) == ("reduced", "continued without east/worker1", 0)
    back = attempt(plan_of(CONTINUE, faults(f"{KILLS['worker']}, for: 200 ms")), tmp_path / "2", lambda event: None)
    assert back.status == "done"
    leaves = faults("kind: leave, node: east/worker1, round: 5")
    left = attempt(plan_of(CONTINUE, leaves), tmp_path / "3", lambda event: None)
    assert (left.status, left.message) == ("done", ""), "it has done what the scenario wants of it"


FAR_APART = (  # the first pushes of a round reach one server long before the other
    "paradigm=ps",
    "data_centers[hub].global_servers=2",
    "data_centers[hub].lan={rate: 1 Mbit/s}",
    "shard=multigps",
    "training.model={kind: mlp, layers: 2, hidden: 64}",
    "training.rounds=8",
    "device.step_time=20 ms",
    "links[*].delay=40 ms",
)


@for_each(("sync", "away_ms"), [("bsp", 900), ("bsp", 1150), ("{kind: ssp, staleness: 1}", 605)])
def test_several_servers_let_a_worker_begin_with_the_same_round(tmp_path: Path, sync: str, away_ms: int) -> None:
    """One of them has begun a round that the other has not: without an agreement, one would wait for the worker."""
    kill = f"kind: kill, node: east/worker0, round: 1, for: {away_ms} ms"
    ended = run(tmp_path, *FAR_APART, f"sync={sync}", CONTINUE, faults(kill))
    assert ended.error is None and ended.rounds("west/worker0") == list(range(8))
    since = [round_ for round_ in ended.rounds("east/worker0") if round_ > 1]
    assert since == list(range(since[0], 8))


@for_each(("late", "at_ms"), [("retransmit", 316), ("next-round", 676)])
def test_blocks_of_a_lost_server_end_with_it(tmp_path: Path, late: str, at_ms: int) -> None:
    """It dies while some of a push's blocks are missing; those of its next process are put together without them."""
    kill = f"kind: kill, data_center: east, at: {at_ms} ms, for: 200 ms"
    ended = run(tmp_path, *TECHNIQUES["dgt"], f"order.late={late}", "links[*].loss=5 %", CONTINUE, faults(kill))
    finished(ended)
    accounts = [event for event in ended.events("blocks") if event["source"] == "east/server0"]
    assert agree(ended) and ended.rounds("east/worker0")[-1] == LAST
    assert all(event["sent"] == sum(event[part] for part in ("delivered", "late", "lost")) for event in accounts)


def test_where_nobody_could_go_on_it_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the others cannot go on without a node here"):
        load(THREE_SITES, ("sync={kind: ssp, staleness: 2}", CONTINUE))


def test_so_are_relays_of_contributions_that_belong_to_no_round() -> None:
    overrides = ("sync=mixedsync", "overlay={kind: tree, merge: exact}", CONTINUE)
    with pytest.raises(ScenarioError, match="the others cannot go on without a node here"):
        load(THREE_SITES, overrides)


def test_what_is_sent_to_a_relay_that_is_back_waits_for_its_first_message(tmp_path: Path) -> None:
    """A node that has sent to a lost process reaches the next one of its name only after that has sent to it."""
    kill = "kind: kill, data_center: east, round: 3, for: 200 ms"
    cut = "kind: down, link: east>west, at: 900 ms, for: 700 ms"
    ended = run(tmp_path, "overlay={kind: tree, degree: 1}", CONTINUE, faults(kill, cut))
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("west/worker0") == list(range(LAST + 1)) and ended.rounds("east/worker0")[-1] == LAST


@for_each("kill", ["node: east/worker1", "data_center: east"])
def test_nobody_fills_the_time_of_the_dead(tmp_path: Path, kill: str) -> None:
    """ESync: while the slowest is there, the others make many steps a round; without it, as few as before it came."""
    slow = "data_centers[east].worker_devices={worker1: {speed: 0.1}}"
    ended = run(
        tmp_path, *TECHNIQUES["esync"], "device.variation=0 %", slow, CONTINUE, faults(f"kind: kill, {kill}, round: 5")
    )
    finished(ended)
    steps = [event["steps"] for event in ended.events("round", node="hub/worker0")]
    assert min(steps[2:5]) >= 8 and max(steps[-3:]) <= 2


@for_each(
    "technique",
    ["paradigm=hips", "order={kind: fifo, overlap: layers}", "paradigm=allreduce", "paradigm=gossip"],
)
def test_when_the_one_that_evaluates_is_lost_the_next_one_does(tmp_path: Path, technique: str) -> None:
    """Once each: who comes back comes after those who are there."""
    kills = faults(
        "kind: kill, node: hub/worker0, round: 4, for: 200 ms", "kind: kill, data_center: east, round: 8, for: 200 ms"
    )
    ended = run(tmp_path, technique, CONTINUE, "training.evaluate_every=1", "training.rounds=15", kills)
    assert ended.error is None
    found = [(event["node"], event["round"]) for event in ended.events("evaluate")]
    assert len(found) == len(set(found)) and ("west/worker0", 14) in found
    assert list(dict.fromkeys(node for node, _ in found)) == ["hub/worker0", "east/worker0", "west/worker0"]
    rounds = [round_ for _, round_ in found]
    assert rounds == sorted(set(rounds)) and len(rounds) >= 10, "all but those under way when it was lost"
    assert len(ended.events("train")) == 1
