"""A run as a timeline in Chrome's trace-event format, which https://ui.perfetto.dev and chrome://tracing open.

A process is a data centre, a thread is a track of a node: its computations, what it sends, what arrives at it, what it
waits for. A node with several transfers under way has several tracks of that kind, because slices of one thread must
nest. An arrow leads from where a tensor was sent to where it arrived. WAN links are counters, in Mbit/s. Time is in
microseconds; training starts at the same moment in every run that is given, so that an emulated and a simulated run of
one scenario lie side by side.

Format: "Trace Event Format", Google, 2016 (phases X, C, M, s, f).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.identity import BACK_ENDS
from analysis.load import Run
from testbed.ids import data_center_of

if TYPE_CHECKING:
    import pandas as pd

Event = dict[str, Any]
LANES = ("rounds", "compute", "send", "receive", "wait")
_SLICES = {"push": "push", "value": "pull"}  # a value that comes down is what a pull waited for
_SHORTEST_US = 1.0  # of a transfer that gets an arrow


@dataclass(slots=True)
class _Threads:
    """Numbers of processes and threads of one run, and their names as metadata events."""

    first_pid: int
    prefix: str
    pids: dict[str, int] = field(default_factory=dict)
    tids: dict[tuple[str, str, int], int] = field(default_factory=dict)
    names: list[Event] = field(default_factory=list)

    def pid(self, process: str) -> int:
        if process not in self.pids:
            number = self.pids[process] = self.first_pid + len(self.pids)
            self.names += [_name("process_name", number, 0, f"{self.prefix}{process}"),
                           _order("process_sort_index", number, 0, number)]  # fmt: skip
        return self.pids[process]

    def tid(self, node: str, track: str, number: int) -> int:
        key = (node, track, number)
        pid = self.pid(data_center_of(node))
        if key not in self.tids:
            tid = self.tids[key] = len(self.tids) + 1
            short = node.partition("/")[2]
            label = f"{short} {track}" + (f" {number + 1}" if number else "")
            order = _place(short) * 1000 + LANES.index(track) * 100 + min(number, 99)
            self.names += [_name("thread_name", pid, tid, label), _order("thread_sort_index", pid, tid, order)]
        return self.tids[key]


def trace(runs: Iterable[Run]) -> dict[str, Any]:
    """The JSON object of the trace of one run, or of several side by side."""
    runs = list(runs)
    latest_s = max(run.start_s for run in runs)
    events: list[Event] = []
    for number, run in enumerate(runs):
        prefix = f"{BACK_ENDS[run.plan['back_end']].label} · " if len(runs) > 1 else ""
        threads = _Threads(1 + number * 1_000_000, prefix)
        events += _of_run(run, threads, (latest_s - run.start_s) * 1e6, number * 10_000_000)
    about = {"scenario": runs[0].plan["name"], "runs": [run.name for run in runs], "training_starts_us": latest_s * 1e6}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _of_run(run: Run, threads: _Threads, shift_us: float, first_id: int) -> list[Event]:
    tables = run.tables
    slices = [
        *_rounds(tables["rounds"], threads),
        *_computes(tables["computes"], threads),
        *_transfers(tables["transfers"], threads, first_id),
        *_waits(tables["waits"], threads),
        *_counters(tables["links"], threads),
    ]
    for event in slices:
        event["ts"] = round(event["ts"] + shift_us, 3)
    return [*threads.names, *sorted(slices, key=lambda event: (event["ts"], -event.get("dur", 0.0)))]


def _rounds(rounds: pd.DataFrame, threads: _Threads) -> Iterator[Event]:
    for row in _laid_out(rounds):
        yield _slice(threads, row, "rounds", f"round {row['round']}", {"loss": row["loss"], "samples": row["samples"]})


def _computes(computes: pd.DataFrame, threads: _Threads) -> Iterator[Event]:
    for row in _laid_out(computes[computes["duration_s"] > 0]):
        about = {"round": row["round"], "modelled_ms": _ms(row["modelled_s"]), "real_ms": _ms(row["real_s"])}
        yield _slice(threads, row, "compute", str(row["part"] or row["work"]), about)


def _transfers(transfers: pd.DataFrame, threads: _Threads, first_id: int) -> Iterator[Event]:
    moved = transfers.assign(id=range(first_id, first_id + len(transfers)))
    sent, arrived = moved.assign(node=moved["source"]), moved.assign(node=moved["target"])
    for row in _laid_out(sent):
        yield _slice(threads, row, "send", _transfer_name(row, "to", row["target"]), _about_transfer(row))
        if row["duration_s"] * 1e6 >= _SHORTEST_US:
            yield _arrow(threads, row, "send", "s", row["t0_s"] * 1e6)
    for row in _laid_out(arrived):
        yield _slice(threads, row, "receive", _transfer_name(row, "from", row["source"]), _about_transfer(row))
        if row["duration_s"] * 1e6 >= _SHORTEST_US:  # the arrow ends just inside the slice that it binds to
            yield {**_arrow(threads, row, "receive", "f", row["t_s"] * 1e6 - _SHORTEST_US / 2), "bp": "e"}


def _waits(waits: pd.DataFrame, threads: _Threads) -> Iterator[Event]:
    for row in _laid_out(waits):
        yield _slice(threads, row, "wait", f"wait for {row['waiting_for']}", {})


def _counters(links: pd.DataFrame, threads: _Threads) -> Iterator[Event]:
    if links.empty:
        return
    pid = threads.pid("WAN links")
    known = links.dropna(subset=["achieved_bps", "configured_bps", "interval_s"])
    columns = zip(*(known[name].tolist() for name in ("link", "t_s", "interval_s", "achieved_bps", "configured_bps")),
                  strict=True)  # fmt: skip
    for link, t_s, interval_s, achieved_bps, configured_bps in columns:
        rates = {"achieved": achieved_bps / 1e6, "configured": configured_bps / 1e6}
        for what, value in rates.items():  # one track each: a counter with two values is drawn as their sum
            yield {"ph": "C", "pid": pid, "tid": 0, "name": f"{link} {what} (Mbit/s)",
                   "ts": max(0.0, t_s - interval_s) * 1e6, "args": {"Mbit/s": round(value, 6)}}  # fmt: skip


def _laid_out(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Rows by node and time, each with a ``track`` in which nothing before it is still going on."""
    ordered = table.sort_values(["node", "t0_s", "t_s"])
    rows: list[Any] = ordered.astype(object).where(ordered.notna(), None).to_dict("records")
    free: list[tuple[float, int]] = []
    node, tracks = None, 0
    for row in rows:
        if row["node"] != node:
            node, tracks, free = row["node"], 0, []
        begin_s, end_s = row["t0_s"], max(row["t_s"], row["t0_s"])
        if free and free[0][0] <= begin_s:
            track = heapq.heappop(free)[1]
        else:
            track, tracks = tracks, tracks + 1
        heapq.heappush(free, (end_s, track))
        yield {**row, "track": track}


