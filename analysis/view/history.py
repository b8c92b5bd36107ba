"""The events of a run as columns: the page of a run plays them back, and the report draws them.

Only ``history`` makes these columns: for a whole run, for a few seconds of it, or for the events that a run in progress
has written since the last call. Nodes, links and texts are indices of lists (``plot_of``, ``Names``), so that a million
values stay small. Times are seconds on the run's clock.

table      a row is                                   columns
---------  -----------------------------------------  ------------------------------------------------------------------
samples    a sample of a WAN link, unless it equals   t, link, bytes (so far), rate_bps (configured), backlog_bytes,
           the ones before and after it               dropped (so far). In an emulated run, counters fall once: those of
                                                      the measurement before training are a series of their own
messages   a message in transit from t0 to t: with    t0, t, source, target, kind, round, key, bytes
           tensors, or without a key (registration,
           barriers). If a page has no room for
           each, those of one kind, round and pair
           of nodes become one row with key -1
work       an activity of a node from t0 to t         t0, t, node, lane (index of ``LANES``), text, round
rounds     a round of a worker                        t0, t, node, round, loss, steps
scores     an evaluation                              t, accuracy, loss, round
training   training starts                            t
reached    before training: the network is up, the    t, what (index of ``REACHED``)
           first node has begun, links are measured
carried    the tensors that crossed the WAN by t      t, bytes
marks      a contribution that was stale when it was  t, node, sign (index of ``SIGNS``), count (staleness in updates,
           applied, or whose blocks came late or      or number of blocks), round
           were lost
changes    a link is changed by its trace             t, link, text
faults     a fault begins or ends; nodes are lost,    t, text, begins, places (sites, nodes and links, separated by
           leave or join                              commas)
notes      a warning or an error                      t, text
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from analysis.metrics import wan_of_training
from testbed.costs import CODING
from testbed.ids import data_center_of

Frames = Mapping[str, pd.DataFrame]
Columns = dict[str, list[Any]]
LANES = ("compute", "codec", "wait", "held")
SIGNS = ("stale", "late", "lost")
REACHED = ("network", "nodes", "measured")
MOST_ROWS = 120_000  # most rows of a table: a page with more takes seconds to open
POINTS = 2_000  # most points of a curve that grows with every message
NO_KEY = -1
_SAMPLED = ["t_s", "link", "bytes", "configured_bps", "backlog_bytes", "dropped_packets"]
_WITHIN = ("transfers", "computes", "waits", "holds", "rounds")  # tables that are restricted to the requested time
_COLUMNS = {
    "samples": ("t", "link", "bytes", "rate_bps", "backlog_bytes", "dropped"),
    "messages": ("t0", "t", "source", "target", "kind", "round", "key", "bytes"),
    "work": ("t0", "t", "node", "lane", "text", "round"),
    "rounds": ("t0", "t", "node", "round", "loss", "steps"),
    "scores": ("t", "accuracy", "loss", "round"),
    "training": ("t",),
    "reached": ("t", "what"),
    "carried": ("t", "bytes"),
    "marks": ("t", "node", "sign", "count", "round"),
    "changes": ("t", "link", "text"),
    "faults": ("t", "text", "begins", "places"),
    "notes": ("t", "text"),
}


@dataclass
class Names:
    """The indices of names in the columns: nodes and links in the order of the Plan, texts in order of appearance.

    ``texts`` grows while a run is followed; an index keeps its meaning.
    """

    nodes: dict[str, int]
    links: dict[str, int]
    texts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Names:
        nodes = {node["name"]: number for number, node in enumerate(plan["nodes"])}
        links = {link["name"]: number for number, link in enumerate(plan["network"]["links"])}
        return cls(nodes, links)

    def numbered(self, texts: Iterable[str]) -> list[int]:
        """Return the index of each text; a new text gets the next index."""
        return [self.texts.setdefault(text, len(self.texts)) for text in texts]


@dataclass(frozen=True)
class Part:
    """The requested part of a run; by default all of it.

    sites   data centres whose work and internal messages are included; ``None``: all. Messages between data centres
            are always included
    from_s  begin of the time span; ``to_s``: its end. Rows that overlap it are included
    rows    most rows of a table. If there are more, messages of a round are combined, then work is joined, and finally
            rounds are left out
    """

    sites: Collection[str] | None = None
    from_s: float = -math.inf
    to_s: float = math.inf
    rows: int = MOST_ROWS


def history(frames: Frames, names: Names, part: Part = Part()) -> dict[str, Columns]:
    """Return the columns for a run's tables (``testbed.results.columns``), or for some of their rows.

    Quantities that the page can derive are not included: the rate of a link follows from its bytes.
    """
    within = {name: _within(frames[name], part) for name in _WITHIN}
    has = {name for name in frames if len(within.get(name, frames[name]))}
    found: dict[str, Columns] = {name: {column: [] for column in columns} for name, columns in _COLUMNS.items()}
    if sampled := [frames[name][_SAMPLED] for name in ("probes", "links") if name in has]:
        found["samples"] = _samples(pd.concat(sampled, ignore_index=True), names)
    if "transfers" in has:
        found["messages"] = _messages(within["transfers"], names, part)
        found["carried"] = _carried(frames["transfers"])
    if has & {"computes", "waits", "holds"}:
        found["work"] = _work(within, names, part)
    if "rounds" in has:
        found["rounds"] = _rounds(within["rounds"], names, part)
    if "accuracy" in has:
        found["scores"] = _scores(frames["accuracy"])
    if "training" in has:
        found["training"] = {"t": _column(frames["training"]["t_s"], 6)}
    found["reached"] = _reached(frames)
    if has & {"updates", "blocks"}:
        found["marks"] = _marks(frames, names)
    if "replay" in has:
        found["changes"] = _changes(frames["replay"], names)
    if "faults" in has:
        found["faults"] = _faults(frames["faults"], names)
    if "warnings" in has:
        found["notes"] = _notes(frames["warnings"], names)
    return found


def _within(rows: pd.DataFrame, part: Part) -> pd.DataFrame:
    if math.isinf(part.from_s) and math.isinf(part.to_s):
        return rows
    begin = "t0_s" if "t0_s" in rows else "t_s"
    return rows[(rows["t_s"] >= part.from_s) & (rows[begin] <= part.to_s)]


def _column(values: Any, digits: int | None = None) -> list[Any]:
    """Return a column as JSON values: rounded; integers if all are whole; ``None`` for unknown values."""
    array = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(dtype=float, na_value=math.nan)
    if digits is not None:
        array = array.round(digits)
    known = np.isfinite(array)
    if known.all() and (digits == 0 or (array == np.floor(array)).all()):
        return list(array.astype(np.int64).tolist())
    return [value if ok else None for value, ok in zip(array.tolist(), known.tolist(), strict=True)]


def _numbers(values: pd.Series[Any], numbers: Mapping[str, int]) -> np.ndarray[Any, Any]:
    """Return the index of each name, or -1; each distinct name is looked up once."""
    places, found = pd.factorize(values)
    known = np.array([*(numbers.get(name, -1) for name in found), -1])
    numbered: np.ndarray[Any, Any] = known[places]
    return numbered


def _inside(nodes: pd.Series[Any], names: Names, sites: Collection[str]) -> pd.Series[Any]:
    """Return which nodes, given by index, are in these data centres."""
    return nodes.isin([number for name, number in names.nodes.items() if data_center_of(name) in sites])


def _reached(frames: Frames) -> Columns:
    """Return when the network was up, the first node began, and the links had been measured, as far as recorded."""
    told = {"network": frames["probes"]["t_s"], "nodes": frames["nodes"]["t_s"], "measured": frames["measured"]["t_s"]}
    first = sorted((float(t_s.min()), REACHED.index(what)) for what, t_s in told.items() if len(t_s))
    return {"t": _column([t for t, _ in first], 6), "what": [number for _, number in first]}


def _samples(links: pd.DataFrame, names: Names) -> Columns:
    """Return the samples, except those between two equal ones: most links of a large network are idle."""
    numbered = links.assign(link=_numbers(links["link"], names.links))
    known = numbered[numbered["link"] >= 0].sort_values(["link", "t_s"], kind="stable")
    same = pd.Series(True, index=known.index)
    for name in ("link", "bytes", "configured_bps", "backlog_bytes", "dropped_packets"):
        values = known[name]
        same &= values.eq(values.shift(1)) & values.eq(values.shift(-1))
    changed = known[~same].sort_values("t_s", kind="stable")
    return {
        "t": _column(changed["t_s"], 6),
        "link": _column(changed["link"], 0),
        "bytes": _column(changed["bytes"], 0),
        "rate_bps": _column(changed["configured_bps"], 0),
        "backlog_bytes": _column(changed["backlog_bytes"].fillna(0), 0),
        "dropped": _column(changed["dropped_packets"].fillna(0), 0),
    }


def _messages(transfers: pd.DataFrame, names: Names, part: Part) -> Columns:
    moved = transfers[(transfers["payload_bytes"] > 0) | (transfers["key"].fillna(NO_KEY) < 0)]
    moved = moved.assign(**{end: _numbers(moved[end], names.nodes) for end in ("source", "target")})
    moved = moved[(moved["source"] >= 0) & (moved["target"] >= 0)]
    if part.sites is not None:
        moved = moved[(moved["tier"] == "wan") | _inside(moved["target"], names, part.sites)]
    if len(moved) > part.rows:
        place = ["source", "target", "message", "round"]
        grouped = moved.groupby(place, sort=False, observed=True)
        moved = grouped.agg(t0_s=("t0_s", "min"), t_s=("t_s", "max"), payload_bytes=("payload_bytes", "sum"))
        moved = moved.reset_index().assign(key=NO_KEY)
    moved = _some_rounds(moved, part.rows)
    moved = moved.sort_values("t0_s", kind="stable")
    return {
        "t0": _column(moved["t0_s"], 6),
        "t": _column(moved["t_s"], 6),
        "source": _column(moved["source"], 0),
        "target": _column(moved["target"], 0),
        "kind": names.numbered(moved["message"]),
        "round": _column(moved["round"].fillna(-1), 0),
        "key": _column(moved["key"].fillna(NO_KEY), 0),
        "bytes": _column(moved["payload_bytes"], 0),
    }


def _work(between: Frames, names: Names, part: Part) -> Columns:
    computes = between["computes"]
    waits = between["waits"]
    holds = between["holds"]
    coding = computes["work"].isin(CODING)
    told = computes["part"].fillna("").where(computes["part"].fillna("") != "", computes["work"])
    spans = [
        computes[["t0_s", "t_s", "node", "round"]].assign(lane=np.where(coding, 1, 0), text=told),
        waits[["t0_s", "t_s", "node"]].assign(
            round=-1, lane=2, text=[f"wait for {name}" for name in waits["waiting_for"]]
        ),
        pd.DataFrame(
            {
                "t0_s": holds["t_s"] - holds["held_s"],
                "t_s": holds["t_s"],
                "node": holds["member"],
                "round": holds["round"],
                "lane": 3,
                "text": [f"held for {name or 'others'}" for name in holds["by"].fillna("")],
            }
        ),
    ]
    work = pd.concat([each for each in spans if len(each)] or spans[:1], ignore_index=True)
    work = work.assign(node=_numbers(work["node"], names.nodes))
    work = work[(work["node"] >= 0) & (work["t_s"] > work["t0_s"])]
    if part.sites is not None:
        work = work[_inside(work["node"], names, part.sites)]
    if len(work) > part.rows:
        work = _joined(work)
    work = _some_rounds(work, part.rows)
    work = work.sort_values("t0_s", kind="stable")
    return {
        "t0": _column(work["t0_s"], 6),
        "t": _column(work["t_s"], 6),
        "node": _column(work["node"], 0),
        "lane": _column(work["lane"], 0),
        "text": names.numbered(work["text"]),
        "round": _column(work["round"].fillna(-1), 0),
    }


def _some_rounds(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most ``most`` rows: of rounds evenly spread over the run and, if these are too many, the longest."""
    if len(rows) <= most:
        return rows
    numbers = np.sort(rows["round"].dropna().unique())
    kept = numbers[:: math.ceil(len(rows) / most)]
    some = rows[rows["round"].isin(kept)]
    some = some if len(some) else rows
    lasting = (some["t_s"] - some["t0_s"]).nlargest(most).index
    return some.loc[lasting]


