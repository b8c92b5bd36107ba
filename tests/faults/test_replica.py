"""A global server dies and its replica takes its place: no step is lost, none is made twice, all bits are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import RunFailed, ScenarioError
from tests.faults.runs import Ended, faults, plan_of, run
from tests.faults.test_continue import AT_WORKER
from tests.for_each import for_each
from tests.pairs import in_turn

FOLLOWED = "recovery={on_failure: continue, replicas: 1}"
TECHNIQUES: dict[str, tuple[str, ...]] = {
    "fsa": (),
    "ps": ("paradigm=ps",),
    "bsp": ("paradigm=ps", "sync=bsp"),
    "at workers": (AT_WORKER, "sync={kind: hfa, k1: 1, k2: 1}"),
    "hfa": ("sync={kind: hfa, k1: 2, k2: 2}", AT_WORKER),
    "diloco": ("sync={kind: diloco, h: 2}", AT_WORKER),
    "fp16": ("codec=fp16",),
    "p3": ("order={kind: p3, slice: 2 KiB, overlap: none}",),
    "dcasgd": ("optimizer={kind: dcasgd, learning_rate: 0.05}",),
}


@pytest.fixture(scope="module")
def calm() -> dict[tuple[str, ...], Ended]:
    """Runs without faults, by overrides."""
    return {}


def undisturbed(calm: dict[tuple[str, ...], Ended], directory: Path, *overrides: str) -> Ended:
    if overrides not in calm:
        calm[overrides] = run(directory / "calm", *overrides)
        assert calm[overrides].error is None
    return calm[overrides]


def steps_made(ended: Ended) -> None:
    """Every step of every key once, by whoever lives: the replica's versions have no gap."""
    updates = ended.events("update", node="hub/replica0")
    for key in {update["key"] for update in updates}:
        versions = [update["version"] for update in updates if update["key"] == key]
        assert versions == list(range(1, len(versions) + 1))
        rounds = [update["round"] for update in updates if update["key"] == key]
        assert rounds == sorted(set(rounds))


@pytest.mark.sample(2)  # of 10, which take 8 s
@pytest.mark.parametrize(("name", "round_"), in_turn(TECHNIQUES, [0, 6]))  # 0.5 s each
def test_it_goes_on_where_the_server_was(
    calm: dict[tuple[str, ...], Ended], tmp_path: Path, name: str, round_: int
) -> None:
    before = undisturbed(calm, tmp_path, *TECHNIQUES[name])
    kill = faults(f"kind: kill, node: hub/global0, round: {round_}")
    ended = run(tmp_path / "hit", *TECHNIQUES[name], FOLLOWED, kill)
    assert ended.error is None and ended.hashes() == before.hashes()
    (epoch,) = ended.events("epoch")
    assert epoch["targets"] == "hub/global0" and epoch["message"].endswith("hub/replica0 takes over")
    steps_made(ended)


@pytest.mark.sample(1)  # of 3, which take 3 s
@pytest.mark.parametrize("seed", range(3))  # tests.faults.search draws thousands
def test_at_any_moment(calm: dict[tuple[str, ...], Ended], tmp_path: Path, seed: int) -> None:
    before = undisturbed(calm, tmp_path, f"seed={seed}")
    kill = faults("kind: kill, node: hub/global0, sometime: {from: 0 s, to: 1.5 s}")
    ended = run(tmp_path / "hit", f"seed={seed}", FOLLOWED, kill)
    assert ended.error is None and ended.hashes() == before.hashes()
    steps_made(ended)
    late_s = [each.events("round", node="east/worker1")[-1]["t"] for each in (ended, before)]
    assert late_s[0] - late_s[1] < 0.5, "nobody went back"


def test_it_is_as_good_as_the_server_all_the_time(calm: dict[tuple[str, ...], Ended], tmp_path: Path) -> None:
    ended = run(tmp_path / "calm2", FOLLOWED)
    assert ended.error is None and ended.hashes() == undisturbed(calm, tmp_path).hashes()
    assert [event["role"] for event in ended.events("final", node="hub/replica0")] == ["replica"]
    assert {update["staleness"] for update in ended.events("update")} == {0}
    steps_made(ended)


