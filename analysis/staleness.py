"""How old the values were that a gradient was computed from, counted in updates of the same key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Frames = Mapping[str, "pd.DataFrame"]
_ROUNDING_S = 1e-6  # of the log: an update and the value that it made may seem to happen the other way round
TABLES_NEEDED = ("updates", "transfers")


def of_pushes(frames: Frames) -> pd.DataFrame:
    """One row per push that reached a server which updates: ``t_s, source, target, key, round, staleness``.

    ``staleness``: updates of the key between the value that the pusher held and the push's arrival; the synchronous
    algorithms have 0. A pusher that never got a value has held the first one (version 0).
    """
    import pandas as pd

    updates, transfers = frames["updates"], frames["transfers"]
    moved = transfers[(transfers["round"] >= 0) & transfers["message"].isin(("push", "value"))]
    parts = [_of_server(str(node), group, moved) for node, group in updates.groupby("node")]
    columns = ["t_s", "source", "target", "key", "round", "staleness"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _of_server(server: str, updates: pd.DataFrame, moved: pd.DataFrame) -> pd.DataFrame:
    pushes = moved[(moved["target"] == server) & (moved["message"] == "push")].sort_values("t_s")
    values = moved[(moved["source"] == server) & (moved["message"] == "value")].sort_values("t_s")
    held = _versions(updates, values.assign(at_s=values["t0_s"] + _ROUNDING_S))
    sent = pushes.assign(at_s=pushes["t0_s"])
    known = dict(list(values.assign(version=held).groupby(["target", "key"])))
    before = np.zeros(len(sent))
    for pair, rows in sent.reset_index(drop=True).groupby(["source", "key"]):
        group = known.get(pair)
        if group is not None:
            place = np.searchsorted(group["t_s"].to_numpy(), rows["at_s"].to_numpy(), side="right")
            before[rows.index] = np.append(0, group["version"].to_numpy())[place]
    arrived = _versions(updates, sent.assign(at_s=sent["t_s"]), side="left")
    return sent.assign(staleness=arrived - before)


def _versions(updates: pd.DataFrame, rows: pd.DataFrame, side: Literal["left", "right"] = "right") -> Any:
    """How many updates of each row's key had been made at its ``at_s``."""
    times = {key: group["t_s"].sort_values().to_numpy() for key, group in updates.groupby("key")}
    counts = np.zeros(len(rows))
    for key, group in rows.reset_index(drop=True).groupby("key"):
        counts[group.index] = np.searchsorted(times.get(key, np.empty(0)), group["at_s"].to_numpy(), side=side)
    return counts