def _joined(work: pd.DataFrame) -> pd.DataFrame:
    """Join a node's work in one lane and round if the gap between two pieces is too short to be visible."""
    gap_s = float(work["t_s"].max() - work["t0_s"].min()) / 4_000
    work = work.sort_values(["node", "lane", "t0_s"], kind="stable")
    reach = work.groupby(["node", "lane"], sort=False)["t_s"].cummax().shift(1)
    new = (work["node"].ne(work["node"].shift(1)) | work["lane"].ne(work["lane"].shift(1))) | work["round"].ne(
        work["round"].shift(1)
    )
    new |= work["t0_s"] > reach + gap_s
    grouped = work.groupby(new.cumsum(), sort=False)
    return grouped.agg(
        t0_s=("t0_s", "min"),
        t_s=("t_s", "max"),
        node=("node", "first"),
        round=("round", "first"),
        lane=("lane", "first"),
        text=("text", "first"),
    )


def _rounds(rounds: pd.DataFrame, names: Names, part: Part) -> Columns:
    numbered = rounds.assign(node=_numbers(rounds["node"], names.nodes))
    known = numbered[numbered["node"] >= 0].sort_values("t_s", kind="stable")
    if len(known) > part.rows:
        known = known[known["node"] == known["node"].iloc[0]].head(part.rows)
    return {
        "t0": _column(known["t0_s"], 6),
        "t": _column(known["t_s"], 6),
        "node": _column(known["node"], 0),
        "round": _column(known["round"], 0),
        "loss": _column(known["loss"], 6),
        "steps": _column(known["steps"].fillna(1), 0),
    }