def test_it_knows_no_delay_to_compensate_for(tmp_path: Path) -> None:
    """With one member left, a gradient is of one sender, and of the newest values all the same."""
    left = [f"kind: kill, data_center: {site}, at: 300 ms" for site in ("east", "west")]
    ends = [()], [("kind: kill, node: hub/global0, at: 900 ms",)]
    hashes = []
    for number, (more,) in enumerate(ends):
        ended = run(tmp_path / f"{number}", *TECHNIQUES["dcasgd"], FOLLOWED, faults(*left, *more))
        assert ended.error is None and len(ended.hashes()) == 1
        assert {update["staleness"] for update in ended.events("update")} == {0}
        hashes.append(ended.hashes())
    assert hashes[0] == hashes[1]


def test_the_server_goes_on_without_its_replica(calm: dict[tuple[str, ...], Ended], tmp_path: Path) -> None:
    ended = run(tmp_path / "hit", FOLLOWED, faults("kind: kill, node: hub/replica0, at: 500 ms"))
    assert ended.error is None and ended.hashes() == undisturbed(calm, tmp_path).hashes()


def test_without_both_nobody_can(tmp_path: Path) -> None:
    both = faults("kind: kill, node: hub/replica0, at: 300 ms", "kind: kill, node: hub/global0, at: 600 ms")
    ended = run(tmp_path, FOLLOWED, both)
    assert isinstance(ended.error, RunFailed) and "hub/global0 is lost" in str(ended.error)


@for_each(("whom", "back_ms"), [("data_center: east", 400), ("node: east/worker0", 50)])
def test_others_may_go_and_come_around_it(tmp_path: Path, whom: str, back_ms: int) -> None:
    """A member that was away, is away, or is about to be back when the server dies."""
    away = f"kind: kill, {whom}, at: 200 ms, for: {back_ms} ms"
    ended = run(tmp_path, FOLLOWED, faults(away, "kind: kill, node: hub/global0, at: 620 ms"))
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("west/worker0") == list(range(10)) and ended.rounds("east/worker0")[-1] == 9
    steps_made(ended)


@for_each(
    ("overrides", "says"),
    [
        (("recovery={replicas: 1}",), "replicas: a replica repeats the updates of one global server"),
        (("sync=mixedsync", FOLLOWED), "a replica repeats the updates of one global server"),
        (("codec={tier1: none, tier2: {kind: bisparse, ratio: 0.1}}", FOLLOWED), "codecs without memory"),
        ((FOLLOWED, faults("kind: kill, node: hub/global0, at: 1 s, for: 2 s")), "does not come back"),
        ((FOLLOWED, faults("kind: kill, node: hub/scheduler, at: 1 s")), "cannot continue without hub/scheduler"),
    ],
)
def test_where_there_can_be_none_it_is_refused(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        plan_of(*overrides)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_at_any_moment_among_real_processes(tmp_path: Path, seed: int) -> None:
    job = (f"seed={seed}", "device.variation=0 %", "device.step_time=50 ms")
    kill = faults("kind: kill, node: hub/global0, sometime: {from: 100 ms, to: 900 ms}")
    ended = run(tmp_path / "hit", *job, FOLLOWED, kill, on="local")
    assert ended.error is None and ended.hashes() == run(tmp_path / "calm", *job).hashes()
    steps_made(ended)


@pytest.mark.slow  # 4 s
def test_among_real_processes(tmp_path: Path) -> None:
    steady = ("device.variation=0 %", "device.step_time=50 ms")
    ended = run(tmp_path / "hit", *steady, FOLLOWED, faults("kind: kill, node: hub/global0, round: 5"), on="local")
    assert ended.error is None and ended.hashes() == run(tmp_path / "calm", *steady).hashes()
    steps_made(ended)


def test_it_takes_over_while_a_data_centre_that_is_back_still_asks_for_values(tmp_path: Path) -> None:
    """Server and replica both send it first values, of the same round: it pushes that round once."""
    small = ("training.rounds=8", "training.batch=8", "training.model={kind: mlp, layers: 0}")
    lost = faults(
        "kind: kill, node: hub/global0, at: 664 ms",
        "kind: kill, data_center: east, at: 321 ms, for: 104 ms",
        "kind: kill, data_center: west, at: 404 ms, for: 788 ms",
    )
    ended = run(tmp_path, *small, "recovery={on_failure: continue, replicas: 1}", lost)
    assert ended.error is None and ended.events("epoch", node="hub/scheduler")[6]["targets"] == "hub/global0"
    assert ended.rounds("east/worker0")[-1] == 7
    steps_made(ended)
