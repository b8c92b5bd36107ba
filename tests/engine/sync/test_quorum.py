"""Rounds with a quorum: of all they are those of DiLoCo to the bit, and of some nobody waits for the slowest."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.engine.aggregation import merge_notes, tokens_weight
from tests.engine.runs import Simulated, run
from tests.for_each import for_each

SMALL = ("training.model={kind: mlp, hidden: 8}", "training.rounds=6", "training.evaluate_every=6")
SGD = "optimizer={kind: sgd, learning_rate: 0.05, at: worker}"
SLOW_WEST = (
    "topology.data_centers=[{name: hub, central: true, workers: 1}, {name: east, workers: 2}, "
    "{name: west, workers: 1, device: {step_time: 700 ms}}]"
)


def small(directory: Path, *overrides: str) -> Simulated:
    return run(directory, *SMALL, SGD, *overrides)


@for_each("paradigm", ["hips", "ps"])
def test_a_quorum_of_all_is_diloco_to_the_bit(paradigm: str, tmp_path: Path) -> None:
    common = (f"paradigm={paradigm}", SLOW_WEST)
    quorum = small(tmp_path / "1", "sync={kind: quorum, h: 2, quorum: 4}", *common)
    diloco = small(tmp_path / "2", "sync={kind: diloco, h: 2}", *common)
    assert quorum.hashes() == diloco.hashes()
    assert quorum.round_s("hub/worker0") == pytest.approx(diloco.round_s("hub/worker0"))


def test_nobody_waits_for_the_slowest_whose_contributions_count_later(tmp_path: Path) -> None:
    found = small(tmp_path, "sync={kind: quorum, h: 2, quorum: 2}", SLOW_WEST)
    contributors = [event["contributors"] for event in found.of_kind("update") if event["key"] == 0]
    assert ["hub/server0", "east/server0"] in contributors
    assert any("west/server0" in each for each in contributors)
    assert found.round_s("hub/worker0") < 0.5 * found.round_s("west/worker0", skip=0)
    dropped = small(tmp_path / "drop", "sync={kind: quorum, h: 2, quorum: 2, stragglers: drop}", SLOW_WEST)
    updates = [event["contributors"] for event in dropped.of_kind("update") if event["key"] == 0]
    assert all("west/server0" not in each for each in updates[1:])


def test_a_window_of_grace_lets_others_be_in_time(tmp_path: Path) -> None:
    found = small(tmp_path, "sync={kind: quorum, h: 2, quorum: 2, grace_s: 2 s}", SLOW_WEST)
    contributors = [event["contributors"] for event in found.of_kind("update")]
    assert all(len(each) == 3 for each in contributors)


def test_tokens_weigh_what_was_trained_with(tmp_path: Path) -> None:
    assert tokens_weight(64, 2) / tokens_weight(16, 2) == 16  # four times the tokens in as many steps
    assert tokens_weight(64, 4) / tokens_weight(16, 1) == 4  # as many tokens a step: by their number
    assert merge_notes([{"trained": [64, 2]}, {"trained": [16, 1]}])["trained"] == [80, 3]
    esync = "sync={{kind: esync, weights: {}}}"
    found = {name: small(tmp_path / name, SLOW_WEST, esync.format(name)) for name in ("worker", "token")}
    assert len({event["steps"] for event in found["token"].of_kind("round")}) > 1
    assert not found["worker"].hashes() & found["token"].hashes()
