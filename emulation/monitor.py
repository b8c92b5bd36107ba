"""Samples every WAN link, the load of the machine and the lateness of the delay line while training runs.

Before training, it records the traffic of links while they are measured (``probe`` events), for display only: no result
uses these events.

Runs as a separate process. It reports limits of a run's fidelity (late packets, packets lost between kernel and delay
line, a saturated machine) as ``warning`` events, which the fidelity report uses.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from emulation.helpers import prepare_child
from emulation.shaping.base import LinkCounters, Shaper
from emulation.shaping.link_spec import LinkSpec
from emulation.shaping.table import DelayField, DelayTable
from testbed.results.events import EventLog

SAMPLE_S = 0.5
PROBE_S = 0.1  # between samples before training: echoes cross a link for a fraction of a second
QUEUE_SAMPLES = 20  # readings of the queues per sample, to estimate how long a link was busy
LATE_WARNING_S = 0.02
BUSY_WARNING = 0.95  # of all cores, for BUSY_SAMPLES seconds on end
BUSY_SAMPLES = 5
STEAL_WARNING = 0.1


def core_shares() -> tuple[float, float]:
    """Return the shares of time since the last call in which the cores were busy, and in which other tenants had them.

    Only the cores that this process may use count: a container or ``taskset`` may leave it few of many.
    """
    cores = psutil.cpu_times_percent(percpu=True)
    own = [cores[number] for number in os.sched_getaffinity(0) if number < len(cores)] or cores
    steal = sum(core.steal for core in own) / len(own) / 100
    idle = sum(core.idle + core.iowait for core in own) / len(own) / 100
    return max(0.0, 1 - idle - steal), steal


class BusyTime:
    """How long each link surely had packets queued, and how much it sent then. Bursts may be shorter than a sample."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[str, LinkCounters]] | None = None
        self._busy: dict[str, list[float]] = {}

    def update(self, now_s: float, links: dict[str, LinkCounters]) -> None:
        """Take a reading. A link was busy since the last reading if its queue then was long enough to last until now.

        A queue at both readings would not prove this: it may have been empty between two short bursts.
        """
        if self._before is not None:
            before_s, before = self._before
            for name, link in links.items():
                earlier = before[name]
                duration_s = now_s - before_s
                rate_bps = link.configured_bps
                if earlier.configured_bps == rate_bps and earlier.backlog_bytes * 8 >= rate_bps * duration_s > 0:
                    total = self._busy.setdefault(name, [0.0, 0.0, 0.0])
                    sent_bytes = link.sent_bytes - earlier.sent_bytes
                    for index, amount in enumerate((duration_s, sent_bytes, rate_bps * duration_s / 8)):
                        total[index] += amount
        self._before = now_s, links

    def so_far(self, name: str) -> dict[str, float]:
        """Return the seconds, the bytes sent, and the bytes that the configured rate allowed, all cumulative."""
        busy_s, sent, possible = self._busy.get(name, (0.0, 0.0, 0.0))
        return {"busy_s": round(busy_s, 3), "busy_bytes": int(sent), "busy_possible_bytes": int(possible)}


