"""A run as a timeline in Chrome's trace-event format, for https://ui.perfetto.dev and chrome://tracing.

Each data centre is a process of the trace, and each track of a node is a thread: its rounds, computations, codecs,
sends, receptions and waits. A node with several concurrent transfers has several tracks of that kind, because slices of
a thread must nest. An arrow leads from the send of a tensor to its arrival. WAN links are counters in Mbit/s. Times are
in microseconds. Training starts at the same time in all runs of a trace, so that an emulated and a simulated run of one
scenario can be compared side by side.

Format: "Trace Event Format", Google, 2016 (phases X, C, M, s, f).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from analysis.identity import of_world
from analysis.load import StoredRun, distinct_names
from testbed.costs import CODING
from testbed.ids import data_center_of

Event = dict[str, Any]
LANES = ("rounds", "compute", "codec", "send", "receive", "wait")
_SLICES = {"push": "push", "value": "pull"}  # a value completes a pull
_ABOUT_TRANSFER = ("round", "payload_bytes", "header_bytes", "tier")
_SHORTEST_US = 1.0  # shorter transfers get no arrow


@dataclass(slots=True)
class _Threads:
    """The numbers of the processes and threads of a run, and their names as metadata events."""

    first_pid: int
    prefix: str
    pids: dict[str, int] = field(default_factory=dict)
    tids: dict[tuple[str, str, int], int] = field(default_factory=dict)
    names: list[Event] = field(default_factory=list)

    def pid(self, process: str) -> int:
        if process not in self.pids:
            number = self.pids[process] = self.first_pid + len(self.pids)
            self._describe("process", number, 0, f"{self.prefix}{process}", number)
        return self.pids[process]

    def tid(self, node: str, track: str, number: int) -> int:
        key = (node, track, number)
        pid = self.pid(data_center_of(node))
        if key not in self.tids:
            tid = self.tids[key] = len(self.tids) + 1
            short = node.partition("/")[2]
            label = f"{short} {track}" + (f" {number + 1}" if number else "")
            order = _place(short) * 1000 + LANES.index(track) * 100 + min(number, 99)
            self._describe("thread", pid, tid, label, order)
        return self.tids[key]

    def _describe(self, what: str, pid: int, tid: int, name: str, order: int) -> None:
        place = {"ph": "M", "pid": pid, "tid": tid}
        self.names += [
            {**place, "name": f"{what}_name", "args": {"name": name}},
            {**place, "name": f"{what}_sort_index", "args": {"sort_index": order}},
        ]


def trace(runs: Iterable[StoredRun]) -> dict[str, Any]:
    """Return the trace of one run, or of several side by side, as a JSON object."""
    runs = list(runs)
    latest_s = max(run.start_s for run in runs)
    events: list[Event] = []
    worlds = [of_world(run.plan).label for run in runs]
    for number, (run, name) in enumerate(zip(runs, distinct_names(runs), strict=True)):
        world = worlds[number] if worlds.count(worlds[number]) == 1 else f"{worlds[number]} {name}"
        prefix = f"{world} · " if len(runs) > 1 else ""
        threads = _Threads(1 + number * 1_000_000, prefix)
        events += _of_run(run, threads, (latest_s - run.start_s) * 1e6, number * 10_000_000)
    about = {"scenario": runs[0].plan["name"], "runs": [run.name for run in runs], "training_starts_us": latest_s * 1e6}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _of_run(run: StoredRun, threads: _Threads, shift_us: float, first_id: int) -> list[Event]:
    transfers = run.tables["transfers"]
    computes = run.tables["computes"]
    moved = transfers.assign(id=range(first_id, first_id + len(transfers)))
    computed = computes.assign(
        **{f"{name}_ms": (computes[f"{name}_s"] * 1000).round(3) for name in ("modelled", "real")}
    )
    lasting = computes["duration_s"] > 0
    by_codec = computes["work"].isin(CODING)

    def worked(row: Event) -> str:
        return str(row["part"] or row["work"])

    slices = [
        *_track("rounds", run.tables["rounds"], threads, lambda row: f"round {row['round']}", ("loss", "samples")),
        *_track("compute", computed[lasting & ~by_codec], threads, worked, ("round", "modelled_ms", "real_ms")),
        *_track("codec", computed[lasting & by_codec], threads, worked, ("round", "modelled_ms", "real_ms")),
        *_track(
            "send",
            moved.assign(node=moved["source"]),
            threads,
            lambda row: f"{_carried(row)} to {row['target']}",
            _ABOUT_TRANSFER,
        ),
        *_track(
            "receive",
            moved.assign(node=moved["target"]),
            threads,
            lambda row: f"{_carried(row)} from {row['source']}",
            _ABOUT_TRANSFER,
        ),
        *_track("wait", run.tables["waits"], threads, lambda row: f"wait for {row['waiting_for']}", ()),
        *_counters(run.tables["links"], threads),
    ]
    for event in slices:
        event["ts"] = round(event["ts"] + shift_us, 3)
    return [*threads.names, *sorted(slices, key=lambda event: (event["ts"], -event.get("dur", 0.0)))]


def _track(
    kind: str, table: pd.DataFrame, threads: _Threads, name: Callable[[Event], str], about: Sequence[str]
) -> Iterator[Event]:
    """Yield a slice for every row, and for transfers also one end of the arrow.

    kind   the track; ``send`` or ``receive`` for transfers
    name   returns the name of a row's slice
    about  columns shown when the slice is selected
    """
    for row in _laid_out(table):
        node = row["node"]
        begin_us = row["t0_s"] * 1e6
        end_us = row["t_s"] * 1e6
        place = {"pid": threads.pid(data_center_of(node)), "tid": threads.tid(node, kind, row["track"])}
        shown = {key: row[key] for key in about if row[key] is not None}
        yield {
            "ph": "X",
            **place,
            "name": name(row),
            "cat": kind,
            "ts": begin_us,
            "dur": max(0.0, round(end_us - begin_us, 3)),
            "args": shown,
        }
        if "id" in row and end_us - begin_us >= _SHORTEST_US:
            # the arrow ends just inside the slice that it binds to
            end = {"ph": "f", "bp": "e", "ts": end_us - _SHORTEST_US / 2}
            arrow = {"ph": "s", "ts": begin_us} if kind == "send" else end
            yield {**place, "name": "transfer", "cat": "transfer", "id": row["id"], **arrow}


def _counters(links: pd.DataFrame, threads: _Threads) -> Iterator[Event]:
    if links.empty:
        return
    pid = threads.pid("WAN links")
    known = links.dropna(subset=["achieved_bps", "configured_bps", "interval_s"])
    columns = zip(
        *(known[name].tolist() for name in ("link", "t_s", "interval_s", "achieved_bps", "configured_bps")), strict=True
    )
    for link, t_s, interval_s, achieved_bps, configured_bps in columns:
        rates = {"achieved": achieved_bps / 1e6, "configured": configured_bps / 1e6}
        for what, value in rates.items():  # one track each: a counter with two values would be drawn as their sum
            yield {
                "ph": "C",
                "pid": pid,
                "tid": 0,
                "name": f"{link} {what} (Mbit/s)",
                "ts": max(0.0, t_s - interval_s) * 1e6,
                "args": {"Mbit/s": round(value, 6)},
            }


def _laid_out(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows by node and time, each with the number of a ``track`` in which no earlier row overlaps it."""
    ordered = table.sort_values(["node", "t0_s", "t_s"])
    rows: list[Any] = ordered.astype(object).where(ordered.notna(), None).to_dict("records")
    free: list[tuple[float, int]] = []
    node = None
    tracks = 0
    for row in rows:
        if row["node"] != node:
            node = row["node"]
            tracks = 0
            free = []
        begin_s = row["t0_s"]
        end_s = max(row["t_s"], row["t0_s"])
        if free and free[0][0] <= begin_s:
            track = heapq.heappop(free)[1]
        else:
            track, tracks = tracks, tracks + 1
        heapq.heappush(free, (end_s, track))
        yield {**row, "track": track}


def _carried(row: Event) -> str:
    kind = str(_SLICES.get(row["message"], row["message"]))
    return f"{kind} key {row['key']}" if row["key"] is not None and row["key"] >= 0 else kind


def _place(node: str) -> int:
    """Return a sort key for nodes: global servers, servers, workers, the scheduler; within a role, by number."""
    role = node.rstrip("0123456789")
    number = int(node.removeprefix(role) or 0)
    return {"global": 0, "server": 2000, "worker": 4000, "scheduler": 90_000}.get(role, 80_000) + number
