"""Helper processes of an emulation: delay lines, trace replay, background traffic, monitor.

Each is a fresh interpreter that imports little (no torch, no Mininet). They are not threads, because the process that
forks the nodes must have none. Each ignores Ctrl-C, dies with its parent, and is ended by its process id.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import RunFailed
from testbed.processes.child import die_with, spawn

if TYPE_CHECKING:
    from emulation.shaping.link_spec import LinkSpec
    from emulation.shaping.table import DelayTable

DELAY_LINE = "emulation.shaping.delay_line"
REPLAY = "emulation.replay"
TRAFFIC = "emulation.traffic"
MONITOR = "emulation.monitor"
WRITERS = {REPLAY: "network-replay", TRAFFIC: "network-background", MONITOR: "network-monitor"}
READY_DEADLINE_S = 10.0
MEASURE_PRIORITY = 20  # below the delay line and the replay
STOP_DEADLINE_S = 5.0
_PR_SET_TIMERSLACK = 29
ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("emulation", "testbed", "topologies")


def own_packages() -> dict[str, str]:
    """Return an environment in which a fresh interpreter imports the packages that this one does.

    The packages may lie in different folders: Ray unpacks each package that it sends to a machine separately.
    """
    found = [spec.submodule_search_locations for name in _PACKAGES if (spec := find_spec(name)) is not None]
    roots = dict.fromkeys(str(Path(place).resolve().parent) for places in found for place in places or ())
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**others, "PYTHONPATH": os.pathsep.join(roots)}


class Helper:
    """A running helper process, ``python -m module``; the first line on its standard input is JSON, its settings."""

    def __init__(self, module: str, descriptors: Sequence[int] = ()) -> None:
        self.module = module
        self.child = spawn(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=own_packages(),
            pass_fds=tuple(descriptors),
        )

    def wait_ready(self) -> None:
        """Wait for the line ``ready``. Raise ``RunFailed`` if it does not come in time."""
        assert self.child.stdout is not None
        readable = select.poll()  # unlike select(2), it takes any descriptor
        readable.register(self.child.stdout, select.POLLIN)
        if not readable.poll(READY_DEADLINE_S * 1e3) or self.child.stdout.readline().strip() != b"ready":
            raise RunFailed(f"{self.module} did not start (exit {self.stop()}); its message is above")

    def send(self, settings: dict[str, Any]) -> None:
        """Send one line of JSON; the first is the helper's settings. Raise ``RunFailed`` if the helper has ended."""
        try:
            self.child.send(settings)
        except BrokenPipeError:
            raise RunFailed(f"{self.module} has ended with {self.child.wait(1.0)}; its message is above") from None

    def stop(self) -> int:
        """End it by SIGTERM, and by SIGKILL if it has not ended ``STOP_DEADLINE_S`` later; return its exit code."""
        return self.child.end(STOP_DEADLINE_S)


@contextmanager
def realtime(priority: int | None) -> Iterator[None]:
    """Run this process, but not its children, under SCHED_FIFO in the block. With ``priority`` None, change nothing."""
    if priority is None:
        yield
        return
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def prepare_child(priority: int | None = None) -> None:
    """Let a helper process die with its parent, ignore Ctrl-C, use precise timers, and run at SCHED_FIFO ``priority``.

    To be called first. The timer slack, by which the kernel may delay a wake-up, becomes 1 ns instead of 50 µs.
    """
    die_with(os.getppid())
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if priority is not None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


class Helpers:
    """Starts the helper processes, and ends them in the opposite order.

    events           directory of their logs
    in_virtual_time  whether time is virtual: then no packet is late, however many links are in use
    """

    def __init__(
        self, links: Sequence[LinkSpec], table: DelayTable, events: Path, realtime: bool, in_virtual_time: bool = False
    ) -> None:
        self._links = links
        self._table = table
        self._events = events
        self._realtime = realtime
        self._in_virtual_time = in_virtual_time
        self.lans: list[str] = []  # names of the delays of LANs
        self._helpers: list[Helper] = []
        self._monitor = self._process(MONITOR)  # it imports what it needs while the network is made
        self._probes = False  # whether the monitor records what links carry before training
        self._timed: list[Helper] = []  # those that wait for the start of training

    def _process(self, module: str) -> Helper:
        return Helper(module, [self._table.descriptor])

    def start_delay_line(self, settings: dict[str, Any]) -> None:
        self._begin(self._process(DELAY_LINE), settings)

    def start_timed(self, module: str, settings: dict[str, Any]) -> None:
        """Start a process that prepares, and waits for ``begin``."""
        helper = self._process(module)
        self._timed.append(helper)
        self._start(helper, settings)

    def start_probes(self, epoch_s: float) -> None:
        """Let the monitor record the traffic of links until ``start_monitor``, and wait until it records.

        epoch_s  the run's start on CLOCK_MONOTONIC
        """
        self._probes = True
        self._set_monitor(epoch_s)

    def start_monitor(self, epoch_s: float) -> None:
        """Start the monitor and wait until it runs. ``epoch_s``: as ``start_probes`` has it."""
        if self._probes:
            self._monitor.send({})
            self._monitor.wait_ready()
        else:
            self._set_monitor(epoch_s)

    def _set_monitor(self, epoch_s: float) -> None:
        settings = {"epoch_s": epoch_s, "in_virtual_time": self._in_virtual_time, "lans": self.lans}
        self._start(self._monitor, {**settings, "probes": self._probes})
        self._monitor.wait_ready()

    def _start(self, helper: Helper, settings: dict[str, Any]) -> None:
        common = {
            "links": [link.to_dict() for link in self._links],
            "table": self._table.descriptor,
            "rows": self._table.rows,
            "events": str(self._events.resolve()),
            "writer": WRITERS[helper.module],
            "realtime": self._realtime,
        }
        self._begin(helper, common | settings)

    def _begin(self, helper: Helper, settings: dict[str, Any]) -> None:
        self._helpers.append(helper)
        helper.send(settings)

    def wait_ready(self) -> None:
        """Wait until all started helpers are ready. Raise ``RunFailed`` if one has ended."""
        for helper in self._helpers:
            helper.wait_ready()

    def begin(self, epoch_s: float, training_start_s: float, trained_s: float = 0.0) -> None:
        """Tell replay and background traffic when training starts. Their own time is then ``trained_s``.

        trained_s  seconds of training before the checkpoint, in a run that resumes
        """
        for helper in self._timed:
            helper.send({"epoch_s": epoch_s, "start_s": training_start_s - trained_s, "trained_s": trained_s})

    def check(self) -> None:
        """Raise ``RunFailed`` if a helper has ended, as links then no longer follow the plan."""
        for helper in self._helpers:
            code = helper.child.wait(0.0)
            if code is not None and not (helper.module == REPLAY and code == 0):  # a trace may be at its end
                raise RunFailed(
                    f"{helper.module} ended with {code} during the run; the links no longer follow the plan"
                )

    def finish(self) -> None:
        """End all helpers except delay lines; they write their last samples."""
        for helper in [helper for helper in self._helpers if helper.module != DELAY_LINE]:
            helper.stop()
            self._helpers.remove(helper)
        self._timed.clear()

    def stop(self) -> None:
        for helper in reversed(self._helpers):
            helper.stop()
        self._monitor.stop()  # it is among the helpers only once it has its settings
        self._helpers.clear()
        self._timed.clear()
