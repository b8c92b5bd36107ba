"""Every technique of every axis in a run of its own: what the tables list runs, to its end.

The axes of the composition matrix are in ``test_matrix.py``; here are those inside a paradigm, and of the training.
Kinds are taken from the tables, so that a new one is run without a change here.
"""

from __future__ import annotations

from pathlib import Path

from testbed.policy.collective import ALL_REDUCE, SPARSE
from testbed.policy.gossip import ALGORITHMS, GRAPHS
from testbed.training.options import LOADINGS, OPTIMIZERS, SPLITS
from tests.engine.runs import run
from tests.for_each import for_each

ROUNDS = 2
SMALL = (
    "training.model={kind: mlp, hidden: 8}",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=2",
    "topology.data_centers[1].workers=1",
)
LOADED = {"cached": ", rate: 1 Gbit/s, latency: 1 ms"}  # options that a kind cannot do without
KINDS = {
    **{f"all-reduce {kind}": f"paradigm={{kind: allreduce, algorithm: {kind}}}" for kind in (*ALL_REDUCE, *SPARSE)},
    **{
        f"gossip {kind}": f"paradigm={{kind: gossip, algorithm: {kind}}}"
        for kind, each in ALGORITHMS.items()
        if not each.changes
    },  # which need local steps: tests/methods/test_noloco.py
    **{f"graph {kind}": f"paradigm={{kind: gossip, graph: {kind}}}" for kind in GRAPHS},
    **{f"optimizer {kind}": f"optimizer={{kind: {kind}, learning_rate: 0.01}}" for kind in OPTIMIZERS},
    **{f"loading {kind}": f"training.loading={{kind: {kind}{LOADED.get(kind, '')}}}" for kind in LOADINGS},
    **{f"split {kind}": f"training.split={kind}" for kind in SPLITS},
}


@for_each("setting", KINDS.values())
def test_every_kind_trains(tmp_path: Path, setting: str) -> None:
    done = run(tmp_path, *SMALL, setting)
    workers = [node.name for node in done.plan.training_workers]
    for worker in workers:
        losses = [event["loss"] for event in done.of_kind("round", worker)]
        assert len(losses) >= 1 and all(0 < loss < 20 for loss in losses)
    assert sum(len(done.of_kind("round", worker)) for worker in workers) >= ROUNDS * len(workers)
    assert done.hashes()
