"""Every cell of the composition matrix that works, run in the virtual world.

Pairwise: each run has a value on every axis, and together they hold every pair. Those of the default suite hold every
value of every axis twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
import torch

from testbed.axes import options_of
from testbed.codec.options import CODECS
from testbed.engine.sync_setup import local_model
from testbed.plan.asynchronous import is_asynchronous
from testbed.policy.overlay import OVERLAYS
from testbed.policy.sync import SYNC
from testbed.scenario.matrix import AXES, DEFAULTS, Combination, overrides, tier_refusals
from tests.engine.runs import Simulated, run
from tests.faults.schedules import FEW_STEPS
from tests.scenario.covering import covering

ROUNDS = 3
WORKERS = ("hub/worker0", "east/worker0", "east/worker1", "west/worker0")
SMALL = (
    "training.model={kind: mlp, hidden: 16}",
    f"training.rounds={ROUNDS}",
    "training.evaluate_every=3",
    "topology.data_centers[0].global_servers=2",
    "optimizer={kind: sgd, learning_rate: 0.05}",
)
# values that move what is sent, but not what is computed: bit for bit, or within the rounding of sums on the way
SAME_NUMBERS = {
    "sync": ("fsa", "bsp", "hfa", "diloco"),
    "codec": ("none", "fp16", "twobit"),
    "paradigm": ("hips", "ps"),
    "aggregation": ("mean",),
}


def quick(rows: Iterable[Combination], times: int = 2) -> list[Combination]:
    """Return the first of them in which every value of every axis occurs so many times."""
    seen: Counter[tuple[str, str]] = Counter()
    chosen = []
    for row in rows:
        if any(seen[value] < times for value in row.items()):
            chosen.append(row)
            seen.update(row.items())
    return chosen


ROWS = covering(1)
QUICK = quick(ROWS)


def name(combination: Combination) -> str:
    return "-".join(combination.values())


def ran(directory: Path, combination: Combination) -> Simulated:
    """To its end, through every round of all workers, with numbers that are numbers."""
    texts = [*SMALL, *overrides(combination)]
    said = {text.partition("=")[0] for text in texts}
    if OVERLAYS[combination["overlay"]].relays:
        said.add("sync.fragments")  # which travel on stars only
    texts += [text for text in FEW_STEPS.get(combination["sync"], ()) if text.partition("=")[0] not in said]
    if any(option.name == "bound" for option in fields(options_of(CODECS[combination["codec"]]))):
        texts.append("codec.bound=100")
    if not SYNC[combination["sync"]].pauses:
        texts.append("topology.data_centers[0].global_servers=1")
    result = run(directory, *texts)
    made_all_rounds(result)
    assert all(0 < event["loss"] < 20 for event in result.of_kind("round"))
    for worker in WORKERS:
        assert result.parameters(worker).isfinite().all()
    return result


def made_all_rounds(result: Simulated) -> None:
    """Each worker has made every round. Where they do not wait for each other, all together have made as many.

    There the last round of the data centre with two workers is made by both, or by neither.
    """
    made = [len(result.of_kind("round", worker)) for worker in WORKERS]
    if local_model(result.plan) is not None:  # local servers hear of the end with what they merge last
        assert sum(made) >= ROUNDS * len(WORKERS)
    elif is_asynchronous(result.plan):
        assert abs(sum(made) - ROUNDS * len(WORKERS)) <= 1
    else:
        assert set(made) == {ROUNDS}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> object:
    """The same mathematics with nothing on the other axes."""

    @cache
    def of(paradigm: str, sync: str, codec: str) -> Simulated:
        base = {**DEFAULTS, "paradigm": paradigm, "sync": sync, "codec": codec}
        return ran(tmp_path_factory.mktemp("plain") / "run", base)

    return of


def check(directory: Path, combination: Combination, plain: object) -> None:
    result = ran(directory, combination)
    assert callable(plain)
    if all(combination[axis] in kinds for axis, kinds in SAME_NUMBERS.items()):
        base = plain(combination["paradigm"], combination["sync"], combination["codec"])
        exact = combination["overlay"] == "star" or combination["codec"] == "twobit"  # which needs merge: exact
        slack = 0.0 if exact else 1e-5 if combination["codec"] == "none" else 2e-3
        for worker in WORKERS:
            assert torch.allclose(result.parameters(worker), base.parameters(worker), rtol=0, atol=slack)
    if combination["sync"] in ("fsa", "bsp") and combination["paradigm"] in ("hips", "ps", "allreduce"):
        assert len({tuple(result.parameters(worker).tolist()) for worker in WORKERS}) == 1


@pytest.mark.sample(8)  # of 24, which take 4 s
@pytest.mark.parametrize(
    "combination",
    [row if row in QUICK else pytest.param(row, marks=pytest.mark.slow) for row in ROWS],  # 0.3 s each
    ids=name,
)
def test_every_pair_of_techniques(tmp_path: Path, combination: Combination, plain: object) -> None:
    check(tmp_path / "run", combination, plain)


WITH_FEW_STEPS = {
    "hfa": "{kind: hfa, k1: 2, k2: 2}",
    "diloco": "{kind: diloco, h: 2}",
    "quorum": "{kind: quorum, h: 2}",
    "decoupled": "{kind: decoupled, h: 2}",
}
TIERS = [(below, above) for below in AXES["sync"] for above in AXES["sync"] if below != above]


@pytest.mark.sample(4)  # of 16, which take 2 s
@pytest.mark.parametrize("tiers", [pair for pair in TIERS if not tier_refusals(*pair)], ids="-".join)
def test_two_algorithms_one_on_each_tier(tmp_path: Path, tiers: tuple[str, str]) -> None:
    below, above = (WITH_FEW_STEPS.get(kind, kind) for kind in tiers)
    at = ["optimizer.at=worker"] if tiers[0] in ("esync", "diloco") else []
    servers = 2 if SYNC[tiers[1]].pauses else 1
    at.append(f"topology.data_centers[0].global_servers={servers}")
    result = run(tmp_path / "run", *SMALL, f"sync={{tier1: {below}, tier2: {above}}}", *at)
    made_all_rounds(result)
    assert all(result.parameters(worker).isfinite().all() for worker in WORKERS)