def _slice(threads: _Threads, row: dict[str, Any], track: str, name: str, about: dict[str, Any]) -> Event:
    node = row["node"]
    shown = {key: value for key, value in about.items() if value is not None}
    begin_us, end_us = row["t0_s"] * 1e6, row["t_s"] * 1e6
    return {"ph": "X", "pid": threads.pid(data_center_of(node)), "tid": threads.tid(node, track, row["track"]),
            "name": name, "cat": track, "ts": begin_us, "dur": max(0.0, round(end_us - begin_us, 3)),
            "args": shown}  # fmt: skip


def _arrow(threads: _Threads, row: dict[str, Any], track: str, phase: str, ts: float) -> Event:
    node = row["node"]
    return {"ph": phase, "pid": threads.pid(data_center_of(node)), "tid": threads.tid(node, track, row["track"]),
            "name": "transfer", "cat": "transfer", "id": row["id"], "ts": ts}  # fmt: skip


def _transfer_name(row: dict[str, Any], preposition: str, other: str) -> str:
    kind = _SLICES.get(row["message"], row["message"])
    key = f" key {row['key']}" if row["key"] is not None and row["key"] >= 0 else ""
    return f"{kind}{key} {preposition} {other}"


def _about_transfer(row: dict[str, Any]) -> dict[str, Any]:
    names = ("round", "payload_bytes", "header_bytes", "tier")
    return {name: row[name] for name in names}


def _place(node: str) -> int:
    """Global servers, servers, workers, the scheduler; each by number."""
    role = node.rstrip("0123456789")
    number = int(node.removeprefix(role) or 0)
    return {"global": 0, "server": 2000, "worker": 4000, "scheduler": 90_000}.get(role, 80_000) + number


def _name(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": name}}


def _order(what: str, pid: int, tid: int, index: int) -> Event:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"sort_index": index}}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
