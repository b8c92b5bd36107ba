"""Waiting between nodes: in every round, what arrives last makes all others wait.

A server that combines the pushes of a round holds those that have arrived until the last one is there. That time is
charged to the sender of the last push, as waiting of the senders before it. Workers wait for their neighbours in this
way at the local server, and data centres for each other at the global one. With asynchronous algorithms every entry is
0. Workers that sum what they push among themselves wait for the one whose step ended last; it is counted at their
local server.

Without servers, workers wait for each other; ``server`` then says in what. All-reduce: for the one whose step ended
last. Synchronous gossip: for the neighbour whose model came last. AD-PSGD waits for no other worker's step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.peers import MODELS
from testbed.axes import AxisError
from testbed.ids import data_center_of
from testbed.policy.collective import inside_of
from testbed.policy.gossip import ALGORITHMS
from testbed.policy.sync import SYNC
from testbed.scenario.paradigms import PARADIGMS

if TYPE_CHECKING:
    import pandas as pd

Frames = Mapping[str, "pd.DataFrame"]


def pairs(frames: Frames, plan: Mapping[str, Any]) -> pd.DataFrame:
    """``server, waiter, awaited, waited_s, rounds``: seconds in total, for the last key of every round.

    ``rounds``: in how many rounds ``awaited`` was the last one for ``waiter``.
    """
    import pandas as pd

    paradigm = plan["technique"]["paradigm"]
    if any(node["parents"] for node in plan["nodes"]):
        arrivals = _arrivals(frames["transfers"], plan)
        if inside_of(paradigm["options"]) is not None:
            arrivals = pd.concat([arrivals, _ends_inside(frames, plan)], ignore_index=True)
        waits = _for_the_last(arrivals)
    elif PARADIGMS[paradigm["kind"]].global_sum:
        waits = _for_the_last(_step_ends(frames).assign(server="all-reduce"))
    else:
        waits = _for_neighbours(frames)
        if ALGORITHMS[paradigm["options"]["algorithm"]].pairwise:
            waits = waits[:0]
    grouped = waits.groupby(["server", "waiter", "awaited"])["waited_s"]
    return grouped.agg(waited_s="sum", rounds="size").reset_index()


def matrix(waits: pd.DataFrame, sites: list[str]) -> pd.DataFrame:
    """Between data centres, at the servers that several of them push to: rows waited for columns, seconds in total."""
    across = waits.assign(waiter=waits["waiter"].map(data_center_of), awaited=waits["awaited"].map(data_center_of))
    across = across[across["waiter"] != across["awaited"]]
    table = across.pivot_table(index="waiter", columns="awaited", values="waited_s", aggfunc="sum", fill_value=0.0)
    return table.reindex(index=sites, columns=sites, fill_value=0.0).fillna(0.0)


def _for_the_last(ready: pd.DataFrame) -> pd.DataFrame:
    """In each round and at each server, all wait for the last one. ``ready``: ``server, round, waiter, t_s``."""
    place = ["server", "round"]
    last = ready.loc[ready.groupby(place)["t_s"].idxmax()].rename(columns={"waiter": "awaited", "t_s": "last_s"})
    waits = ready.merge(last, on=place)
    return waits[waits["waiter"] != waits["awaited"]].assign(waited_s=lambda rows: rows["last_s"] - rows["t_s"])


def _arrivals(transfers: pd.DataFrame, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return when the last push of each child arrived in each round; a server with one child makes no node wait."""
    technique = plan["technique"]
    tiers = {"server": technique["sync_tier1"]["kind"], "global_server": technique["sync_tier2"]["kind"]}
    if inside_of(technique["paradigm"]["options"]) is not None:
        del tiers["server"]
    with_many = [node for node in plan["nodes"] if len(node["children"]) > 1]
    waiting = [node["name"] for node in with_many if node["role"] in tiers and _waits(tiers[node["role"]])]
    pushes = transfers[(transfers["message"] == "push") & (transfers["round"] >= 0)]
    named = pushes[pushes["target"].isin(waiting)].rename(columns={"target": "server", "source": "waiter"})
    return named.groupby(["server", "round", "waiter"])["t_s"].max().reset_index()


def _waits(kind: str) -> bool:
    """Return whether a synchronisation algorithm waits for all members; ``False`` if its code is not there any more."""
    try:
        return SYNC[kind].waits
    except AxisError:
        return False


def _step_ends(frames: Frames) -> pd.DataFrame:
    """``round, waiter, t_s``: when the worker's step ended."""
    steps = frames["computes"].query("work == 'step'").rename(columns={"node": "waiter"})
    return steps.groupby(["round", "waiter"])["t_s"].max().reset_index()


def _ends_inside(frames: Frames, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return when the steps ended of workers that sum together, by the local server to which one pushes for all."""
    servers = {child: node["name"] for node in plan["nodes"] if node["role"] == "server" for child in node["children"]}
    ends = _step_ends(frames)
    return ends.assign(server=ends["waiter"].map(servers))


def _for_neighbours(frames: Frames) -> pd.DataFrame:
    """Return the waits from the end of a worker's own step until the last neighbour's model arrived."""
    transfers = frames["transfers"]
    models = transfers[transfers["message"].isin(MODELS) & (transfers["payload_bytes"] > 0)]
    last = models.loc[models.groupby(["round", "target"])["t_s"].idxmax(), ["round", "target", "source", "t_s"]]
    named = last.rename(columns={"target": "waiter", "source": "awaited", "t_s": "came_s"})
    waits = named.merge(_step_ends(frames), on=["round", "waiter"])
    return waits.assign(server="gossip", waited_s=(waits["came_s"] - waits["t_s"]).clip(lower=0.0))
