"""Whether computation and communication overlapped: forward passes against pulls, worker by worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.ids import data_center_of
from testbed.results.intervals import union

if TYPE_CHECKING:
    import pandas as pd

    from analysis.load import Run


def forward_during_pulls(run: Run) -> pd.DataFrame:
    """One row per worker: ``forward_s`` in forward passes, ``overlap_s`` of it while values of other layers were still
    on their way to its data centre, over the WAN or inside.

    Forward passes are known where steps are cut at their layers (``overlap: layers``); elsewhere there are no rows.
    """
    import pandas as pd

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
