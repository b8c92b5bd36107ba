"""A run among strangers ends as one alone does; ``python -m tests.faults.hostile`` sends ten thousand of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.hostile import NODES, Attack, among_strangers, job
from tests.faults.runs import run


@pytest.mark.wallclock  # 10 s each; by default, tests/realtime/test_network.py has strangers beside a session
@pytest.mark.parametrize("connections", [200, 10_000])
def test_training_goes_on_among_strangers(tmp_path: Path, connections: int) -> None:
    rounds = 40 + connections // 20
    ended, seen = among_strangers(tmp_path, rounds, Attack(connections, 500.0, tmp_path / "seen.json"))
    assert ended.error is None
    assert ended.hashes() == run(tmp_path / "calm", *job(rounds)).hashes()
    assert seen["made"] == connections and seen["refused"] > connections / 2
    assert seen["nodes"] == NODES and seen["grown_bytes"] < 10e6
    told = [event for event in ended.events("warning") if "refused a connection" in event["message"]]
    assert 0 < len(told) < NODES * 40, "a flood does not fill the log"