def _scores(accuracy: pd.DataFrame) -> Columns:
    known = accuracy.sort_values("snapshot_t_s", kind="stable")
    return {
        "t": _column(known["snapshot_t_s"], 6),
        "accuracy": _column(known["accuracy"], 6),
        "loss": _column(known["loss"], 6),
        "round": _column(known["round"], 0),
    }


def _carried(transfers: pd.DataFrame) -> Columns:
    wan = wan_of_training(transfers).sort_values("t_s", kind="stable")
    sums = wan["payload_bytes"].cumsum()
    kept = np.unique(np.linspace(0, len(wan) - 1, min(len(wan), POINTS)).round().astype(int))
    return {"t": _column(wan["t_s"].iloc[kept], 6), "bytes": _column(sums.iloc[kept], 0)}


def _marks(frames: Frames, names: Names) -> Columns:
    """Return at most one mark of each kind per node and round: the stalest key, late blocks, lost blocks."""
    place = ["node", "round"]
    updates = frames["updates"]
    blocks = frames.get("blocks", pd.DataFrame())
    found = [updates.groupby(place, sort=False).agg(t_s=("t_s", "max"), count=("staleness", "max")).assign(sign=0)]
    for sign, name in enumerate(SIGNS[1:], 1):
        if len(blocks):
            found.append(
                blocks.groupby(place, sort=False).agg(t_s=("t_s", "max"), count=(name, "sum")).assign(sign=sign)
            )
    marks = pd.concat([each for each in found if len(each)] or found[:1]).reset_index()
    marks = marks.assign(node=_numbers(marks["node"], names.nodes))
    marks = marks[(marks["count"].fillna(0) > 0) & (marks["node"] >= 0)].sort_values("t_s", kind="stable")
    if len(marks) > POINTS:
        marks = marks.iloc[np.linspace(0, len(marks) - 1, POINTS).round().astype(int)]
    return {
        "t": _column(marks["t_s"], 6),
        "node": _column(marks["node"], 0),
        "sign": _column(marks["sign"], 0),
        "count": _column(marks["count"], 0),
        "round": _column(marks["round"].fillna(-1), 0),
    }


def _changes(replay: pd.DataFrame, names: Names) -> Columns:
    known = replay[replay["link"].isin(names.links)]
    told = [f"{what} {value:.6g}" for what, value in zip(known["what"], known["value"], strict=True)]
    return {
        "t": _column(known["t_s"], 6),
        "link": [names.links[link] for link in known["link"]],
        "text": names.numbered(told),
    }


def _faults(faults: pd.DataFrame, names: Names) -> Columns:
    kind = faults["fault"].fillna("").where(faults["fault"].fillna("") != "", faults["kind"])
    told = [f"{what} {cause}".strip() for what, cause in zip(kind, faults["message"].fillna(""), strict=True)]
    return {
        "t": _column(faults["t_s"], 6),
        "text": names.numbered(told),
        "begins": [0 if value is False or value is np.False_ else 1 for value in faults["begins"].tolist()],
        "places": [str(value) for value in faults["targets"].fillna("")],
    }


def _notes(warnings: pd.DataFrame, names: Names) -> Columns:
    return {"t": _column(warnings["t_s"], 6), "text": names.numbered(warnings["message"].fillna("").astype(str))}
