"""Connections between simulated nodes, made when a node first sends to another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from testbed.best_effort import pace_bps
from testbed.plan.model import NodePlan, Plan
from testbed.results.events import EventLog
from testbed.simulation.best_effort import BestEffort, FlowCarrier, Item
from testbed.simulation.clock import Clock
from testbed.simulation.drop_tail import DropTailQueue
from testbed.simulation.failure_notifier import FailureNotifier
from testbed.simulation.flows import FlowNetwork
from testbed.simulation.link_monitor import LinkMonitor, Place
from testbed.simulation.outbox import Peer
from testbed.simulation.packets.connection import PacketConnection
from testbed.simulation.packets.network import PacketCarrier, PacketNetwork
from testbed.simulation.paths import PathTable, SitePath
from testbed.simulation.predicted_transfer import GroupConnections, ServerPath
from testbed.simulation.tcp import SINGLE, ConnectionGroup, TcpConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.world import SimulatedWorld

_LARGE_NODES = 300  # from so many on, loading the compiled solver (0.6 s) pays
_LONG_WORK = 1_000_000  # solves times flows: after so much work in Python, it pays in a smaller run as well


class SimulatedNetwork:
    """The network of a Plan: flows, paths, the state of links, and how two nodes are connected.

    compiled  see ``SimulationOptions``
    folded    the workers that each folded node represents
    packets   connections are over these, if not None, and not over flows
    """

    def __init__(
        self, plan: Plan, clock: Clock, tcp: TcpModel, paths: PathTable, compiled: bool | None,
        folded: Mapping[str, tuple[NodePlan, ...]], log: EventLog,
    ) -> None:  # fmt: skip
        self._plan, self._clock, self._tcp, self._folded = plan, clock, tcp, folded
        self.paths = paths
        at_once = len(plan.nodes) >= _LARGE_NODES if compiled is None else compiled
        compile_after = _LONG_WORK if compiled is None else math.inf
        self.flows = FlowNetwork(clock, paths.capacities(), paths.longest, at_once, compile_after)
        self.packets: PacketNetwork | None = None
        if plan.simulation.predicts_emulation and tcp.slow_start:
            self.packets = PacketNetwork(clock, plan, paths, tcp)
        elif tcp.loss_based and tcp.slow_start:
            for link in paths.links:
                link.drop_tail = DropTailQueue(clock)
        self.monitor = LinkMonitor(clock, self.flows, paths, log, self.packets)
        # those into which worker groups send inside a LAN, by link
        ways = (paths.between(name, parent) for name in folded for parent in plan.node(name).parents)
        ports = sorted({links[-1] for path, links in ways if path.tier == "lan"})
        self._ports = {port: self.flows.reservable(port) for port in ports}
        self._streams = ""

    @property
    def active(self) -> bool:
        """Whether anything is under way."""
        return bool(self.flows.active) or (self.packets is not None and self.packets.active)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way, and no event is scheduled but background events."""
        return self.flows.at_rest and not self.active

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
        connection: TcpConnection | PacketConnection
        if self.packets is not None:
            connection = self.packets.connect(source.node, target.node, deliver)
        else:
            connection = self._connection(path, links, deliver, (source.node, target.node, 0))
        best_effort = None
        if self._plan.transport.best_effort_channels:
            pace = pace_bps(self._plan, source.node, target.node)
            best_effort = BestEffort(self._clock, connection, pace, self._carry(source, target, path, connection))
        return Peer(connection, target.inbox, path.tier, best_effort)

    def _carry(
        self, source: SimulatedWorld, target: SimulatedWorld, path: SitePath, beside: TcpConnection | PacketConnection
    ) -> Callable[[Item, int], None]:
        """Return what takes best-effort messages to the other node."""
        deliver = target.inbox.deliver
        if isinstance(beside, TcpConnection):
            random = Random(f"{self._plan.seed}/{source.node}>{target.node}{self._streams}")
            return FlowCarrier(self._clock, self.flows, path, beside.flow, self._tcp.goodput, random, deliver).carry
        assert self.packets is not None, beside
        return PacketCarrier(self.packets.path(source.node, target.node), deliver).carry

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
        self.monitor.add(connection, path, links, place)
        return connection
