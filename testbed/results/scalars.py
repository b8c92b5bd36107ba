"""Scalar series of a run for experiment trackers, from its event logs, during the run or afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from testbed.facilities import facilities_of
from testbed.ids import data_center_of
from testbed.results.events import PartReader, decoded, parts
from testbed.results.rounds import RoundCounter

LINKS_FOLLOWED = 100
_KINDS = ("start", "train", "round", "evaluate", "final", "epoch", "update", "link")
_LAG_S = 2.0  # after this time, the logs of real nodes are complete, as they are flushed twice a second


class SeriesValue(NamedTuple):
    """One value of the series ``tag``.

    step  the round
    t_s   seconds since the start of training, on the run's clock. If the run began with another run's checkpoint, this
          includes the time of training before the checkpoint
    """

    tag: str
    step: int
    t_s: float
    value: float


@dataclass(slots=True)
class _Counter:
    """Cumulative bytes at the newest sample, and at the sample up to which the last rate was computed."""

    t_s: float
    sent: float
    since_s: float = 0.0
    since: float = 0.0

    def rate_mbit_s(self) -> float | None:
        """Return the mean rate since the last call; ``None`` if there is no newer sample."""
        if self.t_s <= self.since_s:
            return None
        rate = (self.sent - self.since) * 8e-6 / (self.t_s - self.since_s)
        self.since_s = self.t_s
        self.since = self.sent
        return rate if rate >= 0 else None  # negative: counters began anew after a restart


class Scalars:
    """Turns events into scalars. Events must come in the order of their times.

    ======================  ==========  ===============================================================================
    tag                     unit        value
    ======================  ==========  ===============================================================================
    training/loss                       mean training loss of the workers in a round
    test/accuracy, loss     1           scores of an evaluation, at the time when the evaluated values were copied
    staleness               updates     mean staleness of the updates of a round (``update`` events)
    link_mbit_per_s/LINK    Mbit/s      mean rate of a link since its last scalar, headers included
    wan_mbit_per_s/SITE     Mbit/s      payload that a data centre sent over the WAN, if there are no links (local)
    ======================  ==========  ===============================================================================

    Only the first ``LINKS_FOLLOWED`` links are followed.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        trains = (node["name"] for node in plan["nodes"] if node["role"] == "worker" and node["trains"])
        self._rounds = RoundCounter(trains)
        self._links = {link["name"] for link in plan["network"]["links"][:LINKS_FOLLOWED]}
        self._counters: dict[str, _Counter] = {}
        self._staleness: dict[int, list[int]] = {}
        self._start_s: float | None = None

    def take(self, event: Mapping[str, Any]) -> Iterator[SeriesValue]:
        """Take the next event, and yield the scalars that it completes."""
        match event["kind"]:
            case "train" if self._start_s is None:  # a later ``train`` event belongs to a restart
                self._start_s = event["t"] - (event.get("trained_s") or 0.0)
            case "link" if event["link"] in self._links:
                self._count(f"link_mbit_per_s/{event['link']}", event["t"], event["bytes"])
            case "transfer" if event["tier"] == "wan" and event["round"] >= 0:
                tag = f"wan_mbit_per_s/{data_center_of(event['source'])}"
                before = self._counters.get(tag)
                self._count(tag, event["t"], (before.sent if before else 0) + event["payload_bytes"])
            case "update" if event.get("staleness") is not None:
                self._staleness.setdefault(event["round"], []).append(event["staleness"])
            case "evaluate":
                for name in ("accuracy", "loss"):
                    if event.get(name) is not None:
                        t_s = self._since_start_s(event["snapshot_t"])
                        yield SeriesValue(f"test/{name}", event["round"], t_s, float(event[name]))
        yield from self._completed(self._rounds.take(event))

    def rest(self) -> Iterator[SeriesValue]:
        """Yield the remaining scalars at the end of a run."""
        yield from self._completed(self._rounds.rest())

    def _since_start_s(self, t_s: float) -> float:
        return t_s - (self._start_s or 0.0)

    def _count(self, tag: str, t_s: float, sent: float) -> None:
        counter = self._counters.get(tag)
        if counter is None:
            self._counters[tag] = _Counter(t_s, sent, t_s, sent)
        else:
            counter.t_s = t_s
            counter.sent = sent

    def _completed(self, rounds: Iterable[Any]) -> Iterator[SeriesValue]:
        for completed in rounds:
            number = completed.number
            t_s = self._since_start_s(completed.t_s)
            if completed.loss is not None:
                yield SeriesValue("training/loss", number, t_s, completed.loss)
            known = [self._staleness.pop(round_) for round_ in sorted(self._staleness) if round_ <= number]
            updates = [staleness for each in known for staleness in each]
            if updates:
                yield SeriesValue("staleness", number, t_s, sum(updates) / len(updates))
            for tag, counter in self._counters.items():
                if (rate := counter.rate_mbit_s()) is not None:
                    yield SeriesValue(tag, number, self._since_start_s(counter.t_s), rate)


@dataclass(slots=True)
class EventTail:
    """Reads the event logs of a run directory while they grow.

    kinds  kinds of events to read; empty: all
    lag_s  an event is returned only when a newer one by this time has been read. By then, all processes have written
           their logs up to it, so that events come in the order of their times
    """

    events: Path
    kinds: tuple[str, ...]
    lag_s: float
    _files: dict[Path, PartReader | None] = field(default_factory=dict)  # None: the whole file has been read
    _held: list[dict[str, Any]] = field(default_factory=list)

    def poll(self) -> list[dict[str, Any]]:
        """Return the events that are due, each with its ``node``, ordered by time."""
        self._take()
        newest_s = self._held[-1]["t"] if self._held else 0.0
        due = sum(event["t"] <= newest_s - self.lag_s for event in self._held)
        given, self._held = self._held[:due], self._held[due:]
        return given

    def rest(self) -> list[dict[str, Any]]:
        """Return all other events, when the run has ended."""
        self._take()
        given, self._held = self._held, []
        return given

    def _take(self) -> None:
        wanted = tuple(f'"kind":"{kind}"'.encode() for kind in self.kinds)
        for path in parts(self.events):
            reader = self._files[path] if path in self._files else PartReader(path)
            if reader is None:  # a long run has thousands of finished parts
                continue
            lines = reader.lines().splitlines()
            self._files[path] = None if reader.ended else reader
            due = (line for line in lines if not wanted or any(kind in line for kind in wanted))
            self._held += (
                event
                for event in decoded(due)
                if isinstance(event.get("t"), float | int) and (not self.kinds or event.get("kind") in self.kinds)
            )
        self._held.sort(key=lambda event: float(event["t"]))  # stable: one writer's events keep their order


def tail_of(run: Path, plan: Mapping[str, Any]) -> EventTail:
    """Return the tail that ``Scalars`` needs for a run of this Plan."""
    facilities = facilities_of(plan)
    kinds = (*_KINDS, "transfer") if facilities.is_unshaped else _KINDS
    return EventTail(run / "events", kinds, _LAG_S if facilities.has_processes else 0.0)
