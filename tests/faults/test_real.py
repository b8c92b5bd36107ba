"""The same faults among real processes: signals, sockets, and new processes in the place of the dead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from testbed.errors import NodeLost
from tests.faults.runs import CONTINUE, RESTART, Ended, faults, run
from tests.faults.test_continue import TECHNIQUES, agree

STEADY = ("device.variation=0 %", "device.step_time=50 ms")
LONG = (*STEADY, "training.rounds=100", "training.evaluate_every=50")


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """Warm processes of other tests may be there before."""
    before = psutil.Process().children()
    yield
    assert [child for child in psutil.Process().children() if child not in before] == []


def leaves_nothing(ended: Ended) -> None:
    """Every line of every log is whole, and no checkpoint is half written."""
    assert ended.events("start")
    assert not list(ended.directory.glob("checkpoints/.ckpt-*"))


def test_a_death_ends_the_run_within_seconds_and_says_who(tmp_path: Path) -> None:
    ended = run(tmp_path, *STEADY, faults("kind: kill, node: east/server0, round: 2"), on="local")
    assert isinstance(ended.error, NodeLost)
    assert str(ended.error) == "east/server0 was killed by signal 9, SIGKILL (a fault of the scenario)"
    leaves_nothing(ended)


@pytest.mark.slow  # 10 s
def test_a_restart_ends_with_the_bits_of_a_run_without_faults(tmp_path: Path) -> None:
    simulated = run(tmp_path / "calm", *STEADY)
    kill = "kind: kill, node: hub/global0, round: 7"
    ended = run(tmp_path / "hit", *STEADY, "checkpoint.every=3", RESTART, faults(kill), on="local")
    assert ended.error is None and ended.hashes() == simulated.hashes()
    assert len(ended.events("restart")) == 1
    leaves_nothing(ended)


@pytest.mark.slow  # 9 s
def test_a_data_centre_dies_and_comes_back(tmp_path: Path) -> None:
    ended = run(tmp_path, *LONG, CONTINUE, faults("kind: kill, data_center: east, round: 5, for: 700 ms"), on="local")
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("west/worker0") == list(range(100))
    assert ended.rounds("east/worker1")[-1] == 99
    assert [epoch["begins"] for epoch in ended.events("epoch")][-3:] == [True] * 3
    leaves_nothing(ended)


@pytest.mark.slow  # 6 s each
@pytest.mark.parametrize(
    ("seed", "victim", "every"),
    [(1, "east/worker1", 0), (2, "east/server0", 1), (3, "hub/global0", 10), (1, "hub/scheduler", 1)],
)
def test_whoever_dies(tmp_path: Path, seed: int, victim: str, every: int) -> None:
    job = (*STEADY, f"seed={seed}")
    kill = f"kind: kill, node: {victim}, sometime: {{from: 100 ms, to: 900 ms}}"
    ended = run(tmp_path / "hit", *job, f"checkpoint.every={every}", RESTART, faults(kill), on="local")
    assert ended.error is None and ended.hashes() == run(tmp_path / "calm", *job).hashes()
    assert len(ended.events("restart")) == 1
    leaves_nothing(ended)


@pytest.mark.slow
@pytest.mark.parametrize(("pause_s", "survives"), [(5, True), (20, False)])
def test_a_stopped_process(tmp_path: Path, pause_s: int, survives: bool) -> None:
    """Half of ``dead_after`` costs time; twice as much is death."""
    calm = run(tmp_path / "calm", *STEADY)
    pause = f"kind: pause, node: west/worker0, at: 200 ms, for: {pause_s} s"
    ended = run(tmp_path / "hit", *STEADY, faults(pause), on="local")
    if survives:
        assert ended.error is None and ended.hashes() == calm.hashes()
    else:
        assert isinstance(ended.error, NodeLost) and "no sign of life for 10 s" in str(ended.error)
    leaves_nothing(ended)


@pytest.mark.slow  # 9 s
def test_a_process_that_is_back_reaches_relays_that_have_joined_before_it(tmp_path: Path) -> None:
    """At the start of the run, such a relay was not there."""
    chain = ("overlay={kind: tree, degree: 1}", *STEADY, "training.rounds=60", "training.evaluate_every=20")
    join, kill = "kind: join, data_center: east, round: 3", "kind: kill, data_center: west, round: 18, for: 100 ms"
    ended = run(tmp_path, *chain, CONTINUE, faults(join, kill), on="local")
    assert ended.error is None and agree(ended)
    assert ended.rounds("east/worker0")[-1] == ended.rounds("west/worker0")[-1] == 59


@pytest.mark.slow  # 8 s each
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, "kill, data_center: east, round: 5, for: 1 s") for name in ("multigps", "dgt", "tsengine")),
        *((name, "join, data_center: east, round: 3") for name in ("p3", "tree")),
    ],
)
def test_processes_go_on_under_every_technique(tmp_path: Path, name: str, fault: str) -> None:
    long = (*STEADY, "training.rounds=60", "training.evaluate_every=20")
    ended = run(tmp_path, *TECHNIQUES[name], *long, CONTINUE, faults(f"kind: {fault}"), on="local")
    assert ended.error is None and agree(ended)
    assert ended.rounds("hub/worker0") == ended.rounds("west/worker0") == list(range(60))
    assert ended.rounds("east/worker0")[-1] == ended.rounds("east/worker1")[-1] == 59
    leaves_nothing(ended)
