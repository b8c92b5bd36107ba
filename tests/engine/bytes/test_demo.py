"""Rows 42 and 44: bytes of a round of GeoMX' demo CNN (28×28) for one party, through the engine, in both worlds.

The codecs' own bytes are in tests/codec/test_geomx.py; here are those of whole rounds: who sends what how often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testbed.training.datasets.images import IDX_FILES
from tests.end_to_end.runs import run_scenario
from tests.engine.runs import run
from tests.for_each import for_each
from tests.training.test_datasets import idx

MODEL = 715_048
ROUNDS = 2
BASE = (
    "topology.data_centers[hub].workers=0",
    "training.model=cnn",
    "training.batch=32",
    f"training.rounds={ROUNDS}",
    f"training.evaluate_every={ROUNDS}",
    "device.step_time=20 ms",
)
LOCAL = "optimizer={kind: sgd, learning_rate: 0.01, at: worker}"
SPARSE = "pull: sparse-sum, padded: true"
# settings: WAN up, WAN down, LAN up, LAN down, of one party with one worker, in ROUNDS rounds together
FIXTURES: dict[str, tuple[tuple[str, ...], tuple[int, int, int, int]]] = {
    "FSA": ((), (ROUNDS * MODEL,) * 4),
    "P3": (("order=p3",), (ROUNDS * MODEL,) * 4),
    "MixedSync": (("sync=mixedsync",), (ROUNDS * MODEL,) * 4),
    "FP16": (("codec=fp16",), (ROUNDS * 357_524,) * 4),
    "2-bit": (("codec={tier1: none, tier2: twobit}",), (ROUNDS * 44_692, *(ROUNDS * MODEL,) * 3)),
    "Bi-Sparse": (
        (f"codec={{tier1: none, tier2: {{kind: bisparse, {SPARSE}}}}}", LOCAL),
        (ROUNDS * 17_596, ROUNDS * 31_828, ROUNDS * MODEL, ROUNDS * MODEL),
    ),
    "MPQ": (
        (f"codec={{kind: mpq, {SPARSE}}}", LOCAL),
        (ROUNDS * 15_912, ROUNDS * 30_144, ROUNDS * 713_364, ROUNDS * 713_364),
    ),
    # two rounds of K1 steps in the LAN, of which the second goes over the WAN
    "HFA": (("sync={kind: hfa, k1: 2, k2: 2}", LOCAL), (MODEL, MODEL, ROUNDS * MODEL, ROUNDS * MODEL)),
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a few pictures of 28×28."""
    folder = tmp_path_factory.mktemp("mnist")
    rng = np.random.default_rng(1)
    for name, size in zip(IDX_FILES, (120, 120, 10, 10), strict=True):
        shape = (size, 28, 28) if "images" in name else (size,)
        (folder / name).write_bytes(idx(rng.integers(0, 256 if "images" in name else 10, shape)))
    return f"training.data={{kind: mnist, folder: {folder}}}"


def moved(events: Iterable[dict[str, Any]]) -> tuple[int, ...]:
    """Payload of the party ``west``: WAN up and down, LAN up and down."""
    server, worker = "west/server0", "west/worker0"
    ways = ((server, "hub/global0"), ("hub/global0", server), (worker, server), (server, worker))
    sums: Counter[tuple[str, str]] = Counter()
    for event in events:
        if event["kind"] == "transfer" and event["round"] >= 0 and event["message"] in ("push", "value", "block"):
            sums[event["source"], event["target"]] += event["payload_bytes"]
    return tuple(sums[way] for way in ways)


@for_each("name", ["FSA", "2-bit", "Bi-Sparse", "HFA"])
def test_simulated(tmp_path: Path, digits: str, name: str) -> None:
    settings, expected = FIXTURES[name]
    assert moved(run(tmp_path, *BASE, digits, *settings).events) == expected


BLOCKS = 181  # of 4096 bytes, one byte each for the channels; blocks of zeros are not sent


def test_dgt_simulated(tmp_path: Path, digits: str) -> None:
    up, *others = moved(run(tmp_path, *BASE, digits, "order={kind: dgt, deadline: 60 s}").events)
    assert others == [ROUNDS * MODEL] * 3
    zeros, rest = divmod(ROUNDS * (MODEL + BLOCKS) - up, 4096)
    assert rest == 0
    assert 0 <= zeros < 0.2 * ROUNDS * BLOCKS


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXTURES)
def test_in_real_processes(tmp_path: Path, digits: str, name: str) -> None:
    settings, expected = FIXTURES[name]
    scenario = Path(__file__).parents[1] / "three_sites.yaml"
    finished = run_scenario(tmp_path / "run", "local", *BASE, digits, *settings, scenario=scenario)
    assert finished.outcome.status == "done", finished.outcome.message
    ends = [event for event in finished.events if event["kind"] == "round" and event["node"] == "west/worker0"]
    made = len(ends) if name == "MixedSync" else ROUNDS  # its parties share the rounds as fast as they are
    assert moved(finished.events) == tuple(made * each // ROUNDS for each in expected)
    assert made <= 2 * ROUNDS
