"""Finds completed rounds in the events of a run, while it runs or afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CompletedRound:
    """A round that all workers have completed. A worker that has left or failed does not count.

    Attributes:
        number: Number of the round as in the tables; the first is 0.
        t_s: Time when the last worker completed the round, in seconds on the run's clock.
        loss: Mean training loss of the workers; ``None`` if none reports one.
        steps: Mean training steps of a worker in this round.
        samples: Samples of all workers in this round.
    """

    number: int
    t_s: float
    loss: float | None
    steps: float
    samples: int


class RoundCounter:
    """Finds the rounds that all workers have completed. ``workers`` are those that train; one may represent several."""

    def __init__(self, workers: Iterable[str]) -> None:
        self._workers = frozenset(workers)
        self._last: dict[str, int] = {}  # the last round of each worker that takes part
        self._copies: dict[str, int] = {}
        # events of incomplete rounds, by worker: if a restart repeats a round, the worker's last event counts
        self._pending: dict[int, dict[str, Mapping[str, Any]]] = {}
        self._told = -1

    def take(self, event: Mapping[str, Any]) -> Iterator[CompletedRound]:
        """Take the next event. Yield the rounds that it completes, in their order."""
        kind = event["kind"]
        node = event.get("node", "")
        if kind == "start" and node in self._workers:
            self._last[node] = -1
            self._copies[node] = event.get("stands_for") or 1
        elif kind == "round":
            self._last[node] = event["round"]
            if event["round"] > self._told:
                self._pending.setdefault(event["round"], {})[node] = event
        elif kind == "final":
            self._last.pop(node, None)
        elif kind == "epoch" and not event["begins"]:
            for gone in event["targets"].split(", "):
                self._last.pop(gone, None)
        else:
            return
        yield from self._complete(min(self._last.values(), default=max(self._pending, default=-1)))

    def rest(self) -> Iterator[CompletedRound]:
        """Yield the rounds that only some workers have completed, at the end of a run."""
        yield from self._complete(max(self._pending, default=-1))

    def _complete(self, newest: int) -> Iterator[CompletedRound]:
        for number in sorted(number for number in self._pending if number <= newest):
            self._told = number
            yield _mean(number, self._pending.pop(number), self._copies)


def _mean(number: int, by_worker: Mapping[str, Mapping[str, Any]], copies: Mapping[str, int]) -> CompletedRound:
    events = by_worker.values()
    losses = [event["loss"] for event in events if event.get("loss") is not None and event["loss"] == event["loss"]]
    steps = sum(event.get("steps") or 1 for event in events) / len(events)
    samples = sum((event.get("samples") or 0) * copies.get(worker, 1) for worker, event in by_worker.items())
    t_s = max(event["t"] for event in events)
    return CompletedRound(number, t_s, sum(losses) / len(losses) if losses else None, steps, samples)
