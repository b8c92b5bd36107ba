"""Faults of one target that overlap: a run goes on when all are over, and ends as if they were written otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import NodeLost
from tests.faults.algebra import differing
from tests.faults.runs import CONTINUE, RESTART, Ended, faults, run
from tests.pairs import in_turn

LONGER = "training.rounds=30"
DOWN = "kind: down, link: 'hub>east', at: 1500 ms, for: 1400 ms"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run(tmp_path_factory.mktemp("calm"), LONGER)


@pytest.mark.sample(1)  # of 3, which take 3 s
@pytest.mark.parametrize(("at_ms", "for_ms"), [(1935, 100), (1400, 200), (2800, 300)])
def test_losses_inside_and_across_the_ends_of_an_outage(tmp_path: Path, calm: Ended, at_ms: int, for_ms: int) -> None:
    """A connection that was stalled by the outage computed its next retransmission from the rate of the dead link."""
    loss = f"kind: loss, link: 'hub<>east', at: {at_ms} ms, for: {for_ms} ms, loss: 10 %"
    ended = run(tmp_path, LONGER, faults(DOWN, loss))
    assert ended.error is None and ended.hashes() == calm.hashes()
    assert ended.events("round")[-1]["t"] < calm.events("round")[-1]["t"] + 2 * 1.4 + 1


@pytest.mark.sample(2)  # of 5, which take 5 s
@pytest.mark.parametrize(
    ("other", "when"),
    in_turn(
        ["rate, rate: 1 Mbit/s", "delay, delay: 90 ms", "corrupt, share: 5 %", "down"], [(1400, 3000), (1600, 200)]
    ),
)
def test_any_other_fault_across_an_outage(tmp_path: Path, calm: Ended, other: str, when: tuple[int, int]) -> None:
    at_ms, for_ms = when
    text = f"kind: {other}, link: 'hub<>east', at: {at_ms} ms, for: {for_ms} ms"
    ended = run(tmp_path, LONGER, faults(DOWN, text))
    assert ended.error is None and ended.hashes() == calm.hashes()


def test_short_pauses_that_overlap_are_a_long_one(tmp_path: Path) -> None:
    """And a pause after an outage goes on with its silence: nobody hears of that node for longer than dead_after."""
    for other in ("kind: pause, node: east/worker0", "kind: down, data_center: east"):
        for begins_ms, lost in ((7000, True), (9000, False)):
            texts = (f"{other}, at: 300 ms, for: 8 s", f"kind: pause, node: east/worker0, at: {begins_ms} ms, for: 6 s")
            ended = run(tmp_path / f"{other[6:10]}{begins_ms}", faults(*texts))
            assert isinstance(ended.error, NodeLost) == lost, texts


def test_who_was_killed_in_the_pause_does_not_die_of_it_later(tmp_path: Path) -> None:
    pause = "kind: pause, node: east/worker0, at: 300 ms, for: 12 s"
    kill = "kind: kill, node: east/worker0, at: 500 ms, for: 100 ms"
    ended = run(tmp_path, CONTINUE, "training.rounds=15", "device.step_time=1 s", faults(pause, kill))
    assert ended.error is None
    assert [event["begins"] for event in ended.events("epoch")] == [False, True]


@pytest.mark.parametrize("other", ["east/worker0", "east/server0"])  # with which its worker ends
def test_a_pause_that_begins_while_a_node_is_away_is_not_of_its_next_process(tmp_path: Path, other: str) -> None:
    kill = f"kind: kill, node: {other}, at: 300 ms, for: 400 ms"
    pause = "kind: pause, node: east/worker0, at: 500 ms, for: 12 s"
    ended = run(tmp_path, CONTINUE, "training.rounds=15", "device.step_time=1 s", faults(kill, pause))
    assert ended.error is None
    assert [event["t"] for event in ended.events("epoch") if event["t"] > 4] == []


def test_a_node_that_two_faults_have_killed_returns_with_the_later_end(tmp_path: Path) -> None:
    first = "kind: kill, node: east/worker0, at: 300 ms, for: 900 ms"
    second = "kind: kill, node: east/worker0, at: 400 ms, for: 100 ms"
    for number, policy in enumerate((CONTINUE, RESTART)):
        ended = [
            run(tmp_path / f"{number}{way}", policy, faults(*texts))
            for way, texts in enumerate(((first,), (first, second), (second, first)))
        ]
        assert len({tuple(event["t"] for event in each.events("round")) for each in ended}) == 1
        assert all(each.error is None and each.hashes() == ended[0].hashes() for each in ended)
        assert [len(each.events("restart")) for each in ended] == [int(policy == RESTART)] * 3


@pytest.mark.sample(1)  # of 3, which take 2 s
@pytest.mark.parametrize("seed", range(3))
def test_the_same_faults_written_otherwise(seed: int) -> None:
    assert differing(seed) == []
