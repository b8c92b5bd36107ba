"""Faults of one target that overlap: a run goes on when all are over, and ends as if they were written otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.algebra import differing
from tests.faults.runs import CONTINUE, Ended, faults, run
from tests.pairs import in_turn

LONGER = "training.rounds=30"
DOWN = "kind: down, link: 'hub>east', at: 1500 ms, for: 1400 ms"


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run(tmp_path_factory.mktemp("calm"), LONGER)


@pytest.mark.sample(1)  # of 5, which take 5 s
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


def test_who_was_killed_in_the_pause_does_not_die_of_it_later(tmp_path: Path) -> None:
    pause = "kind: pause, node: east/worker0, at: 300 ms, for: 12 s"
    kill = "kind: kill, node: east/worker0, at: 500 ms, for: 100 ms"
    ended = run(tmp_path, CONTINUE, "training.rounds=15", "device.step_time=1 s", faults(pause, kill))
    assert ended.error is None
    assert [event["begins"] for event in ended.events("epoch")] == [False, True]


@pytest.mark.sample(1)  # of 3, which take 2 s
@pytest.mark.parametrize("seed", range(3))
def test_the_same_faults_written_otherwise(seed: int) -> None:
    assert differing(seed) == []
