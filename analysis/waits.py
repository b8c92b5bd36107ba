"""Waiting between data centres: in a round, the last contribution to arrive makes all others wait.

**With servers**, a server holds the contribution of a member until that of another member has arrived, and records
which one (table ``holds``). Of several keys, it records the waits for the first one. Asynchronous algorithms hold
nothing.

**Without servers**, workers wait for each other. In an all-reduce, a worker waits from the end of its own step to the
end of the last worker's step in the round; if the sums of a round stay inside data centres (HFA), of the last worker
there. In synchronous gossip, it waits until the last neighbour's model has arrived. AD-PSGD does not wait for steps of
other workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.peers import MODELS, PEER_MESSAGES
from testbed.ids import data_center_of
from testbed.paradigms import PARADIGMS, Paradigm
from testbed.policy.gossip import ALGORITHMS
from testbed.results.summary import stands_for

Frames = Mapping[str, pd.DataFrame]


def matrix(frames: Frames, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return how long data centres (rows) waited for others (columns): seconds per round, mean over the run.

    If the nodes of a data centre wait separately, the entry is the mean over the nodes. If they wait at several servers
    at the same time, it is the largest of these. So no entry is longer than a round.
    """
    sites = [site["name"] for site in plan["network"]["sites"]]
    waits = pairs(frames, plan)
    copies = stands_for(frames["nodes"])
    weighed = waits["waited_s"] * waits["waiter"].map(copies).fillna(1).astype(float)
    places = [waits["server"], waits["waiter"].map(data_center_of), waits["awaited"].map(data_center_of)]
    members = _members(plan)
    rounds = _rounds_of(frames, copies)
    table = pd.DataFrame(0.0, index=sites, columns=sites)
    for (server, at, of), total_s in weighed.groupby(places).sum().items():
        if at != of:
            mean_s = total_s / members.get((server, at), 1) / rounds.get(at, 1.0)
            table.loc[at, of] = max(table.loc[at, of], mean_s)
    return table


def pairs(frames: Frames, plan: Mapping[str, Any]) -> pd.DataFrame:
    """Return every wait: ``server, round, waiter, awaited, waited_s``; without servers, ``server`` is empty."""
    paradigm = plan["technique"]["paradigm"]
    columns = ["server", "round", "waiter", "awaited", "waited_s"]
    if any(node["parents"] for node in plan["nodes"]):
        named = {"node": "server", "member": "waiter", "by": "awaited", "held_s": "waited_s"}
        held = frames["holds"].rename(columns=named)
        return held.loc[held["awaited"].fillna("") != "", columns]
    if PARADIGMS.get(paradigm["kind"], Paradigm).global_sum:  # an older run may have a kind that no longer exists
        waits = _for_the_last(frames)
    else:
        waits = _for_neighbours(frames)
        if ALGORITHMS[paradigm["options"]["algorithm"]].pairwise:
            waits = waits[:0]
    return waits.assign(server="")[columns]


def _members(plan: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """Return the number of children by server and data centre; for server ``""``, the number of training workers."""
    counts: dict[tuple[str, str], int] = {}
    for node in plan["nodes"]:
        below = [(node["name"], child) for child in node["children"]]
        own = [("", node["name"])] if node["role"] == "worker" and node["trains"] else []
        for server, member in (*below, *own):
            place = server, data_center_of(member)
            counts[place] = counts.get(place, 0) + 1
    return counts


def _rounds_of(frames: Frames, copies: Mapping[str, int]) -> dict[str, float]:
    """Return the mean number of rounds of each data centre's workers, including rounds that a restart repeated."""
    done = frames["rounds"].groupby("node").size()
    table = pd.DataFrame({"done": done, "copies": [copies.get(str(node), 1) for node in done.index]})
    sites = table.groupby([data_center_of(str(node)) for node in done.index])
    return {str(site): float(np.average(rows["done"], weights=rows["copies"])) for site, rows in sites}


def _for_the_last(frames: Frames) -> pd.DataFrame:
    """Return the waits for the worker whose step ends last in the round.

    In a round without messages over the WAN, each data centre waits for its own last worker.
    """
    moved = frames["transfers"]
    ends = _step_ends(frames)
    sums = moved[moved["message"].isin(PEER_MESSAGES) & (moved["payload_bytes"] > 0) & (moved["tier"] == "wan")]
    inside = ~ends["round"].isin(sums["round"])
    ends["group"] = ends["waiter"].map(data_center_of).where(inside, "")
    place = ["round", "group"]
    last = ends.loc[ends.groupby(place)["t_s"].idxmax()].rename(columns={"waiter": "awaited", "t_s": "last_s"})
    waits = ends.merge(last, on=place)
    return waits[waits["waiter"] != waits["awaited"]].assign(waited_s=lambda rows: rows["last_s"] - rows["t_s"])


def _step_ends(frames: Frames) -> pd.DataFrame:
    """Return ``round, waiter, t_s``: when each worker's step ended."""
    steps = frames["computes"].query("work == 'step'").rename(columns={"node": "waiter"})
    return steps.groupby(["round", "waiter"])["t_s"].max().reset_index()


def _for_neighbours(frames: Frames) -> pd.DataFrame:
    """Return the waits from the end of a worker's own step until the last neighbour's model arrived."""
    transfers = frames["transfers"]
    models = transfers[transfers["message"].isin(MODELS) & (transfers["payload_bytes"] > 0)]
    last = models.loc[models.groupby(["round", "target"])["t_s"].idxmax(), ["round", "target", "source", "t_s"]]
    named = last.rename(columns={"target": "waiter", "source": "awaited", "t_s": "came_s"})
    waits = named.merge(_step_ends(frames), on=["round", "waiter"])
    return waits.assign(waited_s=(waits["came_s"] - waits["t_s"]).clip(lower=0.0))
