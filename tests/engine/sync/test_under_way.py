"""Above workers that wait for nobody, a server has several pushes of a key under way, and the network loses blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.runs import run
from tests.engine.sync.test_properties import SMALL

WORKERS, ROUNDS = 4, 12
JOB = (*SMALL, f"training.rounds={ROUNDS}", f"data_centers[east].workers={WORKERS}", "device.step_time=2 ms")
LOSSY = ("topology.links[*].loss=5 %",)


@pytest.mark.sample(1)  # of 6, which take 9 s
@pytest.mark.parametrize("late", ["next-round", "retransmit"])
@pytest.mark.parametrize("sync", ["{tier1: tap, tier2: ssp}", "ssp", "tap"])
def test_dgt_hands_all_of_them_over_in_their_order(tmp_path: Path, sync: str, late: str) -> None:
    dgt = f"order={{kind: dgt, late: {late}, k: 0.2, k_min: 0.1, block: 64 bytes}}"
    done = run(tmp_path, *JOB, *LOSSY, f"sync={sync}", dgt)
    assert any(event["lost" if late != "retransmit" else "resent"] for event in done.of_kind("blocks"))
    for key in range(4):
        mine = [e for e in done.of_kind("update") if e["key"] == key and e["contributors"] == ["east/server0"]]
        assert [event["round"] for event in mine] == list(range(len(mine)))
        assert len(mine) > ROUNDS
