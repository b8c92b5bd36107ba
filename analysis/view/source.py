"""Run directories as data of their page: a whole run, a span of time, or the news of a run in progress."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.breakdown import critical_hops
from analysis.load import StoredRun, distinct_names, load_run
from analysis.view.history import MOST_ROWS, Frames, Names, Part, history
from analysis.view.page import json_of, saved_page
from analysis.view.plot import plot_of
from testbed.results import rundir
from testbed.results.tables import GrowingTables, empty_frames

MOST_NODES = 150  # a page has the work of at most this many nodes; it asks its server for that of others on demand
LARGEST_SAVED_BYTES = 2_900_000
_POLL_EVERY_S = 0.5
_POLL_AT_FIRST_S = 0.1  # until training begins
_MOST_OF_A_CORE = 0.015  # most of a core that polling a run in progress takes, averaged since the page was opened
_TO_BEGIN_S = 0.3  # processor time that does not count: the first rows cost the most, and the user waits for them
_ROUNDS_TRACED = 200  # most rounds whose critical path a page has
_HOPS_TRACED = 60_000  # most transfers that are searched for these paths
_MOST_OF_SITE = 40_000  # most rows of a table for a data centre that is viewed while the run is in progress
_ENDS = {"messages": ("source", "target"), "work": ("node",), "rounds": ("node",), "marks": ("node",)}
_LIVE = ("pending", "running")
_LEAST_ROWS = 2_000


def next_poll_s(now_s: float, opened_s: float, polled_s: float, trains: bool) -> float:
    """Return when to read a run in progress again, so that reading stays below its share of a core.

    opened_s  when the page was opened
    polled_s  processor time that reading has taken so far
    trains    whether training has begun
    """
    every_s = _POLL_EVERY_S if trains else _POLL_AT_FIRST_S
    return max(now_s + every_s, opened_s + (polled_s - _TO_BEGIN_S) / _MOST_OF_A_CORE)


class GrowingSite:
    """The history of one data centre's nodes in a run in progress; see ``history``.

    Files of nodes elsewhere are not read, except those of the central data centre: its servers record whose replies
    they held.
    """

    def __init__(self, events: Path, plan: Mapping[str, Any], site: str) -> None:
        self._site = site
        self._names = Names.of(plan)
        central = [each["name"] for each in plan["network"]["sites"] if each["central"]]
        apart = [node["name"] for node in plan["nodes"] if node["data_center"] not in (site, *central)]
        self._tables = GrowingTables(events, {name.replace(".", "/") for name in apart})
        self._inside = {self._names.nodes[node["name"]] for node in plan["nodes"] if node["data_center"] == site}
        self._found = history(empty_frames(), self._names)

    def poll(self) -> dict[str, Any]:
        """Return all rows so far; of each table, at most the latest ``_MOST_OF_SITE``."""
        new = history(self._tables.poll(), self._names, Part(sites=[self._site]))
        for table, ends in _ENDS.items():
            columns = new[table]
            rows = [row for row in range(len(columns["t"])) if any(columns[end][row] in self._inside for end in ends)]
            for name, values in self._found[table].items():
                values += [columns[name][row] for row in rows]
                del values[:-_MOST_OF_SITE]
        return {"history": self._found, "texts": list(self._names.texts)}


class ViewedRun:
    """One run directory. ``label``: its name among the runs of the page."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self._run: StoredRun = load_run(path)
        self._names = Names.of(self._run.plan)
        self._parts: list[bytes] = []  # of a run in progress: the news so far, as JSON
        self._told_texts = 0
        self._growing: GrowingTables | None = GrowingTables(path / "events") if self.is_live else None
        self._opened_s = time.monotonic()
        self._next_s = -math.inf  # when the run in progress is read again
        self._polled_s = 0.0  # processor time of reading
        self._trains = False
        self._sites: dict[str, GrowingSite] = {}  # the data centre that is viewed while the run is in progress
        self._lock = threading.Lock()

    @property
    def is_live(self) -> bool:
        return rundir.open_run(self.path).status().state in _LIVE

    @property
    def state(self) -> str:
        return rundir.open_run(self.path).status().state

    @cached_property
    def _plot(self) -> dict[str, Any]:
        return plot_of(self._run.plan, self.path / "resolved.yaml")

    @cached_property
    def _shown(self) -> list[str] | None:
        """The data centres whose nodes' work the page has, the central one first; ``None``: all."""
        nodes = self._run.plan["nodes"]
        if len(nodes) <= MOST_NODES:
            return None
        sites = sorted(self._run.plan["network"]["sites"], key=lambda site: not site["central"])
        counts: dict[str, int] = {}
        for node in nodes:
            counts[node["data_center"]] = counts.get(node["data_center"], 0) + 1
        shown: list[str] = []
        held = 0
        for site in sites:
            held += counts.get(site["name"], 0)
            if held > MOST_NODES and shown:
                break
            shown.append(site["name"])
        return shown

    def whole(self, rows: int = MOST_ROWS) -> dict[str, Any]:
        """Return the initial data of the page; of a run in progress, only the network: ``news`` has the rest."""
        if self._growing is not None:
            return self._described(history(empty_frames(), self._names), [], live=True, thinned=False)
        frames = self._run.tables
        names = Names.of(self._run.plan)
        found = history(frames, names, Part(sites=self._shown, rows=rows))
        found["paths"] = _paths(frames, names)
        thinned = any(len(frames[name]) > rows for name in ("transfers", "computes", "waits"))
        return self._described(found, list(names.texts), live=False, thinned=thinned)

    def _described(self, found: dict[str, Any], texts: list[str], *, live: bool, thinned: bool) -> dict[str, Any]:
        number = {vertex: place for place, vertex in enumerate(self._plot["vertices"])}
        return {
            "label": self.label,
            "plot": self._plot,
            "history": found,
            "texts": texts,
            "state": self.state,
            "live": live,
            "thinned": thinned,
            "partial": None if self._shown is None else [number[site] for site in self._shown],
        }

    def part(self, from_s: float, to_s: float, site: str) -> dict[str, Any] | None:
        """Return the history between two times, with the work of one data centre's nodes.

        site  a data centre; empty for those that the page shows. Raise ``ValueError`` if there is no such site

        Return ``None`` for what ``news`` tells of a run that still grows.
        """
        if site not in ("", *self._plot["vertices"]):
            raise ValueError(f"there is no data centre '{site}'")
        if self._growing is not None:
            return self._growing_part(site)
        names = Names.of(self._run.plan)
        wanted = Part(sites=[site] if site else self._shown, from_s=from_s, to_s=to_s)
        found = history(self._run.tables, names, wanted)
        return {"history": found, "texts": list(names.texts), "state": self.state, "live": False}

    def _growing_part(self, site: str) -> dict[str, Any] | None:
        """Return the history so far of a data centre that ``news`` leaves out; ``None`` for other data centres."""
        if self._shown is None or site in ("", *self._shown):
            return None
        with self._lock:
            if site not in self._sites:
                self._sites = {site: GrowingSite(self.path / "events", self._run.plan, site)}  # one at a time
            begin_s = time.thread_time()
            found = self._sites[site].poll()
            self._polled_s += time.thread_time() - begin_s
        return {**found, "state": self.state, "live": True}

    def news(self, number: int, told: int) -> tuple[list[bytes], bool]:
        """Return the news of a run in progress after the first ``told`` parts, as JSON, and whether more may follow.

        number  the index of the run on the page
        """
        with self._lock:
            if self._growing is not None and time.monotonic() >= self._next_s:
                begin_s = time.thread_time()
                self._poll(number)
                self._polled_s += time.thread_time() - begin_s
                self._next_s = next_poll_s(time.monotonic(), self._opened_s, self._polled_s, self._trains)
            return self._parts[told:], self._growing is not None

    def _poll(self, number: int) -> None:
        assert self._growing is not None
        live = self.is_live  # asked before the events are read, so that the last events are not missed
        frames = self._growing.poll()
        self._trains = self._trains or len(frames["training"]) > 0
        if any(len(frame) for frame in frames.values()) or not live:
            found = history(frames, self._names, Part(sites=self._shown))
            texts = list(self._names.texts)[self._told_texts :]
            self._told_texts += len(texts)
            part = {"run": number, "history": found, "texts": texts, "state": self.state, "live": live}
            self._parts.append(json_of(part))
        if not live:
            self._growing = None
            self._run = load_run(self.path)


