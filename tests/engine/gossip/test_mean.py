"""While workers gossip, the mean of their models is scored, and that takes none of their time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.engine.gossip.mean import MeanModel
from testbed.engine.gossip.model import GossipMail
from testbed.engine.inbox import Inbox
from testbed.world import World
from tests.engine.collectives.worlds import names_of, worlds
from tests.engine.gossip.test_gossip import FixedPeers
from tests.engine.runs import run
from tests.for_each import for_each


class Taken:
    """Stands in for ``Evaluation``: keeps what is to be scored."""

    def __init__(self) -> None:
        self.values: dict[int, torch.Tensor] = {}

    def reached_by(self, round_: int) -> bool:
        return False

    async def score(self, round_: int, values: list[torch.Tensor], time_s: float) -> None:
        self.values[round_] = torch.cat(values)


@for_each("kind", ["real", "virtual"])
def test_all_give_their_models_to_the_one_that_scores_the_mean(kind: str, tmp_path: Path) -> None:
    names = names_of([2, 1])
    replaced = {"replaced since": 7} if kind == "virtual" else {}  # there, to wait for ever is an error at once

    async def program(world: World) -> tuple[dict[int, torch.Tensor], float]:
        inbox, taken, began_s = Inbox(world), Taken(), world.now()
        mean = MeanModel(world, GossipMail(world, inbox, FixedPeers(names)), (2, 1), taken)
        reading = world.spawn(inbox.run(), "inbox")
        mine = torch.tensor([1.0, 2.0, 6.0]) * names.index(world.node)
        for round_ in (0, 1):
            await mean.give(names[0], round_, mine + round_)
        if world.node == names[0]:
            for round_ in (0, 1):
                mean.score(round_, dict.fromkeys(names, 0) | replaced)
            await mean.settled()
        inbox.close()
        del reading
        return taken.values, world.now() - began_s

    results = worlds(kind, tmp_path)(dict.fromkeys(names, program))
    values, took_s = results[names[0]]
    assert {round_: mean.tolist() for round_, mean in values.items()} == {0: [1.0, 2.0, 6.0], 1: [2.0, 3.0, 7.0]}
    assert kind == "real" or took_s == 0


SLOWEST = "topology.data_centers.west.device.speed=0.1"
GOSSIP = {
    "adpsgd": "paradigm={kind: gossip, algorithm: adpsgd, graph: ring}",
    "dpsgd": "paradigm={kind: gossip, algorithm: dpsgd, graph: ring}",
    "sgp": "paradigm={kind: gossip, algorithm: sgp, graph: exponential}",
    "random pairs": "technique=noloco",
}


@for_each("paradigm", list(GOSSIP))
def test_a_run_takes_as_long_however_often_it_is_scored(paradigm: str, tmp_path: Path) -> None:
    """Also where one worker is slow, and its model comes late: whoever scores must not wait for it."""
    gossip = (GOSSIP[paradigm], SLOWEST, "training.rounds=8", "training.target_accuracy=0.999")
    often, once = (run(tmp_path / every, *gossip, f"training.evaluate_every={every}") for every in ("1", "8"))

    def rounds(ended: Any) -> list[tuple[str, int, float]]:
        return [(event["node"], event["round"], event["t"]) for event in ended.of_kind("round")]

    assert rounds(often) == rounds(once)
    spread = {event["round"]: event["distance"] for event in often.of_kind("consensus")}
    scores = often.of_kind("evaluate")
    assert list(spread) == [score["round"] for score in scores] == list(range(8))
    assert all(distance > 0 for distance in spread.values())
    if paradigm != "adpsgd":  # where rounds of workers have nothing to do with each other
        for score in scores[:-1]:
            ends_s = [at for _, round_, at in rounds(often) if round_ == score["round"]]
            assert score["snapshot_t"] == pytest.approx(max(ends_s), abs=1e-6)


def test_the_score_of_a_round_ends_a_run_when_all_are_past_that_round(tmp_path: Path) -> None:
    """So the last round depends on what was learned, and on no time."""
    gossip = (GOSSIP["random pairs"], "training.rounds=60", "training.target_accuracy=0.3", "training.evaluate_every=1")
    alike, unlike = run(tmp_path / "alike", *gossip), run(tmp_path / "unlike", *gossip, SLOWEST)
    first, second = (max(event["round"] for event in ended.of_kind("round")) for ended in (alike, unlike))
    assert first == second < 59
    assert alike.hashes() == unlike.hashes()
