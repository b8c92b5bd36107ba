"""Workers and data centres that leave a run in good order: nothing of theirs is lost, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from tests.faults.runs import CONTINUE, Ended, faults, plan_of, rounds_of_all, run
from tests.faults.test_continue import LAST, SAME_VALUES, TECHNIQUES, without_model
from tests.for_each import for_each
from tests.pairs import in_turn

LEAVES = {
    "worker": ("kind: leave, node: east/worker1, round: 5", ("east/worker1",)),
    "data centre": ("kind: leave, data_center: east, round: 5", ("east/worker0", "east/worker1")),
    "server": ("kind: leave, node: west/server0, round: 5", ("west/worker0",)),
}
STEADY = ("device.variation=0 %", "device.step_time=50 ms")


def left_well(ended: Ended, leaving: tuple[str, ...], last: int = 5) -> None:
    assert ended.error is None
    for node in ended.plan.with_role("worker"):
        expected = list(range(last + 1)) if node.name in leaving else rounds_of_all(ended, node.name, LAST)
        assert ended.rounds(node.name) == expected, node.name
    for name in leaving:
        (final,) = ended.events("final", node=name)
        assert final["rounds"] == last + 1
    epochs = ended.events("epoch")
    assert {event["targets"].split(", ")[0] for event in epochs} == set(leaving)
    assert all(not event["begins"] and event["message"] == "it has left" for event in epochs)


@pytest.mark.sample(3)  # of 14, which take 5 s
@pytest.mark.parametrize(
    ("name", "who"), in_turn([name for name in TECHNIQUES if name not in ("hfa", "bisparse", "dgt")], LEAVES)
)  # 0.4 s each
def test_who_leaves_has_done_its_rounds_and_the_others_all(tmp_path: Path, name: str, who: str) -> None:
    fault, leaving = LEAVES[who]
    if who == "server" and name in ("ps", "ssp"):
        pytest.skip("one tier: there are no local servers")
    ended = run(tmp_path, *TECHNIQUES[name], CONTINUE, faults(fault))
    left_well(ended, leaving)
    gone = {name for event in ended.events("epoch") for name in event["targets"].split(", ")}
    others = gone | without_model(ended.plan)
    staying = {event.get("parameters_sha256") for event in ended.events("final") if event["node"] not in others}
    assert len(staying - {None}) == 1 or name not in SAME_VALUES


def test_all_that_it_pushed_is_in_the_model_once(tmp_path: Path) -> None:
    ended = run(tmp_path, "paradigm=ps", CONTINUE, faults(LEAVES["worker"][0]))
    left_well(ended, ("east/worker1",))
    for key in {event["key"] for event in ended.events("update")}:
        rounds = [
            event["round"]
            for event in ended.events("update")
            if event["key"] == key and "east/worker1" in event["contributors"]
        ]
        assert rounds == list(range(6))


def test_the_server_goes_with_the_last_of_its_workers(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults(LEAVES["data centre"][0]))
    left_well(ended, LEAVES["data centre"][1])
    assert [event["targets"] for event in ended.events("epoch")][-1].endswith(", east/server0")
    (final,) = ended.events("final", node="east/server0")
    (update,) = [event for event in ended.events("update") if event["key"] == 0 and event["round"] == 5]
    assert "east/server0" in update["contributors"] and final["t"] < ended.events("final", node="hub/global0")[0]["t"]


def test_at_a_time_it_finishes_its_round(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults("kind: leave, node: east/worker1, at: 500 ms"))
    rounds = ended.rounds("east/worker1")
    left_well(ended, ("east/worker1",), last=rounds[-1])
    (fault,) = ended.events("fault")
    (epoch,) = ended.events("epoch")
    assert 0 < rounds[-1] < LAST and fault["t"] < ended.events("round", node="east/worker1")[-1]["t"] < epoch["t"]


def test_who_is_asked_in_the_last_round_ends_with_the_others(tmp_path: Path) -> None:
    ended = run(tmp_path, CONTINUE, faults(f"kind: leave, node: east/worker1, round: {LAST}"))
    assert ended.error is None and not ended.events("epoch") and ended.rounds("east/worker1")[-1] == LAST


def test_a_node_may_join_and_leave_and_others_die(tmp_path: Path) -> None:
    several = faults(
        "kind: join, node: east/worker1, round: 2",
        "kind: leave, node: east/worker1, round: 7",
        "kind: kill, node: west/worker0, round: 4, for: 200 ms",
        "kind: leave, node: east/worker0, round: 9",
    )
    ended = run(tmp_path, CONTINUE, several)
    assert ended.error is None
    assert ended.rounds("east/worker1")[-1] == 7 and ended.rounds("east/worker0")[-1] == 9
    assert ended.rounds("hub/worker0") == list(range(LAST + 1))


@for_each("when", ["round: 3", "at: 300 ms"])
def test_who_has_left_does_not_come_back_with_its_server(tmp_path: Path, when: str) -> None:
    killed = "kind: kill, node: east/server0, round: 4, for: 200 ms"
    ended = run(tmp_path, CONTINUE, faults(f"kind: leave, node: east/worker1, {when}", killed))
    assert ended.error is None and ended.rounds("east/worker0")[-1] == LAST
    assert {event["targets"] for event in ended.events("epoch") if event["begins"]} == {"east/server0", "east/worker0"}
    assert ended.rounds("east/worker1") == list(range(len(ended.rounds("east/worker1"))))


@for_each(
    ("overrides", "says"),
    [
        ((faults("kind: leave, node: east/worker1, at: 1 s"),), "need a run whose membership may change"),
        ((CONTINUE, faults("kind: leave, node: hub/worker0, at: 1 s")), "hub/worker0 evaluates, so it cannot leave"),
        ((CONTINUE, faults("kind: leave, node: hub/global0, at: 1 s")), "no node matches 'hub/global0'"),
        ((CONTINUE, faults("kind: leave, node: east/worker1, at: 1 s, for: 2 s")), "has no effect on 'leave'"),
        ((CONTINUE, "order=dgt", faults("kind: leave, node: east/worker1, at: 1 s")), "sends blocks that may be lost"),
        ((CONTINUE, "codec=twobit", faults("kind: leave, node: east/worker1, at: 1 s")), "this codec keeps residuals"),
        (("paradigm=gossip", CONTINUE, faults("kind: leave, node: east/worker1, at: 1 s")), "need servers"),
        (("paradigm=allreduce", CONTINUE, faults("kind: leave, node: east/worker1, at: 1 s")), "need servers"),
    ],
)
def test_where_nobody_may_leave_it_is_refused(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan_of(*overrides)


@pytest.mark.slow  # 2 s each
@pytest.mark.parametrize("who", ["worker", "data centre"])
def test_a_process_leaves_the_others_with_the_same_bits(tmp_path: Path, who: str) -> None:
    fault, leaving = LEAVES[who]
    real = run(tmp_path / "local", *STEADY, CONTINUE, faults(fault), on="local")
    left_well(real, leaving)
    virtual = run(tmp_path / "simulated", *STEADY, CONTINUE, faults(fault))
    assert real.hashes() == virtual.hashes()