class Monitor:
    """Turns samples into events. Counters start at its construction, so measurements before it are left out.

    has_ceiling  whether this machine's processor limits what all links together can carry
    lans         names of the delays of LANs, whose rows of the table follow those of the links
    """

    def __init__(
        self,
        shaper: Shaper,
        table: DelayTable,
        log: EventLog,
        epoch_s: float,
        has_ceiling: bool = True,
        lans: Sequence[str] = (),
    ) -> None:
        self._shaper = shaper
        self._log = log
        self._epoch_s = epoch_s
        self._has_ceiling = has_ceiling
        self._base = shaper.counters()
        self._highest_bps = {name: link.configured_bps for name, link in self._base.items()}  # since the last sample
        self._total = (time.monotonic() - epoch_s, 8 * sum(each.sent_bytes for each in self._base.values()))
        self._busy = 0
        self._warned = set[str]()
        core_shares()
        rows = {spec.name: spec.row for spec in shaper.specs.values()}
        rows |= {name: row for row, name in enumerate(lans, len(rows))}
        self._lines = {name: table.row(row) for name, row in rows.items()}
        self._overflows = {name: cells[DelayField.OVERFLOWS] for name, cells in self._lines.items()}
        self._packets = {name: cells[DelayField.PACKETS] for name, cells in self._lines.items()}
        self._busy_time = BusyTime()
        for cells in self._lines.values():
            cells[DelayField.LATE_MAX_NS] = cells[DelayField.LATE_COUNT] = 0

    def links(self) -> None:
        """One ``link`` event for each link, and warnings about the delay line."""
        now = time.monotonic() - self._epoch_s
        sample = self.queues(now)
        if self._has_ceiling:
            self._check_ceiling(sample, now)
        for name, counters in sample.items():
            base = self._base[name]
            rates = {"highest_bps": self._highest_bps[name], "configured_bps": counters.configured_bps}
            self._log.write("link", now, link=name, **rates, **_since(base, counters), **self._busy_time.so_far(name))
            self._highest_bps[name] = counters.configured_bps
        for name, cells in self._lines.items():
            late_s = cells[DelayField.LATE_MAX_NS] / 1e9
            if late_s > LATE_WARNING_S:
                self._warn(name, now, f"{name}: packets were delayed up to {late_s * 1e3:.0f} ms too long")
            if cells[DelayField.OVERFLOWS] > self._overflows[name]:
                self._warn(f"{name} lost", now, f"{name}: the delay line could not take all packets")
        self._log.flush()

    def queues(self, now: float) -> dict[str, LinkCounters]:
        """Read the queues and rates only: a trace may change a rate several times between two samples."""
        sample = self._shaper.counters()
        self._busy_time.update(now, sample)
        for name, link in sample.items():
            self._highest_bps[name] = max(self._highest_bps[name], link.configured_bps)
        return sample

    def machine(self) -> None:
        """One ``machine`` event."""
        busy, steal = core_shares()
        now = time.monotonic() - self._epoch_s
        self._log.write("machine", now, busy_share=round(busy, 4), steal_share=round(steal, 4))
        self._busy = self._busy + 1 if busy > BUSY_WARNING else 0
        if self._busy >= BUSY_SAMPLES:
            self._warn("busy", now, f"all cores were busy for {BUSY_SAMPLES} s: delays and rates may be late")
        if steal > STEAL_WARNING:
            self._warn("steal", now, f"other tenants of this machine took {steal:.0%} of its cores for a second")

    def close(self) -> None:
        """Write a last sample and the final warnings."""
        self.links()
        for name, cells in self._lines.items():
            late = cells[DelayField.LATE_COUNT]
            packets = max(1, cells[DelayField.PACKETS] - self._packets[name])
            if late > 0.01 * packets:
                message = f"{name}: {late / packets:.1%} of the packets were delayed over 1 ms too long"
                self._warn(f"{name} share", time.monotonic() - self._epoch_s, message)
        self._log.close()

    def _check_ceiling(self, sample: dict[str, LinkCounters], now: float) -> None:
        total = 8 * sum(counters.sent_bytes for counters in sample.values())
        rate = (total - self._total[1]) / max(now - self._total[0], 1e-3)
        self._total = (now, total)
        ceiling = self._shaper.delays.ceiling_bps_per_core * len(os.sched_getaffinity(0))
        if rate > ceiling:
            what = f"all links together carried {rate / 1e6:.0f} Mbit/s, above the {ceiling / 1e6:.0f} Mbit/s"
            self._warn("ceiling", now, f"{what} up to which delays are accurate on this machine")

    def _warn(self, about: str, now: float, message: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            self._log.write("warning", now, message=message)


def _since(base: LinkCounters, now: LinkCounters) -> dict[str, int]:
    return {
        "bytes": now.sent_bytes - base.sent_bytes,
        "dropped_packets": now.dropped_packets - base.dropped_packets + now.lost_packets - base.lost_packets,
        "backlog_bytes": now.backlog_bytes,
    }


class Probes:
    """Turns samples before training into ``probe`` events, with counters since the links were made.

    A link that carries nothing is left out until it does: of many links, most wait to be measured.
    """

    def __init__(self, shaper: Shaper, log: EventLog, epoch_s: float) -> None:
        self._shaper = shaper
        self._log = log
        self._epoch_s = epoch_s
        self._told: dict[str, LinkCounters] = {}
        self._same_t: dict[str, float] = {}  # when a link was last found as it has been told

    def sample(self) -> None:
        now = time.monotonic() - self._epoch_s
        for name, link in self._shaper.counters().items():
            if self._told.get(name) == link:
                self._same_t[name] = now
                continue
            if name in self._same_t:  # what it carries now, it has carried since then
                self._write(self._same_t.pop(name), name, self._told[name])
            self._write(now, name, link)
            self._told[name] = link
        self._log.flush()

    def _write(self, t: float, name: str, link: LinkCounters) -> None:
        self._log.write(
            "probe",
            t,
            link=name,
            configured_bps=link.configured_bps,
            bytes=link.sent_bytes,
            dropped_packets=link.dropped_packets + link.lost_packets,
            backlog_bytes=link.backlog_bytes,
        )


def _probe_until_told(probes: Probes) -> None:
    """Record what links carry until a line on standard input says that training is about to begin."""
    probes.sample()
    print("ready", flush=True)  # noqa: T201 - what the parent sends over the links from now on is seen
    while not select.select([sys.stdin], [], [], PROBE_S)[0]:
        probes.sample()
    sys.stdin.readline()
    probes.sample()


def main() -> None:
    """Sample until SIGTERM."""
    given = json.loads(sys.stdin.readline())
    prepare_child()
    table = DelayTable(given["table"], given["rows"])
    shaper = Shaper([LinkSpec.from_dict(link) for link in given["links"]], table)
    log = EventLog(Path(given["events"]), given["writer"])
    epoch_s = float(given["epoch_s"])
    if given["probes"]:
        _probe_until_told(Probes(shaper, log, epoch_s))
    monitor = Monitor(shaper, table, log, epoch_s, not given["in_virtual_time"], given["lans"])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print("ready", flush=True)  # noqa: T201 - the parent waits for this word
    begin = time.monotonic()
    samples = 0
    ended = None
    while ended is None:
        if time.monotonic() >= begin + samples * SAMPLE_S:
            monitor.links()
            if samples and samples % 2 == 0:  # not at once: the kernel's counters of load are too coarse
                monitor.machine()
            samples += 1
        else:
            monitor.queues(time.monotonic() - epoch_s)
        ended = signal.sigtimedwait({signal.SIGTERM}, SAMPLE_S / QUEUE_SAMPLES)
    monitor.close()


if __name__ == "__main__":
    main()