def _paths(frames: Frames, names: Names) -> dict[str, list[Any]]:
    """Return the critical paths of rounds that are evenly spread over the run; empty if its logs lack them."""
    rounds = frames["rounds"]["round"].unique()
    if not len(rounds) or frames["computes"].empty:
        return {"t0": [], "t": [], "source": [], "target": [], "round": []}
    per_round = max(1, len(frames["transfers"]) // len(rounds))
    most = max(1, min(_ROUNDS_TRACED, _HOPS_TRACED // per_round))
    stride = max(1, math.ceil(len(rounds) / most))
    hops = critical_hops(frames, [int(each) for each in sorted(rounds)[::stride]])
    known = hops[hops["source"].isin(names.nodes) & hops["target"].isin(names.nodes)]
    return {
        "t0": known["t0_s"].round(6).tolist(),
        "t": known["t_s"].round(6).tolist(),
        "source": [names.nodes[node] for node in known["source"]],
        "target": [names.nodes[node] for node in known["target"]],
        "round": known["round"].tolist(),
    }


def viewed(paths: Sequence[Path]) -> list[ViewedRun]:
    """Open run directories. Raise ``ScenarioError`` if one of them is none, ``TestbedError`` if a file is damaged."""
    labels = distinct_names([load_run(path) for path in paths]) if len(paths) > 1 else [paths[0].name]
    return [ViewedRun(path, label) for path, label in zip(paths, labels, strict=True)]


def saved(paths: Sequence[Path]) -> str:
    """Return the page of runs as one file, with as many rows as fit into ``LARGEST_SAVED_BYTES``."""
    runs = viewed(paths)
    rows = MOST_ROWS
    while True:
        page = saved_page("run", {"runs": [run.whole(rows) for run in runs]})
        if len(page) <= LARGEST_SAVED_BYTES or rows <= _LEAST_ROWS:
            return page
        rows //= 2
