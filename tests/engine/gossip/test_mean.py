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

    async def before_push(self, round_: int) -> bool:
        return False

    def take(self, round_: int, values: list[torch.Tensor], time_s: float) -> None:
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


@pytest.mark.parametrize("algorithm", ["adpsgd", "dpsgd"])
def test_a_run_takes_as_long_however_often_it_is_scored(algorithm: str, tmp_path: Path) -> None:
    gossip = (f"paradigm={{kind: gossip, algorithm: {algorithm}, graph: ring}}", "training.rounds=6")
    often, once = (run(tmp_path / every, *gossip, f"training.evaluate_every={every}") for every in ("1", "6"))

    def rounds(ended: Any) -> list[tuple[str, int, float]]:
        return [(event["node"], event["round"], event["t"]) for event in ended.of_kind("round")]

    assert rounds(often) == rounds(once)
    spread = {event["round"]: event["distance"] for event in often.of_kind("consensus")}
    assert list(spread) == [score["round"] for score in often.of_kind("evaluate")] == [0, 1, 2, 3, 4, 5]
    assert all(distance > 0 for distance in spread.values())
