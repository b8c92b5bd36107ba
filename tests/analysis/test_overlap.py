"""P3's point, seen in the exported trace: forward passes run while values of later layers are still being pulled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis.load import StoredRun
from analysis.timeline import trace
from testbed import api
from testbed.ids import data_center_of
from testbed.results.intervals import union
from tests.end_to_end.runs import QUICKSTART
from tests.end_to_end.test_three_worlds import skip_unless_possible

SMALL = ("training.rounds=3", "training.evaluate_every=3", "training.target_accuracy=null")


def made(folder: Path, back_end: str, *settings: str) -> Any:
    changes = dict(setting.split("=", 1) for setting in (*SMALL, *settings))
    return api.run(api.load(QUICKSTART, set=changes), on=back_end, out=folder, progress=False)


def overlapping_slices(run: Any) -> list[tuple[str, str]]:
    """(forward slice, pull slice) of one process of the trace that share time."""
    slices = [event for event in trace([run])["traceEvents"] if event["ph"] == "X"]
    forward = [event for event in slices if event["cat"] == "compute" and event["name"].startswith("forward")]
    pulls = [event for event in slices if event["cat"] == "receive" and event["name"].startswith("pull")]
    return [
        (a["name"], b["name"])
        for a in forward
        for b in pulls
        if a["pid"] == b["pid"] and a["ts"] < b["ts"] + b["dur"] and b["ts"] < a["ts"] + a["dur"]
    ]


def forward_during_pulls(run: StoredRun) -> pd.DataFrame:
    """One row per worker: ``forward_s`` in forward passes, ``overlap_s`` of it while values of other layers were still
    on their way to its data centre, over the WAN or inside.

    Forward passes are known where steps are cut at their layers (``overlap: layers``); elsewhere there are no rows.
    """
    computes, transfers = run.tables["computes"], run.tables["transfers"]
    forward = computes[computes["part"].fillna("").str.startswith("forward")]
    pulls = transfers[(transfers["message"] == "value") & (transfers["round"] >= 0)]
    rows = []
    for node, spans in forward.groupby("node"):
        passes = union(spans[["t0_s", "t_s"]].to_numpy())
        here = pulls["target"].map(data_center_of) == data_center_of(str(node))
        under_way = union(pulls.loc[here, ["t0_s", "t_s"]].to_numpy())
        rows.append({"node": node, "forward_s": passes.total(), "overlap_s": passes.intersection(under_way).total()})
    return pd.DataFrame(rows, columns=["node", "forward_s", "overlap_s"])


@pytest.mark.parametrize(
    ("back_end", "least"),
    [
        ("simulate", 0.1),
        # 6 s; on a busy machine, passes last longer and pulls do not
        pytest.param("emulate", 0.05, marks=[pytest.mark.emulation, pytest.mark.wallclock]),
    ],
)
def test_forward_passes_overlap_pulls_with_p3(tmp_path: Path, back_end: str, least: float) -> None:
    """Not much: what the kernel and the bottleneck's queue have taken, no priority overtakes."""
    skip_unless_possible(back_end)
    run = made(tmp_path / "p3", back_end, "order=p3")
    assert len(overlapping_slices(run)) >= 10
    shares = forward_during_pulls(run).assign(share=lambda rows: rows["overlap_s"] / rows["forward_s"])
    assert len(shares) == sum(node["role"] == "worker" and node["trains"] for node in run.plan["nodes"])
    remote = shares[~shares["node"].str.startswith("virginia/")]  # the central one has its values at once
    assert len(remote) == 4
    assert (remote["share"] > least).all(), shares
