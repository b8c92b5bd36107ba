"""Workers and data centres that are not there from the start, and join a run under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine.checkpoint import CheckpointFiles
from testbed.errors import ScenarioError
from testbed.plan.asynchronous import shares_rounds
from tests.faults.runs import CONTINUE, Ended, faults, plan_of, rounds_of_all, run
from tests.faults.test_continue import LAST, SAME_VALUES, TECHNIQUES, agree
from tests.for_each import for_each
from tests.pairs import in_turn

JOINS = {
    "worker": ("kind: join, node: east/worker1, round: 3", ("east/worker1",)),
    "data centre": ("kind: join, data_center: east, round: 3", ("east/worker0", "east/worker1", "east/server0")),
}
LOCAL_STEPS = ("sync={kind: diloco, h: 2}", "optimizer={kind: sgd, learning_rate: 0.01, at: worker, warmup: 20}")
UPDATES = {
    "hips": "exchange/work/optimizer/0/updates",
    "allreduce": "exchange/memories/'work'/optimizer/0/updates",
    "gossip": "exchange/gossip/model/work/optimizer/0/updates",
}


def took_part(ended: Ended, joining: tuple[str, ...], name: str, last: int = LAST) -> None:
    assert ended.error is None
    for node in ended.plan.with_role("worker"):
        rounds = ended.rounds(node.name)
        if node.name not in joining:
            assert rounds == rounds_of_all(ended, node.name, last), node.name
        elif name != "hfa" and not shares_rounds(
            ended.plan
        ):  # which goes by its rounds on the WAN; others may be through
            assert rounds == list(range(rounds[0], last + 1)) and rounds[0] > 2, node.name


@pytest.mark.sample(3)  # of 16, which take 7 s
@pytest.mark.parametrize(("name", "who"), in_turn(TECHNIQUES, JOINS))  # 0.4 s each
def test_who_joins_takes_part_from_then_on(tmp_path: Path, name: str, who: str) -> None:
    fault, joining = JOINS[who]
    if name in ("ps", "ssp"):  # one tier: without local servers
        joining = tuple(node for node in joining if "server" not in node)
    ended = run(tmp_path, *TECHNIQUES[name], CONTINUE, faults(fault))
    took_part(ended, joining, name)
    assert agree(ended) or name not in SAME_VALUES
    epochs = ended.events("epoch")
    assert {event["targets"] for event in epochs} == set(joining)
    assert all(event["begins"] and event["message"] == "it has joined" for event in epochs)


def test_before_that_it_counts_as_missing(tmp_path: Path) -> None:
    """The others stand for it, so that the learning rate means the same throughout."""
    ended = run(tmp_path, CONTINUE, faults(JOINS["worker"][0]))
    first = ended.rounds("east/worker1")[0]
    partial = ended.events("partial", node="east/server0")
    assert {event["round"] for event in partial} == set(range(first))
    assert {(event["targets"], event["factor"]) for event in partial} == {("east/worker1", 2.0)}


@for_each("paradigm", ["hips", "allreduce", "gossip"])
def test_its_learning_rate_is_that_of_the_others(tmp_path: Path, paradigm: str) -> None:
    """Its optimizer makes local steps, and its schedule counts them: it would begin anew with the first ones."""
    overrides = (f"paradigm={paradigm}", *LOCAL_STEPS, "checkpoint.every=9", CONTINUE, faults(JOINS["worker"][0]))
    ended = run(tmp_path, *overrides)
    resumed = CheckpointFiles(tmp_path / "checkpoints", ended.plan).resumed
    assert resumed is not None
    updates = {name: state[UPDATES[paradigm]] for name, state in resumed.states.items() if "/worker" in name}
    assert updates == dict.fromkeys(updates, 2 * 9) and len(updates) == 4


def test_a_server_comes_with_the_first_of_its_workers() -> None:
    one, other = "kind: join, node: east/worker0, at: 1 s", "kind: join, node: east/worker1, at: 2 s"
    assert plan_of(CONTINUE, faults(one)).late_comers == ("east/worker0",)
    assert set(plan_of(CONTINUE, faults(one, other)).late_comers) == {"east/worker0", "east/worker1", "east/server0"}
    assert plan_of().late_comers == ()
    assert [plan_of(CONTINUE, faults(*some)).first_workers for some in ((), (one,), (one, other))] == [4, 3, 2]


def test_two_workers_of_a_data_centre_one_after_the_other(tmp_path: Path) -> None:
    both = faults("kind: join, node: east/worker0, round: 2", "kind: join, node: east/worker1, round: 6")
    ended = run(tmp_path, CONTINUE, both)
    assert ended.error is None and len(ended.hashes()) == 1
    first, second = (ended.rounds(f"east/worker{number}") for number in (0, 1))
    assert 2 < first[0] < second[0] and first[-1] == second[-1] == LAST


def test_who_would_have_joined_after_the_end_did_not(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults("kind: join, data_center: west, at: 500 s"))
    assert ended.error is None and not ended.events("epoch") and ended.rounds("west/worker0") == []


def test_who_has_joined_may_die_and_come_back(tmp_path: Path) -> None:
    ended = run(
        tmp_path, CONTINUE, faults(JOINS["data centre"][0], "kind: kill, node: east/worker0, round: 6, for: 200 ms")
    )
    assert ended.error is None and len(ended.hashes()) == 1
    told = [event["message"] for event in ended.events("epoch") if event["targets"] == "east/worker0"]
    assert told[0] == "it has joined" and told[-1] == "it is back" and len(told) == 3


def test_who_is_lost_again_before_its_server_has_first_values_is_sent_them_once(tmp_path: Path) -> None:
    """The server is back as well, and waits for the end of a round, which the others take two seconds for."""
    data_center = "kind: kill, node: east/server0, at: 5 s, for: 100 ms"
    worker = "kind: kill, node: east/worker0, at: 5250 ms, for: 5 ms"
    ended = run(tmp_path, "training.rounds=6", "device.step_time=2 s", CONTINUE, faults(data_center, worker))
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("east/worker0")[-1] == 5


@for_each("at_ms", [1545, 2085])
def test_who_is_back_is_not_sent_what_its_last_process_was_to_be_sent(tmp_path: Path, at_ms: int) -> None:
    """It begins with the round of the slowest, and what it had pushed of later rounds is still on its way over the WAN.

    At these instants a reply to the lost process met one to the new process, or the new process itself.
    """
    ended = run(
        tmp_path,
        "training.model={kind: mlp, layers: 2, hidden: 230}",
        "training.rounds=12",
        "links[*].rate=5 Mbit/s",
        "links[*].delay=20 ms",
        "sync={tier1: {kind: ssp, staleness: 6}, tier2: tap}",
        CONTINUE,
        "optimizer={kind: sgd, learning_rate: 0.01}",
        faults(
            "kind: slow, node: east/worker1, factor: 5, at: 0 s, for: 100 s",
            f"kind: kill, node: east/worker0, at: {at_ms} ms, for: 5 ms",
        ),
    )
    assert ended.error is None
    assert sum(event["key"] == 0 for event in ended.events("update")) == 12 * 4


@for_each("back", ["", ", for: 50 ms"])
def test_a_loss_releases_replies_whose_updates_are_still_on_their_way(tmp_path: Path, back: str) -> None:
    """The others wait for the lost worker, and what they have pushed has not been answered from over the WAN."""
    ended = run(
        tmp_path,
        "training.rounds=16",
        "links[*].delay=200 ms",
        "data_centers[east].workers=3",
        CONTINUE,
        "sync={tier1: {kind: ssp, staleness: 0}, tier2: tap}",
        "optimizer={kind: sgd, learning_rate: 0.01}",
        faults(f"kind: kill, node: east/worker1, at: 3300 ms{back}"),
    )
    assert ended.error is None
    made = sum(event["key"] == 0 for event in ended.events("update"))
    assert 16 * 5 - 1 <= made <= 16 * 5, "all but the round that it had begun"


@for_each(
    ("overrides", "says"),
    [
        ((faults("kind: join, node: east/worker1, at: 1 s"),), "need a run whose membership may change"),
        ((CONTINUE, faults("kind: join, node: hub/worker0, at: 1 s")), "hub/worker0 provides the first values, so"),
        ((CONTINUE, faults("kind: join, node: hub/global0, at: 1 s")), "no node matches 'hub/global0'"),
        ((CONTINUE, faults("kind: join, node: east/worker1, at: 1 s, for: 2 s")), "has no effect on 'join'"),
        (("sync=ssp", CONTINUE, faults("kind: join, node: east/worker1, at: 1 s")), "cannot go on without"),
    ],
)
def test_where_nobody_may_join_it_is_refused(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan_of(*overrides)


@pytest.mark.wallclock  # 11 s; must join before the others have ended, on the wall clock
def test_processes_join_the_others(tmp_path: Path) -> None:
    """A data centre, and a worker of another one."""
    data_center, joining = JOINS["data centre"]
    # a new process takes seconds on a busy machine: the others have 7 s left when it is started
    long = ("training.rounds=40", "device.variation=0 %", "device.step_time=200 ms")
    both = faults(data_center, "kind: join, node: west/worker0, round: 3")
    ended = run(tmp_path, *long, CONTINUE, both, on="local")
    took_part(ended, (*joining, "west/worker0", "west/server0"), "fsa", last=39)
    assert len(ended.hashes()) == 1 and len(ended.events("epoch")) == len(joining) + 2
