"""``simulation.network: ideal``: a transfer takes delay and bytes over rate, and equal flows share equally."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.results import tables
from tests.end_to_end.runs import run_scenario

LINK = ("links[*].rate=8 Mbit/s", "links[*].delay=50 ms", "links[*].rate_trace=null")


def pushes(folder: Path, network: str) -> list[float]:
    settings = (*LINK, "training.rounds=2", f"simulation.network={network}", "training.target_accuracy=null")
    run_scenario(folder, "simulate", *settings)
    transfers = tables.read(folder, ("transfers",))["transfers"]
    wan = transfers[(transfers["tier"] == "wan") & (transfers["message"] == "push") & (transfers["round"] == 1)]
    sent = wan.groupby("source").agg({"t0_s": "min", "t_s": "max", "payload_bytes": "sum", "header_bytes": "sum"})
    return [row.t_s - row.t0_s - (row.payload_bytes + row.header_bytes) / 1e6 for row in sent.itertuples()]


def test_a_transfer_takes_delay_and_bytes_over_rate(tmp_path: Path) -> None:
    ideal = pushes(tmp_path / "ideal", "ideal")
    assert ideal and all(rest_s == pytest.approx(0.05, abs=0.002) for rest_s in ideal)
    assert all(rest_s > 0.06 for rest_s in pushes(tmp_path / "tcp", "tcp")), "TCP's headers cost time"
