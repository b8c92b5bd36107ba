"""Checkpoints of runs that go on without lost nodes: who took part is part of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import pytest

from testbed.engine.checkpoint import CheckpointFiles
from testbed.plan.model import Plan, to_json
from testbed.results import summary, tables
from tests.engine.checkpoint.killed import Event, resumed_at, run_until, story
from tests.faults.runs import CONTINUE, faults, plan_of, run

EVERY = ("checkpoint.every=2", "training.evaluate_every=2")
RETURNS = "kind: kill, node: east/worker1, round: 4, for: 200 ms"
SITE_RETURNS = "kind: kill, data_center: east, round: 4, for: 300 ms"
JOINS = "kind: join, data_center: west, at: 500 ms"
LEAVES = "kind: leave, node: west/worker0, round: 5"
AT_WORKER = "optimizer={kind: adam, learning_rate: 0.01, at: worker}"
REPLICA = "recovery={on_failure: continue, replicas: 1}"
CASES: dict[str, tuple[str, ...]] = {
    "worker": (faults(RETURNS, LEAVES),),
    "site": ("data_centers[hub].global_servers=2", faults(SITE_RETURNS)),
    "joins": ("codec=bisparse", faults(JOINS, RETURNS)),
    "asynchronous": ("sync={tier1: tap, tier2: tap}", faults(SITE_RETURNS)),
    "reports": ("sync=esync", AT_WORKER, faults(RETURNS)),
    "at workers": (AT_WORKER, faults(RETURNS)),
    "layers": ("order=p3", faults(RETURNS)),
    "replica": (faults("kind: kill, node: hub/global0, round: 5", RETURNS), REPLICA),
    "replica lost": (faults("kind: kill, node: hub/replica0, round: 1"), REPLICA),
    "dgt": ("order={kind: dgt, block: 128 bytes, k: 0.2, adaptive: false}", faults(RETURNS)),
    "schedules": ("overlay={kind: tsengine, ports: 1, chunk: 1 KB}", faults(RETURNS)),
    "trees": ("paradigm=ps", "overlay={kind: tree, degree: 1}", faults(RETURNS)),
    "evaluator": ("paradigm=allreduce", faults("kind: kill, node: hub/worker0, round: 4")),
    "evaluator with servers": (faults("kind: kill, node: hub/worker0, round: 4, for: 200 ms"),),
    "gossip": ("paradigm={kind: gossip, algorithm: sgp}", "codec=topk", faults(RETURNS)),
    "pairs": ("paradigm={kind: gossip, algorithm: adpsgd}", faults(RETURNS)),
}


def resumed(plan: Plan, directory: Path, chance: Random) -> tuple[list[Event], list[Event], list[Event]]:
    """What a run does after an instant at which it was killed, if it was not; what it does resumed; and all of that."""
    whole = run_until(plan, directory / "whole")
    times = [event["t"] for event in whole if event["kind"] == "checkpoint"]
    run_until(plan, directory / "killed", chance.uniform(times[len(times) // 2], whole[-1]["t"]))
    since_s = resumed_at(directory / "killed", plan)
    again = run_until(plan, directory / "killed")
    return story(whole, since_s), story(again, since_s), again


SLOWLY = ("reports", "dgt", "trees", "pairs", "layers")  # 2 s each; all are drawn by the campaign of instants, too


@pytest.mark.sample(1, "replica lost")  # of 11, which take 10 s
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow) if each in SLOWLY else each for each in CASES]
)
def test_a_run_goes_on_with_those_who_took_part(name: str, tmp_path: Path) -> None:
    expected, found, _ = resumed(
        plan_of(*EVERY, CONTINUE, "training.model={kind: mlp, layers: 0}", *CASES[name]), tmp_path, Random(name)
    )
    assert found == expected != []


def test_who_was_lost_stays_lost(tmp_path: Path) -> None:
    plan = plan_of(*EVERY, CONTINUE, faults("kind: kill, data_center: east, round: 2"))
    expected, found, events = resumed(plan, tmp_path, Random(1))
    assert found == expected
    assert not [event for event in events if event["node"].startswith("east/")]
    frames = tables.read(tmp_path / "killed")
    workers = {event["node"] for event in found if event["kind"] == "round"}
    done = {event["round"] for event in found if event["kind"] == "round"}
    ending, plain = summary.Ending("done", "", "", "", 1.0), json.loads(to_json(plan))
    result = summary.summarise(frames, plain, {"status": "ok", "reasons": [], "notes": []}, ending)
    lost = {"east/worker0", "east/worker1", "east/server0"}
    assert set(result["faults"]["lost"]) == lost and not workers.intersection(lost)
    assert result["rounds"] == len(done) > 0, "of those who take part"
    assert result["parameters_sha256"] is not None
    manifest = json.loads((max((tmp_path / "killed" / "checkpoints").glob("ckpt-*")) / "manifest.json").read_text())
    assert sorted(manifest["members"]["absent"]) == ["east/server0", "east/worker0", "east/worker1"]
    assert not [node for node in manifest["nodes"].values() if node.startswith("east/")]


def test_if_one_is_lost_while_all_write_they_write_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calm = run_until(plan_of(*EVERY, CONTINUE), tmp_path / "calm")
    saved = next(
        event
        for event in calm
        if event["kind"] == "wait" and event["waiting_for"] == "barrier 'saved/1'" and event["node"] == "west/worker0"
    )
    barrier_s = saved["t0"] + 0.001  # it has written, and others wait for it
    begin_s = next(event["t"] for event in calm if event["kind"] == "train")
    written: list[tuple[int, str]] = []
    write = CheckpointFiles.write

    def noted(self: CheckpointFiles, round_: int, node: str, state: object) -> str:
        written.append((round_, node))
        return write(self, round_, node, state)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointFiles, "write", noted)
    at_ms = round(1e3 * (barrier_s - begin_s))
    run_until(plan_of(*EVERY, CONTINUE, faults(f"kind: kill, node: west/worker0, at: {at_ms} ms")), tmp_path / "hit")
    assert written.count((1, "hub/worker0")) == written.count((1, "hub/global0")) == 2
    assert (1, "west/worker0") in written, "it had written already"


def test_who_was_asked_to_leave_leaves_although_it_waited_to_be_let_in(tmp_path: Path) -> None:
    """The worker of the west registers while all write, and is asked before the checkpoint is there."""
    wrote_ms = _wrote_ms(tmp_path / "calm", "hub/worker0", "kind: join, node: west/worker0, at: 9 s")
    join = f"kind: join, node: west/worker0, at: {wrote_ms - 5} ms"
    leave = f"kind: leave, node: west/worker0, at: {wrote_ms + 5} ms"
    plan = plan_of(*EVERY, CONTINUE, faults(join, leave))
    expected, found = _killed_after_the_first_checkpoint(plan, tmp_path, waiting=("west/server0", "west/worker0"))
    assert found == expected != []
    assert any(event["kind"] == "final" and event["node"] == "west/worker0" for event in found)


def test_who_was_asked_to_leave_after_it_had_written_leaves(tmp_path: Path) -> None:
    at_ms = _wrote_ms(tmp_path / "calm", "west/worker0") + 1
    plan = plan_of(*EVERY, CONTINUE, faults(f"kind: leave, node: west/worker0, at: {at_ms} ms"))
    expected, found = _killed_after_the_first_checkpoint(plan, tmp_path, waiting=())
    assert found == expected != []
    assert not [event for event in found if event["kind"] == "round" and event["node"] == "west/worker0"][2:]


def _wrote_ms(directory: Path, node: str, *texts: str) -> int:
    """When, from the beginning of training, a node has written its part of the first checkpoint."""
    events = run_until(plan_of(*EVERY, CONTINUE, faults(*texts)), directory)
    begin_s = next(event["t"] for event in events if event["kind"] == "train")
    waits = (event for event in events if event["kind"] == "wait" and event["waiting_for"] == "barrier 'saved/1'")
    wrote_s: float = next(event["t0"] for event in waits if event["node"] == node)
    return round(1e3 * (wrote_s - begin_s))


def _killed_after_the_first_checkpoint(
    plan: Plan, directory: Path, waiting: tuple[str, ...]
) -> tuple[list[Event], list[Event]]:
    """What a run does after that, and what it does when it was killed then and resumed."""
    whole = run_until(plan, directory / "whole")
    written_s = next(event["t"] for event in whole if event["kind"] == "checkpoint")
    run_until(plan, directory / "killed", written_s + 0.001)
    files = CheckpointFiles(directory / "killed" / "checkpoints", plan)
    assert files.resumed is not None and sorted(files.resumed.members.waiting) == sorted(waiting)
    since_s = resumed_at(directory / "killed", plan)
    return story(whole, since_s), story(run_until(plan, directory / "killed"), since_s)


@pytest.mark.slow  # 24 s each
@pytest.mark.parametrize("fault", ["kind: kill, node: east/worker1, round: 4", RETURNS])
def test_real_processes_go_on_with_those_who_took_part(tmp_path: Path, fault: str) -> None:
    """Stopped after the fault and resumed: the same bits as without the stop."""
    texts = (CONTINUE, "checkpoint.every=4", "training.rounds=41", faults(fault))  # a new process takes a second
    whole = run(tmp_path / "whole", *texts, on="local")
    assert whole.error is None, whole.error
    kept = tmp_path / "whole" / "checkpoints"
    shutil.copytree(kept / "ckpt-000036", tmp_path / "again" / "checkpoints" / "ckpt-000036")
    again = run(tmp_path / "again", *texts, on="local")
    assert again.error is None and min(again.rounds("hub/worker0")) == 36
    assert again.hashes() == whole.hashes() and len(whole.hashes()) == 1
    assert bool(again.rounds("east/worker1")) == ("for:" in fault)
