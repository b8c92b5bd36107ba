"""Records the events of a run while a user starts programs by hand in a shell."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from emulation.network import Emulation
from testbed.ids import data_center_of
from testbed.results.events import EventLog

LOG = "shell"
NETWORK_LOG = "network"


class Recording:
    """The events of one shell, in the directory ``events``."""

    def __init__(self, events: Path) -> None:
        self._begin_s = time.monotonic()
        self._shell = EventLog(events, LOG)
        self._network = EventLog(events, NETWORK_LOG)
        self._nodes: dict[str, EventLog] = {}
        self._events = events

    def network_event(self, kind: str, **fields: Any) -> None:
        """Record an event of bringing up the network, or of its measurement."""
        self._network.write(kind, self._now_s(), **fields)

    def begin(self, network: Emulation, *, measured: bool) -> None:
        """Watch the network from now on; ``measured``: whether to measure it first."""
        if measured:
            network.measure()
        network.helpers.start_monitor(self._begin_s)
        self._shell.write("train", self._now_s(), workers=len(network.layout.hosts), rounds=0)

    def command(self, line: str) -> None:
        if line.strip():
            self._shell.write("command", self._now_s(), line=line.strip())
            self._shell.flush()

    def started(self, node: str, pid: int) -> None:
        self._write(node, "start", role="worker", data_center=data_center_of(node), pid=pid)

    def ended(self, node: str, code: int) -> None:
        self._write(node, "final", role="worker", rounds=0, code=code)

    def end(self, network: Emulation) -> None:
        """Take the last samples, and close all logs."""
        network.helpers.finish()
        self._shell.write("final", self._now_s(), role="shell", rounds=0)
        for log in (self._shell, self._network, *self._nodes.values()):
            log.close()

    def _write(self, node: str, kind: str, **fields: Any) -> None:
        log = self._nodes.setdefault(node, EventLog(self._events, node))
        log.write(kind, self._now_s(), **fields)
        log.flush()

    def _now_s(self) -> float:
        return time.monotonic() - self._begin_s
