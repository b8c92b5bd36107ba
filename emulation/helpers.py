"""The helper processes of one emulated network: delay lines, trace replay, background traffic, monitor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emulation.children import Child
from emulation.shaping.base import LinkSpec
from emulation.shaping.table import DelayTable
from testbed.errors import RunFailed

DELAY_LINE, REPLAY = "emulation.shaping.delay_line", "emulation.replay"
TRAFFIC, MONITOR = "emulation.traffic", "emulation.monitor"
WRITERS = {REPLAY: "network-replay", TRAFFIC: "network-background", MONITOR: "network-monitor"}


class Helpers:
    """Starts them, and ends them in the opposite order.

    events           where they write their logs; of one of several machines, its name is part of the writers' names
    in_virtual_time  no packet is late there, however many links are in use
    """

    def __init__(
        self,
        links: Sequence[LinkSpec],
        table: DelayTable,
        events: Path,
        realtime: bool,
        machine: str = "",
        in_virtual_time: bool = False,
    ) -> None:
        self._links, self._table, self._events, self._realtime = links, table, events, realtime
        self._in_virtual_time = in_virtual_time
        self._suffix = f"/{machine}" if machine else ""
        self._children: list[Child] = []
        self._timed: list[Child] = []  # those that wait for the start of training

    def start_delay_line(self, settings: dict[str, Any]) -> None:
        """Start one process of the delay line."""
        self._children.append(Child(DELAY_LINE, settings, [self._table.descriptor]))

    def start_timed(self, module: str, settings: dict[str, Any]) -> None:
        """Start a process that prepares, and waits for ``begin``."""
        self._timed.append(self._start(module, settings))

    def start_monitor(self, epoch_s: float) -> None:
        """Start the monitor and wait until it runs. ``epoch_s``: the run's start on CLOCK_MONOTONIC."""
        self._start(MONITOR, {"epoch_s": epoch_s, "in_virtual_time": self._in_virtual_time}).wait_ready()

    def _start(self, module: str, settings: dict[str, Any]) -> Child:
        common = {
            "links": [link.to_dict() for link in self._links],
            "table": self._table.descriptor,
            "rows": self._table.rows,
            "events": str(self._events.resolve()),
            "writer": f"{WRITERS[module]}{self._suffix}",
            "realtime": self._realtime,
        }
        child = Child(module, common | settings, [self._table.descriptor])
        self._children.append(child)
        return child

    def wait_ready(self) -> None:
        """Wait for all that have been started. Raise ``RunFailed`` if one has ended."""
        for child in self._children:
            child.wait_ready()

    def begin(self, epoch_s: float, training_start_s: float) -> None:
        """Tell replay and background traffic when training starts, their t = 0."""
        for child in self._timed:
            child.send({"epoch_s": epoch_s, "start_s": training_start_s})

    def correct(self, epoch_s: float, training_start_s: float) -> None:
        """Tell the replay when training started, as this machine's clock is known now."""
        for child in self._timed:
            if child.module == REPLAY and child.process.poll() is None:
                child.send({"epoch_s": epoch_s, "start_s": training_start_s})

    def check(self) -> None:
        """Raise ``RunFailed`` if a process has ended: without it, links no longer follow the plan."""
        for child in self._children:
            code = child.process.poll()
            if code is not None and not (child.module == REPLAY and code == 0):  # a trace may be at its end
                raise RunFailed(f"{child.module} ended with {code} during the run; the links no longer follow the plan")

    def finish(self) -> None:
        """End all but the delay line; they write their last samples."""
        for child in [child for child in self._children if child.module != DELAY_LINE]:
            child.stop()
            self._children.remove(child)
        self._timed.clear()

    def stop(self) -> None:
        """End all."""
        for child in reversed(self._children):
            child.stop()
        self._children.clear()
        self._timed.clear()
