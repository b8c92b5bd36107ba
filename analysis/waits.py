"""Who waited for whom: in every round, what arrives last makes all others wait.

A server that combines the pushes of a round holds what has arrived until the last of it is there. That time is charged
to who sent the last one, and taken from who had sent before. Workers wait so for their neighbours at the local server,
and data centres for each other at the global one. With asynchronous algorithms every entry is 0.
Without servers, workers wait for each other; ``server`` then says in what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis import peers
from testbed.axes import AxisError
from testbed.ids import data_center_of
from testbed.policy.sync import SYNC

if TYPE_CHECKING:
    import pandas as pd

Frames = Mapping[str, "pd.DataFrame"]


def pairs(frames: Frames, plan: Mapping[str, Any]) -> pd.DataFrame:
    """``server, waiter, awaited, waited_s, rounds``: seconds in total, for the last key of every round.

    ``rounds``: in how many rounds ``awaited`` was the last one for ``waiter``.
    """
    import pandas as pd

    if not any(node["parents"] for node in plan["nodes"]):
        return _between_peers(frames, plan)
    arrivals = _arrivals(frames["transfers"], plan)
    rows = []
    for server, of_server in arrivals.groupby("target"):
        last = of_server.loc[of_server.groupby("round")["t_s"].idxmax()].set_index("round")
        waits = of_server.assign(
            awaited=of_server["round"].map(last["source"]),
            waited_s=of_server["round"].map(last["t_s"]) - of_server["t_s"],
        )
        others = waits[waits["source"] != waits["awaited"]]
        for (waiter, awaited), group in others.groupby(["source", "awaited"]):
            rows.append((server, waiter, awaited, float(group["waited_s"].sum()), len(group)))
    return pd.DataFrame(rows, columns=["server", "waiter", "awaited", "waited_s", "rounds"])


def _between_peers(frames: Frames, plan: Mapping[str, Any]) -> pd.DataFrame:
    import pandas as pd

    rows = pd.DataFrame(peers.waits(frames, plan), columns=["server", "waiter", "awaited", "waited_s"])
    grouped = rows.groupby(["server", "waiter", "awaited"])["waited_s"]
    return grouped.agg(waited_s="sum", rounds="size").reset_index()


def matrix(waits: pd.DataFrame, sites: list[str]) -> pd.DataFrame:
    """Between data centres, at the servers that several of them push to: rows waited for columns, seconds in total."""
    across = waits.assign(waiter=waits["waiter"].map(data_center_of), awaited=waits["awaited"].map(data_center_of))
    across = across[across["waiter"] != across["awaited"]]
    table = across.pivot_table(index="waiter", columns="awaited", values="waited_s", aggfunc="sum", fill_value=0.0)
    return table.reindex(index=sites, columns=sites, fill_value=0.0).fillna(0.0)


def _arrivals(transfers: pd.DataFrame, plan: Mapping[str, Any]) -> pd.DataFrame:
    """When the last push of each round of each child was at its server; a server with one child makes no node wait."""
    technique = plan["technique"]
    tiers = {"server": technique["sync_tier1"]["kind"], "global_server": technique["sync_tier2"]["kind"]}
    with_many = [node for node in plan["nodes"] if len(node["children"]) > 1]
    waiting = [node["name"] for node in with_many if node["role"] in tiers and _waits(tiers[node["role"]])]
    pushes = transfers[(transfers["message"] == "push") & (transfers["round"] >= 0)]
    pushes = pushes[pushes["target"].isin(waiting)]
    return pushes.groupby(["target", "round", "source"])["t_s"].max().reset_index()


def _waits(kind: str) -> bool:
    """Whether a synchronisation algorithm waits for all members; False where its code is no longer there."""
    try:
        return SYNC[kind].waits
    except AxisError:
        return False
