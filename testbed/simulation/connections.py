"""Connections between simulated nodes, made when a node first sends to another."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from testbed.best_effort import pace_bps
from testbed.plan.model import NodePlan, Plan
from testbed.results.events import EventLog
from testbed.simulation.best_effort import BestEffort, FlowCarrier, FlowSettings
from testbed.simulation.clock import Clock
from testbed.simulation.drop_tail import DropTailQueue
from testbed.simulation.failure_notifier import FailureNotifier
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.link_monitor import LinkMonitor, Place
from testbed.simulation.outbox import Peer
from testbed.simulation.packets.datagrams import PacketCarrier
from testbed.simulation.packets.network import PacketNetwork
from testbed.simulation.paths import PathTable, SitePath
from testbed.simulation.predicted_transfer import GroupConnections, ServerPath, reservable_ports
from testbed.simulation.tcp import SINGLE, ConnectionGroup, TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.world import SimulatedWorld

_LARGE_NODES = 300  # from so many on, numba's start-up time (some seconds) pays
_LONG_WORK = 1_000_000  # solves times flows: after so much work in Python, it pays in a smaller run as well


class SimulatedNetwork:
    """The network of a Plan: flows, paths, the state of links, and how two nodes are connected.

    ``folded``: the workers that each folded node represents. ``compiled``: see ``SimulationOptions``.
    """

    def __init__(
        self, plan: Plan, clock: Clock, tcp: TcpModel, node_bytes_per_s: float, compiled: bool | None,
        folded: Mapping[str, tuple[NodePlan, ...]],
    ) -> None:  # fmt: skip
        self._plan, self._clock, self._tcp, self._folded = plan, clock, tcp, folded
        self.paths = PathTable(plan, tcp.goodput, node_bytes_per_s)
        numba = importlib.util.find_spec("numba") is not None
        at_once = numba and len(plan.nodes) >= _LARGE_NODES if compiled is None else compiled
        compile_after = _LONG_WORK if compiled is None and numba else math.inf
        self.flows = FlowNetwork(clock, self.paths.capacities(), self.paths.longest, at_once, compile_after)
        self._packets: PacketNetwork | None = None
        if plan.simulation.predicts_emulation and tcp.slow_start:
            self._packets = PacketNetwork(clock, plan, self.paths.links, tcp)
        elif tcp.loss_based and tcp.slow_start:
            for link in self.paths.links:
                link.drop_tail = DropTailQueue(clock)
        self._ports = reservable_ports(folded, plan, self.paths, self.flows)
        self._streams = ""

    def monitor(self, log: EventLog) -> LinkMonitor:
        """Return the monitor of the WAN links; to be called once, before any connection is made."""
        self._monitor = LinkMonitor(self._clock, self.flows, self.paths, log, self._packets)
        return self._monitor

    @property
    def active(self) -> bool:
        """Whether anything is under way."""
        return bool(self.flows.active) or (self._packets is not None and self._packets.active)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way, and no event is scheduled but background events."""
        return self.flows.at_rest and not self.active

    @property
    def has_packets(self) -> bool:
        """Whether connections are over packets, not over flows."""
        return self._packets is not None

    def begin_anew(self, now_s: float) -> None:
        """Nothing is under way, and all connections are made anew: keep no flow classes of those before.

        Their datagrams' losses are drawn from other random streams.
        """
        self._streams = f"@{now_s}"
        self.flows.begin_anew()

    def connect(self, source: SimulatedWorld, target: SimulatedWorld, notifier: FailureNotifier) -> Peer:
        """Connect two nodes, as ``source`` sees it."""
        path, links = self.paths.between(source.node, target.node)
        if source.state.group is not None or target.state.group is not None:
            return self._connect_folded(source, target, path)
        deliver = notifier.deliverer(source, target)
        if self._packets is not None:
            return self._connect_packets(self._packets, source, target, path.tier, deliver)
        connection = self._connection(path, links, deliver, (source.node, target.node, 0))
        best_effort = None
        if self._plan.transport.best_effort_channels:
            random = Random(f"{self._plan.seed}/{source.node}>{target.node}{self._streams}")
            settings = FlowSettings(self._tcp.goodput, connection.weight, random, self._monitor.add_flow)
            carrier = FlowCarrier(self._clock, self.flows, path, links, settings, target.inbox.deliver)
            best_effort = BestEffort(self._clock, connection, self._pace_bps(source, target), carrier)
        return Peer(connection, target.inbox, path.tier, best_effort)

    def _connect_packets(
        self, packets: PacketNetwork, source: SimulatedWorld, target: SimulatedWorld, tier: str,
        deliver: Callable[..., None],
    ) -> Peer:  # fmt: skip
        connection, path = packets.connect(source.node, target.node, self.paths, deliver)
        best_effort = None
        if self._plan.transport.best_effort_channels:
            carrier = PacketCarrier(path, target.inbox.deliver)
            best_effort = BestEffort(self._clock, connection, self._pace_bps(source, target), carrier)
        return Peer(connection, target.inbox, tier, best_effort)

    def _pace_bps(self, source: SimulatedWorld, target: SimulatedWorld) -> float:
        return pace_bps(self._plan, source.node, target.node)

    def _connect_folded(self, source: SimulatedWorld, target: SimulatedWorld, path: SitePath) -> Peer:
        """As ``connect``, where one end represents several nodes: one connection for those that send the same."""
        links, private_capacity = self.paths.shared(source.node, target.node, self._folded)
        deliver, group = target.inbox.deliver, source.state.group
        if group is None:
            members = ConnectionGroup(target.state.copies, private_capacity)
            place = (source.node, target.node, 0)
            return Peer(self._connection(path, links, deliver, place, members), target.inbox, path.tier)
        # to its server each worker sends when its own steps are done; to others, all send at the same time
        simultaneous = target.node not in self._plan.node(source.node).parents
        flow_groups = group.flow_groups(simultaneous)
        connections = [
            self._connection(
                path, links, deliver if each.copies == 1 else partial(deliver, copies=each.copies),
                (source.node, target.node, number), ConnectionGroup(each.copies, private_capacity),
            )
            for number, each in enumerate(flow_groups)
        ]  # fmt: skip
        server_path = ServerPath(self.flows, target.inbox, self._ports.get(links[0]), path.delay_s)
        groups = GroupConnections(self._clock, group, flow_groups, connections, server_path)
        return Peer(connections[0], target.inbox, path.tier, None, groups)

    def _connection(
        self, path: SitePath, links: tuple[int, ...], deliver: Callable[..., None], place: Place,
        group: ConnectionGroup = SINGLE,
    ) -> TcpConnection:  # fmt: skip
        connection = TcpConnection(self._clock, self.flows, path, links, self._tcp, deliver, group)
        self._monitor.add(connection, path, links, place)
        return connection
