"""Run directories as their page sees them: whole, a part of their time, or what is new of a run in progress."""

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

MOST_NODES = 150  # whose work a page holds; of others, its server tells when they are looked at
LARGEST_SAVED_BYTES = 2_900_000
_POLL_EVERY_S = 0.5
_POLL_AT_FIRST_S = 0.1  # until training begins
_MOST_OF_A_CORE = 0.015  # that a page of a run in progress takes from it, since it was opened, by polling less often
_TO_BEGIN_S = 0.3  # of a core, beside that: the first rows cost most, and are waited for
_ROUNDS_TRACED = 200  # whose critical path a page has
_HOPS_TRACED = 60_000  # transfers that are looked through for that
_MOST_OF_SITE = 40_000  # rows of a table, of a data centre that is looked at while a run grows
_ENDS = {"messages": ("source", "target"), "work": ("node",), "rounds": ("node",), "marks": ("node",)}
_LIVE = ("pending", "running")
_LEAST_ROWS = 2_000


def next_poll_s(now_s: float, opened_s: float, polled_s: float, trains: bool) -> float:
    """Return when a run in progress is read again, so that reading takes its share of a core since the page was opened.

    polled_s  processor time that reading has taken so far
    trains    whether training has begun
    """
    every_s = _POLL_EVERY_S if trains else _POLL_AT_FIRST_S
    return max(now_s + every_s, opened_s + (polled_s - _TO_BEGIN_S) / _MOST_OF_A_CORE)


class GrowingSite:
    """What the nodes of one data centre do in a run that is being written; see ``history``.

    Files of nodes elsewhere are not read, but for those of the central data centre, which tell whom they held.
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
        """Return all rows so far, or the latest of very many."""
        new = history(self._tables.poll(), self._names, Part(sites=[self._site]))
        for table, ends in _ENDS.items():
            columns = new[table]
            rows = [row for row in range(len(columns["t"])) if any(columns[end][row] in self._inside for end in ends)]
            for name, values in self._found[table].items():
                values += [columns[name][row] for row in rows]
                del values[:-_MOST_OF_SITE]
        return {"history": self._found, "texts": list(self._names.texts)}


class ViewedRun:
    """One run directory. ``label``: what it is called beside others."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self._run: StoredRun = load_run(path)
        self._names = Names.of(self._run.plan)
        self._parts: list[bytes] = []  # of a run in progress: what has been told, as JSON
        self._told_texts = 0
        self._growing: GrowingTables | None = GrowingTables(path / "events") if self.is_live else None
        self._opened_s = time.monotonic()
        self._next_s = -math.inf  # when the run in progress is read again
        self._polled_s = 0.0  # of the processor
        self._trains = False
        self._sites: dict[str, GrowingSite] = {}  # that are looked at while the run grows
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
        """The data centres whose nodes' work the page holds, the central one first; ``None``: all."""
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
        """Return all that the page begins with; of a run in progress, the network alone: ``news`` has the rest."""
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
        """Return what happened between two moments, of one data centre's nodes or of those that the page shows."""
        if site not in ("", *self._plot["vertices"]):
            return None
        if self._growing is not None:
            return self._growing_part(site)
        names = Names.of(self._run.plan)
        wanted = Part(sites=[site] if site else self._shown, from_s=from_s, to_s=to_s)
        found = history(self._run.tables, names, wanted)
        return {"history": found, "texts": list(names.texts), "state": self.state, "live": False}

    def _growing_part(self, site: str) -> dict[str, Any] | None:
        """Return what nodes of a data centre have done so far, of which ``news`` does not tell."""
        if self._shown is None or site in ("", *self._shown):
            return None
        with self._lock:
            if site not in self._sites:
                self._sites = {site: GrowingSite(self.path / "events", self._run.plan, site)}  # one is looked at
            begin_s = time.thread_time()
            found = self._sites[site].poll()
            self._polled_s += time.thread_time() - begin_s
        return {**found, "state": self.state, "live": True}

    def news(self, number: int, told: int) -> tuple[list[bytes], bool]:
        """Return the parts of a run in progress after the first ``told``, as JSON, and whether more may come."""
        with self._lock:
            if self._growing is not None and time.monotonic() >= self._next_s:
                begin_s = time.thread_time()
                self._poll(number)
                self._polled_s += time.thread_time() - begin_s
                self._next_s = next_poll_s(time.monotonic(), self._opened_s, self._polled_s, self._trains)
            return self._parts[told:], self._growing is not None

    def _poll(self, number: int) -> None:
        assert self._growing is not None
        live = self.is_live  # before the events are read: what is written until the end is read then, too
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
    """Return the critical path of rounds, evenly spread over the run, as far as its logs say it."""
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
    """Open run directories. Raise ``ScenarioError`` if one is none, ``TestbedError`` if a file of it is damaged."""
    labels = distinct_names([load_run(path) for path in paths]) if len(paths) > 1 else [paths[0].name]
    return [ViewedRun(path, label) for path, label in zip(paths, labels, strict=True)]


def saved(paths: Sequence[Path]) -> str:
    """Return a page of runs that holds everything itself, as many rows of them as fit into ``LARGEST_SAVED_BYTES``."""
    runs = viewed(paths)
    rows = MOST_ROWS
    while True:
        page = saved_page("run", {"runs": [run.whole(rows) for run in runs]})
        if len(page) <= LARGEST_SAVED_BYTES or rows <= _LEAST_ROWS:
            return page
        rows //= 2
