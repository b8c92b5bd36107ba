"""``clip_norm`` shortens the mean gradient of all parameters, wherever the optimizer stands and whoever cuts keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engine.runs import run
from tests.kvstore.scripts import scenario

WORKERS = 4
FEW = ("training.batch=8", "training.rounds=2", "training.evaluate_every=2")
AT_SERVER = "optimizer={kind: sgd, learning_rate: 0.05, clip_norm: 0.1}"  # along the sum
AT_WORKER = f"optimizer={{kind: sgd, learning_rate: {0.05 * WORKERS}, clip_norm: 0.1, at: worker}}"  # along the mean
PLACES = [
    (AT_SERVER, "order={kind: p3, slice: 4 KiB}"),
    (AT_SERVER, "paradigm=ps"),
    (AT_SERVER, "paradigm=allreduce"),
    (AT_SERVER, "paradigm={kind: allreduce, optimizer_work: update}"),
    (AT_WORKER, "paradigm=allreduce"),
    (AT_SERVER, "optimizer.clip_norm=1e6"),
    (AT_WORKER, "data_centers[hub].global_servers=2", "shard=multigps"),
]


def test_the_same_gradient_is_clipped_everywhere(tmp_path: Path) -> None:
    one = run(tmp_path / "one", *FEW, AT_SERVER).parameters("west/worker0")
    for number, place in enumerate(PLACES):
        other = run(tmp_path / str(number), *FEW, *place).parameters("west/worker0")
        assert torch.allclose(one, other, atol=1e-6) == ("1e6" not in place[1]), place


@pytest.mark.parametrize("technique", ["sync=mixedsync", "sync={tier1: fsa, tier2: ssp}", "paradigm=gossip"])
def test_contributions_are_clipped_where_there_is_no_common_gradient(technique: str, tmp_path: Path) -> None:
    """A step is no longer than rate × workers × norm, and without clipping these are longer."""
    still = run(tmp_path / "still", *FEW, "optimizer={kind: sgd, learning_rate: 1e-12}", technique)
    bound = 0.05 * 0.1 * 2 * WORKERS  # 2 rounds
    for name, optimizer in ("clipped", AT_SERVER), ("free", "optimizer={kind: sgd, learning_rate: 0.05}"):
        done = run(tmp_path / name, *FEW, optimizer, technique)
        moved = float((done.parameters("east/worker0") - still.parameters("east/worker0")).norm())
        assert moved > 0 and (moved <= bound) == (name == "clipped"), (name, moved)


SCRIPT = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
def train(model, optimizer, ranks, after):
    for step in range(4):
        optimizer.zero_grad()
        for rank in ranks:
            generator = torch.Generator().manual_seed(10 * rank + step)
            (model(torch.randn(8, 4, generator=generator)).square().mean() / len(ranks)).backward()
        after()
        optimizer.step()
mine, theirs = net(), net()
make = lambda model: torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
optimizer = GeoOptimizer(make(mine), store, clip_norm=0.05)
if store.rank in RANKS:  # where workers do not wait for others, these change nothing
    train(mine, optimizer, [store.rank], lambda: None)
    train(theirs, make(theirs), RANKS, lambda: torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.05))
    for one, other in zip(mine.parameters(), theirs.parameters()):
        assert torch.allclose(one, other, atol=1e-6), (one, other)
"""


@pytest.mark.parametrize(("sync", "ranks"), [("fsa", [0, 1, 2]), ("mixedsync", [1, 2]), ("tap", [2])])
def test_a_scripts_mean_gradient_is_clipped_as_by_plain_torch(sync: str, ranks: list[int], tmp_path: Path) -> None:
    """The mean is that of those who push together."""
    path = scenario(tmp_path / "a", SCRIPT.replace("RANKS", str(ranks)))
    run(tmp_path / "run", f"sync={sync}", *(["paradigm=ps"] if sync == "tap" else []), scenario=path)
