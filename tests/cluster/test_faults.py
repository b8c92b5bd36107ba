"""Faults of a deployment on three machines, which are processes of this one: a node is hit where it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import NodeLost
from tests.faults.runs import CONTINUE, RESTART, Ended, faults, run

STEADY = ("device.variation=0 %", "device.step_time=20 ms")
LOST_SOON = "timeouts={heartbeat: 100 ms, dead_after: 1 s, tcp_user_timeout: 1 s}"

pytestmark = pytest.mark.usefixtures("agents", "directory_of_agents")


@pytest.mark.slow  # 2 s
def test_a_nan_ends_the_run_and_names_the_node(tmp_path: Path) -> None:
    nan = faults("kind: nan, node: west/worker0, round: 2")
    simulated = run(tmp_path / "simulated", *STEADY, nan)
    deployed = run(tmp_path / "deployed", *STEADY, nan, on="cluster")
    assert "non-finite gradient: west/worker0, step 2" in str(simulated.error)
    assert str(simulated.error) in str(deployed.error) and type(simulated.error) is type(deployed.error)


def hits(ended: Ended) -> list[tuple[str, str]]:
    """What happened to whom."""
    return sorted((event["fault"], event["targets"]) for event in ended.events("fault"))


@pytest.mark.slow  # 4 s
def test_a_checkpoint_that_a_full_disk_leaves_incomplete_is_not_resumed(tmp_path: Path) -> None:
    calm = run(tmp_path / "calm", *STEADY)
    both = faults("kind: disk_full, node: east/server0, round: 5, rounds: 1", "kind: kill, node: hub/global0, round: 7")
    ended = run(tmp_path / "hit", *STEADY, "checkpoint.every=3", RESTART, both, on="cluster")
    assert ended.error is None and ended.hashes() == calm.hashes()
    (resumed,) = [line["name"] for line in ended.told if line["kind"] == "stage" and "resum" in line["name"]]
    assert resumed == "resuming after round 2"


@pytest.mark.slow  # 3 s
def test_a_node_that_stands_still_for_too_long_is_lost(tmp_path: Path) -> None:
    pause = faults("kind: pause, node: west/worker0, at: 100 ms, for: 30 s")
    ended = run(tmp_path, *STEADY, LOST_SOON, pause, on="cluster")
    assert isinstance(ended.error, NodeLost) and "lost west/worker0: no sign of life for 1 s" in str(ended.error)


@pytest.mark.slow  # 3 s
def test_a_data_centre_dies_and_comes_back(tmp_path: Path) -> None:
    job = (*STEADY, "training.rounds=60", "training.evaluate_every=30", CONTINUE)
    kill = faults("kind: kill, data_center: east, round: 5, for: 300 ms")
    ended = run(tmp_path, *job, kill, on="cluster")
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("west/worker0") == list(range(60)) and ended.rounds("east/worker1")[-1] == 59
    assert 0 < len(ended.rounds("east/worker1")) < 60, "it has missed rounds"


@pytest.mark.slow  # 8 s
def test_a_worker_joins_where_it_is_placed(tmp_path: Path) -> None:
    job = ("device.variation=0 %", "device.step_time=50 ms", "training.rounds=100", "training.evaluate_every=50")
    join = faults("kind: join, node: east/worker1, round: 5")  # of a hundred: its process may take seconds to start
    ended = run(tmp_path, *job, CONTINUE, join, on="cluster")
    assert ended.error is None and len(ended.hashes()) == 1
    assert ended.rounds("east/worker1")[0] > 4 and ended.rounds("east/worker1")[-1] == 99
