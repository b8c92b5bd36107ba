"""Connections between simulated nodes, made when a node first sends to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from testbed.best_effort import pace_bps
from testbed.plan.model import NodePlan, Plan
from testbed.simulation.best_effort import BestEffort, FlowCarrier, Item
from testbed.simulation.clock import Clock
from testbed.simulation.failure_notifier import FailureNotifier
from testbed.simulation.flows.connection import SINGLE, ConnectionGroup, FlowConnection
from testbed.simulation.flows.links import FlowLinks, Place
from testbed.simulation.flows.network import FlowNetwork
from testbed.simulation.link_driver import LinkDriver
from testbed.simulation.link_monitor import LinkLog, LinkMonitor, LinkUser
from testbed.simulation.machine.engine import Engine
from testbed.simulation.outbox import Peer
from testbed.simulation.packets.network import PacketCarrier, PacketNetwork
from testbed.simulation.paths import PathTable, SitePath
from testbed.simulation.predicted_transfer import GroupConnections, ServerPath
from testbed.simulation.send_queue import SimulatedConnection
from testbed.simulation.tcp_model import TcpModel
from testbed.simulation.world import SimulatedWorld

_LARGE_NODES = 300  # with so many nodes, loading the compiled network (0.7 s) pays


class SimulatedNetwork:
    """The network of a Plan: paths, links with their driver and monitor, and the connections between nodes.

    The nodes may belong to several jobs; see ``testbed.plan.jobs``.

    compiled  see ``SimulationOptions``
    folded    the workers that each folded node represents
    log       receives samples and changes of links
    packets   the packet network, or ``None`` if connections are flows
    flows     the flow network with its connections, or ``None`` if there are packets
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        tcp: TcpModel,
        paths: PathTable,
        compiled: bool | None,
        folded: Mapping[str, tuple[NodePlan, ...]],
        log: LinkLog,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tcp = tcp
        self.training_since_s: float | None = None  # when the first job's training began
        self.paths = paths
        self.packets: PacketNetwork | None = None
        self.flows: FlowPeers | None = None
        user: LinkUser
        if plan.simulation.by_packet and tcp.slow_start:
            user = self.packets = PacketNetwork(clock, plan, paths, tcp, compiled)
        else:
            self.flows = FlowPeers(plan, clock, tcp, paths, compiled, folded)
            user = self.flows.links
        self.monitor = LinkMonitor(clock, paths.links, user, log)
        self._driver = LinkDriver(clock, paths, user, self.monitor, log)

    @property
    def engine(self) -> Engine:
        """The engine that executes the network's events."""
        if self.packets is not None:
            return self.packets.engine
        assert self.flows is not None, "a network has packets or flows"
        return self.flows.network

    @property
    def active(self) -> bool:
        """Whether any connection has something to send or under way."""
        if self.packets is not None:
            return self.packets.active
        return self.flows is not None and self.flows.network.active > 0

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way and only background events are scheduled. Never true for packets."""
        return self.flows is not None and self.flows.network.at_rest

    def begin_training(self, since_s: float) -> None:
        """Begin traces and background traffic, with ``since_s`` as their time 0. Only the first call has an effect."""
        if self.training_since_s is not None:
            return
        self.training_since_s = since_s
        if self.flows is not None:
            self.flows.links.forget_bursts()
        self._driver.start_traces(since_s)
        self._driver.start_background(self._plan, since_s)

    def doubts(self, cure: str) -> list[str]:
        """Return where the network model may be off. There are no doubts about packets."""
        return self.flows.links.doubts(self._tcp, cure) if self.flows is not None else []

    def connect(self, source: SimulatedWorld, target: SimulatedWorld, notifier: FailureNotifier) -> Peer:
        """Connect two nodes, as ``source`` sees it."""
        path, links = self.paths.between(source.host, target.host)
        if self.flows is not None and (source.state.group is not None or target.state.group is not None):
            return self.flows.connect_folded(source, target, path)
        deliver = notifier.deliverer(source, target)
        has_channels = self._plan.transport.best_effort_channels > 0
        connection: SimulatedConnection
        carry: Callable[[Item, int], None] | None = None
        if self.packets is not None:
            connection = self.packets.connect(source.host, target.host, deliver)
            if has_channels:
                packet_path = self.packets.path(source.host, target.host)
                carry = PacketCarrier(self.packets.engine, packet_path, target.inbox.deliver).carry
        else:
            assert self.flows is not None, "a network has packets or flows"
            connection = flow = self.flows.connect(source.host, target.host, path, links, deliver)
            if has_channels:
                carry = self.flows.carrier(source, target, path, flow).carry
        best_effort = None
        if carry is not None:
            pace = pace_bps(self._plan, source.host, target.host)
            best_effort = BestEffort(self._clock, connection, pace, carry)
        return Peer(connection, target.inbox, path.tier, best_effort)


class FlowPeers:
    """The flow network of a Plan, and the connections over it.

    links  the connections over each WAN link
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        tcp: TcpModel,
        paths: PathTable,
        compiled: bool | None,
        folded: Mapping[str, tuple[NodePlan, ...]],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._tcp = tcp
        self._paths = paths
        self._folded = folded
        self.network = FlowNetwork(clock, paths.capacities(), compiled, len(plan.nodes) >= _LARGE_NODES)
        self.links = FlowLinks(clock, self.network, paths)
        # the ports into which worker groups send inside a LAN, by link number
        ways = (paths.between(name, parent) for name in folded for parent in plan.node(name).parents)
        ports = sorted({links[-1] for path, links in ways if path.tier == "lan"})
        self._ports = {port: self.network.reservable(port) for port in ports}
        self._streams = ""

    def begin_anew(self, now_s: float) -> None:
        """Drop all flow classes, before all connections are made anew. Nothing may be under way.

        From now on, losses of datagrams come from new random streams.
        """
        self._streams = f"@{now_s}"
        self.links.begin_anew()
        self.network.begin_anew()

    def connect(
        self, source: str, target: str, path: SitePath, links: tuple[int, ...], deliver: Callable[..., None]
    ) -> FlowConnection:
        """Connect two nodes over these links."""
        return self._connection(path, links, deliver, (source, target, 0))

    def carrier(
        self, source: SimulatedWorld, target: SimulatedWorld, path: SitePath, beside: FlowConnection
    ) -> FlowCarrier:
        """Return a carrier of best-effort messages beside a connection."""
        random = Random(f"{self._plan.seed}/{source.host}>{target.host}{self._streams}")
        return FlowCarrier(
            self._clock, self.network, path, beside.flow, self._tcp.goodput, random, target.inbox.deliver
        )

    def connect_folded(self, source: SimulatedWorld, target: SimulatedWorld, path: SitePath) -> Peer:
        """Connect two nodes of which one is folded. Workers that send the same at the same time share a connection."""
        links, private_capacity = self._paths.shared(source.host, target.host, self._folded)
        deliver = target.inbox.deliver
        group = source.state.group
        if group is None:
            members = ConnectionGroup(target.state.copies, private_capacity)
            place = (source.host, target.host, 0)
            return Peer(self._connection(path, links, deliver, place, members), target.inbox, path.tier)
        # each worker sends to its server when its own steps are done; to other nodes, all send at the same time
        simultaneous = target.host not in self._plan.node(source.host).parents
        flow_groups = group.flow_groups(simultaneous)
        connections = [
            self._connection(
                path,
                links,
                deliver if each.copies == 1 else partial(deliver, copies=each.copies),
                (source.host, target.host, number),
                ConnectionGroup(each.copies, private_capacity),
            )
            for number, each in enumerate(flow_groups)
        ]
        server_path = ServerPath(self.network, target.inbox, self._ports.get(links[0]), path.delay_s)
        groups = GroupConnections(self._clock, group, flow_groups, connections, server_path)
        return Peer(connections[0], target.inbox, path.tier, None, groups)

    def _connection(
        self,
        path: SitePath,
        links: tuple[int, ...],
        deliver: Callable[..., None],
        place: Place,
        group: ConnectionGroup = SINGLE,
    ) -> FlowConnection:
        connection = FlowConnection(self._clock, self.network, path, links, self._tcp, deliver, group)
        self.links.add(connection, path, links, place)
        return connection
