"""The emulated network of one run: ``with Emulation(plan, capabilities, record) as network: …``.

Runs inside the sandbox (``emulation.sandbox``), in a process without threads (entering a network namespace moves one
thread only). Mininet keeps the hosts; interfaces, addresses, routes and queues come from the layout, in a few batches
of ``ip`` and ``tc``, in which every error counts. Rates and queue limits are read back and compared with the plan.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from emulation import namespaces
from emulation.commands import address_lines, cable_lines, delay_rules
from emulation.helpers import MEASURE_PRIORITY, REPLAY, TRAFFIC, Helpers, realtime
from emulation.layout import Layout, SwitchPort, lay_out
from emulation.measurement import Measurement, first_contact, judge, measure_rates, measure_rtts
from emulation.mininet_nodes import start_hosts
from emulation.namespaces import Commands, inside, offloads_off
from emulation.probe import Capabilities, module_cure
from emulation.replay import timelines_of
from emulation.sandbox import is_inside
from emulation.settings import apply_settings
from emulation.shaping.base import LinkCounters, Shaper
from emulation.shaping.delay_makers import DELAY_MAKERS
from emulation.shaping.install import (
    cut_bursts,
    delay_line_settings,
    delay_lines,
    lan_delay_lines,
    link_specs,
    netem_lines,
    rate_lines,
    refuse_unsupported,
)
from emulation.shaping.link_spec import DelayMethod, LinkSpec
from emulation.shaping.table import DelayField, DelayTable
from emulation.traffic import flow_settings
from testbed.errors import CapabilityError
from testbed.plan.model import OFFLOADED_LAN_BPS, Plan
from testbed.processes.child import Child, spawn

Record = Callable[..., None]
_AT_ONCE = 12  # commands that make the network: most of a command's time is its start


def no_record(kind: str, **fields: Any) -> None:
    """A ``Record`` that keeps nothing."""


class Emulation:
    """The plan's network: up on entering the context, down on leaving it.

    ``record(kind, **fields)`` writes one event of the host. ``events`` is the directory where the replay and the
    monitor, which are processes of their own, write their logs (``network-replay``, ``network-monitor``). ``epoch_s``:
    the run's start on CLOCK_MONOTONIC, if the monitor is to record what links carry from the moment they are up.
    """

    def __init__(
        self,
        plan: Plan,
        capabilities: Capabilities,
        record: Record,
        events: Path | None = None,
        epoch_s: float | None = None,
    ) -> None:
        self.plan = plan
        self.capabilities = capabilities
        self._record = record
        self.events = events or Path("/run/testbed/events")
        self._epoch_s = epoch_s
        self.method: DelayMethod = capabilities.delay_method()
        self._delays = DELAY_MAKERS[self.method]
        refuse_unsupported(plan, self._delays)
        self.layout: Layout = lay_out(plan, wires=self._delays.needs_wires)
        self._at_once = 1 if plan.is_exact else _AT_ONCE  # in virtual time, starting them together saves nothing
        self.bring_up_s = 0.0
        self._helpers: Helpers | None = None
        self._hosts: list[Any] = []  # Mininet's
        self._pids: dict[str, int] = {}
        self._table: DelayTable | None = None
        self.links: tuple[LinkSpec, ...] = ()
        self.shaper: Shaper | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        begin = time.monotonic()
        if not is_inside():
            raise CapabilityError("an emulated network is only made inside its sandbox; see emulation.sandbox")
        try:
            self._bring_up()
            first_contact(self)
        except BaseException:
            self.stop()
            raise
        self.bring_up_s = time.monotonic() - begin
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End helpers and nodes, and with them namespaces, interfaces and queues. May be called twice."""
        if self._helpers is not None:
            self._helpers.stop()
            self._helpers = None
        if self.shaper is not None:
            self.shaper.close()
            self.shaper = None
        for host in self._hosts:
            host.terminate()
        self._hosts = []
        if self._table is not None:
            self._table.close()
            self._table = None

    def _bring_up(self) -> None:
        self._hosts = start_hosts(self.layout.vertices, self._at_once)
        self._pids = {host.name: host.pid for host in self._hosts}
        self.links = link_specs(self.layout, self.plan, self.namespace_path, self.method)
        self._table = table = DelayTable.create(len(self.links) + len(self.layout.lan_delays))
        for row, lan in enumerate(self.layout.lan_delays, len(self.links)):
            table.row(row)[DelayField.DELAY_NS] = round(lan.delay_s * 1e9)
        with Commands() as commands:
            commands.batch("ip", cable_lines(self.layout, self._pids))
        self._helpers = helpers = Helpers(
            self.links, table, self.events, self.capabilities.realtime, self.plan.is_exact
        )
        helpers.lans = [f"LAN to {lan.port.vertex}" for lan in self.layout.lan_delays]
        self._start_helpers(helpers, table)
        with Commands(self._at_once) as commands:
            for vertex in self.layout.vertices:
                with inside(self.namespace_path(vertex)):
                    self._configure(vertex, commands)
        self.shaper = Shaper(self.links, table)
        if flows := flow_settings(self.plan, self.layout, self.namespace_path):
            helpers.start_timed(TRAFFIC, {"flows": flows})
        helpers.wait_ready()
        self.shaper.apply_plan()
        self.shaper.verify(self.plan.transport.best_effort_channels)
        for warning in cut_bursts(self.plan, self._delays):
            self._record("warning", message=warning)
        if self._epoch_s is not None:
            helpers.start_probes(self._epoch_s)

    def _start_helpers(self, helpers: Helpers, table: DelayTable) -> None:
        """Processes that can start while the namespaces are configured."""
        if self._delays.is_process:
            lines = [*delay_lines(self.links), *lan_delay_lines(self.layout, self.namespace_path, len(self.links))]
            for setting in delay_line_settings(lines, table, self.capabilities.realtime, len(os.sched_getaffinity(0))):
                helpers.start_delay_line(setting)
        if timelines_of(self.links):
            helpers.start_timed(REPLAY, {})

    def _configure(self, vertex: str, commands: Commands) -> None:
        """Everything inside one namespace; the caller is in it."""
        options = apply_settings(self.plan.transport, self.plan.network, router=vertex not in self.layout.hosts)
        commands.batch("ip", address_lines(self.layout, vertex, options))
        for port in self.layout.ports_of(vertex):
            if not self._keeps_offloads(port):
                offloads_off(port.interface)
        channels = self.plan.transport.best_effort_channels
        if channels and not self.capabilities.u32:
            raise CapabilityError(f"best-effort channels need sch_htb's filter cls_u32. Cure: {module_cure('cls_u32')}")
        commands.batch(
            "tc", [*rate_lines(self.layout, vertex, channels), *netem_lines(self.links, self.layout, vertex)]
        )
        if self._delays.is_process:
            rules = delay_rules(self.layout, vertex)
            if rules:
                commands.start([self.capabilities.iptables_restore(), "--noflush"], rules)

    def _keeps_offloads(self, port: SwitchPort) -> bool:
        """Hosts and their switch ports keep segmentation offload on a fast LAN; the gateway's cable splits packets."""
        site = port.vertex.split("/")[0]
        if "/" not in port.vertex or port.interface == "p0":
            return False
        return self.plan.site(site).lan_rate_bps >= OFFLOADED_LAN_BPS

    # -- nodes --------------------------------------------------------------------------------------------------

    def namespace_path(self, node_name: str) -> str:
        """Return the network namespace of a node, gateway (its site's name), router or switch (``<site>/lan``)."""
        return f"/proc/{self._pids[node_name]}/ns/net"

    def enter(self, node_name: str) -> None:
        """Move the calling process (a forked child, single-threaded) into a node's network namespace, for good."""
        namespaces.enter(self.namespace_path(node_name))

    def exec(self, node_name: str, argv: Sequence[str], **popen: Any) -> Child:
        """Start a command on a node; the caller closes it. Keywords go to ``subprocess.Popen``."""
        with inside(self.namespace_path(node_name)):
            return spawn(list(argv), **popen)

    def address(self, node_name: str) -> str:
        return self.layout.hosts[node_name].ip

    def interface_bytes(self, node_name: str) -> tuple[int, int]:
        """Return the bytes that a node's network interface has sent and received since it was made."""
        port = self.layout.hosts[node_name]
        lines = Path(f"/proc/{self._pids[node_name]}/net/dev").read_text().splitlines()
        (counters,) = (line.split(":")[1].split() for line in lines if line.split(":")[0].strip() == port.interface)
        return int(counters[8]), int(counters[0])

    # -- measuring and running ------------------------------------------------------------------------------------

    def measure(self, budget_s: float = 3.0) -> list[Measurement]:
        """Measure round-trip times of all links and paths, and rates of as many links as fit into ``budget_s`` seconds.

        A value outside its tolerance is measured again; if it stays outside, the run gets a warning, and its fidelity
        is degraded. Each value is recorded as a ``measured`` event. Raise ``NetworkMismatch`` as ``judge`` does.
        """
        results = [*measure_rtts(self), *measure_rates(self, budget_s)]
        judge(results, self._record)
        return results

    def measuring(self) -> AbstractContextManager[None]:
        """Within the context, this process runs before ordinary ones, so that load does not distort measurements."""
        return realtime(MEASURE_PRIORITY if self.capabilities.realtime else None)

    @property
    def helpers(self) -> Helpers:
        """The network's helper processes: monitor, replay, background traffic."""
        assert self._helpers is not None, "the network is not up"
        return self._helpers

    def counters(self) -> dict[str, LinkCounters]:
        """Return the counters of every WAN link since it was made, by name."""
        assert self.shaper is not None, "the network is not up"
        return self.shaper.counters()
