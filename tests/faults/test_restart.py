"""Recover exactly: whoever dies, and whenever, the run ends with the bits of one that nothing happened to."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import NodeLost, RunFailed, ScenarioError
from tests.faults.runs import RESTART, faults, run
from tests.for_each import for_each
from tests.pairs import in_turn

VICTIMS = ("east/worker1", "east/server0", "hub/global0", "hub/scheduler", "hub/worker0")
AT_WORKER = "optimizer={kind: adam, learning_rate: 0.01, at: worker}"
TECHNIQUES = {
    "fsa": (),
    "fsa-at-workers": (AT_WORKER,),
    "ps": ("paradigm=ps",),
    "hfa": ("sync={kind: hfa, k1: 2, k2: 2}", AT_WORKER),
    "diloco": ("sync={kind: diloco, h: 2}", AT_WORKER),
    "two-servers": ("data_centers[hub].global_servers=2", "shard={kind: multigps}"),
    "p3": ("order={kind: p3, slice: 2 KiB, overlap: none}",),
}
STATEFUL = {
    "bisparse": ("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.1}}",),
    "tsengine": ("overlay={tier1: star, tier2: tsengine}",),
    "allreduce": ("paradigm=allreduce",),
}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], set[str]]:
    """Hashes of runs without faults, by overrides."""
    return {}


def undisturbed(calm: dict[tuple[str, ...], set[str]], directory: Path, *overrides: str) -> set[str]:
    if overrides not in calm:
        ended = run(directory / "calm", *overrides)
        assert ended.error is None and ended.hashes()
        calm[overrides] = ended.hashes()
    return calm[overrides]


def recovers(calm: dict[tuple[str, ...], set[str]], directory: Path, victim: str, *overrides: str) -> None:
    expected = undisturbed(calm, directory, *[text for text in overrides if "checkpoint" not in text])
    ended = run(directory / "hit", *overrides, RESTART, faults(f"kind: kill, node: {victim}, round: 7"))
    assert ended.error is None
    assert ended.hashes() == expected
    assert len(ended.events("restart")) == 1 and len(ended.events("fault")) == 1


@pytest.mark.sample(2)  # of 8, which take 4 s
@pytest.mark.parametrize(("victim", "every"), [*in_turn(VICTIMS, (3, 0)), (VICTIMS[0], 1), (VICTIMS[2], 10)])
def test_whoever_dies(calm: dict[tuple[str, ...], set[str]], tmp_path: Path, victim: str, every: int) -> None:
    recovers(calm, tmp_path, victim, f"checkpoint.every={every}")


@pytest.mark.sample(1)  # of 7, which take 4 s
@pytest.mark.parametrize("name", TECHNIQUES)
def test_under_every_technique(calm: dict[tuple[str, ...], set[str]], tmp_path: Path, name: str) -> None:
    recovers(calm, tmp_path, "east/worker1", *TECHNIQUES[name], "checkpoint.every=3")


@pytest.mark.sample(1)  # of 3, which take 3 s
@pytest.mark.parametrize("name", STATEFUL)
def test_from_the_beginning_where_there_are_no_checkpoints(
    calm: dict[tuple[str, ...], set[str]], tmp_path: Path, name: str
) -> None:
    recovers(calm, tmp_path, "west/worker0", *STATEFUL[name])


def test_versions_go_back_only_at_a_restart(tmp_path: Path) -> None:
    ended = run(tmp_path, "checkpoint.every=3", RESTART, faults("kind: kill, node: hub/global0, round: 7"))
    (restart,) = ended.events("restart")
    for key in range(4):
        updates = [update for update in ended.events("update") if update["key"] == key]
        before = [update["version"] for update in updates if update["t"] <= restart["t"]]
        after = [update["version"] for update in updates if update["t"] > restart["t"]]
        assert before == list(range(1, before[-1] + 1))
        assert after == list(range(7, 11)), "six rounds were kept"


def test_the_network_goes_on_where_it_was(tmp_path: Path) -> None:
    """Outages count from the start of training, not from the restart."""
    kill = "kind: kill, node: east/worker1, round: 3"
    down = "kind: down, link: hub<>west, at: 3 s, for: 1 s"
    ended = run(tmp_path, "checkpoint.every=1", "training.rounds=13", RESTART, faults(kill, down))
    (train, *_) = ended.events("train")
    states = [(event["t"], event["value"]) for event in ended.events("replay") if event["what"] == "state"]
    assert [round(t - train["t"], 3) for t, value in states if value == 0] == [3.0, 3.0]
    assert [round(t - train["t"], 3) for t, value in states if value == 1][-2:] == [4.0, 4.0]


def test_no_more_often_than_allowed(tmp_path: Path) -> None:
    twice = faults("kind: kill, node: west/worker0, at: 200 ms, for: 100 ms, every: 600 ms, times: 3")
    ended = run(tmp_path, "recovery={on_failure: restart, delay: 50 ms, max_restarts: 2}", twice)
    assert isinstance(ended.error, NodeLost) and "after 2 restarts" in str(ended.error)
    assert "west/worker0 was killed" in str(ended.error)


def test_by_default_a_death_ends_the_run_loudly(tmp_path: Path) -> None:
    ended = run(tmp_path, faults("kind: kill, node: east/server0, round: 2"))
    assert isinstance(ended.error, NodeLost) and ended.error.exit_code == 4
    assert str(ended.error) == "east/server0 was killed by signal 9, SIGKILL (a fault of the scenario)"


def test_a_pause_costs_time_and_nothing_else(calm: dict[tuple[str, ...], set[str]], tmp_path: Path) -> None:
    expected = undisturbed(calm, tmp_path)
    paused = run(tmp_path / "paused", faults("kind: pause, node: west/server0, at: 300 ms, for: 4 s"))
    assert paused.error is None and paused.hashes() == expected
    ends = [run_.events("round", node="hub/worker0")[-1]["t"] for run_ in (paused, run(tmp_path / "calm2"))]
    assert 3.7 < ends[0] - ends[1] <= 4.0


def test_spoilt_packets_cost_time_and_nothing_else(calm: dict[tuple[str, ...], set[str]], tmp_path: Path) -> None:
    """In virtual time as losses are, which they are to TCP."""
    expected, wide = undisturbed(calm, tmp_path), ("training.model={kind: mlp, hidden: 200}",)
    ends = []
    for kind in ("corrupt, share", "loss, loss"):
        fault = faults(f"kind: {kind}: 10 %, data_center: west, at: 0 s, for: 60 s")
        spoilt, same = run(tmp_path / kind, *wide, fault), run(tmp_path / f"{kind} small", fault)
        assert spoilt.error is None and same.hashes() == expected
        ends.append(spoilt.events("round", node="hub/worker0")[-1]["t"])
    assert ends[0] == ends[1] > 2 * run(tmp_path / "wide", *wide).events("round", node="hub/worker0")[-1]["t"]


@for_each(
    "fault",
    ["kind: pause, node: west/server0, at: 1 s, for: 20 s", "kind: down, link: west>hub, at: 1 s, for: 20 s"],
)
def test_silence_for_too_long_is_death(calm: dict[tuple[str, ...], set[str]], tmp_path: Path, fault: str) -> None:
    ended = run(tmp_path / "abort", faults(fault))
    assert isinstance(ended.error, NodeLost) and "no sign of life for 10 s" in str(ended.error)
    again = run(tmp_path / "restart", faults(fault), "checkpoint.every=3", RESTART)
    assert again.error is None and again.hashes() == undisturbed(calm, tmp_path)


@for_each("technique", [(), ("paradigm=allreduce",), ("paradigm=gossip",), (TECHNIQUES["hfa"])])
def test_a_gradient_that_is_not_finite_ends_the_run(tmp_path: Path, technique: tuple[str, ...]) -> None:
    ended = run(tmp_path, *technique, faults("kind: nan, node: west/worker0, round: 4"))
    assert isinstance(ended.error, RunFailed) and not isinstance(ended.error, NodeLost)
    assert "non-finite gradient: west/worker0, step" in str(ended.error) and "tensor 0, 1 elements" in str(ended.error)


def test_or_is_left_out(tmp_path: Path) -> None:
    codec = "codec={tier1: none, tier2: {kind: bisparse, ratio: 0.1}}"
    ended = run(tmp_path, codec, "recovery={on_nan: skip}", faults("kind: nan, node: west/worker0, round: 4"))
    assert ended.error is None and len(ended.hashes()) == 1
    assert [event["message"] for event in ended.events("warning")] == [
        "non-finite gradient: west/worker0, step 4, tensor 0, 1 elements: left out of the round"
    ]
    assert all(event["loss"] is not None for event in ended.events("round")), "no NaN got into the model"


def test_a_full_disk_costs_checkpoints_only(calm: dict[tuple[str, ...], set[str]], tmp_path: Path) -> None:
    fault = "kind: disk_full, node: east/server0, round: 3, rounds: 4"
    kill = "kind: kill, node: east/worker1, round: 7"
    ended = run(tmp_path / "hit", "checkpoint.every=2", RESTART, faults(fault, kill))
    assert ended.error is None and ended.hashes() == undisturbed(calm, tmp_path)
    kept = [event["round"] for event in ended.events("checkpoint")]
    assert kept == [1, 7]
    assert any("disk full" in event["message"] for event in ended.events("warning"))


def test_until_it_has_been_full_three_times(tmp_path: Path) -> None:
    ended = run(tmp_path, "checkpoint.every=1", faults("kind: disk_full, node: '*', round: 2, rounds: 9"))
    assert isinstance(ended.error, RunFailed) and "3 times in a row" in str(ended.error)
    assert (tmp_path / "checkpoints" / "ckpt-000002" / "manifest.json").is_file(), "the one before is whole"


def test_other_failures_are_not_tried_again(tmp_path: Path) -> None:
    ended = run(tmp_path, RESTART, faults("kind: nan, node: west/worker0, round: 4"))
    assert isinstance(ended.error, RunFailed) and not ended.events("restart")


def test_unknown_policies_are_refused() -> None:
    with pytest.raises(ScenarioError, match="is not one of abort, continue, restart"):
        from tests.faults.runs import plan_of

        plan_of("recovery={on_failure: retry}")
